//! Queues: ordered streams of commands on one device.

use crate::buffer::Buffer;
use crate::command_buffer::{CommandBuffer, Order};
use crate::command_kind::{CommandCounters, CommandCounts};
use crate::device::{Device, Home};
use crate::devices::{Command, NativeResult};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::pipeline::Pipeline;
use crate::trace;
use crate::vendor::VendorCall;
use openmps_host::fork;
use openmps_metal::interface::Grid;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What a queue's clones have in common. It does not hold its device, which holds the default queue's.
pub(crate) struct QueueShared {
    id: u64,
    counters: CommandCounters,
    /// The first error since the last synchronisation, and how many followed.
    failure: Mutex<Option<(String, usize)>>,
    pub(crate) order: Order,
    /// Where its number goes when the last clone is dropped, if it may be another queue's then.
    home: Option<Home>,
}

impl QueueShared {
    pub fn new(id: u64, home: Option<Home>) -> QueueShared {
        let (counters, failure, order) = (CommandCounters::default(), Mutex::new(None), Order::default());
        QueueShared { id, counters, failure, order, home }
    }
}

impl Drop for QueueShared {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.take_back(self.id);
        }
    }
}

/// An ordered stream of work on one device. Clones are the same queue; every call may come from any thread.
///
/// Every error is delivered once: to the caller of the command where the device knows it at once, else (of a device that
/// works on, and of committed command buffers) by the next `synchronize`.
#[derive(Clone)]
pub struct Queue {
    device: Device,
    shared: Arc<QueueShared>,
}

impl Queue {
    pub(crate) fn new(device: Device, shared: Arc<QueueShared>) -> Queue {
        Queue { device, shared }
    }

    /// The queue's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The queue's number on its device; the default queue is 0.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// The device's own handle of this queue (a `CUstream`), where it has one: for programs that order their work with ours.
    pub fn handle(&self) -> Option<usize> {
        self.device.driver().handle(self.id())
    }

    /// How many command buffers the device was handed of this queue so far; none on a device that has no such.
    pub fn command_buffers(&self) -> Option<u64> {
        self.device.driver().command_buffers(self.id())
    }

    /// Runs a native kernel, in order with the queue's other commands.
    #[inline]
    pub fn run_native(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
    ) -> Result<()> {
        self.run_native_with_detail(operation, String::new, work)
    }

    /// As `run_native`, with a text for the trace (shapes, sizes) that is made only when something is tracing.
    #[inline]
    pub fn run_native_with_detail(
        &self,
        operation: &'static str,
        detail: impl Fn() -> String,
        work: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
    ) -> Result<()> {
        let mut work = Some(work);
        let mut once = || -> NativeResult { work.take().map_or(Ok(()), |work| work()) };
        self.submit(Command::Native { operation, detail: &detail, work: &mut once })
    }

    /// Runs a compiled program for each point of a grid. Each argument is 64 bits: an address, an integer
    /// sign-extended, or a float's bits in the lower half.
    ///
    /// # Safety
    /// Every address that the kernel loads from or stores to must be valid for that, until the
    /// command has ended.
    pub unsafe fn dispatch(
        &self,
        operation: &'static str,
        pipeline: &Pipeline,
        grid: [usize; 3],
        arguments: &[u64],
    ) -> Result<()> {
        self.submit(Command::Dispatch { operation, pipeline, grid, arguments })
    }

    /// Runs a kernel of Metal's own language over a grid; arguments as for `dispatch`. A device that is not Metal's refuses it with
    /// `Error::NotMetal`.
    ///
    /// # Safety
    /// As for `dispatch`.
    pub unsafe fn dispatch_text(
        &self,
        operation: &'static str,
        kernel: &openmps_metal::arguments::Kernel,
        grid: Grid,
        arguments: &[u64],
    ) -> Result<()> {
        self.submit(Command::Text { operation, kernel, grid, arguments })
    }

    /// Begins a capture of the queue's commands into a `.gputrace` file of Xcode's, on a GPU of Apple's. The process needs `MTL_CAPTURE_ENABLED=1`.
    pub fn begin_capture(&self, file: &Path) -> Result<()> {
        self.device.driver().begin_capture(self.shared.id, file)
    }

    /// Ends the device's capture, if there is one, when the queue's commands so far have ended.
    pub fn end_capture(&self) -> Result<()> {
        let finished = self.synchronize();
        self.device.driver().end_capture();
        finished
    }

    /// Hands a call to the vendor's libraries (MPS, MPSGraph); true where one of them has taken it. `call` is asked only on a
    /// device that has such libraries, and says none where the operator is not to be had from them.
    ///
    /// # Safety
    /// The tensors of the call are valid memory, to be read or written until the command has ended.
    #[inline]
    pub unsafe fn try_vendor(
        &self,
        operation: &'static str,
        call: impl FnOnce() -> Option<VendorCall>,
    ) -> Result<bool> {
        if !self.device.driver().has_engines() {
            return Ok(false);
        }
        let Some(call) = call() else { return Ok(false) };
        let Some(plan) = self.device.driver().plan(&call) else { return Ok(false) };
        self.submit(Command::Vendor { operation, call: &call, plan: &*plan })?;
        Ok(true)
    }

    /// Copies between buffers, which may overlap and may belong to different devices. Both ranges are checked to lie in one buffer each.
    ///
    /// # Safety
    /// Until the command has ended nobody else writes either range, or reads the destination: an address says nothing of whose buffer it is.
    pub unsafe fn copy(&self, destination: usize, source: usize, bytes: usize) -> Result<()> {
        self.check(destination, bytes)?;
        self.check(source, bytes)?;
        self.submit(Command::Copy { destination, source, bytes })
    }

