//! Inference programs on the executor: what `openmps.inference` is made of.

use openmps::graph::{Ceilings, MemorySummary, StepSummary};
use openmps::{DataType, Device, TensorData};
use openmps_host::native::ceiling::{Traffic, bytes_per_second};
use openmps_inference::program::{Dialect, Port, ValueType};
use openmps_inference::{Error, Model};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyFileNotFoundError, PyNotImplementedError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyString};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Adds this module's class and functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<InferenceModel>()?;
    module.add_function(wrap_pyfunction!(ceilings, module)?)?;
    module.add_function(wrap_pyfunction!(host_bandwidth, module)?)?;
    module.add_function(wrap_pyfunction!(command_buffers, module)?)?;
    module.add_function(wrap_pyfunction!(unsupported_operations, module)?)?;
    module.add_function(wrap_pyfunction!(supported_operations, module)?)
}

/// A tensor on its way in: the name of its element type, its shape, an array of its elements.
type In<'py> = (Bound<'py, PyString>, Vec<usize>, Bound<'py, PyAny>);

/// The same on its way out.
type Out<'py> = (&'static str, Vec<usize>, Bound<'py, PyByteArray>);

/// A step: its operator, what was fused into it, its first output's shape, bytes that it reads and writes, its arithmetic.
type Step = (&'static str, Vec<&'static str>, Vec<usize>, u64, u64);

/// Bytes by what they are for.
type Memory = BTreeMap<&'static str, u64>;

/// A program with its parameters on a device. Copies share both and may run in several threads.
#[pyclass(frozen, module = "openmps.native")]
struct InferenceModel {
    model: Model,
}

/// A file: its content, or where it is.
#[derive(FromPyObject)]
enum Content {
    Bytes(PyBackedBytes),
    Path(PathBuf),
}

#[pymethods]
impl InferenceModel {
    /// A program's bytes, and the bytes of its parameters or their file, which is read when they are needed.
    #[new]
    fn new(py: Python<'_>, program: PyBackedBytes, parameters: Content, device: usize) -> PyResult<InferenceModel> {
        let model = py.detach(|| {
            let device = Device::get(device)?;
            match &parameters {
                Content::Bytes(bytes) => Model::load(&device, &program, bytes),
                Content::Path(path) => Model::with_parameters(&device, &program, path),
            }
        });
        Ok(InferenceModel { model: model.map_err(raised)? })
    }

    /// A model of ONNX: its bytes, or its file, whose tensors are read when they are needed.
    #[staticmethod]
    fn onnx(py: Python<'_>, model: Content, device: usize) -> PyResult<InferenceModel> {
        let model = py.detach(|| {
            let device = Device::get(device)?;
            match &model {
                Content::Bytes(bytes) => Model::load_onnx(&device, bytes),
                Content::Path(path) => Model::open_onnx(&device, path),
            }
        });
        Ok(InferenceModel { model: model.map_err(raised)? })
    }

    /// The same model, whose runs are given these tensors, too, behind the other inputs.
    fn given(&self, py: Python<'_>, names: Vec<String>) -> PyResult<InferenceModel> {
        let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
        Ok(InferenceModel { model: py.detach(|| self.model.given(&names)).map_err(raised)? })
    }

    /// Names, shapes, element types and names of dimensions of the tensors that a run may be given.
    #[allow(clippy::type_complexity, reason = "what Python is handed")]
    fn overridable(&self) -> Vec<(String, Vec<i64>, Option<&'static str>, Vec<Option<String>>)> {
        let overridable = self.model.program().overridable.iter();
        let described = |(name, of): &(String, ValueType)| {
            (name.clone(), of.dims.clone(), of.data_type.map(DataType::name), of.names.clone())
        };
        overridable.map(described).collect()
    }

    /// What the model's author wrote beside it.
    fn metadata(&self) -> BTreeMap<String, String> {
        self.model.program().metadata.clone()
    }

