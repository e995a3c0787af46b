//! Texts in Metal's language, and captures for Xcode: what `paddle.mps.compile_shader` and `paddle.mps.profiler` ask of the runtime.

use openmps_paddle::device::queue_of;
use openmps_runtime::metal::arguments::{Kernel, Parameter};
use openmps_runtime::metal::interface::{Grid, Language, Size};
use openmps_runtime::{Device, Error};
use pyo3::exceptions::{PyRuntimeError, PySyntaxError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Shaders>()?;
    module.add_function(wrap_pyfunction!(capture_begin, module)?)?;
    module.add_function(wrap_pyfunction!(capture_end, module)?)
}

fn failed(error: Error) -> PyErr {
    match error {
        Error::Compile { log, .. } => PySyntaxError::new_err(log),
        Error::NoSuchDevice { .. } => PyValueError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

/// A compiled text of Metal's language.
#[pyclass(frozen)]
struct Shaders {
    device: Device,
    source: Arc<str>,
    language: Language,
    functions: Vec<String>,
}

/// What a kernel is given at an index of its argument table: an address of the device's memory, or the bytes of a number.
#[derive(FromPyObject)]
enum Given {
    Address(u64),
    Number(Vec<u8>),
}

#[pymethods]
impl Shaders {
    #[new]
    fn new(py: Python<'_>, device: usize, source: String) -> PyResult<Shaders> {
        let device = Device::get(device).map_err(failed)?;
        let functions = py.detach(|| device.text_functions(&source)).map_err(failed)?;
        let language = device.language_of(&source);
        Ok(Shaders { device, source: source.into(), language, functions })
    }

    /// The names of its kernels.
    #[getter]
    fn functions(&self) -> Vec<String> {
        self.functions.clone()
    }

    /// Compiles a kernel, and says how many threads its threadgroups may have, how many a simdgroup has, and how many bytes of threadgroup memory
    /// it declares.
    fn limits(&self, py: Python<'_>, name: &str) -> PyResult<(usize, usize, usize)> {
        let kernel = self.kernel(name, Vec::new());
        let limits = py.detach(|| self.device.prepare(&kernel)).map_err(failed)?;
        Ok((limits.max_threads, limits.simd_width, limits.static_threadgroup_memory))
    }

    /// Puts a kernel into a stream, for so many threads in threadgroups of `group`.
    fn dispatch(
        &self,
        py: Python<'_>,
        name: &str,
        stream: usize,
        threads: Size,
        group: Size,
        arguments: Vec<Given>,
    ) -> PyResult<()> {
        let (parameters, bits) = passed(&arguments)?;
        let kernel = Kernel { threads: group, ..self.kernel(name, parameters) };
        if stream == 0 {
            return Err(PyValueError::new_err("a stream has no address"));
        }
        // SAFETY: `paddle.mps` passes the address of the device's current stream, which Paddle keeps.
        let queue = unsafe { queue_of(stream) };
        // SAFETY: the addresses are those of tensors that are alive, and Paddle frees memory in the order of the stream. What the kernel does with
        // them is said by the text, for which its author answers, as for any code that Python runs.
        let dispatched = py.detach(|| unsafe { queue.dispatch_text("shader", &kernel, Grid::Threads(threads), &bits) });
        dispatched.map_err(failed)
    }
}

impl Shaders {
    fn kernel(&self, name: &str, parameters: Vec<Parameter>) -> Kernel {
        Kernel::of_text(Arc::clone(&self.source), name, self.language, None, parameters)
    }
}

fn passed(arguments: &[Given]) -> PyResult<(Vec<Parameter>, Vec<u64>)> {
    let pass = |(index, given): (usize, &Given)| match given {
        Given::Address(address) => Ok((Parameter::Buffer { index, written: true }, *address)),
        Given::Number(bytes) if bytes.len() <= size_of::<u64>() => {
            let mut bits = [0; size_of::<u64>()];
            bits[..bytes.len()].copy_from_slice(bytes);
            Ok((Parameter::Value { index, size: bytes.len() }, u64::from_le_bytes(bits)))
        }
        Given::Number(bytes) => Err(PyValueError::new_err(format!("a number of {} bytes, 8 at most", bytes.len()))),
    };
    arguments.iter().enumerate().map(pass).collect::<PyResult<Vec<_>>>().map(|pairs| pairs.into_iter().unzip())
}

/// Begins a capture of a stream's commands for Xcode.
#[pyfunction]
fn capture_begin(stream: usize, file: PathBuf) -> PyResult<()> {
    // SAFETY: `paddle.mps.profiler` passes the address of the device's current stream, which Paddle keeps.
    unsafe { queue_of(stream) }.begin_capture(&file).map_err(failed)
}

/// Ends it.
#[pyfunction]
fn capture_end(stream: usize) -> PyResult<()> {
    // SAFETY: as in `capture_begin`.
    unsafe { queue_of(stream) }.end_capture().map_err(failed)
}
