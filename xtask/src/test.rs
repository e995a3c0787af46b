//! `test`: every test in Rust and in Python, or the quick ones of both, and a summary of what ran.

use crate::setup::Wheel;
use crate::shell::{Result, cargo, run_and_keep, say};
use crate::{chat, minilm, python, setup};

/// Which tests are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Suites {
    All,
    Rust,
    Python,
    /// What tells within five minutes, once everything is built, whether a change has broken something.
    Quick,
}

// The native module is among them for the features of its dependencies alone, so that the wheel can be made of what is built here: the tests in Python
// are its tests.
const PACKAGES: [&str; 5] = ["test", "--workspace", "--release", "--features", "openmps/emulated"];

/// Of the tests in Rust: those inside the crates, and every operator on the host device and its gradient.
const QUICK_RUST: [&str; 10] = [
    "--exclude",
    "openmps-candle",
    "--exclude",
    "openmps-python",
    "--lib",
    "--bins",
    "--test",
    "every_device",
    "--test",
    "gradients",
];

/// Of the tests in Python: each frontend's everyday ones.
const QUICK_PYTHON: [&str; 4] = [
    "tests/command",
    "tests/paddle/test_everyday.py",
    "tests/triton/test_kernels.py",
    "tests/inference/test_interface.py",
];

/// Runs the tests; `arguments` are for pytest.
pub fn run(suites: Suites, arguments: &[String]) -> Result<()> {
    let mut closing = Vec::new();
    if suites != Suites::Python {
        setup::tools()?;
    }
    match suites {
        Suites::All => {
            closing.extend(run_rust()?);
            closing.extend(run_python(&["tests"], arguments, Wheel::AsTested)?);
        }
        Suites::Rust => closing.extend(run_rust()?),
        Suites::Python => closing.extend(run_python(&["tests"], arguments, Wheel::AsReleased)?),
        Suites::Quick => {
            say("Quick tests in Rust");
            closing.push(count_tests("Rust", &[&PACKAGES[..], &QUICK_RUST].concat(), "")?);
            closing.extend(run_python(&QUICK_PYTHON, arguments, Wheel::AsReleased)?);
        }
    }
    println!("\n==> Every test passed");
    closing.iter().for_each(|line| println!("    {line}"));
    Ok(())
}

fn run_rust() -> Result<Vec<String>> {
    say("Tests in Rust");
    let workspace = count_tests("Rust", &PACKAGES, "")?;
    let weights = minilm::install()?;
    chat::install()?;
    say("Tests with the weights of MiniLM, SmolLM2 and PP-OCRv4");
    // The same packages as above, of which nothing has to be built again; what needs weights is ignored there.
    let with_weights =
        [&PACKAGES[..], &["--test", "minilm", "--test", "language", "--test", "read_text", "--", "--ignored"]].concat();
    Ok(vec![workspace, count_tests("Weights", &with_weights, &weights.to_string_lossy())?])
}

/// Runs cargo and adds up the closing lines of the test binaries.
fn count_tests(name: &str, arguments: &[&str], weights: &str) -> Result<String> {
    let mut tests = cargo();
    tests.args(arguments);
    if let Some(compiler) = python::library("nvidia", "libnvrtc.so") {
        tests.env("OPENMPS_NVRTC", compiler);
    }
    if !weights.is_empty() {
        tests.env("OPENMPS_MINILM", weights);
    }
    let (lines, result) = run_and_keep(&mut tests, |line| line.starts_with("test result:"));
    result?;
    let count = |what: &str| -> u64 { lines.iter().filter_map(|line| number_before(line, what)).sum() };
    let (passed, failed, ignored) = (count(" passed"), count(" failed"), count(" ignored"));
    Ok(format!("{name}: {passed} passed, {failed} failed, {ignored} ignored in {} test binaries", lines.len()))
}

fn run_python(files: &[&str], arguments: &[String], wheel: Wheel) -> Result<Vec<String>> {
    setup::with(wheel)?;
    say("Tests in Python");
    let mut pytest = python::venv_python();
    // Files of tests in as many processes as there are CPUs, of which each takes up to a gigabyte.
    let side_by_side = ["-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"];
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider"]).args(side_by_side).args(files).args(arguments);
    pytest.env("FLAGS_enable_api_kernel_fallback", "0");
    let (lines, result) = run_and_keep(&mut pytest, |line| {
        [" passed", " failed", " error", "no tests ran"].iter().any(|word| line.contains(word)) && line.contains(" in ")
    });
    result?;
    Ok(lines.last().map(|line| format!("Python: {}", line.trim_matches(['=', ' ']))).into_iter().collect())
}

/// The number that stands before `what` in a line such as "test result: ok. 12 passed; 0 failed".
fn number_before(line: &str, what: &str) -> Option<u64> {
    let before = &line[..line.find(what)?];
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cargo_s_closing_line_are_read() {
        let line = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(number_before(line, " passed"), Some(12));
        assert_eq!(number_before(line, " failed"), Some(3));
        assert_eq!(number_before(line, " skipped"), None);
    }
}