    /// Who wrote the model, as ONNX says.
    fn origin(&self) -> BTreeMap<&'static str, String> {
        let origin = self.model.program().origin.clone();
        BTreeMap::from([
            ("producer_name", origin.producer_name),
            ("graph_name", origin.graph_name),
            ("domain", origin.domain),
            ("description", origin.description),
            ("graph_description", origin.graph_description),
            ("version", origin.version.to_string()),
        ])
    }

    /// Names, shapes (-1 where a run decides) and element types of what a run is given.
    fn inputs(&self) -> Vec<(String, Vec<i64>, Option<&'static str>)> {
        described(self.model.inputs())
    }

    /// The same of what a run gives back.
    fn outputs(&self) -> Vec<(String, Vec<i64>, Option<&'static str>)> {
        described(self.model.outputs())
    }

    /// What the model calls the dimensions of what a run is given, and of what it gives back: None where it names none.
    fn dimension_names(&self) -> [Vec<Vec<Option<String>>>; 2] {
        let program = self.model.program();
        let of = |port: &Port| program.values[port.value].names.clone();
        [&program.inputs, &program.outputs].map(|ports| ports.iter().map(of).collect())
    }

    /// The number of each kind of operation.
    fn operations(&self) -> Vec<(String, usize)> {
        let mut counts = BTreeMap::new();
        self.model.program().body.visit(&mut |operation| *counts.entry(operation.name.clone()).or_insert(0) += 1);
        counts.into_iter().collect()
    }

    /// Runs the program; other threads of Python go on meanwhile.
    fn run<'py>(&self, py: Python<'py>, inputs: Vec<In<'py>>) -> PyResult<Vec<Out<'py>>> {
        let tensors = self.tensors(&inputs)?;
        let results = py.detach(|| self.model.run(&tensors)).map_err(raised)?;
        let out = |tensor: TensorData| -> PyResult<Out<'py>> {
            let len = tensor.shape().iter().product::<usize>() * tensor.data_type().size();
            let bytes = PyByteArray::new_with(py, len, |bytes| {
                tensor.read_bytes_into(bytes).map_err(|error| raised(error.into()))
            })?;
            Ok((tensor.data_type().name(), tensor.shape().to_vec(), bytes))
        };
        results.into_iter().map(out).collect()
    }

    /// The steps and the memory of the program compiled for these inputs; None where each run finds out anew what it does.
    fn plan(&self, py: Python<'_>, inputs: Vec<In<'_>>) -> PyResult<Option<(Vec<Step>, Memory)>> {
        let tensors = self.tensors(&inputs)?;
        let executable = py.detach(|| self.model.executable(&tensors)).map_err(raised)?;
        let described = |step: StepSummary| {
            let shape = step.outputs.first().map_or_else(Vec::new, |output| output.shape.to_vec());
            (step.operator, step.includes, shape, step.bytes, step.arithmetic)
        };
        Ok(executable.map(|executable| {
            let MemorySummary { constants, packed, results, peak, sum, .. } = executable.memory();
            let steps = executable.steps().into_iter().map(described).collect();
            let memory =
                [("constants", constants), ("packed", packed), ("results", results), ("peak", peak), ("sum", sum)];
            (steps, memory.into())
        }))
    }

    /// Seconds of each step in a run that waits for every one; None where each run finds out anew what it does.
    fn time_steps(&self, py: Python<'_>, inputs: Vec<In<'_>>) -> PyResult<Option<Vec<f64>>> {
        let tensors = self.tensors(&inputs)?;
        let durations = py.detach(|| -> Result<_, Error> {
            let Some(executable) = self.model.executable(&tensors)? else { return Ok(None) };
            Ok(Some(executable.time_steps(&self.model.device().queue(), &self.model.feeds(&tensors))?))
        });
        Ok(durations.map_err(raised)?.map(|steps| steps.iter().map(Duration::as_secs_f64).collect()))
    }
}

