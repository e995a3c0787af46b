//! `cargo openmps patch-candle`: candle-nn with openmps's operators in a workspace, so that models written against candle-nn run and train
//! on them unchanged. `--undo` takes it back.

mod edits;
mod manifest;
mod patch;
mod result;
mod rewrite;
mod source;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Cargo calls `cargo-openmps openmps ...`.
#[derive(Parser)]
#[command(name = "cargo", bin_name = "cargo", version)]
enum Cargo {
    /// openmps for Cargo workspaces
    Openmps {
        #[command(subcommand)]
        command: Command,
    },
}

#[derive(Subcommand)]
enum Command {
    /// Write a candle-nn whose softmax, norms, rotary embedding, linear layers and attention are openmps's, and have the workspace use it
    PatchCandle {
        /// The workspace's Cargo.toml
        #[arg(long, default_value = "Cargo.toml")]
        manifest_path: PathBuf,
        /// The folder that the crate is written into, from the workspace's root
        #[arg(long, default_value = "openmps-patches/candle-nn")]
        into: PathBuf,
        /// Take it back: Candle's own candle-nn, and no folder
        #[arg(long)]
        undo: bool,
    },
}

/// Patches a workspace, unless cargo cannot resolve it then.
fn patched(workspace: &Path, into: &Path) -> result::Result<String> {
    let candle = source::candle_nn(workspace)?;
    let said = patch::apply(workspace, &candle, into)?;
    source::resolves(workspace).map(|()| said).or_else(|why| {
        patch::undo(workspace, into)?;
        Err(format!(
            "{why}\nNothing was changed. While openmps-candle is on no registry, [patch.crates-io] of {} has to say where it is:\n\
             openmps = {{ path = \".../crates/openmps\" }}\nopenmps-candle = {{ path = \".../frontends/candle\" }}",
            workspace.display()
        ))
    })
}

fn main() -> ExitCode {
    let Cargo::Openmps { command } = Cargo::parse();
    let Command::PatchCandle { manifest_path, into, undo } = command;
    let result = source::manifest_of_workspace(&manifest_path).and_then(|workspace| match undo {
        // Nothing is asked that cargo must resolve dependencies for: what is taken back may be what it stumbles over.
        true => patch::undo(&workspace, &into),
        false => patched(&workspace, &into),
    });
    match result {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
