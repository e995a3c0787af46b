//! Memory that holds instructions: written, then made executable, never both at once.

use memmap2::{Mmap, MmapMut};

/// Instructions that may be called.
#[derive(Debug)]
pub(super) struct Executable(Mmap);

impl Executable {
    /// None where the system gives no such memory.
    pub fn new(instructions: &[u8]) -> Option<Executable> {
        let mut memory = MmapMut::map_anon(instructions.len()).ok()?;
        memory.copy_from_slice(instructions);
        memory.make_exec().ok().map(Executable)
    }

    /// The address of the first instruction.
    pub fn address(&self) -> *const u8 {
        self.0.as_ptr()
    }
}
