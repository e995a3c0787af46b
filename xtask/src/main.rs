//! The task runner of openmps: `cargo xtask <command>`.

mod architectures;
mod candle_models;
mod chat;
mod demo;
mod differential;
mod emulate;
mod fingerprint;
mod fuzz;
mod lint;
mod macos;
mod minilm;
mod neon;
mod paddleocr;
mod python;
mod release;
mod sanitize;
mod setup;
mod shaders;
mod shell;
mod structure;
mod test;
mod weights;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The task runner of openmps", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make .venv, build the wheel and install both PaddlePaddle and it; what is up to date is left alone
    Setup,
    /// Set up, then show what openmps does
    Demo {
        /// A program of examples/, without .py
        #[arg(default_value = demo::DEFAULT)]
        name: String,
        /// Handed to the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run every test: those in Rust, those of Candle's operators, then those in Python on the installed wheel
    Test {
        /// Only the tests in Rust
        #[arg(long, conflicts_with_all = ["python", "quick"])]
        rust: bool,
        /// Only the tests in Python
        #[arg(long, conflicts_with = "quick")]
        python: bool,
        /// Only what takes less than five minutes once everything is built
        #[arg(long)]
        quick: bool,
        /// Handed to pytest
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measure: the benches in Rust, then benches/compare.py: openmps beside other libraries
    Bench {
        /// Only what has this in its name
        filter: Option<String>,
        /// Handed to benches/compare.py: `-- --level avx2 --threads 1 --record`
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Fetch MiniLM's weights, embed sentences with Candle and openmps, and fine-tune with LoRA
    Minilm {
        /// `embed SENTENCE...` or `train [FOLDER]`; both when nothing is given
        #[arg(trailing_var_arg = true)]
        arguments: Vec<String>,
    },
    /// Train two small networks on device mps and on Paddle's CPU, with losses, times and a picture
    Train {
        /// `--only digits|text`, `--steps N`, `--picture FILE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Fetch a small language model in 4 bits and talk with it
    Chat {
        /// `--prompt TEXT`, `--finetune TEXT.txt`, `--temperature 0.8`, ...; without any, a conversation
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run unchanged models of candle-transformers, and the documents' examples, in a crate of its own whose candle-nn is patched
    CandleModels,
    /// Damage kernels of Triton or inference programs and look for panics, hangs and memory blow-ups in all that reads them
    Fuzz {
        /// What is damaged
        #[arg(long, value_enum, default_value = "kernels")]
        subject: fuzz::Subject,
        /// How long
        #[arg(default_value_t = 60)]
        seconds: u32,
        /// Of the random numbers, to repeat a run
        seed: Option<u64>,
    },
    /// Run random programs on openmps and on what it stands in for, Paddle's CPU device or Triton's interpreter, and compare
    Differential {
        /// What is compared
        suite: differential::Suite,
        /// How long, for each suite
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Of the random numbers, to repeat a run
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the tests of the unsafe core under the address sanitizer, and under Miri where it is installed
    Sanitize,
    /// Run the host device's tests and every operator for 64-bit Arm, where the CPU is another one by emulation
    TestNeon,
    /// Run every suite on the emulated Apple GPU: each operator's Metal text in every shape and layout, in three schedules
    Emulate {
        /// Only the tests in Rust
        #[arg(long)]
        rust: bool,
    },
    /// Compile and run the Metal kernels that Candle and MLX publish on the emulated GPU, and print what is right
    Shaders {
        /// Only this file of Candle's, without .metal, or this family of MLX's, as in mlx/softmax
        only: Option<String>,
        /// MLX's source: a folder, or a repository that has the commit; without it, MLX's own repository
        #[arg(long)]
        mlx: Option<String>,
    },
    /// Test every network of paddle.vision.models: as an inference program, in both of Paddle's forms, and in ten steps of training
    Architectures,
    /// Read the committed pages with PaddleOCR from PyPI, in an environment of its own, on device mps and on Paddle's CPU
    Paddleocr,
    /// Check types and lints of everything for Apple Silicon, from Linux too
    CheckMacos,
    /// Link the executable, the dylib and the wheel for Apple Silicon, from Linux too, and look at the result
    WheelMacos,
    /// Write docs/metal-calls.md anew
    MetalCalls,
    /// Make and check everything that a release consists of, and stop before publishing
    Release {
        /// Said aloud, since nothing is ever uploaded from here
        #[arg(long, required = true)]
        dry_run: bool,
        /// Only the crates
        #[arg(long, conflicts_with = "wheel")]
        crates: bool,
        /// Only the wheel
        #[arg(long)]
        wheel: bool,
    },
    /// Check the formatting, and run the lints of Rust and Python
    Lint,
    /// Show which crates and files depend on which, circles of files, and repeated lines
    Structure {
        /// Only this crate
        only: Option<String>,
        /// Draw the crates, or the crate's files, as SVG into this file
        #[arg(long)]
        picture: Option<std::path::PathBuf>,
    },
    /// On a Mac: run every operator with every engine on the GPU, each in a process of its own, and write one report
    MacSelftest(macos::selftest::Options),
}

fn main() -> ExitCode {
    if macos::link::called() {
        return macos::link::hand_on();
    }
    let result = match Arguments::parse().command {
        Command::Setup => setup::run().map(|_| ()),
        Command::Demo { name, arguments } => demo::run_example(&name, &arguments),
        Command::Test { rust: true, arguments, .. } => test::run(test::Suites::Rust, &arguments),
        Command::Test { python: true, arguments, .. } => test::run(test::Suites::Python, &arguments),
        Command::Test { quick: true, arguments, .. } => test::run(test::Suites::Quick, &arguments),
        Command::Test { arguments, .. } => test::run(test::Suites::All, &arguments),
        Command::Bench { filter, options } => demo::bench(filter.as_deref(), &options),
        Command::Train { arguments } => demo::run_example("train", &arguments),
        Command::CandleModels => candle_models::run_tests(),
        Command::Chat { arguments } => chat::run_example(&arguments),
        Command::Minilm { arguments } => minilm::run_example(&arguments),
        Command::Fuzz { subject, seconds, seed } => fuzz::run_for(subject, seconds, seed),
        Command::Differential { suite, seconds, seed } => differential::compare(suite, seconds, seed),
        Command::Sanitize => sanitize::tests(),
        Command::TestNeon => neon::tests(),
        Command::Emulate { rust } => emulate::run_all(!rust),
        Command::Shaders { only, mlx } => shaders::run_published(only.as_deref(), mlx.as_deref()),
        Command::Architectures => architectures::test(),
        Command::Paddleocr => paddleocr::compare(),
        Command::CheckMacos => macos::check(),
        Command::WheelMacos => macos::link::wheel(),
        Command::MetalCalls => macos::calls::write(),
        Command::Release { crates: true, .. } => release::dry_run(release::Parts::Crates),
        Command::Release { wheel: true, .. } => release::dry_run(release::Parts::Wheel),
        Command::Release { .. } => release::dry_run(release::Parts::Everything),
        Command::Lint => lint::run_all(),
        Command::Structure { only, picture } => structure::show(only.as_deref(), picture.as_deref()),
        Command::MacSelftest(options) => macos::selftest::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error}");
            ExitCode::FAILURE
        }
    }
}
