//! Command buffers with Metal's rules: encode, commit once, wait; buffers of one queue run in the order they were
//! enqueued in, and nothing runs before it is committed.

mod encoded;
mod execution;
mod future;
mod order;
mod resources;

use crate::clock;
use crate::devices::NativeResult;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::pipeline::Pipeline;
use crate::queue::Queue;
use encoded::Encoded;
pub use future::Completion;
use openmps_host::fork;
pub(crate) use order::Order;
use order::Wait;
pub use resources::{Guard, Resource};
use std::any::Any;
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
    /// The device has been given all of its commands.
    submitted: bool,
    /// The thread that is running the completion handlers.
    telling: Option<ThreadId>,
    /// Set after the handlers have run, which is what `wait_until_completed` waits for.
    done: bool,
    /// Threads that wait for it.
    waiting: usize,
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
            submitted: false,
            telling: None,
            done: false,
            waiting: 0,
        };
        CommandBuffer { queue, shared: Arc::new(Shared { state: Mutex::new(state), done: Condvar::new() }) }
    }

    /// The queue that it runs on.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Encodes a native kernel.
    pub fn run_native(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error> + Send + 'static,
    ) -> Result<()> {
        let work: Box<dyn FnOnce() -> NativeResult + Send> = Box::new(work);
        self.encode(operation, Encoded::Native { operation, work: Some(work) })
    }

    /// Encodes work that submits commands of its own to the queue, and computes nothing itself. The resources are locked from before it runs
    /// until the device has ended what it submitted; for work encoded in a row that is waited for once.
    pub fn submit(
        &self,
        operation: &'static str,
        resources: Vec<Box<dyn Resource>>,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error> + Send + 'static,
    ) -> Result<()> {
        let work: Box<dyn FnOnce() -> NativeResult + Send> = Box::new(work);
        self.encode(operation, Encoded::Submit { operation, resources, work: Some(work) })
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
        let _section = fork::section();
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
            let mut state = self.shared.lock();
            if state.done || state.telling == here {
                return Ok(());
            }
            state.waiting += 1;
            let waited = self.shared.done.wait_timeout(state, longest);
            waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
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
