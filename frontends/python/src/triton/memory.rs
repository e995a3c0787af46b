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

    /// Whether the device has to be shown any of it.
    pub fn is_hidden(&self) -> bool {
        !self.in_process.is_empty()
    }

    /// What the sanitizer lets the kernel touch, where it is on; `parameter` names one.
    pub fn reachable<'p>(&self, parameter: impl Fn(usize) -> Option<&'p str>) -> Option<Vec<Region>> {
        let name = |place: Option<usize>| match place.and_then(&parameter) {
            Some(name) => format!("argument {name}"),
            None => "a reachable tensor".to_owned(),
        };
        let region = |&(place, address, bytes): &Extent| Region { name: name(place), address, bytes };
        self.is_sanitized.then(|| self.extents.iter().map(region).collect())
    }

    /// Ranges of the process's own memory that the device has to be shown, with whether the kernel may store there; none touches another.
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
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
                *is_stored |= *next_is_stored;
            }
            touches
        });
        ranges
    }

    /// Whether a parameter's tensor has no elements, so that a device need not find where it lies.
    pub fn is_empty(&self, parameter: usize) -> bool {
        let is_empty = |&(place, _, bytes): &Extent| place == Some(parameter) && bytes == 0;
        self.in_process.contains(&parameter) && self.extents.iter().any(is_empty)
    }
}

/// The process's own memory as a device sees it for one launch.
pub(super) struct Shared<'q> {
    queue: &'q Queue,
    borrowed: Vec<BorrowedMemory>,
    copies: Vec<Copied>,
}

/// What pointers of a kernel are promised to be divisible by at the most, so that a copy lies as what it stands for.
const ALIGNMENT: usize = 256;

/// Memory that the device does not see, and the buffer that stands for it.
struct Copied {
    range: Range<usize>,
    is_stored: bool,
    bytes: Vec<u8>,
    buffer: Buffer,
}

impl Copied {
    /// # Safety
    /// The range is live memory.
    unsafe fn new(queue: &Queue, range: Range<usize>, is_stored: bool) -> Result<Copied, Error> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice::from_raw_parts(range.start as *const u8, range.len()) }.to_vec();
        let buffer = queue.allocate(bytes.len() + range.start % ALIGNMENT)?;
        let copied = Copied { range, is_stored, bytes, buffer };
        // SAFETY: within a buffer that nobody else knows.
        unsafe { queue.write(copied.start(), &copied.bytes)? };
        Ok(copied)
    }

    /// Where the copy begins.
    fn start(&self) -> usize {
        self.buffer.address() + self.range.start % ALIGNMENT
    }

    /// Brings back the bytes that have changed: others may write those between them meanwhile.
    ///
    /// # Safety
    /// The range is live memory, and the launch has ended.
    unsafe fn bring_back(&self, queue: &Queue) -> Result<(), Error> {
        let mut found = vec![0; self.bytes.len()];
        // SAFETY: all of it was written by `new`.
        unsafe { queue.read(&mut found, self.start())? };
        let changed = found.iter().zip(&self.bytes).enumerate().filter(|(_, (new, old))| new != old);
        for (at, (&new, _)) in changed {
            // SAFETY: within the range, by the caller's promise.
            unsafe { ((self.range.start + at) as *mut u8).write(new) };
        }
        Ok(())
    }
}

impl<'q> Shared<'q> {
    /// # Safety
    /// The ranges are live memory until the value is dropped.
    pub unsafe fn new(queue: &'q Queue, ranges: Vec<(Range<usize>, bool)>) -> Result<Shared<'q>, Error> {
        let mut shared = Shared { queue, borrowed: Vec::new(), copies: Vec::new() };
        for (range, is_stored) in ranges {
            // SAFETY: the caller's promise.
            match unsafe { queue.device().borrow(range.start, range.len()) } {
                Ok(borrowed) => shared.borrowed.push(borrowed),
                // SAFETY: as above.
                Err(_) => shared.copies.push(unsafe { Copied::new(queue, range, is_stored) }?),
            }
        }
        Ok(shared)
    }

    /// Where the device finds what lies at an address of the process; the end of a range is part of it.
    pub fn address(&self, address: u64) -> u64 {
        let holds = |copied: &&Copied| (copied.range.start..=copied.range.end).contains(&(address as usize));
        let copied = self.copies.iter().find(holds);
        copied.map_or(address, |copied| address - copied.range.start as u64 + copied.start() as u64)
    }

    /// Waits for the launch, since the process reads its memory without asking, and brings back what it has stored.
    pub fn finish(&self) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        self.queue.synchronize()?;
        // SAFETY: live memory by the promise to `new`; the queue's commands have ended.
        self.copies
            .iter()
            .filter(|copied| copied.is_stored)
            .try_for_each(|copied| unsafe { copied.bring_back(self.queue) })
    }

    fn is_empty(&self) -> bool {
        self.borrowed.is_empty() && self.copies.is_empty()
    }
}

impl Drop for Shared<'_> {
    /// Whatever has happened, no command may use the memory after this.
    fn drop(&mut self) {
        if !self.is_empty() {
            // An error has been told by `finish`, or there is one already.
            let _ = self.queue.synchronize();
        }
    }
}
