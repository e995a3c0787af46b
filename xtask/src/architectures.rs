//! `architectures`: every network of paddle.vision.models, as an inference program in both forms and in training: many minutes and gigabytes.

use crate::shell::{Result, run};
use crate::{python, setup};

/// The tests, which take all networks where they are asked to.
const TESTS: [(&str, &str); 2] =
    [("tests/inference/test_executor.py", "same_numbers"), ("tests/paddle/test_architectures.py", "trains")];

/// Saves them all with random weights, runs and trains them, and compares with Paddle's CPU.
pub fn test() -> Result<()> {
    setup::run()?;
    for (file, name) in TESTS {
        let mut pytest = python::venv_python();
        pytest.args(["-m", "pytest", "-p", "no:cacheprovider", file, "-k", name]);
        run(pytest.env("OPENMPS_TEST_ALL_ARCHITECTURES", "1"))?;
    }
    Ok(())
}
