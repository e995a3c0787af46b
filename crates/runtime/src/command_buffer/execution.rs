//! Running a command buffer: its commands, its end, its completion handlers.

use super::encoded::Encoded;
use super::resources::run_locked;
use super::{Shared, Status};
use crate::clock;
use crate::devices::Command;
use crate::error::{Error, Result};
use crate::queue::Queue;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a buffer's commands up to the first error, and ends it when the device has done so too. Returns the buffer where that is now, and
/// its handlers are still to be told.
pub(super) fn execute(queue: &Queue, shared: &Arc<Shared>) -> Option<Arc<Shared>> {
    let mut commands = {
        let mut state = shared.lock();
        state.begin_ns = clock::now_ns();
        std::mem::take(&mut state.commands)
    };
    let failures = queue.device().driver().failures(queue.id());
    let failed = run_all(queue, &mut commands).err();
    let (of_end, here) = (shared.clone(), std::thread::current().id());
    // Whether the submission is still under way, and whether the commands ended within it, on this thread.
    let (submitting, ended_here) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (at_once, says) = (submitting.clone(), ended_here.clone());
    let end = move || {
        // A GPU's error comes when the commands have ended. The next synchronisation delivers it, too.
        complete(&of_end, failures.and_then(|failure| failure()));
        // What the commands refer to may go only now.
        drop(commands);
        if std::thread::current().id() != here {
            tell_elsewhere(of_end);
        } else if at_once.load(Ordering::Relaxed) {
            says.store(true, Ordering::Relaxed);
        } else {
            tell(&of_end);
        }
    };
    let failed = match failed {
        Some(error) => Some(error),
        None => queue.submit(Command::Callback(Box::new(end))).err(),
    };
    submitting.store(false, Ordering::Relaxed);
    shared.lock().submitted = true;
    if let Some(error) = failed {
        // Nobody waits for this command alone: the next synchronisation delivers it.
        queue.keep(&error);
        complete(shared, Some(error));
        ended_here.store(true, Ordering::Relaxed);
    }
    ended_here.load(Ordering::Relaxed).then(|| shared.clone()).filter(|shared| !shared.lock().done)
}

/// Runs commands up to the first error; those that lock memory together with their neighbours that do so, too.
fn run_all(queue: &Queue, commands: &mut [Encoded]) -> Result<()> {
    commands.chunk_by_mut(|one, next| one.is_locked() && next.is_locked()).try_for_each(|together| match together {
        [one] if !one.is_locked() => run_command(queue, one),
        locked => run_locked(queue, locked, run_command),
    })
}

/// Runs one command; a panic becomes an error, since the queue has to go on for the other buffers.
fn run_command(queue: &Queue, command: &mut Encoded) -> Result<()> {
    let operation = command.operation();
    catch_unwind(AssertUnwindSafe(|| command.run(queue)))
        .unwrap_or_else(|payload| Err(Error::Panicked { operation, message: message_of(&*payload) }))
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}

/// The commands have ended. So has the buffer, unless it has handlers, which are told outside of the queue's order and of the device's threads.
fn complete(shared: &Shared, error: Option<Error>) {
    let (kept, waiting) = {
        let mut state = shared.lock();
        state.end_ns = clock::now_ns();
        state.status = if error.is_some() { Status::Error } else { Status::Completed };
        state.error = error.map(Arc::new);
        state.done = state.handlers.is_empty();
        (std::mem::take(&mut state.kept), state.waiting)
    };
    drop(kept);
    // Telling is a call of the system, also where nobody listens.
    if waiting > 0 {
        shared.done.notify_all();
    }
}

/// Calls the completion handlers of a buffer whose commands have ended.
pub(super) fn tell(shared: &Shared) {
    let (handlers, error) = {
        let mut state = shared.lock();
        state.telling = Some(std::thread::current().id());
        (std::mem::take(&mut state.handlers), state.error.clone())
    };
    for handler in handlers {
        // As for a command: a handler that panics must not keep others waiting. The panic hook has reported it.
        let _ = catch_unwind(AssertUnwindSafe(|| handler(error.as_deref().map_or(Ok(()), Err))));
    }
    shared.lock().done = true;
    shared.done.notify_all();
}

/// As [`tell`], where a device's own thread says that the commands have ended: a handler that waits for the device must not be waited for.
fn tell_elsewhere(shared: Arc<Shared>) {
    if shared.lock().done {
        return;
    }
    let thread = std::thread::Builder::new().name("openmps handlers".to_owned());
    let told = shared.clone();
    if thread.spawn(move || tell(&told)).is_err() {
        tell(&shared);
    }
}
