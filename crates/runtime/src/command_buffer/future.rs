//! A command buffer as a future: `command_buffer.await`, on any executor.

use super::{CommandBuffer, Status};
use crate::error::{Error, Result};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Ready when the commands and the completion handlers have run: [`CommandBuffer::wait_until_completed`], for whoever does not want to wait.
/// It needs no runtime: where the device is not done yet, a thread of its own waits and wakes the task.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completion {
    command_buffer: CommandBuffer,
    shared: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    /// A thread waits, and will wake the last one that asked.
    begun: bool,
    waker: Option<Waker>,
    result: Option<Result<()>>,
}

impl CommandBuffer {
    /// Another handle to the same commands, which were committed: dropping it gives up no place.
    fn committed(&self) -> Result<CommandBuffer> {
        match self.status() {
            status @ (Status::NotEnqueued | Status::Enqueued) => {
                Err(Error::CommandBuffer { operation: "wait_until_completed", status: status.name() })
            }
            _ => Ok(CommandBuffer { queue: self.queue.clone(), shared: self.shared.clone() }),
        }
    }
}

impl IntoFuture for CommandBuffer {
    type Output = Result<()>;
    type IntoFuture = Completion;

    fn into_future(self) -> Completion {
        Completion { command_buffer: self, shared: Arc::default() }
    }
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut waiting = lock(&self.shared);
        if let Some(result) = waiting.result.take() {
            return Poll::Ready(result);
        }
        waiting.waker = Some(context.waker().clone());
        if waiting.begun {
            return Poll::Pending;
        }
        let commands = match self.command_buffer.committed() {
            Ok(commands) => commands,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if commands.shared.lock().done {
            return Poll::Ready(commands.wait_until_completed());
        }
        waiting.begun = true;
        drop(waiting);
        let shared = self.shared.clone();
        let wait = move || finish(&shared, commands.wait_until_completed());
        let thread = std::thread::Builder::new().name("openmps wait".to_owned());
        if thread.spawn(wait).is_err() {
            // No thread to be had: then this one waits.
            return Poll::Ready(self.command_buffer.wait_until_completed());
        }
        Poll::Pending
    }
}

/// Says to the task that waits that the commands have ended.
fn finish(shared: &Mutex<Waiting>, result: Result<()>) {
    let waker = {
        let mut waiting = lock(shared);
        waiting.result = Some(result);
        waiting.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn lock(shared: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
