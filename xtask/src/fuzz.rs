//! `fuzz`: damaged kernels, inference programs and conversations between processes through all that reads them, on a stable toolchain.

use crate::shell::{Result, cargo, run, say};
use clap::ValueEnum;

/// What is damaged.
#[derive(Clone, Copy, ValueEnum)]
pub enum Subject {
    /// Kernels of Triton, through the parser, the verifier and the code generator
    Kernels,
    /// Inference programs of Paddle, through the reader and the executor
    Programs,
    /// What two processes of a job say to each other, through the rendezvous and the collective operations
    Conversations,
}

/// Fuzzes for so many seconds; the seed makes the same cases again.
pub fn run_for(subject: Subject, seconds: u32, seed: Option<u64>) -> Result<()> {
    say(&format!("Fuzzing for {seconds} seconds"));
    let package = match subject {
        Subject::Kernels => "openmps-codegen",
        Subject::Programs => "openmps-inference",
        Subject::Conversations => "openmps-collective",
    };
    let mut fuzz = cargo();
    fuzz.args(["run", "--release", "-p", package, "--example", "fuzz", "--", &seconds.to_string()]);
    fuzz.args(seed.map(|seed| seed.to_string()));
    run(&mut fuzz)
}
