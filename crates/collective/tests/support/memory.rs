//! What a process has of memory: what was asked for and not given back, to the byte, and what the system has handed out for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the second half of a run may need above the first, after the threads of each round have ended: a few of the standard library's,
/// and what the system's allocator keeps for as many threads as there were at one time, which is a matter of chance.
const ASKED_FOR: usize = 4 << 10;
const HANDED_OUT: usize = 1 << 20;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which counts.
pub struct Counting;

// SAFETY: the system's allocator does it all; beside it there is a counter that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(address, layout) }
    }
}

/// The most that was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Highest {
    asked_for: usize,
    /// Zero where the system does not say.
    handed_out: usize,
}

impl Highest {
    /// Looks at what there is now.
    pub fn look(&mut self) {
        self.asked_for = self.asked_for.max(IN_USE.load(Ordering::Relaxed));
        self.handed_out = self.handed_out.max(resident().unwrap_or(0));
    }

    /// Whether a later part of a run needed no more than an earlier one.
    pub fn levelled_off(&self, earlier: &Highest) -> bool {
        self.asked_for <= earlier.asked_for + ASKED_FOR && self.handed_out <= earlier.handed_out + HANDED_OUT
    }
}

impl fmt::Display for Highest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes asked for, {} KiB resident", self.asked_for, self.handed_out >> 10)
    }
}

/// Bytes of memory that the process has, where the system says so.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}
