//! What a launch says of its arguments: each one's type, and what the compiler may rely on. Triton asks at every launch.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, intern};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A type, and a property: "D" of what is divisible by 16, the value itself of a constant.
type Specialization<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// How an argument is to be looked at.
#[derive(Clone, Copy)]
struct Request<'a, 'py> {
    backend: &'a Bound<'py, PyAny>,
    is_const: bool,
    specialize: bool,
    align: bool,
}

/// `native_specialize_impl` of Triton's native library.
#[pyfunction]
pub fn native_specialize_impl<'py>(
    backend: &Bound<'py, PyAny>,
    argument: &Bound<'py, PyAny>,
    is_const: bool,
    specialize: bool,
    align: bool,
) -> PyResult<Specialization<'py>> {
    Request { backend, is_const, specialize, align }.of(argument)
}

/// The property of what is divisible by 16, where that counts.
fn property<'py>(py: Python<'py>, is_divisible: bool) -> Bound<'py, PyAny> {
    if is_divisible { intern!(py, "D").clone().into_any() } else { intern!(py, "").clone().into_any() }
}

fn none(py: Python<'_>) -> Bound<'_, PyAny> {
    py.None().into_bound(py)
}

impl<'py> Request<'_, 'py> {
    fn of(self, argument: &Bound<'py, PyAny>) -> PyResult<Specialization<'py>> {
        let py = argument.py();
        if argument.is_exact_instance_of::<PyInt>() {
            return self.integer(argument);
        }
        if argument.is_exact_instance_of::<PyFloat>() {
            return Ok((intern!(py, "fp32").clone().into_any(), none(py)));
        }
        if argument.is_exact_instance_of::<PyBool>() {
            return Ok((intern!(py, "u1").clone().into_any(), none(py)));
        }
        if argument.is_none() {
            return Ok((intern!(py, "constexpr").clone().into_any(), none(py)));
        }
        if let Ok(tuple) = argument.cast::<PyTuple>() {
            return self.tuple(tuple);
        }
        match kind(argument)? {
            Kind::Tensor => self.tensor(argument),
            Kind::Constant => Ok((intern!(py, "constexpr").clone().into_any(), argument.clone())),
            Kind::Function => {
                Ok((intern!(py, "constexpr").clone().into_any(), argument.getattr(intern!(py, "cache_key"))?))
            }
            Kind::Descriptor => descriptor(argument),
            Kind::Other => self.by_its_own_type(argument),
        }
    }

    fn integer(self, argument: &Bound<'py, PyAny>) -> PyResult<Specialization<'py>> {
        let py = argument.py();
        let (ty, low) = match argument.extract::<i64>() {
            Ok(1) if self.specialize => return Ok((intern!(py, "constexpr").clone().into_any(), argument.clone())),
            Ok(number) if i32::try_from(number).is_ok() => (intern!(py, "i32"), number as u64),
            Ok(number) => (intern!(py, "i64"), number as u64),
            Err(_) => {
                let number = argument.extract::<u64>();
                let number = number.map_err(|_| PyOverflowError::new_err("an integer of more than 64 bits"))?;
                (intern!(py, "u64"), number)
            }
        };
        let property = if self.specialize { property(py, self.align && low & 15 == 0) } else { none(py) };
        Ok((ty.clone().into_any(), property))
    }

    fn tensor(self, argument: &Bound<'py, PyAny>) -> PyResult<Specialization<'py>> {
        let py = argument.py();
        let ty = pointer_type(&argument.getattr(intern!(py, "dtype"))?, self.is_const)?;
        if !self.specialize {
            return Ok((ty, none(py)));
        }
        let natively = self.backend.getattr_opt(intern!(py, "supports_native_tensor_specialization"))?;
        if natively.is_some_and(|natively| natively.is_truthy().unwrap_or(false)) {
            let address = argument.call_method0(intern!(py, "data_ptr"))?.extract::<u64>()?;
            return Ok((ty, property(py, self.align && address & 15 == 0)));
        }
        let options = PyDict::new(py);
        options.set_item(intern!(py, "align"), self.align)?;
        let asked = self.backend.call_method(intern!(py, "get_tensor_specialization"), (argument,), Some(&options))?;
        Ok((ty, asked))
    }

    /// Each of the values, in a tuple of the same kind.
    fn tuple(self, argument: &Bound<'py, PyTuple>) -> PyResult<Specialization<'py>> {
        let py = argument.py();
        let each = Request { is_const: false, specialize: true, align: true, ..self };
        let found = argument.iter().map(|item| each.of(&item)).collect::<PyResult<Vec<_>>>()?;
        let (types, properties): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let (types, properties) = (PyTuple::new(py, types)?, PyTuple::new(py, properties)?);
        if argument.hasattr(intern!(py, "_fields"))? {
            let of = argument.get_type();
            return Ok((of.call1(types)?, of.call1(properties)?));
        }
        Ok((types.into_any(), properties.into_any()))
    }

    /// What only the number's own type tells: integers and floats of NumPy, and other subclasses.
    fn by_its_own_type(self, argument: &Bound<'py, PyAny>) -> PyResult<Specialization<'py>> {
        if argument.is_instance_of::<PyInt>() {
            return self.integer(argument);
        }
        let py = argument.py();
        if argument.is_instance_of::<PyFloat>() {
            return Ok((intern!(py, "fp32").clone().into_any(), none(py)));
        }
        let name = argument.get_type().name()?;
        Err(PyTypeError::new_err(format!("failed to specialize argument of type: {name}")))
    }
}

/// What an argument is that is none of Python's own numbers.
#[derive(Clone, Copy)]
enum Kind {
    /// It has an address.
    Tensor,
    /// `tl.constexpr`, or a type of elements.
    Constant,
    /// A function of `@triton.jit`.
    Function,
    /// A description of a tensor.
    Descriptor,
    Other,
}

/// The kind of an argument by its type, which is asked once.
fn kind(argument: &Bound<'_, PyAny>) -> PyResult<Kind> {
    static KNOWN: Mutex<Vec<(Py<PyType>, Kind)>> = Mutex::new(Vec::new());
    let ty = argument.get_type();
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).iter().find(|(of, _)| of.is(&ty)).map(|(_, k)| *k);
    if let Some(kind) = known {
        return Ok(kind);
    }
    let py = argument.py();
    let is = |module: &str, name: &str| argument.is_instance(&py.import(module)?.getattr(name)?);
    let kind = if is("triton.tools.tensor_descriptor", "TensorDescriptor")? {
        Kind::Descriptor
    } else if is("triton.language", "constexpr")? || is("triton.language", "dtype")? {
        Kind::Constant
    } else if is("triton.runtime.jit", "JITCallable")? {
        Kind::Function
    } else if ty.hasattr(intern!(py, "data_ptr"))? {
        Kind::Tensor
    } else if argument.hasattr(intern!(py, "data_ptr"))? {
        // This object has an address, another one of its type may have none.
        return Ok(Kind::Tensor);
    } else {
        return Ok(Kind::Other);
    };
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push((ty.unbind(), kind));
    Ok(kind)
}

/// The type of a pointer to elements, by what Triton calls them.
fn pointer_type<'py>(element: &Bound<'py, PyAny>, is_const: bool) -> PyResult<Bound<'py, PyAny>> {
    static KNOWN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = element.py();
    let known = KNOWN.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let key = (element, is_const).into_pyobject(py)?;
    if let Some(name) = known.get_item(&key)? {
        return Ok(name);
    }
    static NAMED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let canonical = NAMED.import(py, "triton._utils", "canonicalize_ptr_dtype")?;
    let name = canonical.call1(&key)?;
    known.set_item(key, &name)?;
    Ok(name)
}

/// `tensordesc<fp16[16, 32]>`
fn descriptor<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Specialization<'py>> {
    let py = argument.py();
    let element = argument.getattr(intern!(py, "base"))?.getattr(intern!(py, "dtype"))?;
    let element = py.import("triton._utils")?.getattr("canonicalize_dtype")?.call1((element,))?;
    let shape: Vec<i64> = argument.getattr(intern!(py, "block_shape"))?.extract()?;
    let name = PyString::new(py, &format!("tensordesc<{element}{shape:?}>"));
    Ok((name.into_bound_py_any(py)?, none(py)))
}

/// A variable of the environment, or what stands for it.
#[pyfunction]
#[pyo3(signature = (name, default = None))]
pub fn getenv<'py>(
    py: Python<'py>,
    name: &str,
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value.into_bound_py_any(py)?)),
        Err(_) => Ok(default),
    }
}

/// A variable of the environment as a truth value.
#[pyfunction]
#[pyo3(signature = (name, default = false))]
pub fn getenv_bool(name: &str, default: bool) -> bool {
    let value = std::env::var(name).map(|value| value.to_lowercase());
    value.map_or(default, |value| matches!(value.as_str(), "on" | "true" | "1"))
}

/// Variables of the environment that change what is compiled: none.
#[pyfunction]
pub fn get_cache_invalidating_env_vars() -> HashMap<String, String> {
    HashMap::new()
}
