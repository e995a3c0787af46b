//! What the command line says.

use candle_core::{Error, Result};
use openmps_candle::Sampling;
use std::path::PathBuf;
use std::str::FromStr;

const USAGE: &str = "usage: chat --model FILE.gguf [--prompt TEXT] [--system TEXT] [--adapter FOLDER] [--tokens N] [--seed N] [--temperature X]
    [--top-k N] [--top-p X] [--min-p X] [--repetition-penalty X] | --finetune TEXT.txt [--steps N] [--out FOLDER]";

/// The command line.
pub struct Options {
    pub model: PathBuf,
    /// A single question; without one the questions are read from the terminal.
    pub prompt: Option<String>,
    pub system: String,
    pub adapter: Option<PathBuf>,
    /// The longest answer.
    pub tokens: usize,
    pub seed: u64,
    pub sampling: Sampling,
    /// A text to learn from.
    pub finetune: Option<PathBuf>,
    pub steps: usize,
    pub out: PathBuf,
}

impl Options {
    pub fn of_arguments(arguments: impl Iterator<Item = String>) -> Result<Options> {
        let sampling = Sampling { temperature: 0.7, top_p: 0.95, repetition_penalty: 1.1, ..Sampling::default() };
        let mut options = Options {
            model: PathBuf::new(),
            prompt: None,
            system: "You are a helpful AI assistant named SmolLM, trained by Hugging Face".into(),
            adapter: None,
            tokens: 256,
            seed: 1,
            sampling,
            finetune: None,
            steps: 60,
            out: "out/chat".into(),
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| Error::msg(format!("{name} wants a value\n{USAGE}")))?;
            match name.as_str() {
                "--model" => options.model = value.into(),
                "--prompt" => options.prompt = Some(value),
                "--system" => options.system = value,
                "--adapter" => options.adapter = Some(value.into()),
                "--tokens" => options.tokens = number(&name, &value)?,
                "--seed" => options.seed = number(&name, &value)?,
                "--temperature" => options.sampling.temperature = number(&name, &value)?,
                "--top-k" => options.sampling.top_k = Some(number(&name, &value)?),
                "--top-p" => options.sampling.top_p = number(&name, &value)?,
                "--min-p" => options.sampling.min_p = number(&name, &value)?,
                "--repetition-penalty" => options.sampling.repetition_penalty = number(&name, &value)?,
                "--finetune" => options.finetune = Some(value.into()),
                "--steps" => options.steps = number(&name, &value)?,
                "--out" => options.out = value.into(),
                _ => candle_core::bail!("no option {name}\n{USAGE}"),
            }
        }
        if options.model.as_os_str().is_empty() {
            candle_core::bail!("{USAGE}");
        }
        Ok(options)
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| Error::msg(format!("{name} {value}: expected a number")))
}
