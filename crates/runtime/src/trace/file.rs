//! The trace's file: valid JSON from its first byte on, whenever and however the process ends. Each piece of events is written over the
//! closing brackets of the one before, with brackets of its own, in one call of the system.

use super::{Event, text};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

const HEAD: &str = "{\"displayTimeUnit\": \"ns\",\n\"traceEvents\": [";
/// Text that is written at once.
const PIECE: usize = 1 << 18;
/// Nanoseconds after which an event does not wait for others: what a process that is killed loses.
const LONGEST_WAIT: u64 = 50_000_000;

/// A trace's file. A process of the viewer is a device, a thread is a thread of the host.
pub(super) struct TraceFile {
    pub path: PathBuf,
    file: File,
    /// Where the closing brackets begin.
    end: u64,
    /// Events that are not written yet.
    waiting: String,
    /// When the last piece was written; none before the first event.
    written_at: Option<u64>,
    is_first: bool,
    dropped: usize,
    most_events: usize,
    events: usize,
    named: BTreeSet<(usize, Option<usize>)>,
    failure: Option<io::Error>,
}

impl TraceFile {
    /// Begins a file. An error of the kind `WouldBlock` says that another process writes it.
    pub fn create(path: &Path, most_events: usize) -> io::Result<TraceFile> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        // File systems without locks have no protection.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process writes it"));
        }
        file.set_len(0)?;
        let mut trace = TraceFile {
            path: path.to_path_buf(),
            file,
            end: 0,
            waiting: HEAD.to_owned(),
            written_at: None,
            is_first: true,
            dropped: 0,
            most_events,
            events: 0,
            named: BTreeSet::new(),
            failure: None,
        };
        trace.write();
        trace.failure.take().map_or(Ok(trace), Err)
    }

    /// Takes an event that happened now.
    pub fn add(&mut self, event: &Event, threads: &[String], now: u64) {
        if self.events == self.most_events {
            self.dropped += 1;
        } else {
            self.events += 1;
            self.name(event.device(), event.thread(), threads);
            self.line(|waiting| write!(waiting, "{event}"));
        }
        if self.waiting.len() >= PIECE || self.written_at.is_none_or(|at| now.saturating_sub(at) > LONGEST_WAIT) {
            self.write();
            self.written_at = Some(now);
        }
    }

    /// Writes what waits; the first error of the file, if there was one.
    pub fn finish(mut self) -> Result<PathBuf, (PathBuf, io::Error)> {
        self.write();
        let TraceFile { path, failure, .. } = self;
        failure.map_or(Ok(path.clone()), |error| Err((path, error)))
    }

    /// Names the device and the thread of an event where they occur for the first time.
    fn name(&mut self, device: usize, thread: Option<usize>, threads: &[String]) {
        if self.named.insert((device, None)) {
            self.line(|waiting| waiting.write_str(&text::device_name(device)));
        }
        if let Some(thread) = thread
            && self.named.insert((device, Some(thread)))
        {
            let name = threads.get(thread).map_or("thread", String::as_str);
            self.line(|waiting| waiting.write_str(&text::thread_name(device, thread, name)));
        }
    }

    fn line(&mut self, write: impl FnOnce(&mut String) -> std::fmt::Result) {
        self.waiting.push_str(if self.is_first { "\n" } else { ",\n" });
        self.is_first = false;
        // A string takes everything.
        let _ = write(&mut self.waiting);
    }

    /// Writes what waits, and the closing brackets. After an error nothing more is written.
    fn write(&mut self) {
        if self.failure.is_some() {
            return self.waiting.clear();
        }
        let kept = self.waiting.len() as u64;
        let _ = write!(self.waiting, "\n],\n\"otherData\": {{\"dropped_events\": {}}}}}\n", self.dropped);
        let sought = self.file.seek(SeekFrom::Start(self.end));
        match sought.and_then(|_| self.file.write_all(self.waiting.as_bytes())) {
            Ok(()) => self.end += kept,
            Err(error) => self.failure = Some(error),
        }
        self.waiting.clear();
    }
}
