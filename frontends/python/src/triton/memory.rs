//! Memory of a launch's tensors: what the sanitizer is told of it, and how a GPU comes to see what is the process's own.

use super::arguments::in_process;
use openmps_runtime::sanitizer::{self, Region};
use openmps_runtime::{BorrowedMemory, Buffer, Device, Error, Queue};
use pyo3::prelude::*;
use std::ops::Range;
use std::slice;

/// Memory that a launch may touch: the parameter's position, none where it is not one of the parameters; address and bytes.
type Extent = (Option<usize>, usize, usize);

/// What tensors say of their extents; Python knows how each framework says it.
#[cold]
fn extents(py: Python<'_>, arguments: &[Bound<'_, PyAny>]) -> PyResult<Vec<Extent>> {
    py.import("openmps.triton.sanitizer")?.call_method1("extents", (arguments,))?.extract()
}

/// Memory of a launch's tensors, as far as somebody has to be told of it.
#[derive(Default)]
pub(super) struct Memory {
    extents: Vec<Extent>,
    is_sanitized: bool,
    /// The places of tensors in the process's own memory, which the device does not see by itself.
    in_process: Vec<usize>,
}

impl Memory {
    pub fn of(py: Python<'_>, device: &Device, given: &[Bound<'_, PyAny>]) -> PyResult<Memory> {
        let (is_sanitized, in_process) = (sanitizer::is_on(), in_process(device, given)?);
        let extents = if is_sanitized || !in_process.is_empty() { extents(py, given)? } else { Vec::new() };
        Ok(Memory { extents, is_sanitized, in_process })
    }

    /// What the sanitizer lets the kernel touch, where it is on.
    pub fn reachable(&self, parameters: &[&str]) -> Option<Vec<Region>> {
        let name = |place: Option<usize>| match place.and_then(|place| parameters.get(place)) {
            Some(name) => format!("argument {name}"),
            None => "a reachable tensor".to_owned(),
        };
        let region = |&(place, address, bytes): &Extent| Region { name: name(place), address, bytes };
        self.is_sanitized.then(|| self.extents.iter().map(region).collect())
    }

    /// Ranges of the process's own memory that the device has to be shown, with whether the kernel may store there; none overlaps another.
    pub fn in_process(&self, stored: &[bool]) -> Vec<(Range<usize>, bool)> {
        let mut ranges: Vec<(Range<usize>, bool)> = self
            .extents
            .iter()
            .filter_map(|&(place, address, bytes)| place.map(|place| (place, address..address + bytes)))
            .filter(|(place, range)| !range.is_empty() && self.in_process.contains(place))
            .map(|(place, range)| (range, stored.get(place).is_none_or(|&stored| stored)))
            .collect();
        ranges.sort_by_key(|(range, _)| range.start);
        ranges.dedup_by(|(next, next_is_stored), (range, is_stored)| {
            let overlaps = next.start < range.end;
            if overlaps {
                range.end = range.end.max(next.end);
                *is_stored |= *next_is_stored;
            }
            overlaps
        });
        ranges
    }
}

/// The process's own memory as a device sees it for one launch.
pub(super) struct Shared {
    _borrowed: Vec<BorrowedMemory>,
    copies: Vec<Copied>,
    /// Whether the launch has to have ended when the launcher returns: the process reads its memory without asking.
    is_any: bool,
}

/// Memory that the device does not see, and the buffer that stands for it.
struct Copied {
    range: Range<usize>,
    is_stored: bool,
    buffer: Buffer,
}

impl Shared {
    /// # Safety
    /// The ranges are live memory until `finish` has returned, and nobody else writes them.
    pub unsafe fn new(queue: &Queue, ranges: &[(Range<usize>, bool)]) -> Result<Shared, Error> {
        let mut shared = Shared { _borrowed: Vec::new(), copies: Vec::new(), is_any: !ranges.is_empty() };
        for (range, is_stored) in ranges {
            // SAFETY: the caller's promise.
            match unsafe { queue.device().borrow(range.start, range.len()) } {
                Ok(borrowed) => shared._borrowed.push(borrowed),
                Err(_) => {
                    let buffer = queue.allocate(range.len())?;
                    // SAFETY: live memory by the caller's promise, and a buffer that nobody else knows.
                    unsafe {
                        let bytes = slice::from_raw_parts(range.start as *const u8, range.len());
                        queue.write(buffer.address(), bytes)?;
                    }
                    shared.copies.push(Copied { range: range.clone(), is_stored: *is_stored, buffer });
                }
            }
        }
        Ok(shared)
    }

    /// Where the device finds what lies at an address of the process.
    pub fn address(&self, address: u64) -> u64 {
        let holds = |copied: &&Copied| copied.range.contains(&(address as usize));
        let copied = self.copies.iter().find(holds);
        copied.map_or(address, |copied| address - copied.range.start as u64 + copied.buffer.address() as u64)
    }

    /// Waits for the launch, and brings back what it has stored.
    pub fn finish(self, queue: &Queue) -> Result<(), Error> {
        if !self.is_any {
            return Ok(());
        }
        queue.synchronize()?;
        for copied in self.copies.iter().filter(|copied| copied.is_stored) {
            // SAFETY: live memory by the promise to `new`, all of which was written to the buffer.
            unsafe {
                let bytes = slice::from_raw_parts_mut(copied.range.start as *mut u8, copied.range.len());
                queue.read(bytes, copied.buffer.address())?;
            }
        }
        Ok(())
    }
}
