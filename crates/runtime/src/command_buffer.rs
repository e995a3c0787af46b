//! Command buffers with Metal's rules: encode, commit once, wait; buffers of one queue run in the order they were
//! enqueued in, and nothing runs before it is committed.

mod encoded;

use crate::clock;
use crate::devices::{Command, LibraryResult};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::pipeline::Pipeline;
use crate::queue::Queue;
use encoded::Encoded;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How far a command buffer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It takes commands and has no place in the queue.
    NotEnqueued,
    /// It takes commands and has a place in the queue.
    Enqueued,
    /// It takes no more commands; it runs when its turn comes.
    Committed,
    /// It ran to its end.
    Completed,
    /// One of its commands failed; the later ones did not run.
    Error,
}

impl Status {
    /// The name in words.
    pub const fn name(self) -> &'static str {
        match self {
            Status::NotEnqueued => "not enqueued",
            Status::Enqueued => "enqueued",
            Status::Committed => "committed",
            Status::Completed => "completed",
            Status::Error => "failed",
        }
    }
}

type Handler = Box<dyn FnOnce(std::result::Result<(), &Error>) + Send>;

struct State {
    status: Status,
    commands: Vec<Encoded>,
    kept: Vec<Box<dyn Any + Send>>,
    handlers: Vec<Handler>,
    begin_ns: u64,
    end_ns: u64,
    error: Option<Arc<Error>>,
    /// When a command was last encoded, or a place taken.
    touched_ns: u64,
    /// The thread that is running the completion handlers.
    telling: Option<ThreadId>,
    /// Set after the handlers have run, which is what `wait_until_completed` waits for.
    done: bool,
}

struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command buffers that have a place in a queue and have not run.
#[derive(Default)]
pub(crate) struct Order {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    buffers: VecDeque<Arc<Shared>>,
    /// The thread that is running buffers, and will look at the front again before it leaves.
    running: Option<ThreadId>,
}

