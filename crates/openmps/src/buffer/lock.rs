//! Who uses a buffer's memory: many readers or one writer, whatever thread they are on. Unlike the standard library's lock this one knows the
//! threads that hold mapped slices, so that a wait for oneself is an error, and it may be freed while it is held: the last user lets go.

use std::any::Any;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// What keeps the memory alive.
pub(crate) type Memory = Box<dyn Any + Send + Sync>;

/// How memory is used; who may write it may read it, too.
///
/// ```
/// assert!(openmps::Access::Read < openmps::Access::Write);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written, or read and written.
    Write,
}

/// Why a buffer may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Freed,
    /// This thread holds a mapped slice that would be waited for.
    Mapped,
}

pub(crate) struct Lock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// None once it was given back.
    memory: Option<Memory>,
    freed: bool,
    readers: usize,
    writing: bool,
    /// Threads that wait, and those of them that want to write: later readers let them go first.
    waiting: usize,
    writers_waiting: usize,
    mapped: Vec<(ThreadId, Access)>,
}

/// Holds a buffer's memory.
pub(crate) struct Guard<'a> {
    lock: &'a Lock,
    access: Access,
    /// The thread that has it mapped.
    mapped: Option<ThreadId>,
}

impl Lock {
    pub fn new(memory: Memory) -> Lock {
        let state = State {
            memory: Some(memory),
            freed: false,
            readers: 0,
            writing: false,
            waiting: 0,
            writers_waiting: 0,
            mapped: Vec::new(),
        };
        Lock { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_freed(&self) -> bool {
        self.state().freed
    }

    /// What would refuse a use, without waiting for it.
    pub fn check(&self, access: Access) -> Result<(), Refusal> {
        self.state().own_mapping(access, thread::current().id()).map(drop)
    }

    /// Waits until the memory may be used in this way, for a thread that may be another one than this: whoever runs a queue's commands locks for
    /// those who encoded them, and waits for neither of the two.
    pub fn acquire(&self, access: Access, wanted_by: ThreadId) -> Result<Guard<'_>, Refusal> {
        let mut state = self.state();
        loop {
            let maps_it = state.own_mapping(access, wanted_by)?;
            let is_free = match access {
                Access::Read => !state.writing && (state.writers_waiting == 0 || maps_it),
                Access::Write => !state.writing && state.readers == 0,
            };
            if is_free {
                break;
            }
            let writers = usize::from(access == Access::Write);
            (state.waiting, state.writers_waiting) = (state.waiting + 1, state.writers_waiting + writers);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            (state.waiting, state.writers_waiting) = (state.waiting - 1, state.writers_waiting - writers);
        }
        match access {
            Access::Read => state.readers += 1,
            Access::Write => state.writing = true,
        }
        Ok(Guard { lock: self, access, mapped: None })
    }

    /// As [`Lock::acquire`], for a slice that this thread holds and does not send elsewhere.
    pub fn map(&self, access: Access) -> Result<Guard<'_>, Refusal> {
        let here = thread::current().id();
        let mut guard = self.acquire(access, here)?;
        guard.mapped = Some(here);
        self.state().mapped.push((here, access));
        Ok(guard)
    }

    /// Refuses later uses, and waits for those that there are. The memory goes then, or with the last slice that this thread has mapped.
    pub fn free(&self) {
        let mut state = self.state();
        state.freed = true;
        let here = thread::current().id();
        loop {
            let own = state.mapped.iter().filter(|(thread, _)| *thread == here);
            let own_readers = own.clone().filter(|(_, access)| *access == Access::Read).count();
            if state.readers == own_readers && (!state.writing || own.count() > own_readers) {
                break;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        let memory = state.given_back();
        let wake = state.waiting > 0;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
        // Outside of the lock: an owner may be anything.
        drop(memory);
    }
}

impl State {
    /// Whether this thread, or the one that wants it, maps the memory already, in a way that goes with this use of it.
    fn own_mapping(&self, access: Access, wanted_by: ThreadId) -> Result<bool, Refusal> {
        if self.freed {
            return Err(Refusal::Freed);
        }
        if self.mapped.is_empty() {
            return Ok(false);
        }
        let here = thread::current().id();
        let mut own = self.mapped.iter().filter(|(thread, _)| [here, wanted_by].contains(thread)).peekable();
        let maps_it = own.peek().is_some();
        if maps_it && (access == Access::Write || own.any(|(_, mapped)| *mapped == Access::Write)) {
            return Err(Refusal::Mapped);
        }
        Ok(maps_it)
    }

    /// The memory, where it was freed and nobody uses it.
    fn given_back(&mut self) -> Option<Memory> {
        if self.freed && self.readers == 0 && !self.writing { self.memory.take() } else { None }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state();
        match self.access {
            Access::Read => state.readers -= 1,
            Access::Write => state.writing = false,
        }
        if let Some(thread) = self.mapped {
            let mapped = state.mapped.iter().position(|mapped| *mapped == (thread, self.access));
            if let Some(place) = mapped {
                state.mapped.swap_remove(place);
            }
        }
        let memory = state.given_back();
        let wake = state.waiting > 0;
        drop(state);
        if wake {
            self.lock.changed.notify_all();
        }
        drop(memory);
    }
}
