//! The emulated GPU's own thread: one a queue, which runs command buffers in the order in which they were committed.

use super::Fault;
use super::commands::{Action, run};
use crate::error::{Error, Result};
use crate::interface::{Completed, Completion, Properties};
use openmps_emulator::Schedule;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One command buffer on its way.
pub(super) struct Job {
    pub label: String,
    pub actions: Vec<Action>,
    pub completed: Completed,
    pub commit: EmulatedCommit,
}

/// A queue. Its thread ends with the last clone.
#[derive(Clone)]
pub struct EmulatedQueue {
    jobs: Arc<Mutex<Sender<Job>>>,
}

impl EmulatedQueue {
    /// A queue with a thread of its own, on a GPU that says this of itself.
    pub fn new(label: &str, schedule: Schedule, properties: Properties, fault: Option<Fault>) -> Result<EmulatedQueue> {
        let (jobs, received) = channel::<Job>();
        let began = Instant::now();
        let work = move || {
            for Job { label, actions, completed, commit } in received {
                let start = began.elapsed().as_secs_f64();
                let error = run(&label, &actions, schedule, (&properties, fault)).err();
                // What the commands used may go now, as on a GPU; the handler keeps what has to stay longer.
                drop(actions);
                let completion = Completion { error, gpu_start: start, gpu_end: began.elapsed().as_secs_f64() };
                completed(completion);
                commit.end();
            }
        };
        let spawned = std::thread::Builder::new().name(format!("metal {label}")).spawn(work);
        spawned.map_err(|error| Error::System { what: "the emulator's thread", message: error.to_string() })?;
        Ok(EmulatedQueue { jobs: Arc::new(Mutex::new(jobs)) })
    }

    pub(super) fn send(&self, job: Job) {
        let sent = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        if let Err(refused) = sent {
            // The thread has died of a panic: whoever waits has to hear of it.
            let Job { label, completed, commit, .. } = refused.0;
            let message = "the emulator's thread is gone".to_string();
            let error = Some(Error::CommandBuffer { label, kind: "internal error", message });
            completed(Completion { error, ..Completion::default() });
            commit.end();
        }
    }
}

/// A command buffer that was committed.
#[derive(Clone, Default)]
pub struct EmulatedCommit(Arc<(Mutex<bool>, Condvar)>);

impl EmulatedCommit {
    /// Blocks until it has ended.
    pub fn wait(&self) {
        let mut ended = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            ended = self.0.1.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// A number that only grows.
#[derive(Clone, Default)]
pub struct EmulatedEvent(Arc<(Mutex<u64>, Condvar)>);

impl EmulatedEvent {
    /// The value reached.
    pub fn value(&self) -> u64 {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, value: u64) {
        let mut now = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = value.max(*now);
        self.0.1.notify_all();
    }

    /// Blocks until the value is reached, or the time is over.
    pub fn wait(&self, value: u64, timeout: Duration) -> bool {
        let now = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(now, timeout, |now| *now < value);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= value
    }
}
