//! Triton's kernels: the text of its IR, planned for the host device and launched.

mod ir;
mod specialize;

use crate::tools;
use openmps_host::interrupt;
use openmps_runtime::sanitizer::{self, Region};

use openmps_runtime::{Backend, Device, Pipeline};
use openmps_tile::{Element, Scalar, Type};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple, PyType};
use std::sync::{Arc, Mutex, PoisonError};

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TritonKernel>()?;
    module.add_class::<TritonLauncher>()?;
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
    let device = Device::get(0).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    device.queue().handle().ok_or_else(|| PyRuntimeError::new_err("the device has no streams"))
}

/// A kernel, ready to run.
#[pyclass(frozen, module = "paddle_custom_device.openmps_native")]
struct TritonKernel {
    pipeline: Pipeline,
    parameters: Vec<(String, Type)>,
    /// By parameter: whether the kernel may store through it.
    stored: Vec<bool>,
}

/// Reads, verifies and plans the text of a module. What is not covered is a NotImplementedError with the line of the Python source.
#[pyfunction]
fn triton_compile(text: &str) -> PyResult<TritonKernel> {
    let pipeline = tools::read(text)?;
    let kernel = pipeline.kernel();
    let parameters = kernel.parameters.iter().map(|p| (p.name.clone(), kernel.type_of(p.value).clone())).collect();
    pipeline.program().map_err(|error| PyNotImplementedError::new_err(format!("mps: {error}")))?;
    let stored = kernel.written_parameters();
    Ok(TritonKernel { pipeline, parameters, stored })
}

#[pymethods]
impl TritonKernel {
    /// Runs every program of the grid. Arguments: addresses as integers, numbers, booleans, in the order of the parameters.
    fn launch(&self, py: Python<'_>, grid: (i64, i64, i64), arguments: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.run(py, [grid.0, grid.1, grid.2], arguments.into_iter(), None)
    }

    /// The kernel's name.
    #[getter]
    fn name(&self) -> &str {
        self.pipeline.name()
    }
}

impl TritonKernel {
    /// Runs every program of the grid; for the sanitizer within what it may touch, where that is known.
    fn run<'py>(
        &self,
        py: Python<'py>,
        grid: [i64; 3],
        arguments: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
        extents: Option<Vec<Extent>>,
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
        let result = py.detach(|| interrupt::within(question, || self.dispatch(grid, &bits, extents)));
        let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.map_or(result, Err)
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

    fn dispatch(&self, grid: [usize; 3], bits: &[u64], extents: Option<Vec<Extent>>) -> PyResult<()> {
        let queue = Device::get(0).map_err(|error| PyRuntimeError::new_err(error.to_string()))?.queue();
        let dispatch = || {
            // SAFETY: Triton's contract with its users: a kernel touches only memory of the tensors that it is given.
            unsafe { queue.dispatch("triton", &self.pipeline, grid, bits) }
        };
        let result = match extents {
            // SAFETY: the extents are those of tensors that live until the launcher returns.
            Some(extents) => unsafe { sanitizer::within(self.regions(extents), dispatch) },
            None => dispatch(),
        };
        result.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    fn regions(&self, extents: Vec<Extent>) -> Vec<Region> {
        let name = |place: Option<usize>| match place.and_then(|place| self.parameters.get(place)) {
            Some((name, _)) => format!("argument {name}"),
            None => "a reachable tensor".to_owned(),
        };
        extents.into_iter().map(|(place, address, bytes)| Region { name: name(place), address, bytes }).collect()
    }
}

/// Memory that a launch may touch: the parameter's position, none where it is not one of the parameters; address and bytes.
type Extent = (Option<usize>, usize, usize);

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
    #[pyo3(signature = (x, y, z, _stream, kernel, _packed, launch_metadata, enter, leave, *arguments))]
    fn __call__(
        &self,
        py: Python<'_>,
        x: i64,
        y: i64,
        z: i64,
        _stream: &Bound<'_, PyAny>,
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
        let extents = if sanitizer::is_on() { Some(extents(py, &given)?) } else { None };
        kernel.get().run(py, [x, y, z], given.into_iter(), extents)?;
        if !leave.is_none() {
            leave.call1((launch_metadata,))?;
        }
        Ok(())
    }
}

