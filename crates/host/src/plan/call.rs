//! Operations on whole tiles that need no step of their own: a function over the places of what is read and written.

use super::operand::{Extents, Operand, Slot, Target, Width};
use crate::error::Error;
use std::fmt;
use std::sync::Arc;

/// What a call does with its places.
pub(super) type Work = Arc<dyn Fn(&Places) -> Result<(), Error> + Send + Sync>;

/// An operation on whole tiles.
#[derive(Clone)]
pub(super) struct Call {
    /// What it is called in kernels.
    pub name: &'static str,
    /// Numbers, and tiles whose rows follow each other without a gap.
    pub reads: Vec<Operand>,
    pub writes: Vec<Written>,
    pub effect: Effect,
    pub work: Work,
}

impl fmt::Debug for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Call({} of {:?} to {:?})", self.name, self.reads, self.writes)
    }
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    Tile(Target, Extents),
    Number(Slot, Width),
}

/// What else than its results a call changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// Memory, or what somebody sees.
    Outside,
}

/// The places of a call's operands and results, and the program's place in the grid.
pub(super) struct Places<'a> {
    pub reads: &'a [*const u8],
    pub writes: &'a [*mut u8],
    pub program: [usize; 3],
}

impl Places<'_> {
    /// Element `i` of an operand, of `size` bytes, in the lower bits.
    pub fn get(&self, operand: usize, i: usize, size: usize) -> u64 {
        let mut bits = 0_u64;
        // SAFETY: whoever makes a call names operands that have the elements that its work reads.
        unsafe { copy_element((&raw mut bits).cast(), self.reads[operand].add(i * size), size) };
        bits
    }

    /// Sets element `i` of the only result.
    pub fn set(&self, i: usize, size: usize, bits: u64) {
        // SAFETY: as for operands.
        unsafe { copy_element(self.writes[0].add(i * size), (&raw const bits).cast(), size) };
    }

    /// Whether a boolean holds; one that is not there does.
    pub fn holds(&self, operand: Option<usize>, i: usize) -> bool {
        operand.is_none_or(|operand| self.get(operand, i, 1) != 0)
    }
}

/// Copies one element of 1, 2, 4 or 8 bytes.
///
/// # Safety
/// As for a copy of `size` bytes.
#[inline(always)]
pub(super) unsafe fn copy_element(to: *mut u8, from: *const u8, size: usize) {
    // SAFETY: the caller's promise; sizes are powers of two up to 8.
    unsafe {
        match size {
            1 => to.write(from.read()),
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            _ => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
        }
    }
}
