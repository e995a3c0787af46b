//! Triton's kernels: the text of its IR, planned for the host device and launched.

mod arguments;
mod event;
mod ir;
mod memory;
mod specialize;

use crate::tools;
use arguments::{bits, named};
use memory::{Memory, Shared};
use openmps_host::interrupt;
use openmps_runtime::{Device, Error, Limits, Pipeline, Queue, sanitizer};
use openmps_tile::{Element, Type};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TritonKernel>()?;
    module.add_class::<TritonLauncher>()?;
    module.add_class::<event::TritonEvent>()?;
    module.add_function(wrap_pyfunction!(cuda_stream, module)?)?;
    module.add_function(wrap_pyfunction!(triton_compile, module)?)?;
    module.add("libtriton", libtriton(module.py())?)
}

/// What stands for Triton's own native library where there is none; `openmps.triton.libtriton` adds the names that nobody here uses.
fn libtriton(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    let module = PyModule::new(py, "libtriton")?;
    module.add_function(wrap_pyfunction!(specialize::native_specialize_impl, &module)?)?;
    module.add_function(wrap_pyfunction!(specialize::getenv, &module)?)?;
    module.add_function(wrap_pyfunction!(specialize::getenv_bool, &module)?)?;
    module.add_function(wrap_pyfunction!(specialize::get_cache_invalidating_env_vars, &module)?)?;
    let (ir, passes) = (PyModule::new(py, "ir")?, PyModule::new(py, "passes")?);
    ir::register(&ir, &passes)?;
    module.add("ir", ir)?;
    module.add("passes", passes)?;
    Ok(module)
}

/// The stream of the default queue, as a number, for other users of CUDA; an error where the device has no streams.
#[pyfunction]
fn cuda_stream() -> PyResult<usize> {
    device()?.queue().handle().ok_or_else(|| failed(&Error::NoStreams))
}

/// The device that Triton's kernels run on.
fn device() -> PyResult<Device> {
    Device::get(0).map_err(|error| failed(&error))
}

/// The queue of a stream: the default one where it is 0, else one of somebody else's, which has a queue from its first use on.
fn queue(stream: usize) -> PyResult<Queue> {
    static ADOPTED: LazyLock<Mutex<HashMap<usize, Queue>>> = LazyLock::new(Mutex::default);
    if stream == 0 {
        return Ok(device()?.queue());
    }
    let mut adopted = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(queue) = adopted.get(&stream) {
        return Ok(queue.clone());
    }
    // SAFETY: PyTorch keeps every stream that it has made until the process ends; whoever names another one keeps it as long as kernels go there.
    let queue = unsafe { device()?.queue_of_stream(stream) }.map_err(|error| failed(&error))?;
    adopted.insert(stream, queue.clone());
    Ok(queue)
}

fn failed(error: &Error) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A kernel, ready to run.
#[pyclass(frozen, module = "paddle_custom_device.openmps_native")]
struct TritonKernel {
    pipeline: Pipeline,
    parameters: Vec<(String, Type)>,
    /// By parameter: whether the kernel may store through it.
    stored: Vec<bool>,
}

/// Reads and verifies the text of a module, and makes the device's form of it: on a GPU within so many threads and bytes of threadgroup memory.
/// What is not covered is a NotImplementedError with the line of the Python source.
#[pyfunction]
#[pyo3(signature = (text, max_threads = None, shared_memory = None))]
fn triton_compile(
    py: Python<'_>,
    text: &str,
    max_threads: Option<usize>,
    shared_memory: Option<usize>,
) -> PyResult<TritonKernel> {
    let limits = Limits {
        threads: max_threads.unwrap_or(Limits::NONE.threads),
        threadgroup_memory: shared_memory.unwrap_or(Limits::NONE.threadgroup_memory),
    };
    let pipeline = py.detach(|| tools::read(text))?.within(limits);
    let kernel = pipeline.kernel();
    let parameters = kernel.parameters.iter().map(|p| (p.name.clone(), kernel.type_of(p.value).clone())).collect();
    let device = device()?;
    py.detach(|| device.accepts(&pipeline)).map_err(|error| match error {
        Error::Kernel { source, .. } => PyNotImplementedError::new_err(format!("mps: {source}")),
        Error::Codegen(error) => PyNotImplementedError::new_err(format!("mps: {error}")),
        error => failed(&error),
    })?;
    let stored = kernel.written_parameters();
    Ok(TritonKernel { pipeline, parameters, stored })
}

#[pymethods]
impl TritonKernel {
    /// Runs every program of the grid. Arguments: addresses as integers, numbers, booleans, in the order of the parameters.
    fn launch(&self, py: Python<'_>, grid: (i64, i64, i64), arguments: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.run(py, &queue(0)?, [grid.0, grid.1, grid.2], arguments.into_iter(), &Memory::default())
    }

