//! Runs reductions and scans by a block.

use super::{Machine, RegisterMemory};
use crate::error::Error;
use crate::native::transpose::transpose;
use crate::plan::call::Written;
use crate::plan::fold::{Fold, FoldKind, FoldPart};
use crate::vector::memory;

impl Machine<'_> {
    /// # Safety
    /// As for [`Machine::run`].
    pub(super) unsafe fn fold(&mut self, fold: &Fold) -> Result<(), Error> {
        let lines = fold.axis.lines();
        // SAFETY: `work` holds as many elements as the source, and every round stays within; passed on to the caller.
        unsafe {
            for part in &fold.parts {
                let source = self.source(&part.source, part.size).address;
                moved(fold, part.size, self.home(part.work), source.cast_mut(), Way::In);
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
        let work = self.home(part.work);
        let to = match &part.result {
            Written::Tile(target, extents) => self.open(target, extents).0,
            Written::Number(slot, _) => self.cell(*slot),
        };
        // SAFETY: a reduction's result has an element for each line, a scan's as many as its tile.
        unsafe {
            match fold.kind {
                FoldKind::Reduce => std::ptr::copy_nonoverlapping(work, to, fold.axis.lines() * part.size),
                FoldKind::Scan { .. } => moved(fold, part.size, work, to, Way::Out),
            }
        }
        if let Written::Number(slot, width) = part.result {
            self.extend(slot, width);
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    /// From the tile to where it lies axis first.
    In,
    Out,
}

/// Moves a part between its tile, rows one after the other, and where it lies axis first: elements of the pieces of all lines side by side.
///
/// # Safety
/// Both hold as many elements of this size as the axis has; the side that is written may be written.
unsafe fn moved(fold: &Fold, size: usize, work: *mut u8, tile: *mut u8, way: Way) {
    let (axis, pieces) = (fold.axis, fold.pieces);
    let (rows, row) = (axis.length / pieces, pieces * axis.lines() * size);
    // SAFETY: every block lies within both.
    let copied = |work: *mut u8, tile: *mut u8, bytes: usize| unsafe {
        match way {
            Way::In => std::ptr::copy_nonoverlapping(tile, work, bytes),
            Way::Out => std::ptr::copy_nonoverlapping(work, tile, bytes),
        }
    };
    // Lines with a distance in bytes on the tile's side, and one on the other.
    // SAFETY: as above.
    let turned = |(lines, length): (usize, usize), work: (*mut u8, usize), tile: (*mut u8, usize)| unsafe {
        let [work, tile] = [work, tile].map(|(address, distance)| (address as isize, distance as isize));
        match way {
            Way::In => transpose(size, false, (lines, length), work, tile),
            Way::Out => transpose(size, false, (length, lines), tile, work),
        }
    };
    // SAFETY: all addresses are of elements of the two sides.
    unsafe {
        match (axis.outer, axis.inner) {
            (1, _) if rows == 1 => copied(work, tile, row),
            (1, 1) => turned((pieces, rows), (work, row), (tile, rows * size)),
            (outer, 1) if rows == 1 => turned((outer, pieces), (work, outer * size), (tile, pieces * size)),
            (outer, 1) => (0..pieces).for_each(|piece| {
                let (work, tile) = (work.add(piece * outer * size), tile.add(piece * rows * size));
                turned((outer, rows), (work, row), (tile, axis.length * size));
            }),
            (outer, inner) => {
                let bytes = inner * size;
                for (from, block) in (0..outer * axis.length).map(|block| (block * bytes, block)) {
                    let (line, at) = (block / axis.length, block % axis.length);
                    let place = (at % rows * pieces + at / rows) * outer + line;
                    copied(work.add(place * bytes), tile.add(from), bytes);
                }
            }
        }
    }
}
