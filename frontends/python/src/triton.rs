//! Triton's kernels: the text of its IR, planned for the host device and launched.

use crate::tools;
use openmps_runtime::sanitizer::{self, Region};
use openmps_runtime::{Device, Pipeline};
use openmps_tile::{Element, Scalar, Type};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TritonKernel>()?;
    module.add_class::<TritonLauncher>()?;
    module.add_function(wrap_pyfunction!(cuda_stream, module)?)?;
    module.add_function(wrap_pyfunction!(triton_compile, module)?)
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
}

/// Reads, verifies and plans the text of a module. What is not covered is a NotImplementedError with the line of the Python source.
#[pyfunction]
fn triton_compile(text: &str) -> PyResult<TritonKernel> {
    let pipeline = tools::read(text)?;
    let kernel = pipeline.kernel();
    let parameters = kernel.parameters.iter().map(|p| (p.name.clone(), kernel.type_of(p.value).clone())).collect();
    pipeline.program().map_err(|error| PyNotImplementedError::new_err(format!("mps: {error}")))?;
    Ok(TritonKernel { pipeline, parameters })
}

#[pymethods]
impl TritonKernel {
    /// Runs every program of the grid. Arguments: addresses as integers, numbers, truth values, in the order of the parameters.
    fn launch(&self, py: Python<'_>, grid: (usize, usize, usize), arguments: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
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
        grid: [usize; 3],
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
            .zip(arguments)
            .map(|((name, ty), argument)| bits(ty, &argument).map_err(|error| named(py, name, &error)))
            .collect::<PyResult<_>>()?;
        py.detach(|| {
            let queue = Device::get(0).map_err(|error| PyRuntimeError::new_err(error.to_string()))?.queue();
            let dispatch = || {
                // SAFETY: Triton's contract with its users: a kernel touches only memory of the tensors that it is given.
                unsafe { queue.dispatch("triton", &self.pipeline, grid, &bits) }
            };
            let result = match extents {
                // SAFETY: the extents are those of tensors that live until the launcher returns.
                Some(extents) => unsafe { sanitizer::within(self.regions(extents), dispatch) },
                None => dispatch(),
            };
            result.map_err(|error| PyRuntimeError::new_err(error.to_string()))
        })
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
        x: usize,
        y: usize,
        z: usize,
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

/// A parameter's value as the device takes it. A tensor says its address itself.
fn bits(ty: &Type, argument: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(match ty.element {
        // Not the other way round: a tensor of one integer passes for that integer.
        Element::Pointer(_) if !argument.is_exact_instance_of::<PyInt>() => {
            argument.call_method0(pyo3::intern!(argument.py(), "data_ptr"))?.extract()?
        }
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

#[cold]
fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    PyTypeError::new_err(format!("parameter {name}: {}", error.value(py)))
}
