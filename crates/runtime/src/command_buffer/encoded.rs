//! One command as a command buffer holds it until its turn.

use super::resources::Resource;
use crate::devices::{Command, NativeResult};
use crate::error::Result;
use crate::event::Event;
use crate::pipeline::Pipeline;
use crate::queue::Queue;
use std::sync::Arc;

pub(super) enum Encoded {
    Native {
        operation: &'static str,
        /// Taken when it runs; a device that runs nothing leaves it here until the buffer ends.
        work: Option<Box<dyn FnOnce() -> NativeResult + Send>>,
    },
    /// Submits commands of its own, for which the resources are locked.
    Submit {
        operation: &'static str,
        resources: Vec<Box<dyn Resource>>,
        work: Option<Box<dyn FnOnce() -> NativeResult + Send>>,
    },
    /// Whoever encoded it vouches for the addresses among the arguments.
    Dispatch {
        operation: &'static str,
        pipeline: Arc<Pipeline>,
        grid: [usize; 3],
        arguments: Vec<u64>,
    },
    Copy {
        destination: usize,
        source: usize,
        bytes: usize,
    },
    Fill {
        address: usize,
        byte: u8,
        bytes: usize,
    },
    Record(Event),
    Wait(Event),
}

impl Encoded {
    /// The name for errors.
    pub fn operation(&self) -> &'static str {
        match self {
            Encoded::Native { operation, .. }
            | Encoded::Submit { operation, .. }
            | Encoded::Dispatch { operation, .. } => operation,
            Encoded::Copy { .. } => "copy",
            Encoded::Fill { .. } => "fill",
            Encoded::Record(_) => "record",
            Encoded::Wait(_) => "wait",
        }
    }

    /// Whether it locks memory of the host's.
    pub fn is_locked(&self) -> bool {
        matches!(self, Encoded::Submit { .. })
    }

    /// What it locks, which goes with this.
    pub fn take_resources(&mut self) -> Vec<Box<dyn Resource>> {
        match self {
            Encoded::Submit { resources, .. } => std::mem::take(resources),
            _ => Vec::new(),
        }
    }

    /// Passes the command to the queue.
    pub fn run(&mut self, queue: &Queue) -> Result<()> {
        match self {
            Encoded::Native { operation, work } => {
                let mut once = || -> NativeResult { work.take().map_or(Ok(()), |work| work()) };
                queue.submit(Command::Native { operation, detail: &String::new, work: &mut once })
            }
            Encoded::Submit { operation, work, .. } => {
                let mut once = || -> NativeResult { work.take().map_or(Ok(()), |work| work()) };
                queue.submit(Command::Submit { operation, work: &mut once })
            }
            Encoded::Dispatch { operation, pipeline, grid, arguments } => {
                // SAFETY: `CommandBuffer::dispatch` is unsafe, and its caller vouches for the addresses.
                unsafe { queue.dispatch(operation, pipeline, *grid, arguments) }
            }
            // SAFETY: `CommandBuffer::copy` is unsafe, and its caller vouches for the ranges.
            Encoded::Copy { destination, source, bytes } => unsafe { queue.copy(*destination, *source, *bytes) },
            // SAFETY: as for a copy.
            Encoded::Fill { address, byte, bytes } => unsafe { queue.fill(*address, *byte, *bytes) },
            Encoded::Record(event) => queue.record(event),
            Encoded::Wait(event) => queue.wait(event),
        }
    }
}
