//! `lint`: formatting, the lints of Rust and Python, the documents of Rust and the structure, as they have to be before a change is taken.

use crate::shell::{Result, cargo, command, run, say};
use crate::{python, setup};

/// Runs all of them, and stops at the first that finds something.
pub fn run_all() -> Result<()> {
    say("Formatting");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    say("Lints of the Python code");
    setup::tools()?;
    run(command(python::program("ruff")).arg("check"))?;
    if cfg!(target_arch = "x86_64") {
        say("Types of the Python code");
        run(command(python::program("basedpyright")).arg("--warnings"))?;
    } else {
        say("No types of the Python code: PaddlePaddle, whose types they are, has no wheel here");
    }
    say("Lints of the Rust code");
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"]))?;
    say("Links of the Rust code's documents");
    run(cargo().args(["doc", "--workspace", "--no-deps", "--release"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    say("Circles and repeated lines");
    run(cargo().args(["test", "--release", "--package", "xtask", "--quiet", "--", "structure::"]))
}
