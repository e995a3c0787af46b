//! Devices, buffers, queues, events, the allocator, statistics and tracing. Knows no operator.

mod allocator;
mod buffer;
mod clock;
pub mod command_buffer;
mod command_kind;
pub mod device;
mod devices;
mod dump;
pub mod error;
pub mod event;
mod identity;
pub mod kind;
pub mod pipeline;
mod properties;
pub mod queue;
pub mod reclaim;
pub mod sanitizer;
mod stage;
pub mod trace;
pub mod vendor;

pub use allocator::MemoryStatistics;
pub use buffer::Buffer;
pub use command_buffer::{CommandBuffer, Status};
pub use command_kind::{CommandCounts, CommandKind};
pub use device::{BorrowedMemory, Device};
pub use devices::external;
pub use devices::recorder::{Recorded, Recorder};
pub use error::{Error, Result};
pub use event::Event;
pub use identity::Identity;
pub use openmps_host::fork;
pub use openmps_metal as metal;
pub use pipeline::{Limits, Pipeline, ReadError};
pub use properties::{Backend, DeviceProperties};
pub use queue::Queue;
