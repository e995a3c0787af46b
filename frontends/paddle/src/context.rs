//! What a kernel runs in: the queue it submits to, and memory for its results.

use crate::abi::arguments::is_host_known;
use crate::abi::symbols::symbols;
use crate::abi::types::PdDeviceContext;
use crate::device::{Stream, collective};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::{Output, double, integer_of};
use openmps_collective::Communicator;
use openmps_graph::operators::copy::Copy;
use openmps_graph::view::bytes;
use openmps_graph::{DType, Operator, Queue, View};
use openmps_runtime::Buffer;
use std::os::raw::c_void;
use std::sync::Arc;

/// The device context of one kernel.
pub struct Context {
    raw: *const PdDeviceContext,
    stream: *const Stream,
}

/// Gives what Paddle caches of a device back to it.
///
/// # Safety
/// `raw` is a live device context, and none of Paddle's allocators is at work on this thread: so it is in a kernel.
unsafe fn empty_paddles_cache(raw: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { (symbols().memory_release)((symbols().device_context_get_place)(raw.cast())) };
}

/// Memory of the device that lives as long as this.
pub struct Temporary {
    /// The value, dense.
    pub view: View,
    _buffer: Buffer,
}

impl Context {
    /// # Safety
    /// `raw` is the device context of the kernel that is running, of device `mps`.
    #[inline]
    pub(crate) unsafe fn new(raw: *const PdDeviceContext) -> Result<Context> {
        // SAFETY: the caller's promise.
        let stream: *const Stream =
            unsafe { (symbols().device_context_get_stream)(raw, &mut 0) }.cast::<c_void>().cast();
        if stream.is_null() {
            return Err(Error::Plugin("Paddle's device context has no stream of device mps".to_owned()));
        }
        Ok(Context { raw, stream })
    }

    /// Runs a kernel. No other thread forks meanwhile, so that no child finds our locks taken, or those that Paddle takes to allocate. Where it finds no memory for what it needs beside its results, what Paddle has cached gives way.
    #[inline]
    pub(crate) fn run<R>(&self, kernel: impl FnOnce() -> R) -> R {
        let _section = openmps_runtime::fork::section();
        // SAFETY: `raw` is the running kernel's context. Operators call the allocator from no place that Paddle has locked.
        unsafe { openmps_runtime::reclaim::with(empty_paddles_cache, self.raw.cast(), kernel) }
    }

    /// The queue that the kernel submits its commands to.
    #[inline]
    pub fn queue(&self) -> &Queue {
        // SAFETY: a device context's stream was made by `create_stream` and lives as long as the context. Views are made of the running
        // kernel's tensors (`tensor.rs`), which Paddle keeps until the stream's commands have ended and which nobody else uses in the
        // stream's order; of `allocate` of the same queue, whose memory is reused in its order; or of values on the host, for operators
        // that have ended when they return.
        unsafe { Queue::vouched((*self.stream).queue()) }
    }

    /// The ranks of Paddle's default group; none where this process is in no job.
    pub fn communicator(&self) -> Option<Arc<Communicator>> {
        // SAFETY: `raw` is the running kernel's context, whose place lives as long.
        unsafe { collective::default_group((symbols().device_context_get_place)(self.raw)) }
    }

    /// Communicates within the kernel, in the stream's order.
    pub fn communicate(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> openmps_collective::Result<()>,
    ) -> Result<()> {
        Ok(collective::in_order(self.queue(), operation, work)?)
    }

    /// Allocates a dense result of this element type and shows it.
    #[inline]
    pub fn allocate(&self, output: &Output, dtype: DType) -> Result<View> {
        // SAFETY: `raw` is the running kernel's context.
        unsafe { output.allocate(self.raw, dtype.into(), dtype) }
    }

    /// Allocates a result of any type and shows it as integers of the same width, as [`crate::Tensor::bytes_view`] does.
    pub fn allocate_bytes(&self, output: &Output, data_type: DataType) -> Result<View> {
        let (dtype, twice) = integer_of(data_type)?;
        // SAFETY: as in `allocate`.
        let mut view = unsafe { output.allocate(self.raw, data_type, dtype) }?;
        if twice {
            double(&mut view)?;
        }
        Ok(view)
    }

    /// Makes a result of these elements in the CPU's memory: sizes, which Paddle reads next. On the device, where Paddle would look for it there.
    pub fn write_on_host(&self, output: &Output, dtype: DType, elements: &[u8]) -> Result<()> {
        if is_host_known() {
            // SAFETY: `raw` is the running kernel's context.
            unsafe { output.write_on_host(self.raw, dtype.into(), elements) };
            return Ok(());
        }
        let view = self.allocate(output, dtype)?;
        if elements.is_empty() { Ok(()) } else { Ok(self.queue().write(&view, elements)?) }
    }

    /// Memory for a dense value on the way.
    pub fn temporary(&self, dtype: DType, dims: &[usize]) -> Result<Temporary> {
        let buffer = self.queue().allocate(bytes(dtype, dims)?.max(1))?;
        Ok(Temporary { view: View::dense(buffer.address(), dtype, dims)?, _buffer: buffer })
    }

    /// As [`Context::temporary`], with these elements.
    pub fn upload(&self, dtype: DType, dims: &[usize], elements: &[u8]) -> Result<Temporary> {
        let temporary = self.temporary(dtype, dims)?;
        let expected = bytes(dtype, dims)?;
        if elements.len() != expected {
            return Err(Error::Plugin(format!(
                "{} bytes for {dims:?} of {dtype}, which has {expected}",
                elements.len()
            )));
        }
        if expected > 0 {
            self.queue().write(&temporary.view, elements)?;
        }
        Ok(temporary)
    }

    /// A dense copy of a view.
    pub fn copy(&self, view: &View) -> Result<Temporary> {
        let copy = self.temporary(view.dtype, &view.shape)?;
        Copy.run(self.queue(), std::slice::from_ref(view), std::slice::from_ref(&copy.view))?;
        Ok(copy)
    }

    /// A copy of what shares memory with a view that is about to be written; none where it may be read where it lies.
    pub fn apart(&self, view: &View, to: &View) -> Result<Option<Temporary>> {
        if view.overlaps(to) { self.copy(view).map(Some) } else { Ok(None) }
    }

    /// 64 random bits from the device's generator, which `paddle.seed` sets.
    pub fn random(&self) -> u64 {
        // SAFETY: `raw` is the running kernel's context.
        unsafe { (symbols().device_context_get_random)(self.raw, &mut 0) }
    }

    /// Whether these bytes are memory of the device.
    pub fn holds(&self, address: usize, bytes: usize) -> bool {
        self.queue().device().resolve(address, bytes).is_ok()
    }

    /// The bytes of a tensor's elements, on the device or the host, when the commands before have ended.
    pub fn bytes(&self, x: &View) -> Result<Vec<u8>> {
        if !x.is_dense() {
            return self.bytes(&self.copy(x)?.view);
        }
        let mut bytes = vec![0; bytes(x.dtype, &x.shape)?];
        // SAFETY: `stream` lives as long as the context; a view of a kernel's tensor is memory that lives and is not written while it runs.
        unsafe { (*self.stream).read(x.address, &mut bytes) }?;
        Ok(bytes)
    }
}
