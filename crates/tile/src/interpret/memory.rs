//! The memory that a kernel reads and writes.

use thiserror::Error;

/// Memory by address. Elements are little-endian bits of 1, 2, 4 or 8 bytes, at any alignment.
pub trait Memory {
    /// Reads `size` bytes into the low bits.
    fn read(&mut self, address: u64, size: usize) -> Result<u64, MemoryError>;

    /// Writes the low `size` bytes of `bits`.
    fn write(&mut self, address: u64, size: usize, bits: u64) -> Result<(), MemoryError>;

    /// Replaces what is at an address, as atomic operations do; returns what was there.
    fn replace(&mut self, address: u64, size: usize, new: &dyn Fn(u64) -> u64) -> Result<u64, MemoryError> {
        let old = self.read(address, size)?;
        self.write(address, size, new(old))?;
        Ok(old)
    }

    /// Reads what others have passed on by atomic operations at this address.
    fn acquire(&mut self, address: u64, size: usize) -> Result<u64, MemoryError> {
        self.read(address, size)
    }

    /// The accesses from here on are those of the program at this place of the grid.
    fn begin_program(&mut self, _program: [usize; 3]) {}
}

/// Why memory refused an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryError {
    /// Not wholly within one region.
    #[error("{size} bytes at {address:#x} are out of bounds")]
    OutOfBounds {
        /// The first byte.
        address: u64,
        /// How many bytes.
        size: usize,
    },
    /// Read before it was written.
    #[error("{size} bytes at {address:#x} are uninitialised")]
    Uninitialised {
        /// The first byte.
        address: u64,
        /// How many bytes.
        size: usize,
    },
    /// Stored to by two programs, in no order.
    #[error("{size} bytes at {address:#x} were stored by program {other:?} too, and nothing orders the two")]
    Race {
        /// The first byte.
        address: u64,
        /// How many bytes.
        size: usize,
        /// The program that stored first in the interpreter.
        other: [usize; 3],
    },
    /// Written although it is for reading.
    #[error("{size} bytes at {address:#x} are for reading only")]
    ReadOnly {
        /// The first byte.
        address: u64,
        /// How many bytes.
        size: usize,
    },
}

mod sealed {
    pub trait Sealed {}
}

/// Element types of registered slices: any bytes are a value of them and they have no padding.
pub trait Plain: sealed::Sealed + Copy {}

macro_rules! plain {
    ($($ty:ty)+) => { $(impl sealed::Sealed for $ty {} impl Plain for $ty {})+ };
}
plain! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 crate::f16 crate::bf16 }

/// Memory made of registered slices, which keep the addresses they have. An access must lie within one of them.
#[derive(Debug, Default)]
pub struct HostMemory<'a> {
    regions: Vec<Region<'a>>,
}

#[derive(Debug)]
struct Region<'a> {
    address: u64,
    bytes: Bytes<'a>,
    /// Which bytes have a value; none when all have.
    initialised: Option<Vec<bool>>,
}

#[derive(Debug)]
enum Bytes<'a> {
    ReadOnly(&'a [u8]),
    Writable(&'a mut [u8]),
}

impl<'a> HostMemory<'a> {
    /// Memory without any region.
    pub fn new() -> HostMemory<'a> {
        HostMemory::default()
    }

    /// Lets kernels read and write the elements; returns their address.
    pub fn register<T: Plain>(&mut self, elements: &'a mut [T]) -> u64 {
        self.add(Bytes::Writable(bytes_mut(elements)), false)
    }

    /// Lets kernels write the elements, and read those they wrote; returns their address.
    pub fn register_uninitialised<T: Plain>(&mut self, elements: &'a mut [T]) -> u64 {
        self.add(Bytes::Writable(bytes_mut(elements)), true)
    }

    /// Lets kernels read the elements; returns their address.
    pub fn register_read_only<T: Plain>(&mut self, elements: &'a [T]) -> u64 {
        // SAFETY: `Plain` types have no padding, so all their bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
        self.add(Bytes::ReadOnly(bytes), false)
    }

    fn add(&mut self, bytes: Bytes<'a>, uninitialised: bool) -> u64 {
        let slice = bytes.as_slice();
        let address = slice.as_ptr().addr() as u64;
        let initialised = uninitialised.then(|| vec![false; slice.len()]);
        self.regions.push(Region { address, bytes, initialised });
        address
    }

    /// The region that an access lies in, and where.
    fn find(&mut self, address: u64, size: usize) -> Result<(&mut Region<'a>, std::ops::Range<usize>), MemoryError> {
        let range_in = |region: &Region| {
            let start = usize::try_from(address.checked_sub(region.address)?).ok()?;
            let end = start.checked_add(size)?;
            (end <= region.bytes.as_slice().len()).then_some(start..end)
        };
        let found = self.regions.iter_mut().find_map(|region| range_in(region).map(|range| (region, range)));
        found.filter(|_| size <= 8).ok_or(MemoryError::OutOfBounds { address, size })
    }
}

