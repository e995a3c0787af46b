//! The settings for Python: one table for both languages.

use openmps_settings::{Row, TABLE};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(setting, module)?)?;
    module.add_function(wrap_pyfunction!(settings, module)?)?;
    module.add_function(wrap_pyfunction!(wrong_answers, module)?)?;
    module.add_function(wrap_pyfunction!(setting_problems, module)?)
}

/// The checked value of a setting as a text, a switch as "0" or "1"; None where it is not set or wrong.
#[pyfunction]
fn setting(name: &str) -> PyResult<Option<String>> {
    let row = openmps_settings::named(name).ok_or_else(|| PyKeyError::new_err(format!("{name} is no setting")))?;
    Ok(row.text())
}

/// Every setting: (name, what is allowed, default, meaning, value or None).
#[pyfunction]
fn settings() -> Vec<(&'static str, String, &'static str, &'static str, Option<String>)> {
    let row = |row: &&'static dyn Row| (row.name(), row.rule(), row.default(), row.meaning(), row.text());
    TABLE.iter().map(row).collect()
}

/// What Apple's libraries have answered wrongly on this machine.
#[pyfunction]
fn wrong_answers() -> Vec<String> {
    openmps_runtime::Device::all().iter().flat_map(openmps_runtime::Device::wrong_answers).collect()
}

/// What is wrong with the settings in the environment.
#[pyfunction]
fn setting_problems() -> Vec<String> {
    openmps_settings::problems()
}
