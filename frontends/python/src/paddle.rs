//! What `paddle.mps` asks of the runtime: devices, memory, tracing, and how the meeting with Paddle went.

use openmps_paddle::{State, device, kernels, state};
use openmps_runtime::{Device, trace};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// Adds these functions to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(plugin_state, module)?)?;
    module.add_function(wrap_pyfunction!(plugin_kernels, module)?)?;
    module.add_function(wrap_pyfunction!(device_count, module)?)?;
    module.add_function(wrap_pyfunction!(device_properties, module)?)?;
    module.add_function(wrap_pyfunction!(memory_statistics, module)?)?;
    module.add_function(wrap_pyfunction!(reset_peak_allocated, module)?)?;
    module.add_function(wrap_pyfunction!(reset_peak_reserved, module)?)?;
    module.add_function(wrap_pyfunction!(reset_accumulated, module)?)?;
    module.add_function(wrap_pyfunction!(empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(memory_limit, module)?)?;
    module.add_function(wrap_pyfunction!(set_memory_limit, module)?)?;
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(event_elapsed_ms, module)?)?;
    module.add_function(wrap_pyfunction!(trace_start, module)?)?;
    module.add_function(wrap_pyfunction!(trace_stop, module)?)
}

fn failed(error: openmps_runtime::Error) -> PyErr {
    match error {
        openmps_runtime::Error::NoSuchDevice { .. } => PyValueError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

fn get(index: usize) -> PyResult<Device> {
    Device::get(index).map_err(failed)
}

/// ("registered" | "refused" | "not loaded", the reason or None).
#[pyfunction]
fn plugin_state() -> (&'static str, Option<String>) {
    match state() {
        State::NotLoaded => ("not loaded", None),
        State::Registered => ("registered", None),
        State::Refused(reason) => ("refused", Some(reason)),
    }
}

/// The kernels that Paddle gets: (name, element types).
#[pyfunction]
fn plugin_kernels() -> Vec<(&'static str, Vec<&'static str>)> {
    let table = kernels::table();
    table
        .rows()
        .iter()
        .map(|row| (row.name(), row.data_types().iter().map(|data_type| data_type.name()).collect()))
        .collect()
}

#[pyfunction]
fn device_count() -> usize {
    Device::all().len()
}

#[pyfunction]
fn device_properties<'py>(py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
    let device = get(index)?;
    let properties = device.properties();
    let dict = PyDict::new(py);
    dict.set_item("name", &properties.name)?;
    dict.set_item("backend", properties.backend.name())?;
    dict.set_item("cores", properties.cores)?;
    dict.set_item("threads", properties.threads)?;
    dict.set_item("total_memory", properties.total_memory)?;
    dict.set_item("vector_level", properties.vector_level)?;
    dict.set_item("simd_width", properties.simd_width)?;
    dict.set_item("unified_memory", properties.unified_memory)?;
    dict.set_item("max_buffer_length", properties.max_buffer_length)?;
    Ok(dict)
}

#[pyfunction]
fn memory_statistics<'py>(py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyDict>> {
    let statistics = get(index)?.statistics();
    let dict = PyDict::new(py);
    dict.set_item("allocated", statistics.allocated)?;
    dict.set_item("reserved", statistics.reserved)?;
    dict.set_item("cached", statistics.cached)?;
    dict.set_item("peak_allocated", statistics.peak_allocated)?;
    dict.set_item("peak_reserved", statistics.peak_reserved)?;
    dict.set_item("allocation_count", statistics.allocation_count)?;
    dict.set_item("free_count", statistics.free_count)?;
    dict.set_item("heap_count", statistics.heap_count)?;
    dict.set_item("cache_hits", statistics.cache_hits)?;
    dict.set_item("cache_misses", statistics.cache_misses)?;
    dict.set_item("flush_count", statistics.flush_count)?;
    dict.set_item("out_of_memory_count", statistics.out_of_memory_count)?;
    Ok(dict)
}

#[pyfunction]
fn reset_peak_allocated(index: usize) -> PyResult<()> {
    get(index).map(|device| device.reset_peak_allocated())
}

#[pyfunction]
fn reset_peak_reserved(index: usize) -> PyResult<()> {
    get(index).map(|device| device.reset_peak_reserved())
}

#[pyfunction]
fn reset_accumulated(index: usize) -> PyResult<()> {
    get(index).map(|device| device.reset_accumulated())
}

#[pyfunction]
fn empty_cache(index: usize) -> PyResult<()> {
    get(index).map(|device| device.empty_cache())
}

#[pyfunction]
fn memory_limit(index: usize) -> PyResult<usize> {
    get(index).map(|device| device.memory_limit())
}

#[pyfunction]
fn set_memory_limit(index: usize, bytes: usize) -> PyResult<()> {
    get(index).map(|device| device.set_memory_limit(bytes))
}

#[pyfunction]
fn synchronize(py: Python<'_>, index: usize) -> PyResult<()> {
    let device = get(index)?;
    py.detach(|| device.synchronize()).map_err(failed)
}

/// Milliseconds between two events of Paddle's, by their `raw_event`.
#[pyfunction]
fn event_elapsed_ms(earlier: usize, later: usize) -> PyResult<f64> {
    if earlier == 0 || later == 0 {
        return Err(PyValueError::new_err("an event has no address"));
    }
    // SAFETY: `paddle.mps.Event` passes the addresses of its own live events.
    unsafe { device::elapsed_ms(earlier, later) }.map_err(failed)
}

#[pyfunction]
fn trace_start(path: PathBuf) -> PyResult<()> {
    trace::start(path).map_err(failed)
}

#[pyfunction]
fn trace_stop() -> PyResult<PathBuf> {
    trace::stop().map_err(failed)
}
