//! The process's memory, of which only buffers and given regions may be touched.

use super::Region;
use super::writers::Writers;
use openmps_tile::{Memory, MemoryError, RawMemory};

/// Memory that checks where an access goes and who stored there before.
pub(super) struct Checked {
    /// None: the buffers in use of all devices.
    regions: Option<Vec<Region>>,
    writers: Writers,
    raw: RawMemory,
}

impl Checked {
    /// # Safety
    /// What may be touched must be valid for reads and writes as long as this lives, and nothing else may interfere.
    pub unsafe fn new(regions: Option<Vec<Region>>) -> Checked {
        // SAFETY: the caller's promise for what passes `check`; nothing else is accessed.
        Checked { regions, writers: Writers::default(), raw: unsafe { RawMemory::new() } }
    }

    fn check(&self, address: u64, size: usize) -> Result<(), MemoryError> {
        let found = usize::try_from(address).is_ok_and(|first| match &self.regions {
            Some(regions) => regions.iter().any(|region| contains(region, first, size)),
            None => crate::device::Device::known().any(|device| device.resolve(first, size).is_ok()),
        });
        if found { Ok(()) } else { Err(MemoryError::OutOfBounds { address, size }) }
    }

    /// The region nearest to an access, in words.
    pub fn nearest(&self, address: u64, size: usize) -> Option<String> {
        let (first, end) = (i128::from(address), i128::from(address) + size as i128);
        let from = |region: &Region| first - region.address as i128;
        let distance = |region: &Region| (-from(region)).max(end - (region.address + region.bytes) as i128);
        let region = self.regions.as_ref()?.iter().min_by_key(|region| distance(region))?;
        Some(format!("{} has {} bytes, this is byte {}", region.name, region.bytes, from(region)))
    }
}

fn contains(region: &Region, address: usize, size: usize) -> bool {
    let start = address.checked_sub(region.address);
    start.and_then(|start| start.checked_add(size)).is_some_and(|end| end <= region.bytes)
}

impl Memory for Checked {
    fn read(&mut self, address: u64, size: usize) -> Result<u64, MemoryError> {
        self.check(address, size)?;
        self.raw.read(address, size)
    }

    fn write(&mut self, address: u64, size: usize, bits: u64) -> Result<(), MemoryError> {
        self.check(address, size)?;
        self.writers.store(address, size).map_err(|other| MemoryError::Race { address, size, other })?;
        self.raw.write(address, size, bits)
    }

    fn replace(&mut self, address: u64, size: usize, new: &dyn Fn(u64) -> u64) -> Result<u64, MemoryError> {
        self.check(address, size)?;
        self.writers.replace(address, size).map_err(|other| MemoryError::Race { address, size, other })?;
        let old = self.raw.read(address, size)?;
        self.raw.write(address, size, new(old))?;
        Ok(old)
    }

    fn acquire(&mut self, address: u64, size: usize) -> Result<u64, MemoryError> {
        self.writers.acquire(address);
        self.read(address, size)
    }

    fn begin_program(&mut self, program: [usize; 3]) {
        self.writers.begin_program(program);
    }
}
