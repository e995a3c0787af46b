//! Runs reductions and scans by a block.

use super::{Machine, RegisterMemory};
use crate::error::Error;
use crate::plan::call::{Written, copy_element};
use crate::plan::fold::{Axis, Fold, FoldKind, FoldPart};
use crate::vector::memory;

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn fold(&mut self, fold: &Fold) -> Result<(), Error> {
        let (axis, lines) = (fold.axis, fold.axis.lines());
        // SAFETY: `work` holds as many elements as the source, and every round stays within; passed on to the caller.
        unsafe {
            for part in &fold.parts {
                let source = self.source(&part.source, part.size).address;
                axis_first(axis, is_reversed(fold.kind), part.size, |tile, work| {
                    copy_element(self.home(part.work).add(work), source.add(tile), part.size);
                });
            }
            for round in &fold.rounds {
                self.count()?;
                let pairs = round.count * lines;
                for part in &fold.parts {
                    for (register, at) in [(part.left, round.left), (part.right, round.right)] {
                        let address = self.home(part.work).add(at * lines * part.size);
                        let pitch = (pairs * part.size) as isize;
                        self.places[register] = RegisterMemory { address, pitch, repeats: false };
                    }
                }
                self.set(fold.pairs, pairs as i64);
                self.run(&fold.body)?;
                for part in &fold.parts {
                    let combined = self.source(&part.combined, part.size);
                    let (to, size) = (self.home(part.work).add(round.to * lines * part.size), part.size);
                    memory::copy_strided(to, size as isize, combined.address, combined.by_column, size, pairs);
                }
            }
            fold.parts.iter().for_each(|part| self.finish(fold, part));
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Machine::fold`].
    unsafe fn finish(&mut self, fold: &Fold, part: &FoldPart) {
        let work = self.home(part.work).cast_const();
        let to = match &part.result {
            Written::Tile(target, extents) => self.open(target, extents).0,
            Written::Number(slot, _) => self.cell(*slot),
        };
        // SAFETY: a reduction's result has an element for each line, a scan's as many as its tile.
        unsafe {
            match fold.kind {
                FoldKind::Reduce => std::ptr::copy_nonoverlapping(work, to, fold.axis.lines() * part.size),
                kind @ FoldKind::Scan { .. } => axis_first(fold.axis, is_reversed(kind), part.size, |tile, from| {
                    copy_element(to.add(tile), work.add(from), part.size);
                }),
            }
        }
        if let Written::Number(slot, width) = part.result {
            self.extend(slot, width);
        }
    }
}

fn is_reversed(kind: FoldKind) -> bool {
    kind == FoldKind::Scan { reverse: true }
}

/// Calls `copy` with where each element lies in a tile and where it lies axis first, both in bytes.
#[inline(always)]
fn axis_first(axis: Axis, is_reversed: bool, size: usize, mut copy: impl FnMut(usize, usize)) {
    let Axis { outer, length, inner } = axis;
    for o in 0..outer {
        for at in 0..length {
            let place = if is_reversed { length - 1 - at } else { at };
            for i in 0..inner {
                copy(((o * length + place) * inner + i) * size, ((at * outer + o) * inner + i) * size);
            }
        }
    }
}
