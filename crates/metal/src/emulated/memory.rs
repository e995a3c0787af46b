//! The emulated GPU's memory: this machine's own.

use crate::limits;
use std::alloc::{Layout, alloc, dealloc};
use std::sync::Arc;

/// Memory that goes with its last clone; imported memory stays its owner's.
#[derive(Clone)]
pub struct EmulatedBuffer(Arc<Memory>);

struct Memory {
    address: usize,
    bytes: usize,
    /// How it was allocated.
    layout: Option<Layout>,
}

impl PartialEq for EmulatedBuffer {
    fn eq(&self, other: &EmulatedBuffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl EmulatedBuffer {
    /// Whole pages.
    pub fn allocate(bytes: usize) -> Option<EmulatedBuffer> {
        let whole = bytes.max(1).checked_next_multiple_of(limits::PAGE)?;
        let layout = Layout::from_size_align(whole, limits::PAGE).ok()?;
        // SAFETY: the size is not zero.
        let address = unsafe { alloc(layout) } as usize;
        (address != 0).then(|| EmulatedBuffer(Arc::new(Memory { address, bytes, layout: Some(layout) })))
    }

    /// Memory of somebody else.
    ///
    /// # Safety
    /// As for [`crate::Metal::import`].
    pub(super) unsafe fn import(address: usize, bytes: usize) -> EmulatedBuffer {
        EmulatedBuffer(Arc::new(Memory { address, bytes, layout: None }))
    }

    /// First address and length.
    pub fn contents(&self) -> (usize, usize) {
        (self.0.address, self.0.bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(self.address as *mut u8, layout) };
        }
    }
}

/// This machine's memory in bytes, or 8 GiB where it does not say.
pub fn of_machine() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    kilobytes.map_or(8 << 30, |kilobytes| kilobytes << 10)
}
