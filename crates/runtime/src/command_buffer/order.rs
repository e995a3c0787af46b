//! The order in which a queue's command buffers run, which thread runs them, and what the waiting for one may hope for.

use super::execution::{execute, tell};
use super::{Shared, Status};
use crate::clock;
use crate::queue::Queue;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// The command buffers that have a place in a queue and have not run.
#[derive(Default)]
pub(crate) struct Order {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
pub(super) struct Waiting {
    pub buffers: VecDeque<Arc<Shared>>,
    /// The thread that is running buffers, and will look at the front again before it leaves.
    running: Option<ThreadId>,
}

/// How long an uncommitted buffer may keep those behind it waiting without being given a command: whoever should commit it may be the one
/// that waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a wait goes on.
pub(super) enum Wait {
    /// The buffer may run, or is running.
    Soon,
    /// One before it has not been committed; for how much longer that is waited for.
    Uncommitted(Duration),
    /// What it waits for cannot come.
    Never(&'static str),
}

impl Order {
    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The front buffer if it may run now; otherwise the running thread leaves.
    fn next(&self) -> Option<Arc<Shared>> {
        let mut waiting = self.lock();
        let ready = waiting.buffers.front().is_some_and(|front| front.lock().status == Status::Committed);
        if !ready {
            waiting.running = None;
            return None;
        }
        waiting.buffers.pop_front()
    }

    /// Runs what may run, in order, unless another thread (or a caller further up) is at it. Completion handlers run outside of the order, so
    /// that they may commit and wait for other buffers of the queue.
    pub(super) fn run(&self, queue: &Queue) {
        let here = std::thread::current().id();
        loop {
            let mut waiting = self.lock();
            if waiting.running.is_some() {
                return;
            }
            waiting.running = Some(here);
            drop(waiting);
            let Some(ended) = std::iter::from_fn(|| self.next()).find_map(|buffer| execute(queue, &buffer)) else {
                return;
            };
            self.leave();
            tell(&ended);
        }
    }

    /// Ends this thread's turn; whoever waits for a buffer that is still there takes the next one.
    fn leave(&self) {
        let mut waiting = self.lock();
        waiting.running = None;
        waiting.buffers.iter().for_each(|buffer| buffer.done.notify_all());
    }

    /// What the waiting for a buffer may hope for.
    pub(super) fn outlook(&self, shared: &Arc<Shared>) -> Wait {
        let waiting = self.lock();
        let (status, submitted) = {
            let state = shared.lock();
            (state.status, state.submitted)
        };
        if status != Status::Committed || submitted {
            return Wait::Soon;
        }
        if waiting.running == Some(std::thread::current().id()) {
            return Wait::Never("waited for by a command of its own, or of one before it");
        }
        if !waiting.buffers.iter().any(|buffer| Arc::ptr_eq(buffer, shared)) {
            return Wait::Soon;
        }
        let before = waiting.buffers.iter().take_while(|buffer| !Arc::ptr_eq(buffer, shared));
        let touched = before.map(|buffer| buffer.lock()).find(|state| state.status == Status::Enqueued);
        let Some(touched) = touched.map(|state| state.touched_ns) else { return Wait::Soon };
        match PATIENCE.checked_sub(Duration::from_nanos(clock::now_ns().saturating_sub(touched))) {
            Some(left) => Wait::Uncommitted(left),
            None => Wait::Never("behind one that is enqueued, and that nobody encodes to or commits"),
        }
    }
}
