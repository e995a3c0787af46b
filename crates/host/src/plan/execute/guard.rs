//! Copies loaded tiles out of the way of the step that is about to overwrite them in memory, where it or a later one still reads them.

use super::{Machine, RegisterMemory};
use crate::plan::operand::{Address, Extents};
use crate::plan::step::{GuardedLoad, Reader, Writer};
use crate::vector::memory;

/// The addresses from the first byte to behind the last one of rows and columns with these strides in bytes.
#[inline(always)]
fn span(address: i64, (rows, by_row): (usize, isize), (columns, by_column): (usize, isize), size: isize) -> [i64; 2] {
    let reach = |count: usize, by: isize| (count as isize - 1).wrapping_mul(by) as i64;
    let (rows, columns) = (reach(rows, by_row), reach(columns, by_column));
    [address + rows.min(0) + columns.min(0), address + rows.max(0) + columns.max(0) + size as i64]
}

impl Machine<'_> {
    /// Before a step that stores rows and columns at an address.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    #[inline(always)]
    pub(super) unsafe fn guard(&mut self, address: &Address, extents: &Extents, writer: Writer, loads: &[GuardedLoad]) {
        let neighbours = extents.columns.full == 1 || self.stride(address.spread.column_stride) == 1;
        if extents.rows.full == 1 && neighbours && self.are_apart(self.get(address.base), address, extents, loads) {
            return;
        }
        // SAFETY: passed on to the caller.
        unsafe { self.guard_tiles(address, extents, writer, loads) };
    }

    /// Whether no load shares memory with a row that is stored, but element for element where that is harmless. Looks at whole rows, so
    /// it may say no of those that are apart.
    #[inline(always)]
    fn are_apart(&self, to: i64, address: &Address, extents: &Extents, loads: &[GuardedLoad]) -> bool {
        let stored = (extents.columns.full * address.size) as i64;
        loads.iter().all(|load| {
            let place = self.places[load.register];
            let distance = place.address as i64 - to;
            let read = (load.extents.columns.full * load.size) as i64;
            let in_place = distance == 0 && load.reader == Reader::Element && !place.repeats;
            load.extents.rows.full == 1 && (in_place || distance >= stored || -distance >= read)
        })
    }

    #[inline(never)]
    unsafe fn guard_tiles(&mut self, address: &Address, extents: &Extents, writer: Writer, loads: &[GuardedLoad]) {
        let (rows, columns) = self.extents(extents);
        let size = address.size as isize;
        let one = extents.columns.full == 1;
        let by_column = if one { size } else { self.stride(address.spread.column_stride) * size };
        if rows == 0 || columns == 0 {
            return;
        }
        // Where columns are not neighbours a step stores only when it has computed everything.
        let stores_at_last = by_column != size && writer != Writer::Copy;
        let (to, by_row) = (self.get(address.base), self.stride(address.spread.row_stride) * size);
        let [begin, end] = span(to, (rows, by_row), (columns, by_column), size);
        for load in loads {
            let place = self.places[load.register];
            let from = place.address as i64;
            // Rows that overlap would be read after others have been stored there, unless what is stored is what is read.
            let overlap = rows > 1 && by_row.unsigned_abs() < columns * address.size;
            let same = from == to
                && (rows == 1 || place.pitch == by_row)
                && (columns == 1 || !place.repeats)
                && (!overlap || writer == Writer::Copy);
            let is_read_in_time = match load.reader {
                Reader::Element => stores_at_last || same && by_column == size,
                Reader::Step => stores_at_last,
                Reader::Later => false,
            };
            if is_read_in_time {
                continue;
            }
            let (rows, columns) = self.extents(&load.extents);
            let by_column = if place.repeats { 0 } else { load.size as isize };
            let [first, last] = span(from, (rows, place.pitch), (columns, by_column), load.size as isize);
            if first < end && begin < last && rows > 0 && columns > 0 {
                // SAFETY: passed on to the caller.
                unsafe { self.stage(load, place, (rows, columns)) };
            }
        }
    }

    /// Copies a tile from memory to its register. One that is there already has no part of memory in common with a store.
    #[cold]
    unsafe fn stage(&mut self, load: &GuardedLoad, place: RegisterMemory, (rows, columns): (usize, usize)) {
        let pitch = (load.extents.columns.full * load.size) as isize;
        let size = load.size as isize;
        // Of registers that are not in memory none repeats: a step that reads one may write over it element by element.
        let step = if place.repeats { 0 } else { size };
        // SAFETY: the register is as large as the full tile, and the memory is that which has been loaded.
        unsafe {
            let scratch = self.tiles.add(self.program.registers[load.register]);
            for row in 0..rows {
                let from = place.address.offset(place.pitch * row as isize);
                memory::copy_strided(scratch.offset(pitch * row as isize), size, from, step, load.size, columns);
            }
            self.places[load.register] = RegisterMemory { address: scratch, pitch, repeats: false };
        }
    }
}