    /// The kernel's name.
    #[getter]
    fn name(&self) -> &str {
        self.pipeline.name()
    }
}

impl TritonKernel {
    /// Runs every program of the grid.
    fn run<'py>(
        &self,
        py: Python<'py>,
        queue: &Queue,
        grid: [i64; 3],
        arguments: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        memory: &Memory,
    ) -> PyResult<()> {
        if arguments.len() != self.parameters.len() {
            let (name, expected) = (self.pipeline.name(), self.parameters.len());
            return Err(PyTypeError::new_err(format!("{name}: {} arguments, expected {expected}", arguments.len())));
        }
        let bits: Vec<u64> = self
            .parameters
            .iter()
            .zip(&self.stored)
            .zip(arguments)
            .map(|(((name, ty), &stored), argument)| {
                bits(ty, stored, &argument).map_err(|error| named(py, name, &error))
            })
            .collect::<PyResult<_>>()?;
        let Some(grid) = self.grid(grid)? else { return Ok(()) };
        let raised = Arc::new(Mutex::new(None));
        let question = {
            let raised = raised.clone();
            move || signal(&raised)
        };
        let result = py.detach(|| interrupt::within(question, || self.dispatch(queue, grid, bits, memory)));
        let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.map_or(result.map_err(|error| failed(&error)), Err)
    }

    /// The grid's sizes; none where it has no programs. Triton counts programs in 32 bits.
    fn grid(&self, grid: [i64; 3]) -> PyResult<Option<[usize; 3]>> {
        if grid.iter().any(|&size| size > i32::MAX.into()) {
            let name = self.pipeline.name();
            let message = format!("{name}: grid {grid:?}: an axis has at most {} programs", i32::MAX);
            return Err(PyOverflowError::new_err(message));
        }
        Ok(grid.iter().all(|&size| size > 0).then(|| grid.map(|size| size as usize)))
    }

    fn dispatch(&self, queue: &Queue, grid: [usize; 3], mut bits: Vec<u64>, memory: &Memory) -> Result<(), Error> {
        // SAFETY: memory of tensors that live until the launcher returns.
        let shared = unsafe { Shared::new(queue, memory.in_process(&self.stored)) }?;
        if memory.is_hidden() {
            for (place, (bits, (_, ty))) in bits.iter_mut().zip(&self.parameters).enumerate() {
                if matches!(ty.element, Element::Pointer(_)) {
                    *bits = if memory.is_empty(place) { 0 } else { shared.address(*bits) };
                }
            }
        }
        let dispatch = || {
            // SAFETY: Triton's contract with its users: a kernel touches only memory of the tensors that it is given.
            unsafe { queue.dispatch("triton", &self.pipeline, grid, &bits) }
        };
        let dispatched = match memory.reachable(|place| Some(self.parameters.get(place)?.0.as_str())) {
            // SAFETY: the extents are those of tensors that live until the launcher returns.
            Some(regions) => unsafe { sanitizer::within(regions, dispatch) },
            None => dispatch(),
        };
        dispatched.and(shared.finish())
    }
}

/// What Triton calls to launch a kernel: constants are in the kernel already, what is left goes by its place.
#[pyclass(frozen, module = "paddle_custom_device.openmps_native")]
struct TritonLauncher {
    places: Vec<usize>,
}

#[pymethods]
impl TritonLauncher {
    #[new]
    fn new(places: Vec<usize>) -> TritonLauncher {
        TritonLauncher { places }
    }

    /// Triton's convention: the grid, a stream, the kernel, two kinds of metadata, two hooks, then all of the kernel's arguments.
    #[pyo3(signature = (x, y, z, stream, kernel, _packed, launch_metadata, enter, leave, *arguments))]
    fn __call__(
        &self,
        py: Python<'_>,
        x: i64,
        y: i64,
        z: i64,
        stream: usize,
        kernel: &Bound<'_, TritonKernel>,
        _packed: &Bound<'_, PyAny>,
        launch_metadata: &Bound<'_, PyAny>,
        enter: &Bound<'_, PyAny>,
        leave: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        if !enter.is_none() {
            enter.call1((launch_metadata,))?;
        }
        let given: Vec<Bound<'_, PyAny>> =
            self.places.iter().map(|&place| arguments.get_item(place)).collect::<PyResult<_>>()?;
        let queue = queue(stream)?;
        let memory = Memory::of(py, queue.device(), &given)?;
        kernel.get().run(py, &queue, [x, y, z], given.into_iter(), &memory)?;
        if !leave.is_none() {
            leave.call1((launch_metadata,))?;
        }
        Ok(())
    }
}

/// Whether a handler of a signal that has come (Ctrl-C) raises something, which is kept.
fn signal(raised: &Mutex<Option<PyErr>>) -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            true
        }
    })
}
