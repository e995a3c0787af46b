//! Tracing: every command and every change of memory, as a JSON file that Chrome's `about:tracing` and Perfetto open.
//!
//! `OPENMPS_TRACE=path` traces a whole process; `start` and `stop` a part of one.

mod file;

use crate::clock;
use crate::devices::Command;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events kept in memory unless `start_bounded` says otherwise; about 150 bytes each.
const MOST_EVENTS: usize = 1 << 20;

static ON: AtomicBool = AtomicBool::new(false);
static TRACE: Mutex<Option<Trace>> = Mutex::new(None);
/// Names of the threads that appeared in any trace; a thread's number is its place here.
static THREADS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Trace {
    path: PathBuf,
    file: File,
    events: Vec<Event>,
    most_events: usize,
    dropped: usize,
}

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
}

/// Whether something is tracing.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins a trace that `stop` writes to this file, which is created now.
pub fn start(path: impl AsRef<Path>) -> Result<()> {
    start_bounded(path, MOST_EVENTS)
}

/// As `start`, with room for so many events: later ones are counted and dropped.
pub fn start_bounded(path: impl AsRef<Path>, most_events: usize) -> Result<()> {
    let path = path.as_ref().to_path_buf();
    let mut trace = lock();
    if let Some(running) = &*trace {
        return Err(Error::Tracing { what: format!("already on, into {}", running.path.display()) });
    }
    let file = File::create(&path).map_err(|source| Error::Io { what: format!("trace {}", path.display()), source })?;
    *trace = Some(Trace { path, file, events: Vec::new(), most_events, dropped: 0 });
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends the trace and writes it; the answer is its file.
pub fn stop() -> Result<PathBuf> {
    let mut running = lock();
    ON.store(false, Ordering::Relaxed);
    let Some(trace) = running.take() else { return Err(Error::Tracing { what: "not on".to_string() }) };
    drop(running);
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let written = file::write(&trace.file, &trace.events, trace.dropped, &threads);
    written.map_err(|source| Error::Io { what: format!("trace {}", trace.path.display()), source })?;
    Ok(trace.path)
}

/// Begins a trace that ends with the guard.
pub fn scoped(path: impl AsRef<Path>) -> Result<Guard> {
    start(path).map(|()| Guard { _private: () })
}

/// Ends its trace when it goes; an error of the file is logged.
#[must_use = "the trace ends when the guard is dropped"]
pub struct Guard {
    _private: (),
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A caller may have stopped earlier; only what could not be written is worth a word.
        if let Err(error @ Error::Io { .. }) = stop() {
            tracing::error!("{error}");
        }
    }
}

/// Begins the trace that `OPENMPS_TRACE` asks for; it is written when the process exits.
pub(crate) fn start_from_environment() {
    let Some(path) = openmps_settings::TRACE.get() else { return };
    match start(path) {
        // SAFETY: the function lives as long as this library, takes nothing and does not unwind.
        Ok(()) => match unsafe { libc::atexit(stop_at_exit) } {
            0 => {}
            _ => tracing::warn!("the trace must be stopped by hand: the system refused a function at exit"),
        },
        Err(error) => tracing::warn!("{error}"),
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
}

impl Span {
    /// Notes what the command is and when it began.
    pub fn begin(device: usize, queue: u64, command: &Command<'_>) -> Span {
        let event = Event::Command {
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
        Span { event: Some(event) }
    }

    /// Notes when the command ended, and how.
    pub fn end(&mut self, failure: Option<&Error>) {
        let now = clock::now_ns();
        let Some(mut event) = self.event.take() else { return };
        if let Event::Command { end, error, .. } = &mut event {
            *end = now;
            *error = failure.map(Error::to_string);
        }
        add(event);
    }
}

/// Notes a device's memory.
pub(crate) fn memory(device: usize, allocated: usize, reserved: usize) {
    add(Event::Memory { device, time: clock::now_ns(), allocated, reserved });
}

fn add(event: Event) {
    // None when the trace was stopped meanwhile.
    if let Some(trace) = &mut *lock() {
        if trace.events.len() < trace.most_events {
            trace.events.push(event);
        } else {
            trace.dropped += 1;
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Trace>> {
    TRACE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's number.
fn thread() -> usize {
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
            let name =
                std::thread::current().name().map_or_else(|| format!("thread {}", threads.len()), str::to_string);
            threads.push(name);
            number.set(Some(threads.len() - 1));
            threads.len() - 1
        })
    })
}
