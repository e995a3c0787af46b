//! `fuzz`: mutated kernels through the parser, the verifier and the code generator, on a stable toolchain.

use crate::shell::{Result, cargo, run, say};

/// Fuzzes for so many seconds; the seed makes the same cases again.
pub fn run_for(seconds: u32, seed: Option<u64>) -> Result<()> {
    say(&format!("Fuzzing for {seconds} seconds"));
    let mut fuzz = cargo();
    fuzz.args(["run", "--release", "-p", "openmps-codegen", "--example", "fuzz", "--", &seconds.to_string()]);
    fuzz.args(seed.map(|seed| seed.to_string()));
    run(&mut fuzz)
}
