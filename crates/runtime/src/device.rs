//! Devices: their list, their memory, their queues.

use crate::allocator::heap::HeapSource;
use crate::allocator::{Allocator, MemoryStatistics};
use crate::buffer::Buffer;
use crate::devices::recorder::{self, Recorder, RecorderMemory};
use crate::devices::{Driver, metal, no_text};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::pipeline::Pipeline;
use crate::properties::DeviceProperties;
use crate::queue::{Queue, QueueShared};
use crate::reclaim;
use crate::trace;
use crate::vendor::Engine;
use openmps_host::fork;
use openmps_metal::interface::Language;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

/// A device. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    shared: Arc<DeviceShared>,
}

struct DeviceShared {
    index: usize,
    properties: DeviceProperties,
    driver: Box<dyn Driver>,
    allocator: Allocator,
    identity: Identity,
    default_queue: Arc<QueueShared>,
    queues: Mutex<Queues>,
}

/// The queues of a device.
struct Queues {
    /// Every one that may still have something to deliver.
    live: Vec<Weak<QueueShared>>,
    /// The numbers of those that are gone, for new ones: the device keeps a stream of its own, and freed memory, by number.
    free: Vec<u64>,
    /// The number that no queue has had.
    next: u64,
}

/// The device that a queue's number goes back to.
pub(crate) struct Home(Weak<DeviceShared>);

impl Home {
    /// Takes back the number of a queue that nobody holds any more. Its commands need not have ended: the last one may be what drops it.
    pub fn take_back(&self, queue: u64) {
        let Some(device) = self.0.upgrade() else { return };
        // A fork meanwhile would leave the lock to a thread that the child has not.
        let _section = fork::section();
        device.queues.lock().unwrap_or_else(PoisonError::into_inner).free.push(queue);
    }
}

/// Memory of the process that a device knows: [`Device::borrow`].
#[allow(dead_code, reason = "it is held, not read")]
pub struct BorrowedMemory(Option<Box<dyn Any + Send + Sync>>);

/// The devices of a kind, or why there are none.
pub(crate) type Found = std::result::Result<Vec<Device>, String>;

/// The devices of this machine by the number of their kind, once somebody has asked.
static FOUND: [OnceLock<Found>; 4] = [const { OnceLock::new() }; 4];

/// What comes before the first device.
static START: Once = Once::new();

/// The allocators of this machine's devices, for a fork: addresses are allocated and freed at any time.
fn hold_allocators() -> Box<dyn Any> {
    Box::new(Device::known().map(|device| device.allocator().hold()).collect::<Vec<_>>())
}

/// The number of the default queue.
const DEFAULT_QUEUE: u64 = 0;

