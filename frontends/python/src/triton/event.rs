//! Points in a stream's order, for `triton.testing.do_bench` and whoever else measures launches.

use super::{failed, queue};
use openmps_runtime::Event;
use pyo3::prelude::*;

/// A point in a stream's order, and the time when the stream reached it.
#[pyclass(frozen, subclass, module = "paddle_custom_device.openmps_native")]
pub(super) struct TritonEvent(Event);

#[pymethods]
impl TritonEvent {
    #[new]
    #[pyo3(signature = (enable_timing = true))]
    fn new(enable_timing: bool) -> TritonEvent {
        // Every event has its time.
        let _ = enable_timing;
        TritonEvent(Event::new())
    }

    /// Sets the event when a stream comes here; 0 is the device's own.
    fn record_on(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        let queue = queue(stream)?;
        py.detach(|| queue.record(&self.0)).map_err(|error| failed(&error))
    }

    /// Whether the event was recorded and the work before it has ended.
    fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits for the work before the event.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.synchronize()).map_err(|error| failed(&error))
    }

    /// Milliseconds until another event; this waits for the work before both.
    fn elapsed_time(&self, py: Python<'_>, end: &TritonEvent) -> PyResult<f64> {
        self.synchronize(py)?;
        end.synchronize(py)?;
        end.0.elapsed_ms(&self.0).map_err(|error| failed(&error))
    }
}
