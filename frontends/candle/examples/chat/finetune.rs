//! The fine-tune: low-rank corrections over the weights in blocks, trained to continue a text; the curve as a picture, the corrections as a
//! PEFT adapter.

use crate::curve;
use crate::options::Options;
use candle_core::{Device, Error, Result, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use indicatif::{ProgressBar, ProgressStyle};
use openmps_candle::{Llama, LoraConfig, log_softmax};
use std::path::Path;
use tokenizers::Tokenizer;

const RANK: usize = 8;
const ALPHA: f64 = 16.0;
const TARGETS: [&str; 4] = ["q_proj", "v_proj", "up_proj", "down_proj"];
/// Tokens of a text, and texts of a step.
const LENGTH: usize = 64;
const TEXTS: usize = 2;

/// Trains, and writes `adapter/` and `loss.svg` into the folder.
pub fn run(model: Llama, tokenizer: &Tokenizer, text: &Path, options: &Options) -> Result<()> {
    let read = std::fs::read_to_string(text).map_err(|error| Error::msg(format!("{}: {error}", text.display())))?;
    let tokens = tokenizer.encode(read, false).map_err(|error| Error::msg(error.to_string()))?;
    let tokens = tokens.get_ids();
    let length = LENGTH.min(tokens.len().saturating_sub(1));
    if length < 2 {
        candle_core::bail!("{} has {} tokens, too few to learn from", text.display(), tokens.len());
    }
    let model = model.with_lora(RANK, ALPHA, &TARGETS, options.seed)?;
    let variables = model.variables()?;
    let trained: usize = variables.iter().map(|variable| variable.elem_count()).sum();
    println!("{} tokens to learn from; {trained} numbers in the corrections", tokens.len());
    let parameters = ParamsAdamW { lr: 1e-3, weight_decay: 0.0, ..Default::default() };
    let mut optimizer = AdamW::new(variables, parameters)?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {elapsed}").map_err(Error::wrap)?;
    let progress = ProgressBar::new(options.steps as u64).with_style(style);
    let mut losses = Vec::with_capacity(options.steps);
    let places = tokens.len() - length;
    for step in 0..options.steps {
        // Places that wander through all of the text.
        let texts: Vec<&[u32]> =
            (0..TEXTS).map(|i| &tokens[(step * TEXTS + i) * 7919 % places..][..length + 1]).collect();
        let loss = loss(&model, &texts)?;
        optimizer.backward_step(&loss)?;
        losses.push(loss.to_scalar::<f32>()?);
        progress.set_message(format!("loss {:.3}", losses[step]));
        progress.inc(1);
    }
    progress.finish();
    std::fs::create_dir_all(&options.out)?;
    curve::draw("LoRA on a language model: cross entropy by step", &losses, &options.out.join("loss.svg"))
        .map_err(|error| Error::msg(error.to_string()))?;
    let config = LoraConfig::new(RANK, ALPHA, 0.0, &TARGETS);
    let adapter = model.adapter(config).map_err(Error::wrap)?;
    adapter.save(options.out.join("adapter")).map_err(Error::wrap)?;
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len().max(1) as f32;
    let part = losses.len().min(5);
    println!("loss at first {:.3}, at last {:.3}", mean(&losses[..part]), mean(&losses[losses.len() - part..]));
    println!("written: {0}/loss.svg, {0}/adapter (--adapter {0}/adapter talks with it)", options.out.display());
    Ok(())
}

/// What the model is surprised by, on average, in tokens 1 and on of each text.
fn loss(model: &Llama, texts: &[&[u32]]) -> Result<Tensor> {
    let seen: Vec<&[u32]> = texts.iter().map(|text| &text[..text.len() - 1]).collect();
    let next: Vec<u32> = texts.iter().flat_map(|text| text[1..].to_vec()).collect();
    let scores = model.scores(&seen)?.flatten_to(1)?;
    let next = Tensor::from_vec(next, (scores.dim(0)?, 1), &Device::Cpu)?;
    log_softmax(&scores, 1)?.gather(&next, 1)?.mean_all()?.neg()
}
