//! Buffers: device memory with many handles. Commands lock it while they run, so that no safe program reads what another thread writes.

mod lock;
mod mapped;
mod rows;

use crate::data_type::Element;
use crate::device::Device;
use crate::error::{Error, Result};
pub use lock::Access;
pub(crate) use lock::Guard;
use lock::{Lock, Refusal};
pub use mapped::{Mapped, MappedMut};
use std::any::Any;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

/// Device memory: `MTLBuffer`. Clones are the same buffer.
///
/// ```
/// use openmps::{Buffer, Device};
/// let buffer = Buffer::from_slice(&Device::get(0)?, &[1i32, 2, 3])?;
/// assert_eq!(buffer.read::<i32>(1, 2)?, [2, 3]);
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

/// What a new buffer holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Zeros,
    /// What is there: all of it is written before anybody reads.
    Whatever,
}

struct Shared {
    device: Device,
    address: usize,
    length: usize,
    access: Access,
    /// Whether slices of it may be handed out.
    mappable: bool,
    lock: Lock,
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
        Buffer::holding(Contents::Zeros, device, length)
    }

    pub(crate) fn holding(contents: Contents, device: &Device, length: usize) -> Result<Buffer> {
        let memory = device.runtime().allocate(length)?;
        let queue = device.runtime().queue();
        if contents == Contents::Zeros {
            // SAFETY: nobody else has the memory yet.
            unsafe { queue.fill(memory.address(), 0, length)? };
        }
        // The CPU reads and writes the memory past the queue: nothing that a GPU still has to do there may come after.
        queue.finish()?;
        let (device, address) = (device.clone(), memory.address());
        let lock = Lock::new(Box::new(memory));
        Ok(Buffer { shared: Arc::new(Shared { device, address, length, access: Access::Write, mappable: true, lock }) })
    }

    /// A buffer with a copy of the values: `newBufferWithBytes:length:options:`.
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1.5f32; 3])?;
    /// assert_eq!(buffer.len(), 12);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_slice<T: Element>(device: &Device, values: &[T]) -> Result<Buffer> {
        let buffer = Buffer::holding(Contents::Whatever, device, size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    /// A buffer over memory of someone else: `newBufferWithBytesNoCopy:length:options:deallocator:`. `owner` is dropped when the
    /// last handle goes or the buffer is freed. An error where the GPU does not see the process's memory.
    ///
    /// # Safety
    /// `length` initialised bytes at `address`, aligned for every element type used on them, stay valid until `owner` is dropped; nobody
    /// else writes them meanwhile, nor reads them where the access is [`Access::Write`].
    ///
    /// ```
    /// use openmps::{Access, Buffer, Device};
    /// let values = vec![1.0f32, 2.0];
    /// let (address, length) = (values.as_ptr() as usize, 8);
    /// // SAFETY: the vector is the owner.
    /// let buffer = unsafe { Buffer::no_copy(&Device::get(0)?, address, length, Access::Read, values)? };
    /// assert_eq!(buffer.read::<f32>(0, 2)?, [1.0, 2.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub unsafe fn no_copy(
        device: &Device,
        address: usize,
        length: usize,
        access: Access,
        owner: impl Any + Send + Sync,
    ) -> Result<Buffer> {
        // SAFETY: the memory goes with `owner`, after the device has let go of it; commands hold the buffer's lock until they have ended.
        let borrowed = unsafe { device.runtime().borrow(address, length)? };
        let lock = Lock::new(Box::new((borrowed, owner)));
        Ok(Buffer {
            shared: Arc::new(Shared { device: device.clone(), address, length, access, mappable: true, lock }),
        })
    }

    /// Calls `work` with a buffer over memory of someone else, which is borrowed for that long: [`Buffer::no_copy`] without an owner. Commands that
    /// use it have ended when this returns, and handles that were kept are [`Error::Freed`]. It cannot be mapped ([`Error::Lent`]): a slice might
    /// be kept, too.
    ///
    /// # Safety
    /// As [`Buffer::no_copy`], until `work` has returned or panicked.
    ///
    /// ```
    /// use openmps::{Access, Buffer, Device};
    /// let values = [1.0f32, 2.0];
    /// // SAFETY: the values live longer than the call, and nobody writes them.
    /// let sum = unsafe {
    ///     Buffer::lend(&Device::host(0)?, values.as_ptr() as usize, 8, Access::Read, |buffer| buffer.read::<f32>(0, 2))??
    /// };
    /// assert_eq!(sum, [1.0, 2.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub unsafe fn lend<R>(
        device: &Device,
        address: usize,
        length: usize,
        access: Access,
        work: impl FnOnce(&Buffer) -> R,
    ) -> Result<R> {
        struct FreeAtEnd(Buffer);
        impl Drop for FreeAtEnd {
            fn drop(&mut self) {
                self.0.free();
            }
        }
        // SAFETY: the memory is the caller's until the buffer is freed, below or when `work` panics; then nobody uses it.
        let borrowed = unsafe { device.runtime().borrow(address, length)? };
        let lock = Lock::new(Box::new(borrowed));
        let shared = Shared { device: device.clone(), address, length, access, mappable: false, lock };
        let buffer = FreeAtEnd(Buffer { shared: Arc::new(shared) });
        Ok(work(&buffer.0))
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
        self.shared.lock.is_freed()
    }

    /// Gives the memory back after the commands that are using it, whatever handles there are: `setPurgeableState:` to empty. What uses the
    /// buffer later is an [`Error::Freed`]; a slice that this thread has mapped keeps the memory until it is dropped.
    ///
    /// ```
    /// use openmps::{Buffer, Device, Error};
    /// let buffer = Buffer::new(&Device::get(0)?, 16)?;
    /// buffer.free();
    /// assert!(matches!(buffer.read::<u8>(0, 1), Err(Error::Freed { .. })));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn free(&self) {
        self.shared.lock.free();
    }

    /// Copies values into the buffer from element `first` on, counted in elements of their type.
    ///
    /// ```
    /// let buffer = openmps::Buffer::new(&openmps::Device::get(0)?, 8)?;
    /// buffer.write(1, &[7i16, 8])?;
    /// assert_eq!(buffer.read::<i16>(0, 4)?, [0, 7, 8, 0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn write<T: Element>(&self, first: usize, values: &[T]) -> Result<()> {
        self.write_rows(&[offset_of::<T>(first)?], values)
    }

    /// `count` values from element `first` on, counted in elements of their type.
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1i64, -1])?;
    /// assert_eq!(buffer.read::<i64>(1, 1)?, [-1]);
    /// assert!(buffer.read::<i64>(1, 2).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read<T: Element>(&self, first: usize, count: usize) -> Result<Vec<T>> {
        self.read_at(offset_of::<T>(first)?, count)
    }

    /// The same from a byte on, at which an element may begin.
    pub(crate) fn read_at<T: Element>(&self, offset: usize, count: usize) -> Result<Vec<T>> {
        self.check_range(offset, offset_of::<T>(count)?)?;
        let mut values = vec![T::default(); count];
        self.read_rows(&[offset], &mut values)?;
        Ok(values)
    }

    /// Copies as many values as the slice has, from element `first` on, into it.
    ///
    /// ```
    /// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1i64, -1])?;
    /// let mut values = [0i64; 1];
    /// buffer.read_into(1, &mut values)?;
    /// assert_eq!(values, [-1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read_into<T: Element>(&self, first: usize, values: &mut [T]) -> Result<()> {
        self.read_rows(&[offset_of::<T>(first)?], values)
    }

    /// Elements in place, without a copy: `contents`. Commands that write the buffer wait until the slice is dropped; a command of this thread,
    /// which would wait for itself, is an [`Error::Mapped`]. The range counts elements of this type.
    ///
    /// ```
    /// use openmps::{Buffer, Device, Error};
    /// let buffer = Buffer::from_slice(&Device::get(0)?, &[1.0f32, 2.0, 3.0])?;
    /// let mapped = buffer.map::<f32>(1..)?;
    /// assert_eq!(mapped[..], [2.0, 3.0]);
    /// assert!(matches!(buffer.write(0, &[5.0f32]), Err(Error::Mapped { .. })));
    /// drop(mapped);
    /// buffer.write(0, &[5.0f32])?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn map<T: Element>(&self, range: impl RangeBounds<usize>) -> Result<Mapped<'_, T>> {
        let (offset, count) = self.elements::<T>(range)?;
        let guard = self.shared.lock.map(Access::Read).map_err(|why| refused(why, "map", "the buffer"))?;
        // SAFETY: the elements lie in the buffer, and the guard keeps them for readers.
        Ok(unsafe { Mapped::new(guard, self.address(offset), count) })
    }

    /// Elements in place, to be changed. Commands that use the buffer wait until the slice is dropped; one of this thread is an
    /// [`Error::Mapped`].
    ///
    /// ```
    /// use openmps::{Buffer, Device};
    /// let buffer = Buffer::new(&Device::get(0)?, 12)?;
    /// buffer.map_mut::<u32>(..)?.iter_mut().zip(7..).for_each(|(to, x)| *to = x);
    /// assert_eq!(buffer.read::<u32>(0, 3)?, [7, 8, 9]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn map_mut<T: Element>(&self, range: impl RangeBounds<usize>) -> Result<MappedMut<'_, T>> {
        let (offset, count) = self.elements::<T>(range)?;
        self.check_access("map_mut", "the buffer", Access::Write)?;
        let guard = self.shared.lock.map(Access::Write).map_err(|why| refused(why, "map_mut", "the buffer"))?;
        // SAFETY: the elements lie in the buffer, and the guard keeps them for this slice alone.
        Ok(unsafe { MappedMut::new(guard, self.address(offset), count) })
    }

    /// The first byte and the number of the elements in a range, which are in the buffer and may begin there. An open range ends with the
    /// last whole element.
    fn elements<T: Element>(&self, range: impl RangeBounds<usize>) -> Result<(usize, usize)> {
        if !self.shared.mappable {
            return Err(Error::Lent { operation: "map" });
        }
        let beyond = |bound: usize| bound.saturating_add(1);
        let first = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => beyond(before),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => beyond(last),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => (self.len() / size_of::<T>()).max(first),
        };
        let (offset, count) = (offset_of::<T>(first)?, end.saturating_sub(first));
        self.check_range(offset, offset_of::<T>(count)?)?;
        self.check_alignment(offset, size_of::<T>())?;
        Ok((offset, count))
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
        if access > self.shared.access {
            return Err(Error::ReadOnly { operation, what });
        }
        self.shared.lock.check(access).map_err(|why| refused(why, operation, what))
    }

    /// Waits until the buffer may be used in this way, and keeps its memory for that long.
    fn lock(&self, operation: &'static str, what: &'static str, access: Access) -> Result<Guard<'_>> {
        self.lock_for(thread::current().id(), operation, what, access)
    }

    /// As [`Buffer::lock`], for the thread that encoded a command.
    pub(crate) fn lock_for(
        &self,
        wanted_by: ThreadId,
        operation: &'static str,
        what: &'static str,
        access: Access,
    ) -> Result<Guard<'_>> {
        if access > self.shared.access {
            return Err(Error::ReadOnly { operation, what });
        }
        self.shared.lock.acquire(access, wanted_by).map_err(|why| refused(why, operation, what))
    }
}

/// Where element `index` begins, in bytes, and how many bytes as many elements have.
fn offset_of<T: Element>(index: usize) -> Result<usize> {
    let bytes = index.checked_mul(size_of::<T>());
    bytes.ok_or_else(|| Error::Overflow { what: format!("{index} elements of {}", T::DATA_TYPE) })
}

fn refused(why: Refusal, operation: &'static str, what: &'static str) -> Error {
    match why {
        Refusal::Freed => Error::Freed { operation, what },
        Refusal::Mapped => Error::Mapped { operation, what },
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Buffer({} bytes on {:?})", self.len(), self.device())
    }
}