impl InferenceModel {
    fn tensors(&self, inputs: &[In<'_>]) -> PyResult<Vec<TensorData>> {
        inputs.iter().map(|input| self.tensor(input)).collect()
    }

    /// A copy of an array on the device.
    fn tensor(&self, (name, shape, array): &In<'_>) -> PyResult<TensorData> {
        let name = name.to_cow()?;
        let data_type = openmps_tile::dtype::EVERY.iter().copied().find(|data_type| data_type.name() == name);
        let data_type = data_type.ok_or_else(|| PyValueError::new_err(format!("{name} is no element type")))?;
        let buffer = PyUntypedBuffer::get(array)?;
        if buffer.item_size() != data_type.size() || !buffer.is_c_contiguous() {
            let what = "the array's elements must be of this type and lie one behind the other";
            return Err(PyValueError::new_err(format!("{name}: {what}")));
        }
        let bytes = match buffer.len_bytes() {
            0 => &[][..],
            // SAFETY: the buffer holds these bytes, and no code of Python's that could write them runs before they have been copied.
            len => unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), len) },
        };
        TensorData::from_bytes(self.model.device(), shape, data_type, bytes).map_err(|error| raised(error.into()))
    }
}

/// Command buffers that a GPU was handed of its default queue so far; None on other devices.
#[pyfunction]
fn command_buffers(device: usize) -> PyResult<Option<u64>> {
    let device = Device::get(device).map_err(|error| raised(error.into()))?;
    Ok(device.queue().command_buffers())
}

/// Bytes a second of a large copy on a device, and its arithmetic of float32 a second, as measured.
#[pyfunction]
fn ceilings(py: Python<'_>, device: usize) -> PyResult<(f64, f64)> {
    let measured = py.detach(|| Ceilings::measure(&Device::get(device)?));
    let Ceilings { bytes_per_second, operations_per_second, .. } = measured.map_err(|error| raised(error.into()))?;
    Ok((bytes_per_second, operations_per_second))
}

/// Bytes a second that the CPU reads (`kind` is "read") or reads and writes ("copy") of memory of so many bytes, as measured.
#[pyfunction]
fn host_bandwidth(py: Python<'_>, kind: &str, bytes: usize) -> PyResult<f64> {
    let traffic = match kind {
        "read" => Traffic::Read,
        "copy" => Traffic::Copy,
        _ => return Err(PyValueError::new_err(format!("kind is 'read' or 'copy', not {kind:?}"))),
    };
    Ok(py.detach(|| bytes_per_second(traffic, bytes, Duration::from_millis(50))))
}

/// The operations of a program that cannot be run.
#[pyfunction]
fn unsupported_operations(py: Python<'_>, program: PyBuffer<u8>) -> PyResult<Vec<String>> {
    let program = openmps_inference::read_program(&program.to_vec(py)?).map_err(raised)?;
    Ok(openmps_inference::unsupported(&program))
}

/// Every operation of Paddle's, or of ONNX's, that can be run.
#[pyfunction]
#[pyo3(signature = (onnx = false))]
fn supported_operations(onnx: bool) -> Vec<&'static str> {
    openmps_inference::supported(if onnx { Dialect::Onnx { opset: 0 } } else { Dialect::Paddle })
}

fn described(ports: Vec<(&str, &[i64], Option<DataType>)>) -> Vec<(String, Vec<i64>, Option<&'static str>)> {
    let described = |(name, dims, data_type): (&str, &[i64], Option<DataType>)| {
        (name.to_owned(), dims.to_vec(), data_type.map(DataType::name))
    };
    ports.into_iter().map(described).collect()
}

/// The exception that an error is.
fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(text)
        }
        Error::File { .. } => PyOSError::new_err(text),
        Error::Unsupported(_) => PyNotImplementedError::new_err(text),
        Error::Run(_) | Error::Lowering { .. } => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}
