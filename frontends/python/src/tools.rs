//! Tools of a kernel's author: the text of a kernel in another language, and the sanitizer's switch.

use openmps_codegen::Target;
use openmps_runtime::{Pipeline, ReadError, sanitizer};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kernel_text, module)?)?;
    module.add_function(wrap_pyfunction!(sanitizer_is_on, module)?)?;
    module.add_function(wrap_pyfunction!(sanitizer_set, module)?)
}

/// Reads and verifies the text of a module.
pub fn read(text: &str) -> PyResult<Pipeline> {
    Pipeline::read(text).map_err(|error| match error {
        ReadError::Parse(error) => PyNotImplementedError::new_err(format!("mps: {error}")),
        ReadError::Verify(error) => PyValueError::new_err(format!("mps: {error}")),
    })
}

/// The text of a module in another language: "msl", "cuda" or "tile". Threads of a threadgroup: as suits the kernel, if not given.
#[pyfunction]
#[pyo3(signature = (text, language, threads = None))]
fn kernel_text(text: &str, language: &str, threads: Option<usize>) -> PyResult<String> {
    let pipeline = read(text)?;
    let threads = threads.unwrap_or_else(|| openmps_codegen::threads_for(pipeline.kernel()));
    let target = match language {
        "tile" => return Ok(pipeline.kernel().to_string()),
        "msl" => Target::metal(threads),
        "cuda" => Target::cuda(threads),
        other => return Err(PyValueError::new_err(format!("{other:?} is none of: msl, cuda, tile"))),
    };
    let source = openmps_codegen::compile(pipeline.verified(), &target);
    source.map(|source| source.text).map_err(|error| PyNotImplementedError::new_err(error.to_string()))
}

/// Whether launches go through the sanitizer.
#[pyfunction]
fn sanitizer_is_on() -> bool {
    sanitizer::is_on()
}

/// Sends launches through the sanitizer, or no longer.
#[pyfunction]
fn sanitizer_set(on: bool) {
    sanitizer::set(on);
}
