//! A device that accepts every command and runs none: tests read what was asked of it, and decide when it "ends".

use super::{Command, Driver, host};
use crate::allocator::heap::{HeapSource, HostMemory, Region};
use crate::command_kind::CommandKind;
use crate::error::Result;
use crate::properties::{Backend, DeviceProperties};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One command that the recorder was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The queue's number on its device.
    pub queue: u64,
    /// The kind of command.
    pub kind: CommandKind,
    /// The operation's name; the kind's where the command has no other.
    pub operation: &'static str,
    /// Sizes, addresses, shapes.
    pub detail: String,
}

impl fmt::Display for Recorded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.detail.is_empty() { "" } else { ": " };
        write!(out, "queue {}: {}{separator}{}", self.queue, self.operation, self.detail)
    }
}

type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Log {
    commands: Vec<Recorded>,
    /// Callbacks that wait for the commands before them to end.
    callbacks: Vec<(u64, Callback)>,
}

/// The test's handle on a recording device.
#[derive(Clone, Default)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    /// Every command so far, in order of submission.
    pub fn commands(&self) -> Vec<Recorded> {
        self.lock().commands.clone()
    }

    /// The operations' names so far, in order of submission.
    pub fn operations(&self) -> Vec<&'static str> {
        self.lock().commands.iter().map(|command| command.operation).collect()
    }

    /// Forgets the commands so far; callbacks keep waiting.
    pub fn clear(&self) {
        self.lock().commands.clear();
    }

    /// Declares every command so far ended: their callbacks run now, in order. `synchronize` does so for its queue.
    pub fn complete(&self) {
        self.run_callbacks(|_| true);
    }

    fn run_callbacks(&self, of_queue: impl Fn(u64) -> bool) {
        // Taken out first: a callback may submit further commands.
        let (run, keep) =
            std::mem::take(&mut self.lock().callbacks).into_iter().partition(|&(queue, _)| of_queue(queue));
        self.lock().callbacks.splice(0..0, keep);
        let run: Vec<(u64, Callback)> = run;
        run.into_iter().for_each(|(_, callback)| callback());
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Recorder {
    fn submit(&self, queue: u64, command: Command<'_>) -> Result<()> {
        let (kind, operation, detail) = (command.kind(), command.operation(), command.detail());
        let mut log = self.lock();
        log.commands.push(Recorded { queue, kind, operation, detail });
        match command {
            Command::Callback(callback) => log.callbacks.push((queue, callback)),
            Command::Record(event) => event.reach(),
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, queue: u64) -> Result<()> {
        self.run_callbacks(|of| of == queue);
        Ok(())
    }
}

/// Real memory with the rules of a device that has its own timeline.
pub(crate) struct RecorderMemory;

impl HeapSource for RecorderMemory {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        HostMemory.reserve(bytes)
    }

    fn release(&self, region: Region) {
        HostMemory.release(region);
    }

    fn ordered_by_queue(&self) -> bool {
        true
    }
}

/// The host's properties under the recorder's name.
pub(crate) fn properties() -> DeviceProperties {
    DeviceProperties { name: "recorder".to_string(), backend: Backend::Recorder, ..host::properties() }
}
