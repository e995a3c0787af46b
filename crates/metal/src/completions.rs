//! Completions of a queue: command buffers on their way, and the errors of those that ended, for the next synchronisation.

use crate::error::Error;
use crate::interface::Completion;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Errors that are remembered by the number of their command buffer.
const REMEMBERED: usize = 64;

/// The first error since the last synchronisation, and how many followed it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{first} ({further} further errors)")]
pub struct Deferred {
    /// The first error.
    pub first: Error,
    /// How many command buffers failed after it.
    pub further: usize,
}

/// What became of the command buffers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamStatistics {
    /// Command buffers handed to the GPU.
    pub committed: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// Those of them that ended with an error.
    pub failed: u64,
    /// Seconds that the GPU spent on them.
    pub gpu_seconds: f64,
}

#[derive(Default)]
struct Books {
    /// Command buffers that the GPU is done with; their callbacks may still run.
    arrived: u64,
    statistics: StreamStatistics,
    failure: Option<Deferred>,
    /// The last errors, each with its command buffer's number.
    failures: VecDeque<(u64, Error)>,
}

/// The books of one queue. The completion handlers, on Metal's threads, write into them.
#[derive(Default)]
pub struct CompletionTracker {
    books: Mutex<Books>,
    ended: Condvar,
}

impl CompletionTracker {
    /// One more is on its way. Called before it is committed, since its end may come first.
    pub fn commit(&self) {
        self.lock().statistics.committed += 1;
    }

    /// The GPU is done with the one of this number; what went wrong there.
    pub fn arrive(&self, number: u64, error: Option<&Error>) {
        let mut books = self.lock();
        books.arrived += 1;
        if let Some(error) = error {
            if books.failures.len() == REMEMBERED {
                books.failures.pop_front();
            }
            books.failures.push_back((number, error.clone()));
        }
        drop(books);
        self.ended.notify_all();
    }

    /// The first error of a command buffer with this number or a later one, of those that the GPU is done with.
    pub fn failure_since(&self, number: u64) -> Option<Error> {
        let books = self.lock();
        books.failures.iter().find(|(failed, _)| *failed >= number).map(|(_, error)| error.clone())
    }

    /// One has ended, its callbacks included.
    pub fn end(&self, completion: Completion) {
        let mut books = self.lock();
        books.statistics.ended += 1;
        books.statistics.gpu_seconds += (completion.gpu_end - completion.gpu_start).max(0.0);
        if let Some(error) = completion.error {
            books.statistics.failed += 1;
            match &mut books.failure {
                None => books.failure = Some(Deferred { first: error, further: 0 }),
                Some(failure) => failure.further += 1,
            }
        }
        drop(books);
        self.ended.notify_all();
    }

    /// Waits until the first `count` command buffers have ended.
    pub fn wait(&self, count: u64) {
        let mut books = self.lock();
        while books.statistics.ended < count {
            books = self.ended.wait(books).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the GPU is done with the first `count` command buffers.
    pub fn wait_arrived(&self, count: u64) {
        let mut books = self.lock();
        while books.arrived < count {
            books = self.ended.wait(books).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Delivers, once, what failed since the last call.
    pub fn settle(&self) -> Result<(), Deferred> {
        self.lock().failure.take().map_or(Ok(()), Err)
    }

    /// The figures so far.
    pub fn statistics(&self) -> StreamStatistics {
        self.lock().statistics
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arriving_comes_before_ending() {
        let completions = CompletionTracker::default();
        completions.commit();
        // A callback that waits for a lock which is held until the GPU is done.
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let held = lock.lock().unwrap();
            scope.spawn(|| {
                completions.arrive(0, None);
                drop(lock.lock().unwrap());
                completions.end(Completion::default());
            });
            completions.wait_arrived(1);
            assert_eq!(completions.statistics().ended, 0);
            drop(held);
            completions.wait(1);
        });
        assert_eq!(completions.statistics().ended, 1);
    }
}
