//! Buffers: device memory with many handles. Commands lock it while they run, so that no safe program reads what another thread writes.

use crate::data_type::{Element, bytes_of, bytes_of_mut};
use crate::error::{Error, Result};
use openmps_runtime::Device;
use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// Device memory: `MTLBuffer`. Clones are the same buffer.
///
/// ```
/// use openmps::{Buffer, Device};
/// let buffer = Buffer::from_slice(&Device::get(0)?, &[1i32, 2, 3])?;
/// assert_eq!(buffer.read::<i32>(4, 2)?, [2, 3]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone)]
pub struct Buffer {
    shared: Arc<Shared>,
}

/// A buffer that others may let go of.
#[derive(Default)]
pub(crate) struct WeakBuffer(Weak<Shared>);

impl WeakBuffer {
    /// The buffer, while somebody has it.
    pub(crate) fn upgrade(&self) -> Option<Buffer> {
        self.0.upgrade().map(|shared| Buffer { shared })
    }
}

struct Shared {
    device: Device,
    address: usize,
    length: usize,
    writable: bool,
    /// None once it was freed.
    memory: RwLock<Option<Memory>>,
}

/// What keeps the memory alive.
type Memory = Box<dyn Any + Send + Sync>;

/// How a command uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Holds a buffer's memory while a command runs.
#[allow(dead_code, reason = "the guards are held, not read")]
pub(crate) enum Guard<'a> {
    Read(RwLockReadGuard<'a, Option<Memory>>),
    Write(RwLockWriteGuard<'a, Option<Memory>>),
}

impl Buffer {
    /// A buffer of `length` bytes, all zero: `newBufferWithLength:options:`.
    ///
    /// ```
    /// let buffer = openmps::Buffer::new(&openmps::Device::get(0)?, 8)?;
    /// assert_eq!(buffer.read::<u8>(0, 8)?, [0; 8]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, length: usize) -> Result<Buffer> {
        let memory = device.allocate(length)?;
        let queue = device.queue();
        // SAFETY: nobody else has the memory yet.
        unsafe { queue.fill(memory.address(), 0, length)? };
        // The CPU reads and writes the memory past the queue: nothing that a GPU still has to do there may come after.
        queue.finish()?;
        let (device, address) = (device.clone(), memory.address());
        let memory: RwLock<Option<Memory>> = RwLock::new(Some(Box::new(memory)));
        Ok(Buffer { shared: Arc::new(Shared { device, address, length, writable: true, memory }) })
    }

    /// A buffer with a copy of the values: `newBufferWithBytes:length:options:`.
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1.5f32; 3])?;
    /// assert_eq!(buffer.len(), 12);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_slice<T: Element>(device: &Device, values: &[T]) -> Result<Buffer> {
        let buffer = Buffer::new(device, size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// A buffer over memory of someone else: `newBufferWithBytesNoCopy:length:options:deallocator:`. `owner` is dropped when the
    /// last handle goes or the buffer is freed. An error where the GPU does not see the process's memory.
    ///
    /// # Safety
    /// `length` initialised bytes at `address`, aligned for every element type used on them, stay valid until `owner` is dropped; nobody
    /// else writes them meanwhile, nor reads them when `writable`.
    ///
    /// ```
    /// use openmps::{Buffer, Device};
    /// let values = vec![1.0f32, 2.0];
    /// let (address, length) = (values.as_ptr() as usize, 8);
    /// // SAFETY: the vector is the owner.
    /// let buffer = unsafe { Buffer::no_copy(&Device::get(0)?, address, length, false, values)? };
    /// assert_eq!(buffer.read::<f32>(0, 2)?, [1.0, 2.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub unsafe fn no_copy(
        device: &Device,
        address: usize,
        length: usize,
        writable: bool,
        owner: impl Any + Send + Sync,
    ) -> Result<Buffer> {
        // SAFETY: the memory goes with `owner`, after the device has let go of it; commands hold the buffer's lock until they have ended.
        let borrowed = unsafe { device.borrow(address, length)? };
        let memory: RwLock<Option<Memory>> = RwLock::new(Some(Box::new((borrowed, owner))));
        Ok(Buffer { shared: Arc::new(Shared { device: device.clone(), address, length, writable, memory }) })
    }

    /// The length in bytes.
    ///
    /// ```
    /// assert_eq!(openmps::Buffer::new(&openmps::Device::get(0)?, 100)?.len(), 100);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.shared.length
    }

    /// Whether the length is zero.
    ///
    /// ```
    /// assert!(openmps::Buffer::new(&openmps::Device::get(0)?, 0)?.is_empty());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.shared.length == 0
    }

    /// The device that holds it.
    ///
    /// ```
    /// let device = openmps::Device::get(0)?;
    /// assert_eq!(openmps::Buffer::new(&device, 1)?.device(), &device);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Whether it was freed.
    ///
    /// ```
    /// let buffer = openmps::Buffer::new(&openmps::Device::get(0)?, 16)?;
    /// buffer.free();
    /// assert!(buffer.is_freed());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn is_freed(&self) -> bool {
        self.shared.memory.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Gives the memory back now, after the commands that are using it, whatever handles there are: `setPurgeableState:` to empty. What
    /// uses the buffer later is an [`Error::Freed`].
    ///
    /// ```
    /// use openmps::{Buffer, Device, Error};
    /// let buffer = Buffer::new(&Device::get(0)?, 16)?;
    /// buffer.free();
    /// assert!(matches!(buffer.read::<u8>(0, 1), Err(Error::Freed { .. })));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn free(&self) {
        let memory = self.shared.memory.write().unwrap_or_else(PoisonError::into_inner).take();
        // Outside of the lock: an owner may be anything.
        drop(memory);
    }

    /// Copies values into the buffer from byte `offset` on, which is where an element may begin: [`Error::Offset`].
    ///
    /// ```
    /// let buffer = openmps::Buffer::new(&openmps::Device::get(0)?, 4)?;
    /// buffer.write(1, &[7u8, 8])?;
    /// assert_eq!(buffer.read::<u8>(0, 4)?, [0, 7, 8, 0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn write<T: Element>(&self, offset: usize, values: &[T]) -> Result<()> {
        let bytes = bytes_of(values);
        self.check_range(offset, bytes.len())?;
        self.check_alignment(offset, size_of::<T>())?;
        let _guard = self.lock("write", "the buffer", Access::Write)?;
        let to = (self.shared.address + offset) as *mut u8;
        // SAFETY: the range lies in the buffer, whose memory the guard keeps for this call alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// `count` values from byte `offset` on, which is where an element may begin: [`Error::Offset`].
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1i64, -1])?;
    /// assert_eq!(buffer.read::<i64>(8, 1)?, [-1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read<T: Element>(&self, offset: usize, count: usize) -> Result<Vec<T>> {
        let needed = count.checked_mul(size_of::<T>());
        let needed = needed.ok_or_else(|| Error::Overflow { what: format!("{count} elements") })?;
        self.check_range(offset, needed)?;
        let mut values = vec![T::default(); count];
        self.read_into(offset, &mut values)?;
        Ok(values)
    }

    /// Copies as many values as the slice has, from byte `offset` on, into it.
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1i64, -1])?;
    /// let mut values = [0i64; 1];
    /// buffer.read_into(8, &mut values)?;
    /// assert_eq!(values, [-1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read_into<T: Element>(&self, offset: usize, values: &mut [T]) -> Result<()> {
        let to = bytes_of_mut(values);
        self.check_range(offset, to.len())?;
        self.check_alignment(offset, size_of::<T>())?;
        let _guard = self.lock("read", "the buffer", Access::Read)?;
        // SAFETY: the range lies in the buffer, which nobody writes while the guard is held.
        unsafe {
            std::ptr::copy_nonoverlapping((self.shared.address + offset) as *const u8, to.as_mut_ptr(), to.len())
        };
        Ok(())
    }

    /// The address of byte `offset`.
    pub(crate) fn address(&self, offset: usize) -> usize {
        self.shared.address + offset
    }

    pub(crate) fn downgrade(&self) -> WeakBuffer {
        WeakBuffer(Arc::downgrade(&self.shared))
    }

    pub(crate) fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// A key by which locks are taken in one order everywhere.
    pub(crate) fn order(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }

    /// Refuses a range that does not lie in the buffer.
    pub(crate) fn check_range(&self, offset: usize, needed: usize) -> Result<()> {
        if offset.checked_add(needed).is_some_and(|end| end <= self.len()) {
            return Ok(());
        }
        Err(Error::BufferTooSmall { length: self.len(), offset, needed })
    }

    /// Refuses an offset, inside the buffer, at which no element of this size may begin.
    pub(crate) fn check_alignment(&self, offset: usize, size: usize) -> Result<()> {
        if self.address(offset).is_multiple_of(size) { Ok(()) } else { Err(Error::Offset { offset, size }) }
    }

    /// Refuses a use that [`Buffer::lock`] would refuse, without waiting for it.
    pub(crate) fn check_access(&self, operation: &'static str, what: &'static str, access: Access) -> Result<()> {
        if access == Access::Write && !self.shared.writable {
            return Err(Error::ReadOnly { operation, what });
        }
        if self.is_freed() { Err(Error::Freed { operation, what }) } else { Ok(()) }
    }

    /// Waits until the buffer may be used in this way, and keeps its memory for that long.
    pub(crate) fn lock(&self, operation: &'static str, what: &'static str, access: Access) -> Result<Guard<'_>> {
        if access == Access::Write && !self.shared.writable {
            return Err(Error::ReadOnly { operation, what });
        }
        let memory = &self.shared.memory;
        let (guard, is_freed) = match access {
            Access::Read => {
                let guard = memory.read().unwrap_or_else(PoisonError::into_inner);
                let is_freed = guard.is_none();
                (Guard::Read(guard), is_freed)
            }
            Access::Write => {
                let guard = memory.write().unwrap_or_else(PoisonError::into_inner);
                let is_freed = guard.is_none();
                (Guard::Write(guard), is_freed)
            }
        };
        if is_freed { Err(Error::Freed { operation, what }) } else { Ok(guard) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Buffer({} bytes on {:?})", self.len(), self.device())
    }
}
