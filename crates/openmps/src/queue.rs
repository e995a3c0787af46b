//! Queues of a device.

use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use openmps_runtime as runtime;
use runtime::CommandCounts;
use std::fmt;

/// An ordered stream of work on a device: `MTLCommandQueue`. Clones are the same queue.
///
/// ```
/// let queue: openmps::CommandQueue = openmps::Device::get(0)?.new_queue();
/// queue.synchronize()?;
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone)]
pub struct CommandQueue {
    device: Device,
    queue: runtime::Queue,
}

impl CommandQueue {
    /// The queue's device.
    ///
    /// ```
    /// let device = openmps::Device::get(0)?;
    /// assert_eq!(device.queue().device(), &device);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The queue's number on its device; the default queue is 0.
    ///
    /// ```
    /// let device = openmps::Device::get(0)?;
    /// assert_ne!(device.new_queue().id(), device.new_queue().id());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.queue.id()
    }

    /// The device's own handle of this queue (a `CUstream`), where it has one: for programs that order their work with ours.
    ///
    /// ```
    /// assert_eq!(openmps::Device::host(0)?.queue().handle(), None);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn handle(&self) -> Option<usize> {
        self.queue.handle()
    }

    /// How many command buffers the device was handed of this queue so far; none on a device that has no such.
    ///
    /// ```
    /// assert_eq!(openmps::Device::host(0)?.queue().command_buffers(), None);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn command_buffers(&self) -> Option<u64> {
        self.queue.command_buffers()
    }

    /// A new command buffer, which is executed on this queue when it is committed: `commandBuffer`.
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().command_buffer().commit()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn command_buffer(&self) -> CommandBuffer {
        CommandBuffer::new(self)
    }

    /// Sets the event when the queue comes here.
    ///
    /// ```
    /// let event = openmps::Event::new();
    /// openmps::Device::get(0)?.queue().record(&event)?;
    /// event.synchronize()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn record(&self, event: &Event) -> Result<()> {
        Ok(self.queue.record(event.runtime())?)
    }

    /// Holds the queue's later commands until the event is reached; an event that was never recorded holds nothing.
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().wait(&openmps::Event::new())?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn wait(&self, event: &Event) -> Result<()> {
        Ok(self.queue.wait(event.runtime())?)
    }

    /// Calls a function when the queue comes here.
    ///
    /// ```
    /// let queue = openmps::Device::get(0)?.queue();
    /// queue.add_callback(|| println!("here"))?;
    /// queue.synchronize()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn add_callback(&self, callback: impl FnOnce() + Send + 'static) -> Result<()> {
        Ok(self.queue.add_callback(callback)?)
    }

    /// Waits for the queue's commands. Delivers, once, the first error since the last call.
    ///
    /// ```
    /// openmps::Device::get(0)?.new_queue().synchronize()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.queue.synchronize()?)
    }

    /// Waits for the queue's commands, and returns what the device reports of them. Errors that were kept before stay for
    /// [`CommandQueue::synchronize`].
    ///
    /// ```
    /// openmps::Device::get(0)?.queue().finish()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn finish(&self) -> Result<()> {
        Ok(self.queue.finish()?)
    }

    /// Whether the queue's commands have ended. Waits for none of them.
    ///
    /// ```
    /// assert!(openmps::Device::get(0)?.new_queue().is_idle()?);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn is_idle(&self) -> Result<bool> {
        Ok(self.queue.is_idle()?)
    }

    /// How many commands the queue has taken.
    ///
    /// ```
    /// let queue = openmps::Device::get(0)?.new_queue();
    /// assert_eq!(queue.counts(), Default::default());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn counts(&self) -> CommandCounts {
        self.queue.counts()
    }

    /// The queue below, for calls of [`openmps::runtime`](crate::runtime) and [`openmps::operators`](crate::operators), which have error types
    /// of their own.
    ///
    /// ```
    /// let memory = openmps::Device::get(0)?.queue().runtime().allocate(16)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn runtime(&self) -> &runtime::Queue {
        &self.queue
    }
}

impl Device {
    /// The default queue.
    ///
    /// ```
    /// assert_eq!(openmps::Device::get(0)?.queue().id(), 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn queue(&self) -> CommandQueue {
        self.runtime().queue().into()
    }

    /// A further queue: `newCommandQueue`.
    ///
    /// ```
    /// assert_ne!(openmps::Device::get(0)?.new_queue().id(), 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new_queue(&self) -> CommandQueue {
        self.runtime().new_queue().into()
    }
}

impl From<runtime::Queue> for CommandQueue {
    fn from(queue: runtime::Queue) -> CommandQueue {
        CommandQueue { device: queue.device().clone().into(), queue }
    }
}

impl fmt::Debug for CommandQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.fmt(out)
    }
}
