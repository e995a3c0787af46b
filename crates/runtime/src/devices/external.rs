//! A device on somebody else's GPU: a program that has Metal buffers and an encoder of its own lets openmps borrow them, and openmps's kernels are put
//! onto that encoder, between the program's own dispatches.
//!
//! The program's memory need not be visible to the CPU, so an address here is a name: it leads to a buffer and an offset and is never
//! followed. What computes on the CPU is refused. When commands are committed and waited for is the program's affair.

mod held;

pub use held::HeldDevices;

use super::metal::{are_trusted, failed, properties, text_of};
use super::{Command, Driver};
use crate::allocator::heap::{HeapSource, Region};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::pipeline::{CompiledFor, Pipeline};
use openmps_metal::answers::Answers;
use openmps_metal::arguments::{self, Addresses, Kernel, Resolved, Table};
use openmps_metal::interface::{Grid, Language, Properties};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// A GPU that the program owns.
///
/// # Safety
/// A buffer that is allocated has at least the bytes that were asked for, and a launch binds what the table says: kernels read and write there.
pub unsafe trait ExternalGpu: Send + Sync + 'static {
    /// Memory of the GPU. Clones are the same memory.
    type Buffer: Clone + Send + Sync + 'static;

    /// What the GPU says about itself.
    fn properties(&self) -> &Properties;

    /// Memory for what a kernel needs beside its operands, on the owner's own terms of hazards and storage.
    fn allocate(&self, bytes: usize) -> openmps_metal::Result<Self::Buffer>;

    /// Compiles a kernel, where that has not been done, and puts one run of it onto the encoder (`openmps_metal::encode::kernel`), ordered
    /// behind whatever wrote the memory that it reads.
    ///
    /// # Safety
    /// The kernel stays inside the buffers that the table binds.
    unsafe fn launch(&self, kernel: &Kernel, table: &Table<Self::Buffer>, grid: Grid) -> openmps_metal::Result<()>;
}

/// A device over it, which borrows its buffers.
pub struct ExternalDevice<E: ExternalGpu> {
    device: Device,
    gpu: Arc<Gpu<E>>,
}

/// A buffer for as long as it is borrowed; then its address names nothing.
pub struct BorrowedBuffer<E: ExternalGpu> {
    gpu: Arc<Gpu<E>>,
    address: usize,
}

/// A borrowed buffer, and whether kernels may write it.
#[derive(Clone)]
struct Binding<B> {
    buffer: B,
    written: bool,
}

/// The driver of one external GPU. Clones are the same.
struct Gpu<E: ExternalGpu> {
    external: E,
    index: usize,
    /// What the GPU has answered to others: on somebody else's encoder nothing is asked. Read when a kernel wants to know.
    answers: OnceLock<Answers>,
    addresses: RwLock<Addresses<Binding<E::Buffer>>>,
    /// Bound in the place of pointers behind which there is nothing.
    nothing: OnceLock<E::Buffer>,
    next: AtomicUsize,
}

/// Where names begin: no program of this system has memory there.
const FIRST: usize = 1 << 60;

/// Names are this far apart at least, and begin at multiples of it.
const APART: usize = 64 << 10;

/// Bytes of the buffer that is bound for nothing.
const NOTHING: usize = 16;

/// What a compiled tile kernel is kept as: another type than that of the devices which have a command queue of their own.
struct Text(Kernel);

impl Device {
    /// A device of its own on somebody else's GPU and encoder, which borrows their buffers.
    pub fn external<E: ExternalGpu>(index: usize, gpu: E) -> ExternalDevice<E> {
        ExternalDevice::new(index, gpu)
    }
}

impl<E: ExternalGpu> ExternalDevice<E> {
    fn new(index: usize, external: E) -> ExternalDevice<E> {
        let properties = properties(external.properties(), false);
        let (addresses, nothing, next) = (RwLock::default(), OnceLock::new(), AtomicUsize::new(FIRST));
        let gpu = Arc::new(Gpu { external, index, answers: OnceLock::new(), addresses, nothing, next });
        let (limit, handle) = (properties.total_memory, || Box::new(Handle(gpu.clone())));
        let device = Device::new(index, properties, handle(), handle(), limit);
        ExternalDevice { device, gpu }
    }

    /// The device, for operators that run on its queue.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The program's GPU.
    pub fn gpu(&self) -> &E {
        &self.gpu.external
    }

    /// Names a buffer of `bytes` bytes; `written` says whether kernels may write it.
    pub fn borrow(&self, buffer: E::Buffer, bytes: usize, written: bool) -> BorrowedBuffer<E> {
        let address = self.gpu.name(buffer, bytes, written);
        BorrowedBuffer { gpu: self.gpu.clone(), address }
    }
}

