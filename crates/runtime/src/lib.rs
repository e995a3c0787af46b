//! Devices, buffers, queues, events, the allocator, statistics and tracing. Knows no operator.

pub mod error;

pub use error::{Error, Result};

/// An ordered stream of work on one device.
#[derive(Clone, Debug)]
pub struct Queue;

impl Queue {
    /// Runs a call of the device's library, in order with the queue's other commands.
    pub fn library(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
    ) -> Result<()> {
        work().map_err(|source| Error::Kernel { operation, source })
    }
}
