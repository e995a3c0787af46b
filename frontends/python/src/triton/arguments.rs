//! Arguments of a launch: what a tensor of whichever framework says of itself, as the device takes it.

use super::device;
use openmps_runtime::{Backend, Device};
use openmps_tile::{Element, Scalar, Type};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyType};
use std::sync::{Mutex, PoisonError};

/// The places of the arguments that are tensors in the process's own memory, where a device has to be told of that: not on the host, and not in
/// the memory of the device.
pub(super) fn in_process(device: &Device, given: &[Bound<'_, PyAny>]) -> PyResult<Vec<usize>> {
    if device.properties().backend == Backend::Host {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (place, argument) in given.iter().enumerate().filter(|(_, argument)| !is_number(argument)) {
        let is_in_process = lies_in_process(argument)?;
        if is_in_process && device.resolve(argument.call_method0("data_ptr")?.extract()?, 0).is_err() {
            found.push(place);
        }
    }
    Ok(found)
}

/// Whether a tensor may lie in the process's own memory.
fn lies_in_process(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    match origin(tensor)? {
        Origin::Torch => tensor.getattr(pyo3::intern!(tensor.py(), "is_cpu"))?.is_truthy(),
        Origin::Wrapper => lies_in_process(&tensor.getattr(pyo3::intern!(tensor.py(), "base"))?),
        Origin::Array | Origin::Unknown => Ok(true),
    }
}

fn is_number(argument: &Bound<'_, PyAny>) -> bool {
    argument.is_instance_of::<PyInt>() || argument.is_instance_of::<PyFloat>() || argument.is_none()
}

/// A parameter's value as the device takes it. A tensor says its address itself.
pub(super) fn bits(ty: &Type, stored: bool, argument: &Bound<'_, PyAny>) -> PyResult<u64> {
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
        Element::Scalar(scalar) => {
            let number =
                argument.extract::<i64>().or_else(|_| argument.extract::<u64>().map(|number| number as i64))?;
            extended(number, scalar)
        }
    })
}

/// The bits that a type has of an integer, with copies of its sign before them: a parameter may be declared unsigned.
fn extended(number: i64, scalar: Scalar) -> u64 {
    if scalar == Scalar::I1 {
        return (number & 1) as u64;
    }
    let unused = 64 - 8 * scalar.size() as u32;
    ((number << unused) >> unused) as u64
}

/// What a tensor can say of where its elements are.
#[derive(Clone, Copy)]
enum Origin {
    /// As PyTorch's: whether they are in the CPU's memory.
    Torch,
    /// As our arrays: whether they may be written.
    Array,
    /// As what `triton.reinterpret` gives: the tensor that they are of.
    Wrapper,
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
        _ if ty.name()? == "TensorWrapper" && tensor.hasattr("base")? => Origin::Wrapper,
        _ => Origin::Unknown,
    };
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push((ty.unbind(), origin));
    Ok(origin)
}

/// The address of a tensor's first element, where the device can reach it and may do what the kernel does.
fn address(tensor: &Bound<'_, PyAny>, stored: bool) -> PyResult<u64> {
    let py = tensor.py();
    match origin(tensor)? {
        Origin::Wrapper => return address(&tensor.getattr(pyo3::intern!(py, "base"))?, stored),
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
    let device = device()?;
    let is_there = |tensor: &Bound<'_, PyAny>| -> PyResult<bool> {
        let index: i64 = tensor.call_method0("get_device")?.extract()?;
        Ok(tensor.getattr("is_cuda")?.is_truthy()? && usize::try_from(index) == Ok(device.index()))
    };
    if device.properties().backend == Backend::Cuda && is_there(tensor).unwrap_or(false) {
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
pub(super) fn named(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let message = format!("parameter {name}: {}", error.value(py));
    if error.is_instance_of::<PyValueError>(py) {
        PyValueError::new_err(message)
    } else {
        PyTypeError::new_err(message)
    }
}