impl Device {
    /// The devices of the kind with this number, which are looked for once, when somebody first asks for them.
    pub(crate) fn of_kind(kind: usize, find: impl FnOnce() -> Found) -> Result<&'static [Device]> {
        START.call_once(|| {
            trace::start_from_environment();
            fork::list(hold_allocators);
        });
        FOUND[kind].get_or_init(find).as_deref().map_err(|why| Error::NoDevices { why: why.clone() })
    }

    /// The devices of every kind that somebody has asked for.
    pub(crate) fn known() -> impl Iterator<Item = &'static Device> {
        FOUND.iter().filter_map(OnceLock::get).flat_map(|found| found.as_deref().unwrap_or_default())
    }

    /// A device of its own over an implementation of `openmps_metal`'s trait: Metal, its emulator, or its recorder. `index` is its position in
    /// a list, and part of its errors.
    pub fn over<M: openmps_metal::Metal>(index: usize, metal: M) -> Device {
        Device::over_with_engine(index, metal, Engine::forced())
    }

    /// As `over`, with an engine that computes wherever it can, whatever `OPENMPS_METAL_ENGINE` says.
    pub fn over_with_engine<M: openmps_metal::Metal>(index: usize, metal: M, engine: Option<Engine>) -> Device {
        let (gpu, properties) = metal::MetalDevice::new(index, metal, engine);
        let limit = memory_limit(&properties);
        let device = Device::new(index, properties, Box::new(gpu.clone()), Box::new(gpu.clone()), limit);
        let shared = Arc::downgrade(&device.shared);
        gpu.tell_apart_by(Box::new(move |address| shared.upgrade()?.allocator.block(address)));
        device
    }

    /// Compiles a kernel of Metal's own language for this device: `Error::NotMetal` where it is none of Metal's, `Error::Compile` where the
    /// text is wrong. The compiled form is kept for its dispatches.
    pub fn prepare(&self, kernel: &openmps_metal::arguments::Kernel) -> Result<openmps_metal::PipelineLimits> {
        self.driver().prepare(kernel).unwrap_or_else(|| Err(no_text(kernel.name(), &format!("{self:?}"))))
    }

    /// In which of Metal's languages this device takes a text.
    pub fn language_of(&self, source: &str) -> Language {
        Language::of(source, self.driver().language().unwrap_or(Language::Metal4_0))
    }

    /// Compiles a text of Metal's own language for this device, and gives the names of its kernels; errors as of `prepare`.
    pub fn text_functions(&self, source: &str) -> Result<Vec<String>> {
        let functions = self.driver().text_functions(source, self.language_of(source));
        functions.unwrap_or_else(|| Err(no_text("a library", &format!("{self:?}"))))
    }

    /// A device of its own that runs no command, and the handle to what it was asked to do.
    pub fn recorder() -> (Device, Recorder) {
        let (recorder, properties) = (Recorder::default(), recorder::properties());
        let limit = properties.total_memory;
        (Device::new(0, properties, Box::new(recorder.clone()), Box::new(RecorderMemory), limit), recorder)
    }

    pub(crate) fn new(
        index: usize,
        properties: DeviceProperties,
        driver: Box<dyn Driver>,
        heaps: Box<dyn HeapSource>,
        limit: usize,
    ) -> Device {
        let default_queue = Arc::new(QueueShared::new(DEFAULT_QUEUE, None));
        let live = vec![Arc::downgrade(&default_queue)];
        let queues = Mutex::new(Queues { live, free: Vec::new(), next: DEFAULT_QUEUE + 1 });
        let (allocator, identity) = (Allocator::new(index, heaps, limit), Identity::next());
        Device {
            shared: Arc::new(DeviceShared { index, properties, driver, allocator, identity, default_queue, queues }),
        }
    }

    /// The position among the devices of its kind.
    pub fn index(&self) -> usize {
        self.shared.index
    }

    /// What no other device of this process has, before or after.
    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// What the device says about itself.
    pub fn properties(&self) -> &DeviceProperties {
        &self.shared.properties
    }

    /// What its vendor's libraries were asked and have answered wrongly, on this machine and this system: a line each, for people. Own kernels
    /// compute that.
    pub fn wrong_answers(&self) -> Vec<String> {
        self.driver().wrong_answers()
    }

    /// Makes the device's form of a kernel; an error says what of it the device does not cover.
    pub fn accepts(&self, pipeline: &Pipeline) -> Result<()> {
        self.driver().accepts(pipeline)
    }

    /// A new buffer for use on the default queue. Its contents are undefined.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.allocate_for(bytes, DEFAULT_QUEUE)
    }

    /// The address of a new buffer that `free_address` frees: for C interfaces.
    pub fn allocate_address(&self, bytes: usize) -> Result<usize> {
        self.allocator().allocate(bytes, DEFAULT_QUEUE)
    }

    /// Frees what `allocate_address` gave; an address that is no buffer's beginning is an error and changes nothing.
    ///
    /// # Safety
    /// The address came from `allocate_address` and was not freed since (not from a [`Buffer`], which frees itself), and no command that uses
    /// the memory is still to come.
    ///
    /// ```compile_fail,E0133
    /// let device = openmps_runtime::Device::get(0).unwrap();
    /// let buffer = device.allocate(16).unwrap();
    /// device.free_address(buffer.address()).unwrap();
    /// ```
    pub unsafe fn free_address(&self, address: usize) -> Result<()> {
        self.allocator().free(address, DEFAULT_QUEUE)
    }

    /// The buffer around `bytes` bytes at any address inside it: (its first address, the offset).
    pub fn resolve(&self, address: usize, bytes: usize) -> Result<(usize, usize)> {
        self.allocator().resolve(address, bytes)
    }

    /// Makes memory of the process known to the device, so that kernels may be given addresses in it, until what this gives is dropped. Refused
    /// where the GPU does not see it.
    ///
    /// # Safety
    /// The bytes stay valid until then, and until every command that uses them has ended.
    pub unsafe fn borrow(&self, address: usize, bytes: usize) -> Result<BorrowedMemory> {
        // SAFETY: passed on to the caller.
        unsafe { self.driver().borrow(address, bytes) }.map(BorrowedMemory)
    }

    /// The memory's figures of this moment.
    pub fn statistics(&self) -> MemoryStatistics {
        self.allocator().statistics()
    }

    /// Starts the peak of allocated memory anew from what is allocated now.
    pub fn reset_peak_allocated(&self) {
        self.allocator().reset(MemoryStatistics::reset_peak_allocated);
    }

    /// Starts the peak of reserved memory anew from what is reserved now.
    pub fn reset_peak_reserved(&self) {
        self.allocator().reset(MemoryStatistics::reset_peak_reserved);
    }

    /// Starts every counter (allocations, frees, hits, misses, refusals) anew from zero.
    pub fn reset_accumulated(&self) {
        self.allocator().reset(MemoryStatistics::reset_accumulated);
    }

    /// Gives memory that no buffer uses back to the system.
    pub fn empty_cache(&self) {
        self.allocator().empty_cache();
    }

    /// The most bytes that the device's heaps may take: `OPENMPS_MEMORY_LIMIT`, or the machine's memory.
    pub fn memory_limit(&self) -> usize {
        self.allocator().limit()
    }

    /// Changes the limit. What is allocated already stays, even above it.
    pub fn set_memory_limit(&self, bytes: usize) {
        self.allocator().set_limit(bytes);
    }

    /// The default queue.
    pub fn queue(&self) -> Queue {
        Queue::new(self.clone(), self.shared.default_queue.clone())
    }

    /// A further queue whose commands go to a stream of somebody else's, a `CUstream` of this GPU, in the order of its own.
    ///
    /// # Safety
    /// The stream lives as long as the queue has commands to come.
    pub unsafe fn queue_of_stream(&self, stream: usize) -> Result<Queue> {
        // Its number leads to that stream from now on, and goes to no other queue.
        let queue = self.queue_with(None);
        self.driver().adopt(queue.id(), stream)?;
        Ok(queue)
    }

    /// A further queue. Its number may have been that of a queue which is gone, whose commands are waited for then.
    pub fn new_queue(&self) -> Queue {
        self.queue_with(Some(Home(Arc::downgrade(&self.shared))))
    }

    /// A further queue, with one of the numbers that are free if its own is to be free again.
    fn queue_with(&self, home: Option<Home>) -> Queue {
        let _section = fork::section();
        let mut queues = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let free = if home.is_some() { queues.free.pop() } else { None };
        let id = free.unwrap_or(queues.next);
        queues.next = queues.next.max(id + 1);
        let queue = Arc::new(QueueShared::new(id, home));
        queues.live.retain(|queue| queue.strong_count() > 0);
        queues.live.push(Arc::downgrade(&queue));
        drop(queues);
        if free.is_some() {
            // Whoever wanted to know of the other queue's errors would have synchronised it.
            let _ = self.driver().finish(id);
        }
        Queue::new(self.clone(), queue)
    }

    /// Waits for every queue; the first error that one of them kept is delivered.
    pub fn synchronize(&self) -> Result<()> {
        let queues = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).live.clone();
        let queues = queues.iter().filter_map(Weak::upgrade);
        // Every queue is waited for, and gives up its error, even when an earlier one failed.
        let results: Vec<Result<()>> = queues.map(|queue| Queue::new(self.clone(), queue).synchronize()).collect();
        results.into_iter().collect()
    }

    pub(crate) fn allocate_for(&self, bytes: usize, queue: u64) -> Result<Buffer> {
        let address = match self.allocator().allocate(bytes, queue) {
            Err(Error::OutOfMemory { .. }) if reclaim::reclaim() => self.allocator().allocate(bytes, queue)?,
            other => other?,
        };
        Ok(Buffer::new(self.clone(), address, bytes, queue))
    }

    #[inline]
    pub(crate) fn allocator(&self) -> &Allocator {
        &self.shared.allocator
    }

    #[inline]
    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.shared.driver
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Device({}: {} {})", self.index(), self.properties().backend.name(), self.properties().name)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Device {}

pub(crate) fn host_devices() -> usize {
    openmps_settings::HOST_DEVICES.get().unwrap_or(1)
}

/// The limit that the environment asks for, or the machine's memory.
pub(crate) fn memory_limit(properties: &DeviceProperties) -> usize {
    openmps_settings::MEMORY_LIMIT.get().unwrap_or(properties.total_memory)
}