impl<E: ExternalGpu> BorrowedBuffer<E> {
    /// The name of the buffer's first byte.
    pub fn address(&self) -> usize {
        self.address
    }
}

impl<E: ExternalGpu> Drop for BorrowedBuffer<E> {
    fn drop(&mut self) {
        self.gpu.forget(self.address);
    }
}

impl<E: ExternalGpu> Gpu<E> {
    fn name(&self, buffer: E::Buffer, bytes: usize, written: bool) -> usize {
        let length = (bytes + 1).next_multiple_of(APART);
        let address = self.next.fetch_add(length, Ordering::Relaxed);
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        addresses.insert(address, bytes, Binding { buffer, written });
        address
    }

    fn forget(&self, address: usize) {
        let removed = self.addresses.write().unwrap_or_else(PoisonError::into_inner).remove(address);
        // Outside of the lock: the owner's buffer may do anything when it goes.
        drop(removed);
    }

    fn resolve(&self, address: usize) -> Option<Resolved<Binding<E::Buffer>>> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).resolve(address, 0)
    }

    fn nothing(&self) -> openmps_metal::Result<Binding<E::Buffer>> {
        let buffer = match self.nothing.get() {
            Some(buffer) => buffer.clone(),
            None => self.external.allocate(NOTHING).map(|made| self.nothing.get_or_init(|| made).clone())?,
        };
        Ok(Binding { buffer, written: false })
    }

    fn text(&self, pipeline: &Pipeline) -> Result<Kernel> {
        let answers = || self.answers.get_or_init(|| Answers::new(self.external.properties()));
        let are_right = || are_trusted(pipeline.kernel(), |question| !answers().is_known_wrong(&question));
        text_of(pipeline, self.external.properties(), are_right)
    }

    fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[u64]) -> Result<()> {
        let table = arguments::bind(kernel, arguments, |address| self.resolve(address), || self.nothing());
        let table = table.map_err(failed)?;
        if grid.is_empty() {
            return Ok(());
        }
        let own = |(index, found, written): (usize, Resolved<Binding<E::Buffer>>, bool)| {
            let Binding { buffer, written: allowed } = found.buffer;
            (index, Resolved { buffer, offset: found.offset, extent: found.extent }, written && allowed)
        };
        let table = Table { buffers: table.buffers.into_iter().map(own).collect(), bytes: table.bytes };
        // SAFETY: `Queue::dispatch` and `Queue::dispatch_text` are unsafe, and their callers vouch for what the kernel reaches.
        unsafe { self.external.launch(kernel, &table, grid) }.map_err(failed)
    }
}

/// One external GPU's driver and supply of memory.
struct Handle<E: ExternalGpu>(Arc<Gpu<E>>);

impl<E: ExternalGpu> Driver for Handle<E> {
    unsafe fn borrow(&self, address: usize, bytes: usize) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let message = format!("{bytes} bytes at {address:#x} are in no borrowed buffer");
        Err(Error::Driver { device: "external", message })
    }

    fn submit(&self, _queue: u64, command: Command<'_>) -> Result<()> {
        let gpu = &self.0;
        match command {
            Command::Dispatch { pipeline, grid, arguments, .. } => {
                pipeline.check(arguments)?;
                let text = pipeline.compiled(CompiledFor::External(gpu.index), || gpu.text(pipeline).map(Text))?;
                gpu.launch(&text.0, grid.into(), arguments)
            }
            Command::Text { kernel, grid, arguments, .. } => gpu.launch(kernel, grid, arguments),
            Command::Callback(callback) => {
                callback();
                Ok(())
            }
            other => {
                let device = format!("the external GPU {}", gpu.external.properties().name);
                Err(super::not_taken(other.operation(), &device))
            }
        }
    }

    fn language(&self) -> Option<Language> {
        Some(self.0.external.properties().language())
    }

    /// The owner waits for its commands itself.
    fn finish(&self, _queue: u64) -> Result<()> {
        Ok(())
    }
}

impl<E: ExternalGpu> HeapSource for Handle<E> {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        let buffer = self.0.external.allocate(bytes).ok()?;
        Some(Region { address: self.0.name(buffer, bytes, true), bytes })
    }

    fn release(&self, region: Region) {
        self.0.forget(region.address);
    }

    /// Freed memory may serve the next kernel of the encoder, which the owner orders behind those before it.
    fn ordered_by_queue(&self) -> bool {
        true
    }
}
