//! `emulate`: every suite on the emulated Apple GPU, Metal's texts executed on the CPU: the runtime, every operator in every shape, layout
//! and element type in three schedules, each engine forced, and with the wheel PaddlePaddle's tests and text recognition.

use crate::shell::{Result, cargo, run, say};
use crate::{python, setup};

/// Paddle's suites that are run there.
const SUITES: &[&str] = &["tests/ocr/test_metal_emulated.py", "tests/paddle"];

/// Runs everything; `python` adds PaddlePaddle's tests.
pub fn run_all(with_python: bool) -> Result<()> {
    setup::tools()?;
    say("The runtime");
    let tests = ["test", "--release", "--package", "openmps-runtime"];
    let tests =
        tests.into_iter().chain(["command_buffer", "dispatch", "queue"].into_iter().flat_map(|name| ["--test", name]));
    run(cargo().args(tests).env("OPENMPS_DEVICE", "metal-emulated"))?;
    let tests = ["test", "--release", "--package", "openmps", "--test", "hostile"];
    run(cargo().args(tests).env("OPENMPS_DEVICE", "metal-emulated"))?;
    say("Every operator: every shape and layout, three schedules, each engine");
    let tests =
        ["test", "--release", "--package", "openmps-graph", "--test", "metal_schedules", "--test", "metal_engines"];
    run(cargo().args(tests).env("OPENMPS_TEST_BREADTH", "whole"))?;
    if with_python {
        setup::run()?;
        say("PaddlePaddle");
        let mut pytest = python::venv_python();
        pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).args(SUITES).env("OPENMPS_DEVICE", "metal-emulated");
        run(&mut pytest)?;
    }
    println!("\n==> Every suite passed on the emulated GPU; nothing of it ran on Apple hardware");
    Ok(())
}
