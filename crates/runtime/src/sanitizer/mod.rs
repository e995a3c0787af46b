//! `OPENMPS_SANITIZE=1`: on the host device kernels run through the interpreter, on a memory that checks every access.
//!
//! Found are loads and stores out of bounds, undefined elements that are stored or decide something (what a masked load left open), and
//! bytes that two programs of a launch store in no order. The first finding ends the launch, with kernel, source line, program and element;
//! what was stored before stays.

mod memory;
mod writers;

use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use memory::Checked;
use openmps_tile::{InterpretError, MemoryError, interpret};
use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};

const UNKNOWN: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether dispatches are checked: what `set` said last, at first what `OPENMPS_SANITIZE` says.
#[inline]
pub fn is_on() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            set(openmps_settings::SANITIZE.get().unwrap_or(false));
            is_on()
        }
        state => state == 1,
    }
}

/// Checks dispatches from now on, or does not.
pub fn set(on: bool) {
    STATE.store(on.into(), Ordering::Relaxed);
}

/// Memory that a kernel may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What messages call it.
    pub name: String,
    /// Its first byte.
    pub address: usize,
    /// How many bytes.
    pub bytes: usize,
}

thread_local!(static REGIONS: RefCell<Option<Vec<Region>>> = const { RefCell::new(None) });

/// Calls a function whose dispatches, on this thread, may touch these regions and nothing else. Otherwise it is every buffer in use of
/// every device; a buffer is then as long as its block of the allocator, whose sizes are rounded up.
///
/// # Safety
/// The regions must be valid for reads and writes while the function runs.
pub unsafe fn within<R>(regions: Vec<Region>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Vec<Region>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            REGIONS.set(self.0.take());
        }
    }
    let _restore = Restore(REGIONS.replace(Some(regions)));
    work()
}

/// Runs a kernel over a grid through the interpreter, each access checked.
///
/// # Safety
/// Nothing else may write what the kernel reads, or access what it writes, in the buffers or regions that it may touch.
pub(crate) unsafe fn run(pipeline: &Pipeline, grid: [usize; 3], arguments: &[u64]) -> Result<()> {
    let regions = REGIONS.with_borrow(Clone::clone);
    // SAFETY: the caller's promise, and `within`'s for the regions.
    let mut memory = unsafe { Checked::new(regions) };
    interpret(pipeline.verified(), grid, arguments, &mut memory)
        .map_err(|found| Error::Sanitizer { hint: hint(&memory, &found), found })
}

/// Where an address lies that is out of bounds.
fn hint(memory: &Checked, found: &InterpretError) -> String {
    match *found.problem {
        openmps_tile::interpret::InterpretProblem::Memory(MemoryError::OutOfBounds { address, size }) => {
            memory.nearest(address, size).map_or_else(String::new, |nearest| format!("; {nearest}"))
        }
        _ => String::new(),
    }
}
