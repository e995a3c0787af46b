//! `architectures`: every network of paddle.vision.models as an inference program, in both forms: minutes and gigabytes.

use crate::shell::{Result, run};
use crate::{python, setup};

/// Saves them all with random weights and compares their results with Paddle's CPU.
pub fn test() -> Result<()> {
    setup::run()?;
    let mut pytest = python::venv_python();
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "tests/inference/test_executor.py", "-k", "same_numbers"]);
    run(pytest.env("OPENMPS_TEST_ALL_ARCHITECTURES", "1"))
}
