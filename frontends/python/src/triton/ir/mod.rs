//! What stands where Triton's own native library was: the classes of `triton._C.libtriton.ir`, over `openmps_triton_ir`.
//!
//! Names, parameters and their order are those of Triton 3.9's `ir`; `tests/triton/test_without_libtriton.py` compares them with what Triton's
//! Python files call.

mod arithmetic;
mod builder;
mod control;
mod descriptors;
mod handles;
mod manager;
mod memory;
mod operations;
mod shapes;
mod words;

use openmps_triton_ir::{Context, Refused};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One compilation's operations, which all of its handles share.
type Shared = Arc<Mutex<Context>>;

fn locked(shared: &Shared) -> MutexGuard<'_, Context> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: Refused) -> PyErr {
    PyValueError::new_err(error.0)
}

/// Fills the module `ir`, and `passes` with the functions that a backend calls.
pub fn register(ir: &Bound<'_, PyModule>, passes: &Bound<'_, PyModule>) -> PyResult<()> {
    handles::register(ir)?;
    operations::register(ir)?;
    words::register(ir)?;
    builder::register(ir)?;
    manager::register(ir, passes)
}
