//! Steps on numbers in slots.

use super::Machine;
use crate::plan::operand::{Slot, Width};
use crate::plan::step::{IndexOperation, Step};

/// An index operation on numbers.
pub(in crate::plan) fn index_operation(operation: IndexOperation, x: i64, y: i64) -> i64 {
    match operation {
        IndexOperation::Add => x.wrapping_add(y),
        IndexOperation::Subtract => x.wrapping_sub(y),
        IndexOperation::SaturatingSubtract => x.saturating_sub(y),
        IndexOperation::Multiply => x.wrapping_mul(y),
        IndexOperation::Divide => {
            if y == 0 {
                0
            } else {
                x.wrapping_div(y)
            }
        }
        IndexOperation::Remainder => {
            if y == 0 {
                0
            } else {
                x.wrapping_rem(y)
            }
        }
        IndexOperation::Minimum => x.min(y),
        IndexOperation::Maximum => x.max(y),
        IndexOperation::DivideUp => {
            if y <= 0 {
                0
            } else {
                let x = x.max(0);
                x / y + i64::from(x % y > 0)
            }
        }
    }
}

/// The lower bytes of a number.
///
/// # Safety
/// So many bytes are readable, 8 at most.
#[inline(always)]
unsafe fn read(address: *const u8, size: usize) -> u64 {
    // SAFETY: the caller's promise. The usual sizes are no call of a function that copies.
    unsafe {
        match size {
            4 => address.cast::<u32>().read_unaligned().into(),
            8 => address.cast::<u64>().read_unaligned(),
            2 => address.cast::<u16>().read_unaligned().into(),
            _ => (*address).into(),
        }
    }
}

/// # Safety
/// So many bytes are writable, 8 at most.
#[inline(always)]
unsafe fn write(address: *mut u8, bits: u64, size: usize) {
    // SAFETY: as in `read`.
    unsafe {
        match size {
            4 => address.cast::<u32>().write_unaligned(bits as u32),
            8 => address.cast::<u64>().write_unaligned(bits),
            2 => address.cast::<u16>().write_unaligned(bits as u16),
            _ => *address = bits as u8,
        }
    }
}

impl Machine<'_> {
    /// Lets a slot be the number that its lower bits are. These are read as wide as they were written: a wider load would wait for the store to
    /// reach the cache.
    #[inline(always)]
    pub(super) fn extend(&mut self, slot: Slot, width: Width) {
        let cell = self.cell(slot);
        // SAFETY: a slot is 8 bytes, aligned.
        let number = unsafe {
            match width {
                Width::Truth => (*cell & 1).into(),
                Width::Bits8 => (*cell.cast::<i8>()).into(),
                Width::Bits16 => (*cell.cast::<i16>()).into(),
                Width::Bits32 => (*cell.cast::<i32>()).into(),
                Width::Whole => return,
            }
        };
        self.set(slot, number);
    }

    #[inline(always)]
    pub(super) fn index(&mut self, operation: IndexOperation, destination: Slot, [x, y]: [Slot; 2], width: Width) {
        let raw = index_operation(operation, self.get(x), self.get(y));
        self.set(destination, width.extend(raw as u64) as i64);
    }

    #[inline(always)]
    pub(super) fn place(&mut self, destination: Slot, base: Slot, offset: Slot, size: i64) {
        let bytes = self.get(offset).wrapping_mul(size);
        self.set(destination, self.get(base).wrapping_add(bytes));
    }

    /// The other steps on numbers.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    #[inline(always)]
    pub(super) unsafe fn number(&mut self, step: &Step) {
        // SAFETY: slots are 8 bytes; device addresses are valid by the caller's promise.
        unsafe {
            match step {
                Step::Unary { function, destination, x, width } => {
                    function(self.cell(*destination), self.cell(*x), 1);
                    self.extend(*destination, *width);
                }
                Step::Binary { function, destination, x, y, width } => {
                    function(self.cell(*destination), self.cell(*x), false, self.cell(*y), false, 1);
                    self.extend(*destination, *width);
                }
                Step::Select { destination, condition, x, y } => {
                    let chosen = if self.get(*condition) != 0 { *x } else { *y };
                    self.set(*destination, self.get(chosen));
                }
                Step::Copy { destination, source } => self.set(*destination, self.get(*source)),
                Step::LoadScalar { destination, address, mask, other, size, width } => {
                    if mask.is_none_or(|mask| self.get(mask) != 0) {
                        let bits = read(self.get(*address) as *const u8, *size);
                        self.set(*destination, width.extend(bits) as i64);
                    } else {
                        self.set(*destination, other.map_or(0, |other| self.get(other)));
                    }
                }
                Step::StoreScalar { address, value, mask, size } if mask.is_none_or(|mask| self.get(mask) != 0) => {
                    write(self.get(*address) as *mut u8, read(self.cell(*value), *size), *size);
                }
                _ => {}
            }
        }
    }
}
