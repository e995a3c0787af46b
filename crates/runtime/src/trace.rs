//! Tracing: every command and every change of memory, as a JSON file that Chrome's `about:tracing` and Perfetto open.
//!
//! `OPENMPS_TRACE=path` traces a whole process; `start` and `stop` a part of one. [`Recorder`] keeps commands in memory instead.

mod file;
mod record;
mod state;
mod text;

use crate::clock;
use crate::devices::Command;
use crate::error::{Error, Result};
use file::TraceFile;
pub use record::{Record, Recorder};
use state::{MOST_EVENTS, Mode, Running, add, running, thread};
use std::path::{Path, PathBuf};

/// One event. Times are nanoseconds on the runtime's clock.
enum Event {
    Command {
        name: &'static str,
        kind: &'static str,
        device: usize,
        queue: u64,
        thread: usize,
        begin: u64,
        end: u64,
        bytes: Option<usize>,
        detail: String,
        error: Option<String>,
    },
    Memory {
        device: usize,
        time: u64,
        allocated: usize,
        reserved: usize,
    },
    /// What the emulator counted in a dispatch.
    #[cfg_attr(
        not(all(feature = "emulated", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
        allow(dead_code, reason = "only the emulator counts")
    )]
    Counted {
        kernel: String,
        thread: usize,
        time: u64,
        threadgroups: u64,
        numbers: Vec<(&'static str, u64)>,
        /// Microseconds that GPUs need at least.
        times: Vec<(&'static str, f64)>,
    },
}

/// Whether something is tracing.
#[inline]
pub fn is_on() -> bool {
    state::is_any_on()
}

/// Begins a trace into this file, which `stop` ends.
pub fn start(path: impl AsRef<Path>) -> Result<()> {
    start_bounded(path, MOST_EVENTS)
}

/// As `start`, with room for so many events: later ones are counted and dropped.
pub fn start_bounded(path: impl AsRef<Path>, most_events: usize) -> Result<()> {
    let path = path.as_ref();
    let mut running = running();
    if let Running::File(trace) = &*running {
        return Err(Error::Tracing { what: format!("already on, into {}", trace.path.display()) });
    }
    *running = Running::File(TraceFile::create(path, most_events).map_err(|source| failed(path, source))?);
    state::watch_forks();
    state::begin(Mode::File);
    Ok(())
}

/// Ends the trace; the answer is its file.
pub fn stop() -> Result<PathBuf> {
    let mut running = running();
    state::end(Mode::File);
    match std::mem::replace(&mut *running, Running::None) {
        Running::File(trace) => trace.finish().map_err(|(path, source)| failed(&path, source)),
        Running::None | Running::Child => Err(Error::Tracing { what: "not on".to_string() }),
    }
}

fn failed(path: &Path, source: std::io::Error) -> Error {
    Error::Io { what: format!("trace {}", path.display()), source }
}

/// Begins the trace that `OPENMPS_TRACE` asks for; it ends when the process exits.
pub(crate) fn start_from_environment() {
    let Some(path) = openmps_settings::TRACE.get() else { return };
    match state::start_of_environment(&path) {
        // SAFETY: the function lives as long as this library, takes nothing and does not unwind.
        Ok(()) => match unsafe { libc::atexit(stop_at_exit) } {
            0 => {}
            _ => tracing::warn!("the trace may lack its last events: the system refused a function at exit"),
        },
        Err(error) => openmps_settings::say(&format!("OPENMPS_TRACE={}: {error}; nothing is traced", path.display())),
    }
}

extern "C" fn stop_at_exit() {
    // Nothing may unwind into the C library, and nobody is left to hear of an error but the terminal.
    if let Ok(Err(error @ Error::Io { .. })) = std::panic::catch_unwind(stop) {
        eprintln!("openmps: {error}");
    }
}

/// A command that is being executed.
pub(crate) struct Span {
    event: Option<Event>,
    record: Option<Record>,
}

impl Span {
    /// Notes what the command is and when it began.
    pub fn begin(device: usize, queue: u64, command: &Command<'_>) -> Span {
        let event = || Event::Command {
            name: command.operation(),
            kind: command.kind().name(),
            device,
            queue,
            thread: thread(),
            bytes: command.bytes(),
            detail: command.detail(),
            error: None,
            end: 0,
            begin: clock::now_ns(),
        };
        let event = state::is_on(Mode::File).then(event);
        let record = if state::is_on(Mode::Records) { Record::begin(device, queue, command) } else { None };
        Span { event, record }
    }

    /// Notes when the command ended, and how.
    pub fn end(self, failure: Option<&Error>) {
        if let Some(record) = self.record {
            record.end();
        }
        let now = clock::now_ns();
        let Some(mut event) = self.event else { return };
        if let Event::Command { end, error, .. } = &mut event {
            *end = now;
            *error = failure.map(Error::to_string);
        }
        add(&event);
    }
}

/// Notes what the emulator counted in a dispatch.
#[cfg(all(feature = "emulated", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn counted(kernel: &str, threadgroups: u64, counters: &openmps_metal::emulated::Counters) {
    if !state::is_on(Mode::File) {
        return;
    }
    let times = openmps_metal::emulated::GPUS.iter().map(|gpu| (gpu.name, gpu.seconds(counters) * 1e6));
    add(&Event::Counted {
        kernel: kernel.to_owned(),
        thread: thread(),
        time: clock::now_ns(),
        threadgroups,
        numbers: counters.numbers().into(),
        times: times.collect(),
    });
}

/// Notes a device's memory.
pub(crate) fn memory(device: usize, allocated: usize, reserved: usize) {
    if !state::is_on(Mode::File) {
        return;
    }
    add(&Event::Memory { device, time: clock::now_ns(), allocated, reserved });
}
