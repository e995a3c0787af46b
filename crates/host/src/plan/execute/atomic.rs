//! Atomic operations on tiles: neighbours at once, others in the order of their locks.

use super::Machine;
use super::scattered::{each_truth, offset};
use crate::plan::atomic::{Given, Turn};
use crate::plan::operand::{Extents, Places, Register, Target};
use crate::plan::step::Atomically;

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    pub(super) unsafe fn atomic(&mut self, step: &Atomically) {
        let Atomically { change, places, value, mask, old, size, extents } = step;
        let (size, (rows, columns), width) = (*size, self.extents(extents), extents.columns.full);
        let old = old.map(|register| self.open_old(register, extents, size));
        let (value, mask) = (self.source(value, size), mask.as_ref().map(|mask| self.source(mask, 1)));
        let by = if value.repeats() { Given::One } else { Given::Each };
        let mut turn = Turn::default();
        let mut runs = std::mem::take(&mut self.lists.runs);
        runs.clear();
        // SAFETY: the caller's promise, for the elements that a mask leaves.
        unsafe {
            match places {
                Places::Sums(address) => {
                    let even = self.list_places(address, (rows, columns));
                    let base = self.get(address.base) as *mut u8;
                    for (row, &by_row) in self.lists.rows.iter().enumerate() {
                        let base = base.wrapping_offset(by_row as isize);
                        each_truth(mask.as_ref(), row, columns, |run, holds| match even {
                            _ if !holds => {}
                            Some([first, step]) if step == size as isize => {
                                let place = base.wrapping_offset(first).wrapping_add(run.start * size);
                                let old = old.map(|old| old.add((row * width + run.start) * size));
                                let given = (value.element(row, run.start), by);
                                change.run(&mut turn, place, given, old, run.len());
                            }
                            _ => run.for_each(|column| {
                                let by_column = match even {
                                    Some([first, step]) => first.wrapping_add(step.wrapping_mul(column as isize)),
                                    None => self.lists.columns[column] as isize,
                                };
                                let place = base.wrapping_offset(by_column);
                                let element = (row * width + column, column == 0);
                                runs.add(place, value.element(row, column), element, size);
                            }),
                        });
                    }
                }
                Places::Bytes { base, offsets } => {
                    let (base, offsets) = (self.get(*base) as *mut u8, self.source(offsets, 8));
                    for row in 0..rows {
                        each_truth(mask.as_ref(), row, columns, |run, holds| {
                            run.filter(|_| holds).for_each(|column| {
                                let place = base.wrapping_offset(offset(&offsets, row, column));
                                let element = (row * width + column, column == 0);
                                runs.add(place, value.element(row, column), element, size);
                            });
                        });
                    }
                }
            }
            runs.change(change, &mut turn, by, old);
        }
        self.lists.runs = runs;
    }

    /// The place for what was in memory; 0 where a mask leaves nothing, which Triton leaves open: it does not depend on what lay there.
    fn open_old(&mut self, register: Register, extents: &Extents, size: usize) -> *mut u8 {
        let (address, _) = self.open(&Target { register, size, store: None }, extents);
        // SAFETY: the register is as large as the full tile.
        unsafe { std::ptr::write_bytes(address, 0, extents.len() * size) };
        address
    }
}