fn bytes_mut<T: Plain>(elements: &mut [T]) -> &mut [u8] {
    let size = size_of_val(elements);
    // SAFETY: `Plain` types have no padding and take any bytes; the borrow of the elements passes on to the result.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size) }
}

impl Bytes<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::ReadOnly(bytes) => bytes,
            Bytes::Writable(bytes) => bytes,
        }
    }
}

impl Memory for HostMemory<'_> {
    fn read(&mut self, address: u64, size: usize) -> Result<u64, MemoryError> {
        let (region, range) = self.find(address, size)?;
        if region.initialised.as_ref().is_some_and(|flags| flags[range.clone()].contains(&false)) {
            return Err(MemoryError::Uninitialised { address, size });
        }
        let mut bits = [0; 8];
        bits[..size].copy_from_slice(&region.bytes.as_slice()[range]);
        Ok(u64::from_le_bytes(bits))
    }

    fn write(&mut self, address: u64, size: usize, bits: u64) -> Result<(), MemoryError> {
        let (region, range) = self.find(address, size)?;
        let Bytes::Writable(bytes) = &mut region.bytes else {
            return Err(MemoryError::ReadOnly { address, size });
        };
        bytes[range.clone()].copy_from_slice(&bits.to_le_bytes()[..size]);
        if let Some(flags) = &mut region.initialised {
            flags[range].fill(true);
        }
        Ok(())
    }
}

/// All memory of this process, unchecked but for the null address.
#[derive(Debug)]
pub struct RawMemory(());

impl RawMemory {
    /// Lets kernels access any address.
    ///
    /// # Safety
    ///
    /// Until this value is dropped, every address that a kernel reads through it must be valid for reads and initialised, every one
    /// that it writes valid for writes, and nothing else may write what it reads or access what it writes. The pointers that the
    /// addresses come from must have had their provenance exposed.
    pub unsafe fn new() -> RawMemory {
        RawMemory(())
    }
}

impl Memory for RawMemory {
    fn read(&mut self, address: u64, size: usize) -> Result<u64, MemoryError> {
        check_raw(address, size)?;
        let mut bits = [0_u8; 8];
        // SAFETY: `new`'s caller promised that the kernel's addresses are valid; `size` is at most the array's.
        unsafe {
            std::ptr::copy_nonoverlapping(std::ptr::with_exposed_provenance(address as usize), bits.as_mut_ptr(), size)
        };
        Ok(u64::from_le_bytes(bits))
    }

    fn write(&mut self, address: u64, size: usize, bits: u64) -> Result<(), MemoryError> {
        check_raw(address, size)?;
        // SAFETY: `new`'s caller promised that the kernel's addresses are valid; `size` is at most that of `bits`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bits.to_le_bytes().as_ptr(),
                std::ptr::with_exposed_provenance_mut(address as usize),
                size,
            )
        };
        Ok(())
    }
}

fn check_raw(address: u64, size: usize) -> Result<(), MemoryError> {
    if address == 0 || size > 8 { Err(MemoryError::OutOfBounds { address, size }) } else { Ok(()) }
}
