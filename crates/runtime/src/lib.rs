//! Devices, buffers, queues, events, the allocator, statistics and tracing. Knows no operator.

pub mod error;

pub use error::{Error, Result};

/// An ordered stream of work on one device.
#[derive(Clone, Debug)]
pub struct Queue;
