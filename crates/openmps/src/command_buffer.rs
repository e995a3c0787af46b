//! Command buffers: what the objects of this crate are encoded to.

use crate::error::{Error, Result};
use crate::event::Event;
use crate::queue::CommandQueue;
use openmps_runtime as runtime;
use runtime::Status;
use std::future::IntoFuture;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Commands that run together: `MTLCommandBuffer`, with its rules. Encode, commit once, wait; buffers of a queue run in the order in
/// which they were enqueued.
///
/// ```
/// use openmps::{CommandBufferStatus, Device};
/// let command_buffer = Device::get(0)?.queue().command_buffer();
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(command_buffer.status(), CommandBufferStatus::Completed);
/// assert!(command_buffer.gpu_end_time() >= command_buffer.gpu_start_time());
/// # Ok::<(), openmps::Error>(())
/// ```
pub struct CommandBuffer {
    queue: CommandQueue,
    commands: runtime::CommandBuffer,
}

impl CommandBuffer {
    pub(crate) fn new(queue: &CommandQueue) -> CommandBuffer {
        CommandBuffer { queue: queue.clone(), commands: queue.runtime().command_buffer() }
    }

    /// The queue that it runs on.
    ///
    /// ```
    /// let queue = openmps::Device::get(0)?.new_queue();
    /// assert_eq!(queue.command_buffer().queue().id(), queue.id());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn queue(&self) -> &CommandQueue {
        &self.queue
    }

    /// Encodes the setting of an event.
    ///
    /// ```
    /// let (command_buffer, event) = (openmps::Device::get(0)?.queue().command_buffer(), openmps::Event::new());
    /// command_buffer.record(&event)?;
    /// command_buffer.commit()?;
    /// command_buffer.wait_until_completed()?;
    /// assert!(event.query());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn record(&self, event: &Event) -> Result<()> {
        Ok(self.commands.record(event.runtime())?)
    }

    /// Encodes the waiting for an event; one that was never recorded holds nothing, so the buffer that records it is committed first. (An
    /// `MTLSharedEvent` is waited for by its value, whoever comes first.)
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().command_buffer().wait(&openmps::Event::new())?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn wait(&self, event: &Event) -> Result<()> {
        Ok(self.commands.wait(event.runtime())?)
    }

    /// Keeps a value alive until the commands have ended.
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().command_buffer().keep(vec![1, 2, 3])?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn keep(&self, value: impl Send + 'static) -> Result<()> {
        Ok(self.commands.keep(value)?)
    }

    /// Calls a function when the commands have ended, with the error that [`CommandBuffer::wait_until_completed`] gives if one failed:
    /// `addCompletedHandler:`.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// let (command_buffer, (say, hear)) = (openmps::Device::get(0)?.queue().command_buffer(), channel());
    /// command_buffer.add_completed_handler(move |result: Result<(), &openmps::Error>| say.send(result.is_ok()).unwrap())?;
    /// command_buffer.commit()?;
    /// assert!(hear.recv().unwrap());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn add_completed_handler(
        &self,
        handler: impl FnOnce(std::result::Result<(), &Error>) + Send + 'static,
    ) -> Result<()> {
        let failure = self.failure();
        let told = move |result: std::result::Result<(), &runtime::Error>| match result {
            Ok(()) => handler(Ok(())),
            Err(error) => handler(Err(&failure(error))),
        };
        Ok(self.commands.add_completed_handler(told)?)
    }

    /// Takes the next place in the queue's order, before it is committed: `enqueue`.
    ///
    /// ```
    /// let queue = openmps::Device::get(0)?.new_queue();
    /// let (first, second) = (queue.command_buffer(), queue.command_buffer());
    /// first.enqueue()?;
    /// second.commit()?;
    /// first.commit()?;
    /// second.wait_until_completed()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn enqueue(&self) -> Result<()> {
        Ok(self.commands.enqueue()?)
    }

    /// Ends encoding; the commands run when those of the buffers before it have. On the host that is now, on this thread, when no buffer before
    /// it is still uncommitted. An error of a command is not returned here but by [`CommandBuffer::wait_until_completed`],
    /// [`CommandBuffer::error`] and the queue's next `synchronize`.
    ///
    /// ```
    /// fn run(command_buffer: &openmps::CommandBuffer) -> openmps::Result<()> {
    ///     command_buffer.commit()
    /// }
    /// let command_buffer = openmps::Device::get(0)?.queue().command_buffer();
    /// run(&command_buffer)?;
    /// assert!(run(&command_buffer).is_err(), "it is committed once");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn commit(&self) -> Result<()> {
        Ok(self.commands.commit()?)
    }

    /// Waits until the commands and the completion handlers have run; the error of a failed command is returned. A handler of its own need not
    /// wait for itself. What would wait for ever is an error: a command that waits for its own buffer or one behind it, and a buffer behind an
    /// enqueued one to which nobody has encoded for five seconds.
    ///
    /// ```
    /// let command_buffer = openmps::Device::get(0)?.queue().command_buffer();
    /// assert!(command_buffer.wait_until_completed().is_err(), "it is not committed");
    /// command_buffer.commit()?;
    /// command_buffer.wait_until_completed()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn wait_until_completed(&self) -> Result<()> {
        Ok(self.commands.wait_until_completed()?)
    }

    /// How far it has come.
    ///
    /// ```
    /// let command_buffer = openmps::Device::get(0)?.queue().command_buffer();
    /// assert_eq!(command_buffer.status(), openmps::CommandBufferStatus::NotEnqueued);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn status(&self) -> Status {
        self.commands.status()
    }

    /// The error of the command that failed, as [`CommandBuffer::wait_until_completed`] gives it.
    ///
    /// ```
    /// let command_buffer = openmps::Device::get(0)?.queue().command_buffer();
    /// assert!(command_buffer.error().is_none());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn error(&self) -> Option<Error> {
        self.commands.error().map(|error| self.failure()(&error))
    }

    /// When the first command began, in seconds on the runtime's clock; 0 before.
    ///
    /// ```
    /// assert_eq!(openmps::Device::get(0)?.queue().command_buffer().gpu_start_time(), 0.0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn gpu_start_time(&self) -> f64 {
        self.commands.gpu_start_time()
    }

    /// When the last command ended, in seconds on the runtime's clock; 0 before.
    ///
    /// ```
    /// assert_eq!(openmps::Device::get(0)?.queue().command_buffer().gpu_end_time(), 0.0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn gpu_end_time(&self) -> f64 {
        self.commands.gpu_end_time()
    }

    /// The command buffer below, for calls of [`openmps::runtime`](crate::runtime), which have an error type of their own.
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().command_buffer().runtime().run_native("nothing", || Ok(()))?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn runtime(&self) -> &runtime::CommandBuffer {
        &self.commands
    }

    /// What a failed command is told as. The runtime keeps its error, which is lent only.
    fn failure(&self) -> impl Fn(&runtime::Error) -> Error + Send + 'static {
        let (device, queue) = (self.queue.device().index(), self.queue.id());
        move |error| runtime::Error::Deferred { device, queue, message: error.to_string(), further: 0 }.into()
    }
}

/// A command buffer as a future, for any executor: `command_buffer.await`. Ready when the commands and the completion handlers have run:
/// [`CommandBuffer::wait_until_completed`], for whoever does not want to wait. It needs no runtime: where the device is not done yet, a thread
/// of its own waits and wakes the task.
///
/// ```
/// # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake}, thread::{self, Thread}};
/// # struct Parked(Thread);
/// # impl Wake for Parked { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let (mut future, waker) = (pin!(future), Arc::new(Parked(thread::current())).into());
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// async fn run(command_buffer: openmps::CommandBuffer) -> openmps::Result<()> {
///     command_buffer.commit()?;
///     command_buffer.await
/// }
/// block_on(run(openmps::Device::get(0)?.queue().command_buffer()))?;
/// # Ok::<(), openmps::Error>(())
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completion(runtime::command_buffer::Completion);

impl IntoFuture for CommandBuffer {
    type Output = Result<()>;
    type IntoFuture = Completion;

    fn into_future(self) -> Completion {
        Completion(self.commands.into_future())
    }
}

impl Future for Completion {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll(context).map(|result| Ok(result?))
    }
}
