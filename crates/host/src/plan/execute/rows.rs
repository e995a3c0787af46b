//! Steps on one row in their short form.

use super::{Machine, RegisterMemory};
use crate::plan::row::{Part, Row, Work};
use crate::vector::memory;

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`].
    #[inline(always)]
    pub(super) unsafe fn row(&mut self, row: &Row) {
        let (rows, columns) = self.extents(&row.extents);
        let count = rows * columns;
        // Operands are looked up first: the result may be one of them, in another place.
        // SAFETY: operands are defined where they are read, registers hold whole tiles, and memory is valid inside the extents.
        unsafe {
            match row.work {
                Work::Load(base) => {
                    let address = self.get(base) as *mut u8;
                    self.ahead.note(row.register, address, count * row.size);
                    self.places[row.register] = RegisterMemory { address, pitch: 0, repeats: false };
                }
                Work::Unary(function, x) => {
                    let (x, repeats) = self.part(x);
                    let to = self.row_target(row, count);
                    if repeats {
                        function(to, x, count.min(1));
                        memory::fill(to, to, row.size, count);
                    } else {
                        function(to, x, count);
                    }
                }
                Work::Binary(function, [x, y]) => {
                    let ((x, x_repeats), (y, y_repeats)) = (self.part(x), self.part(y));
                    function(self.row_target(row, count), x, x_repeats, y, y_repeats, count);
                }
                Work::Fused(function, parts) => {
                    let [x, y, z] = parts.map(|part| self.part(part));
                    function(self.row_target(row, count), [x.0, y.0, z.0], [x.1, y.1, z.1], count);
                }
                Work::Chain(function, parts) => {
                    let parts = parts.map(|part| self.part(part));
                    function(self.row_target(row, count), parts.map(|part| part.0), parts.map(|part| part.1), count);
                }
            }
        }
    }

    /// Where a row is read, and whether each of its elements is the first one.
    #[inline(always)]
    fn part(&self, part: Part) -> (*const u8, bool) {
        match part {
            Part::Number(slot) => (self.cell(slot), true),
            Part::Row(register) => {
                let place = self.places[register];
                (place.address, place.repeats)
            }
        }
    }

    /// Where a row goes: to memory, or to its register.
    #[inline(always)]
    fn row_target(&mut self, row: &Row, count: usize) -> *mut u8 {
        match row.store {
            Some(base) => {
                let address = self.get(base) as *mut u8;
                self.ahead.note(row.register, address, count * row.size);
                address
            }
            None => {
                let address = self.home(row.register);
                self.places[row.register] = RegisterMemory { address, pitch: 0, repeats: false };
                address
            }
        }
    }
}
