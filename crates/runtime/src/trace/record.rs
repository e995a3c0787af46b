//! Commands kept in memory, for a profiler of somebody else's: [`Recorder`].

use super::state::{self, Mode, records};
use crate::command_kind::CommandKind;
use crate::devices::Command;
use crate::error::{Error, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// A command that was submitted while a [`Recorder`] was there. Times are nanoseconds since 1970.
#[derive(Clone, Debug)]
pub struct Record {
    /// The operator's name, or the kind of a command that is none.
    pub operation: &'static str,
    /// What was done.
    pub kind: CommandKind,
    /// The device's index.
    pub device: usize,
    /// The queue's number on its device.
    pub queue: u64,
    /// The system's number of the thread that submitted the command.
    pub thread: u64,
    /// When it was submitted.
    pub begin_ns: u64,
    /// When it was done, or, on a GPU, handed over.
    pub end_ns: u64,
    /// The bytes that it moved, where it says so.
    pub bytes: Option<usize>,
}

/// Keeps a record of every command of this process, on every device, until it is stopped or dropped.
///
/// ```
/// use openmps_runtime::{Device, trace::Recorder};
/// let recorder = Recorder::start()?;
/// Device::get(0)?.queue().run_native("noise", || Ok(()))?;
/// assert_eq!(recorder.stop()[0].operation, "noise");
/// # Ok::<(), openmps_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    _private: (),
}

impl Recorder {
    /// Begins. A process has one at a time.
    pub fn start() -> Result<Recorder> {
        let mut records = records();
        if !state::begin(Mode::Records) {
            return Err(Error::Tracing { what: "commands are being recorded already".to_string() });
        }
        state::watch_forks();
        records.clear();
        Ok(Recorder { _private: () })
    }

    /// Ends, and gives what was recorded, in the order in which commands ended. Of more than a million the first million.
    pub fn stop(self) -> Vec<Record> {
        std::mem::take(&mut *records())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        state::end(Mode::Records);
    }
}

impl Record {
    /// Notes what a command is and when it began; none for those that only order others, or consist of others.
    pub(super) fn begin(device: usize, queue: u64, command: &Command<'_>) -> Option<Record> {
        if matches!(command, Command::Submit { .. } | Command::Record(_) | Command::Wait(_) | Command::Callback(_)) {
            return None;
        }
        Some(Record {
            operation: command.operation(),
            kind: command.kind(),
            device,
            queue,
            thread: system_thread(),
            begin_ns: unix_ns(),
            end_ns: 0,
            bytes: command.bytes(),
        })
    }

    /// Notes when the command ended.
    pub(super) fn end(mut self) {
        self.end_ns = unix_ns();
        let mut records = records();
        if state::is_on(Mode::Records) && records.len() < state::MOST_EVENTS {
            records.push(self);
        }
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// The number that the system gives this thread.
#[cfg(target_os = "linux")]
fn system_thread() -> u64 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() as u64 }
}

/// The number that traces give this thread.
#[cfg(not(target_os = "linux"))]
fn system_thread() -> u64 {
    state::thread() as u64
}