    /// Copies from the host's memory into a buffer, where the range is checked to lie; the source may change when this returns.
    ///
    /// # Safety
    /// Until the command has ended nobody else reads or writes the range.
    ///
    /// ```compile_fail,E0133
    /// let device = openmps_runtime::Device::get(0).unwrap();
    /// let buffer = device.allocate(16).unwrap();
    /// device.queue().write(buffer.address() + 256, &[1]).unwrap();
    /// ```
    pub unsafe fn write(&self, destination: usize, source: &[u8]) -> Result<()> {
        self.check(destination, source.len())?;
        self.submit(Command::Write { destination, source })
    }

    /// Copies from a buffer, where the range is checked to lie, into the host's memory, after the queue's commands so far.
    ///
    /// # Safety
    /// The range was written before, and until the command has ended nobody else writes it.
    pub unsafe fn read(&self, destination: &mut [u8], source: usize) -> Result<()> {
        self.check(source, destination.len())?;
        self.submit(Command::Read { destination, source })
    }

    /// Writes one byte all over a range, which is checked to lie in one buffer.
    ///
    /// # Safety
    /// Until the command has ended nobody else reads or writes the range.
    pub unsafe fn fill(&self, address: usize, byte: u8, bytes: usize) -> Result<()> {
        self.check(address, bytes)?;
        self.submit(Command::Fill { address, byte, bytes })
    }

    /// Sets the event when the queue comes here.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.submit(Command::Record(event))
    }

    /// Holds the queue's later commands until the event is reached; an event that was never recorded holds nothing.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.submit(Command::Wait(event))
    }

    /// Calls a function when the queue comes here.
    pub fn add_callback(&self, callback: impl FnOnce() + Send + 'static) -> Result<()> {
        self.submit(Command::Callback(Box::new(callback)))
    }

    /// Waits for the queue's commands. Delivers, once, the first error since the last call.
    pub fn synchronize(&self) -> Result<()> {
        let _section = fork::section();
        if let Err(error) = self.device.driver().finish(self.id()) {
            self.keep(&error);
        }
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failure {
            None => Ok(()),
            Some((message, further)) => {
                Err(Error::Deferred { device: self.device.index(), queue: self.id(), message, further })
            }
        }
    }

    /// Waits for the queue's commands, and returns what the device reports of them. Errors that were kept before stay for `synchronize`.
    pub fn finish(&self) -> Result<()> {
        self.device.driver().finish(self.id())
    }

    /// Whether the queue's commands have ended. Waits for none of them.
    pub fn is_idle(&self) -> Result<bool> {
        if let Some(idle) = self.device.driver().is_idle(self.id()) {
            return Ok(idle);
        }
        let event = Event::new();
        self.record(&event)?;
        Ok(event.query())
    }

    /// A buffer for use on this queue: freed, its memory serves this queue again without waiting.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.device.allocate_for(bytes, self.id())
    }

    /// As `Device::allocate_address`, for use on this queue.
    pub fn allocate_address(&self, bytes: usize) -> Result<usize> {
        self.device.allocator().allocate(bytes, self.id())
    }

    /// As `Device::free_address`, where this queue was the last to use the buffer.
    ///
    /// # Safety
    /// As for `Device::free_address`.
    pub unsafe fn free_address(&self, address: usize) -> Result<()> {
        self.device.allocator().free(address, self.id())
    }

    /// A new command buffer, which is executed on this queue when it is committed.
    pub fn command_buffer(&self) -> CommandBuffer {
        CommandBuffer::new(self.clone())
    }

    /// How many commands the queue has taken.
    pub fn counts(&self) -> CommandCounts {
        self.shared.counters.now()
    }

    pub(crate) fn order(&self) -> &Order {
        &self.shared.order
    }

    /// Counts a command and passes it to the device. Without tracing this costs an atomic addition, an atomic load
    /// and an indirect call.
    #[inline]
    pub(crate) fn submit(&self, command: Command<'_>) -> Result<()> {
        let _section = fork::section();
        self.shared.counters.add(command.kind());
        let result = if trace::is_on() {
            self.submit_traced(command)
        } else {
            self.device.driver().submit(self.shared.id, command)
        };
        if result.is_err() {
            self.shared.counters.add_error();
        }
        result
    }

    #[cold]
    fn submit_traced(&self, command: Command<'_>) -> Result<()> {
        let span = trace::Span::begin(self.device.index(), self.id(), &command);
        let result = self.device.driver().submit(self.id(), command);
        span.end(result.as_ref().err());
        result
    }

    /// Keeps an error for the next `synchronize`.
    #[cold]
    pub(crate) fn keep(&self, error: &Error) {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *failure {
            None => *failure = Some((error.to_string(), 0)),
            Some((_, further)) => *further += 1,
        }
    }

    /// Whether a range lies in one buffer: of this device, or of another one of this machine.
    fn check(&self, address: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let Err(error) = self.device.resolve(address, bytes) else { return Ok(()) };
        let elsewhere = Device::known().any(|other| *other != self.device && other.resolve(address, bytes).is_ok());
        if elsewhere {
            return Ok(());
        }
        self.shared.counters.add_error();
        Err(error)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Queue({} of {:?})", self.id(), self.device)
    }
}
