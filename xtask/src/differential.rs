//! `differential`: random programs on openmps and on the library it stands in for, value by value. The programs are written in Python, one
//! package a suite in `tests/differential`; a failure names its seed, with which the same command repeats it.

use crate::shell::{Result, root, run, say};
use crate::{python, setup};
use clap::ValueEnum;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Paddle's public functions, values and gradients, with Paddle's CPU device
    Paddle,
    /// Triton's kernels with Triton's interpreter
    Triton,
    /// One after the other
    All,
}

impl Suite {
    /// The packages in `tests/differential`.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Suite::Paddle => &["paddle"],
            Suite::Triton => &["triton"],
            Suite::All => &["paddle", "triton"],
        }
    }
}

/// Runs random programs for so many seconds a suite, from a seed or a fresh one.
pub fn compare(suite: Suite, seconds: u32, seed: Option<u64>) -> Result<()> {
    setup::run()?;
    // One suite's failure does not hide what the next would find.
    let failed: Vec<String> = suite.packages().iter().filter_map(|package| one(package, seconds, seed).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn one(package: &str, seconds: u32, seed: Option<u64>) -> Result<()> {
    say(&format!("Differential test of {package} for {seconds} seconds"));
    let mut python = python::venv_python();
    python.args(["-m", "differential", package, "--seconds", &seconds.to_string()]);
    python.args(seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    // A missing kernel must be an error, not a value computed by Paddle's CPU device.
    python.env("PYTHONPATH", root().join("tests")).env("FLAGS_enable_api_kernel_fallback", "0");
    run(&mut python)
}