/// What the arguments' tensors say of their extents; Python knows how each framework says it.
#[cold]
fn extents(py: Python<'_>, arguments: &[Bound<'_, PyAny>]) -> PyResult<Vec<Extent>> {
    py.import("openmps.triton.sanitizer")?.call_method1("extents", (arguments,))?.extract()
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

/// A parameter's value as the device takes it. A tensor says its address itself.
fn bits(ty: &Type, stored: bool, argument: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(match ty.element {
        // Not the other way round: a tensor of one integer passes for that integer.
        Element::Pointer(_) if !argument.is_exact_instance_of::<PyInt>() => address(argument, stored)?,
        Element::Pointer(_) => argument.extract::<u64>()?,
        Element::Scalar(Scalar::F64) => argument.extract::<f64>()?.to_bits(),
        Element::Scalar(scalar) if scalar.is_float() => {
            let number = argument.extract::<f64>()?;
            match scalar {
                Scalar::F16 => openmps_tile::f16::from_f64(number).to_bits().into(),
                Scalar::BF16 => openmps_tile::bf16::from_f64(number).to_bits().into(),
                _ => (number as f32).to_bits().into(),
            }
        }
        // Unsigned 64-bit integers do not fit in signed ones, and the other way round.
        Element::Scalar(_) => {
            argument.extract::<i64>().map(|number| number as u64).or_else(|_| argument.extract::<u64>())?
        }
    })
}

/// What a tensor can say of where its elements are.
#[derive(Clone, Copy)]
enum Origin {
    /// As PyTorch's: whether they are in the CPU's memory.
    Torch,
    /// As our arrays: whether they may be written.
    Array,
    Unknown,
}

/// The origin of a tensor by its type, each of which is asked once: to ask for an attribute that there is not takes long.
fn origin(tensor: &Bound<'_, PyAny>) -> PyResult<Origin> {
    static KNOWN: Mutex<Vec<(Py<PyType>, Origin)>> = Mutex::new(Vec::new());
    let ty = tensor.get_type();
    let find = |known: &[(Py<PyType>, Origin)]| known.iter().find(|(of, _)| of.is(&ty)).map(|(_, origin)| *origin);
    if let Some(origin) = find(&KNOWN.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(origin);
    }
    let origin = match (ty.hasattr("is_cpu")?, ty.hasattr("read_only")?) {
        (true, _) => Origin::Torch,
        (_, true) => Origin::Array,
        _ => Origin::Unknown,
    };
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push((ty.unbind(), origin));
    Ok(origin)
}

/// The address of a tensor's first element, where the device can reach it and may do what the kernel does.
fn address(tensor: &Bound<'_, PyAny>, stored: bool) -> PyResult<u64> {
    let py = tensor.py();
    match origin(tensor)? {
        Origin::Torch if !tensor.getattr(pyo3::intern!(py, "is_cpu"))?.is_truthy()? => elsewhere(tensor)?,
        Origin::Array if stored && tensor.getattr(pyo3::intern!(py, "read_only"))?.is_truthy()? => {
            return Err(PyValueError::new_err("the array is read-only, and the kernel stores through it"));
        }
        _ => {}
    }
    let address = tensor.call_method0(pyo3::intern!(py, "data_ptr"))?.extract()?;
    if address == 0 {
        without_memory(tensor)?;
    }
    Ok(address)
}

/// A tensor of PyTorch that lies on a device of PyTorch's.
#[cold]
fn elsewhere(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    let device = Device::get(0).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let is_cuda = |tensor: &Bound<'_, PyAny>| tensor.getattr("is_cuda").and_then(|is_cuda| is_cuda.is_truthy());
    if device.properties().backend == Backend::Cuda && is_cuda(tensor).unwrap_or(false) {
        return Ok(());
    }
    let place = tensor.getattr("device")?.str()?;
    Err(PyValueError::new_err(format!("the tensor is on device {place}, which this backend cannot reach")))
}

/// A tensor at address 0, which is one of no elements, or one whose memory has been freed.
#[cold]
fn without_memory(tensor: &Bound<'_, PyAny>) -> PyResult<()> {
    let shape: Vec<u64> = tensor.getattr("shape").and_then(|shape| shape.extract()).unwrap_or_else(|_| vec![1]);
    if shape.contains(&0) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("the tensor of shape {shape:?} has no memory")))
}

#[cold]
fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let message = format!("parameter {name}: {}", error.value(py));
    if error.is_instance_of::<PyValueError>(py) {
        PyValueError::new_err(message)
    } else {
        PyTypeError::new_err(message)
    }
}
