//! `differential`: random programs on openmps and on the library it stands in for, value by value. The programs are written in Python, one
//! package a suite in `tests/differential`, but for collectives, which are compared with what they must give by an example of their crate. A
//! failure names its seed, with which the same command repeats it.

use crate::shell::{Result, cargo, root, run, say};
use crate::{python, setup};
use clap::ValueEnum;

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Paddle's public functions, values and gradients, with Paddle's CPU device
    Paddle,
    /// Triton's kernels with Triton's interpreter
    Triton,
    /// Random sequences of collectives on groups of 2, 4 and 8 processes, with what they must give
    Collective,
    /// One after the other
    All,
}

/// Bytes of the arrays up to which every collective is tried before random sequences are.
const SYSTEMATIC_BYTES: usize = 1 << 20;

/// Runs random programs for so many seconds a suite, from a seed or a fresh one.
pub fn compare(suite: Suite, seconds: u32, seed: Option<u64>) -> Result<()> {
    let parts = match suite {
        Suite::All => vec![Suite::Paddle, Suite::Triton, Suite::Collective],
        one => vec![one],
    };
    // One suite's failure does not hide what the next would find.
    let failed: Vec<String> = parts.into_iter().filter_map(|part| one(part, seconds, seed).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn one(suite: Suite, seconds: u32, seed: Option<u64>) -> Result<()> {
    match suite {
        Suite::Paddle => package("paddle", seconds, seed),
        Suite::Triton => package("triton", seconds, seed),
        _ => collectives(seconds, seed),
    }
}

fn package(package: &str, seconds: u32, seed: Option<u64>) -> Result<()> {
    setup::run()?;
    say(&format!("Differential test of {package} for {seconds} seconds"));
    let mut python = python::venv_python();
    python.args(["-m", "differential", package, "--seconds", &seconds.to_string()]);
    python.args(seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    // A missing kernel must be an error, not a value computed by Paddle's CPU device.
    python.env("PYTHONPATH", root().join("tests")).env("FLAGS_enable_api_kernel_fallback", "0");
    run(&mut python)
}

/// A third of the time for each number of processes.
fn collectives(seconds: u32, seed: Option<u64>) -> Result<()> {
    say(&format!("Differential test of collectives for {seconds} seconds"));
    let processes = |arguments: &[String]| {
        let mut example = cargo();
        example.args(["run", "--release", "-p", "openmps-collective", "--example", "processes", "--"]);
        run(example.args(arguments))
    };
    if seed.is_none() {
        processes(&["everything".to_owned(), SYSTEMATIC_BYTES.to_string()])?;
    }
    let mut sequences = vec!["sequences".to_owned(), seconds.div_ceil(3).to_string()];
    sequences.extend(seed.map(|seed| seed.to_string()));
    processes(&sequences)
}
