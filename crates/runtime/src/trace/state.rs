//! The one trace of a process, also in a child that `fork` made: there it is a new one, since another thread may have held the parent's
//! locks, and the parent's file is the parent's.

use super::file::TraceFile;
use super::{Event, Record};
use crate::clock;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Events of a trace unless `start_bounded` says otherwise; about 150 bytes each.
pub(super) const MOST_EVENTS: usize = 1 << 20;

/// Where commands are noted.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Mode {
    /// In the trace's file.
    File = 1,
    /// In memory.
    Records = 2,
}

/// The modes that are on, as bits.
static ON: AtomicU8 = AtomicU8::new(0);

/// Whether commands are noted anywhere.
#[inline]
pub(super) fn is_any_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

#[inline]
pub(super) fn is_on(mode: Mode) -> bool {
    ON.load(Ordering::Relaxed) & mode as u8 != 0
}

/// Whether this call is the one that turned the mode on.
pub(super) fn begin(mode: Mode) -> bool {
    ON.fetch_or(mode as u8, Ordering::Relaxed) & mode as u8 == 0
}

pub(super) fn end(mode: Mode) {
    ON.fetch_and(!(mode as u8), Ordering::Relaxed);
}

/// Whether `OPENMPS_TRACE` began the trace: then children trace too, into files of their own.
static OF_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

static FIRST: State = State::new(Running::None);
/// The state of this process: `FIRST`, or what `in_child` made.
static CURRENT: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

struct State {
    running: Mutex<Running>,
    /// Names of the threads that appeared in any trace; a thread's number is its place here.
    threads: Mutex<Vec<String>>,
    records: Mutex<Vec<Record>>,
}

/// What a process traces into.
pub(super) enum Running {
    None,
    File(TraceFile),
    /// A child whose parent is traced: its file begins with its first event.
    Child,
}

impl State {
    const fn new(running: Running) -> State {
        State { running: Mutex::new(running), threads: Mutex::new(Vec::new()), records: Mutex::new(Vec::new()) }
    }
}

fn state() -> &'static State {
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: `in_child` stores pointers to states that are never freed; null is the first one.
    unsafe { current.as_ref() }.unwrap_or(&FIRST)
}

/// What this process traces into, for as long as the guard lives.
pub(super) fn running() -> MutexGuard<'static, Running> {
    state().running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a recorder keeps of this process, for as long as the guard lives.
pub(super) fn records() -> MutexGuard<'static, Vec<Record>> {
    state().records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets children made by `fork` have a trace of their own, or none. Once a process; children inherit it.
pub(super) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, takes nothing and does not unwind.
        if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
            tracing::warn!("children of this process would write its trace: the system refused a function at fork");
        }
    });
}

/// Runs in the child, whose only thread is the one that called `fork`. Takes no lock.
unsafe extern "C" fn in_child() {
    let traces = is_on(Mode::File) && OF_ENVIRONMENT.load(Ordering::Relaxed);
    ON.store(if traces { Mode::File as u8 } else { 0 }, Ordering::Relaxed);
    let running = if traces { Running::Child } else { Running::None };
    // The parent's state stays where it is: dropping it would write its file and free what its threads were using.
    CURRENT.store(Box::into_raw(Box::new(State::new(running))), Ordering::Release);
    NUMBER.with(|number| number.set(None));
}

/// Begins the trace of `OPENMPS_TRACE`: into its file, or beside it where another process writes that one.
pub(super) fn start_of_environment(path: &Path) -> io::Result<()> {
    let file = TraceFile::create(path, MOST_EVENTS).or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock => TraceFile::create(&own(path), MOST_EVENTS),
        _ => Err(error),
    })?;
    *running() = Running::File(file);
    OF_ENVIRONMENT.store(true, Ordering::Relaxed);
    begin(Mode::File);
    watch_forks();
    Ok(())
}

/// A file of this process beside another: trace.1234.json for trace.json.
fn own(path: &Path) -> PathBuf {
    let number = std::process::id().to_string();
    let ending = path.extension().map_or(number.clone(), |ending| format!("{number}.{}", ending.to_string_lossy()));
    path.with_extension(ending)
}

/// Notes an event. Nothing happens where the trace was stopped meanwhile.
pub(super) fn add(event: &Event) {
    let mut running = running();
    if let Running::Child = &*running {
        let file = openmps_settings::TRACE.get().map(|path| TraceFile::create(&own(&path), MOST_EVENTS));
        *running = match file {
            Some(Ok(file)) => Running::File(file),
            other => {
                end(Mode::File);
                if let Some(Err(error)) = other {
                    tracing::warn!("the trace of a child process: {error}");
                }
                Running::None
            }
        };
    }
    if let Running::File(file) = &mut *running {
        let threads = state().threads.lock().unwrap_or_else(PoisonError::into_inner);
        file.add(event, &threads, clock::now_ns());
    }
}

thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });

/// This thread's number.
pub(super) fn thread() -> usize {
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let mut threads = state().threads.lock().unwrap_or_else(PoisonError::into_inner);
            let name =
                std::thread::current().name().map_or_else(|| format!("thread {}", threads.len()), str::to_string);
            threads.push(name);
            number.set(Some(threads.len() - 1));
            threads.len() - 1
        })
    })
}