/// How long an uncommitted buffer may keep those behind it waiting without being given a command: whoever should commit it may be the one
/// that waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a wait goes on.
enum Wait {
    /// The buffer may run, or is running.
    Soon,
    /// One before it has not been committed; for how much longer that is waited for.
    Uncommitted(Duration),
    /// What it waits for cannot come.
    Never(&'static str),
}

impl Order {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
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
    fn run(&self, queue: &Queue) {
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
    fn outlook(&self, shared: &Arc<Shared>) -> Wait {
        let waiting = self.lock();
        if !waiting.buffers.iter().any(|buffer| Arc::ptr_eq(buffer, shared)) {
            return Wait::Soon;
        }
        if waiting.running == Some(std::thread::current().id()) {
            return Wait::Never("behind a command that waits for it");
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

/// Commands collected to run together on a queue.
pub struct CommandBuffer {
    queue: Queue,
    shared: Arc<Shared>,
}

impl CommandBuffer {
    pub(crate) fn new(queue: Queue) -> CommandBuffer {
        let state = State {
            status: Status::NotEnqueued,
            commands: Vec::new(),
            kept: Vec::new(),
            handlers: Vec::new(),
            begin_ns: 0,
            end_ns: 0,
            error: None,
            touched_ns: clock::now_ns(),
            telling: None,
            done: false,
        };
        CommandBuffer { queue, shared: Arc::new(Shared { state: Mutex::new(state), done: Condvar::new() }) }
    }

    /// The queue that it runs on.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Encodes a call of the device's library.
    pub fn library(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error> + Send + 'static,
    ) -> Result<()> {
        let work: Box<dyn FnOnce() -> LibraryResult + Send> = Box::new(work);
        self.encode(operation, Encoded::Library { operation, work: Some(work) })
    }

    /// Encodes a program over a grid.
    ///
    /// # Safety
    /// As for `Queue::dispatch`, when it runs.
    pub unsafe fn dispatch(
        &self,
        operation: &'static str,
        pipeline: Arc<Pipeline>,
        grid: [usize; 3],
        arguments: &[u64],
    ) -> Result<()> {
        self.encode(operation, Encoded::Dispatch { operation, pipeline, grid, arguments: arguments.to_vec() })
    }

    /// Encodes a copy between buffers, which are checked when it runs.
    ///
    /// # Safety
    /// As for `Queue::copy`, when it runs.
    pub unsafe fn copy(&self, destination: usize, source: usize, bytes: usize) -> Result<()> {
        self.encode("copy", Encoded::Copy { destination, source, bytes })
    }

    /// Encodes one byte all over a range of a buffer, which is checked when it runs.
    ///
    /// # Safety
    /// As for `Queue::fill`, when it runs.
    pub unsafe fn fill(&self, address: usize, byte: u8, bytes: usize) -> Result<()> {
        self.encode("fill", Encoded::Fill { address, byte, bytes })
    }

    /// Encodes the setting of an event.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.encode("record", Encoded::Record(event.clone()))
    }

    /// Encodes the waiting for an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.encode("wait", Encoded::Wait(event.clone()))
    }

    /// Keeps a value (a buffer, a program) alive until the commands have ended.
    pub fn keep(&self, value: impl Send + 'static) -> Result<()> {
        self.change("keep", |state| state.kept.push(Box::new(value)))
    }

    /// Calls a function when the commands have ended, with the error if one failed.
    pub fn add_completed_handler(
        &self,
        handler: impl FnOnce(std::result::Result<(), &Error>) + Send + 'static,
    ) -> Result<()> {
        self.change("add_completed_handler", |state| state.handlers.push(Box::new(handler)))
    }

    /// Takes the next place in the queue's order, before it is committed.
    pub fn enqueue(&self) -> Result<()> {
        let mut waiting = self.queue.order().lock();
        let mut state = self.shared.lock();
        if state.status != Status::NotEnqueued {
            return Err(Error::CommandBuffer { operation: "enqueue", status: state.status.name() });
        }
        state.status = Status::Enqueued;
        state.touched_ns = clock::now_ns();
        waiting.buffers.push_back(self.shared.clone());
        Ok(())
    }

    /// Ends encoding; the commands run when those of the buffers before it have. On the host that is now, on this
    /// thread, when no buffer before it is still uncommitted. An error of a command is not returned here but by
    /// `wait_until_completed`, `error` and the queue's next `synchronize`.
    pub fn commit(&self) -> Result<()> {
        self.place("commit")?;
        self.queue.order().run(&self.queue);
        Ok(())
    }

    /// Waits until the commands and the completion handlers have run; the error of a failed command is returned. A handler of its own need not
    /// wait for itself. What would wait for ever is an error: a command that waits for its own buffer or one behind it, and a buffer behind an
    /// enqueued one to which nobody has encoded for five seconds.
    pub fn wait_until_completed(&self) -> Result<()> {
        let status = self.status();
        if matches!(status, Status::NotEnqueued | Status::Enqueued) {
            return Err(Error::CommandBuffer { operation: "wait_until_completed", status: status.name() });
        }
        if let Err(error) = self.queue.device().driver().finish(self.queue.id()) {
            self.queue.keep(&error);
        }
        self.wait_for_handlers()?;
        let state = self.shared.lock();
        match &state.error {
            None => Ok(()),
            Some(error) => {
                let (device, queue) = (self.queue.device().index(), self.queue.id());
                Err(Error::Deferred { device, queue, message: error.to_string(), further: 0 })
            }
        }
    }

    fn wait_for_handlers(&self) -> Result<()> {
        let here = Some(std::thread::current().id());
        loop {
            self.queue.order().run(&self.queue);
            let longest = match self.queue.order().outlook(&self.shared) {
                // A notification that comes before this waits for it is made up for by looking again.
                Wait::Soon => Duration::from_millis(100),
                Wait::Uncommitted(left) => left.min(Duration::from_millis(100)),
                Wait::Never(status) => {
                    return Err(Error::CommandBuffer { operation: "wait_until_completed", status });
                }
            };
            let state = self.shared.lock();
            if state.done || state.telling == here {
                return Ok(());
            }
            drop(self.shared.done.wait_timeout(state, longest).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// How far it has come.
    pub fn status(&self) -> Status {
        self.shared.lock().status
    }

    /// The error of the command that failed.
    pub fn error(&self) -> Option<Arc<Error>> {
        self.shared.lock().error.clone()
    }

    /// When the first command began, in seconds on the runtime's clock; 0 before.
    pub fn gpu_start_time(&self) -> f64 {
        self.shared.lock().begin_ns as f64 / 1e9
    }

    /// When the last command ended, in seconds on the runtime's clock; 0 before.
    pub fn gpu_end_time(&self) -> f64 {
        self.shared.lock().end_ns as f64 / 1e9
    }

    fn encode(&self, operation: &'static str, command: Encoded) -> Result<()> {
        self.change(operation, |state| state.commands.push(command))
    }

    fn change(&self, operation: &'static str, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.shared.lock();
        match state.status {
            Status::NotEnqueued | Status::Enqueued => {
                change(&mut state);
                state.touched_ns = clock::now_ns();
                Ok(())
            }
            status => Err(Error::CommandBuffer { operation, status: status.name() }),
        }
    }

    /// Marks it committed and gives it a place where it has none. Locks go from the queue's order to the buffer.
    fn place(&self, operation: &'static str) -> Result<()> {
        let mut waiting = self.queue.order().lock();
        let mut state = self.shared.lock();
        match state.status {
            Status::NotEnqueued => waiting.buffers.push_back(self.shared.clone()),
            Status::Enqueued => {}
            status => return Err(Error::CommandBuffer { operation, status: status.name() }),
        }
        state.status = Status::Committed;
        Ok(())
    }
}

impl Drop for CommandBuffer {
    /// Gives up the place of a buffer that was never committed: the ones behind it would wait for ever.
    fn drop(&mut self) {
        if self.status() == Status::Enqueued {
            self.queue.order().lock().buffers.retain(|waiting| !Arc::ptr_eq(waiting, &self.shared));
            self.queue.order().run(&self.queue);
        }
    }
}

/// Runs a buffer's commands up to the first error, and ends it when the device has done so too. Returns the buffer where that is now, and
/// its handlers are still to be told.
fn execute(queue: &Queue, shared: &Arc<Shared>) -> Option<Arc<Shared>> {
    let mut commands = {
        let mut state = shared.lock();
        state.begin_ns = clock::now_ns();
        std::mem::take(&mut state.commands)
    };
    let failed = commands.iter_mut().find_map(|command| run_command(queue, command).err());
    let (of_end, here) = (shared.clone(), std::thread::current().id());
    // Whether the submission is still under way, and whether the commands ended within it, on this thread.
    let (submitting, ended_here) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (at_once, says) = (submitting.clone(), ended_here.clone());
    let end = move || {
        complete(&of_end, None);
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
    if let Some(error) = failed {
        // Nobody waits for this command alone: the next synchronisation delivers it.
        queue.keep(&error);
        complete(shared, Some(error));
        ended_here.store(true, Ordering::Relaxed);
    }
    ended_here.load(Ordering::Relaxed).then(|| shared.clone()).filter(|shared| !shared.lock().done)
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
    let kept = {
        let mut state = shared.lock();
        state.end_ns = clock::now_ns();
        state.status = if error.is_some() { Status::Error } else { Status::Completed };
        state.error = error.map(Arc::new);
        state.done = state.handlers.is_empty();
        std::mem::take(&mut state.kept)
    };
    drop(kept);
    shared.done.notify_all();
}

/// Calls the completion handlers of a buffer whose commands have ended.
fn tell(shared: &Shared) {
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
