//! Steps on one row in their short form.

use super::{Machine, RegisterMemory, stream};
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
                    let [(x, repeats)] = self.parts([x]);
                    let work = |to, [x]: [*const u8; 1], count: usize| {
                        if repeats {
                            function(to, x, count.min(1));
                            memory::fill(to, to, row.size, count);
                        } else {
                            function(to, x, count);
                        }
                    };
                    self.write_row(row, count, [(x, repeats)], work);
                }
                Work::Binary(function, parts) => {
                    let parts = self.parts(parts);
                    let work = |to, [x, y]: [*const u8; 2], count| function(to, x, parts[0].1, y, parts[1].1, count);
                    self.write_row(row, count, parts, work);
                }
                Work::Fused(function, parts) => self.map_row(row, count, function, parts),
                Work::Chain(function, parts) => self.map_row(row, count, function, parts),
                Work::Choice(function, parts) => self.map_row(row, count, function, parts),
            }
        }
    }

    /// Computes a row by a function of several operands.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    #[inline(always)]
    unsafe fn map_row<const N: usize>(
        &mut self,
        row: &Row,
        count: usize,
        function: unsafe fn(*mut u8, [*const u8; N], [bool; N], usize),
        parts: [Part; N],
    ) {
        let parts = self.parts(parts);
        // SAFETY: passed on to the caller.
        unsafe {
            self.write_row(row, count, parts, |to, at, count| function(to, at, parts.map(|part| part.1), count));
        }
    }

    /// Computes a row where it goes, or piece by piece beside it where memory takes it without reading what was there.
    ///
    /// # Safety
    /// As for [`Machine::run`].
    #[inline(always)]
    unsafe fn write_row<const N: usize>(
        &mut self,
        row: &Row,
        count: usize,
        parts: [(*const u8, bool); N],
        work: impl Fn(*mut u8, [*const u8; N], usize),
    ) {
        if self.streams && row.store.is_some() && count * row.size >= stream::SHORTEST {
            // SAFETY: passed on to the caller.
            return unsafe { self.stream_row(row, count, parts, work) };
        }
        work(self.row_target(row, count), parts.map(|part| part.0), count);
    }

    /// # Safety
    /// As for [`Machine::run`].
    #[inline(never)]
    unsafe fn stream_row<const N: usize>(
        &mut self,
        row: &Row,
        count: usize,
        parts: [(*const u8, bool); N],
        work: impl Fn(*mut u8, [*const u8; N], usize),
    ) {
        let to = row.store.map_or(0, |base| self.get(base) as usize);
        let end = to + count * row.size;
        let is_read = |&(from, repeats): &(*const u8, bool)| {
            let read = if repeats { 1 } else { count } * row.part_size;
            (from as usize) < end && to < from as usize + read
        };
        let places = parts.map(|part| part.0);
        if parts.iter().any(is_read) {
            // What is overwritten has been read just now.
            return work(to as *mut u8, places, count);
        }
        let mut piece = stream::Piece::new();
        let most = stream::Piece::BYTES / row.size.max(row.part_size);
        // All pieces but the first begin with a line: one that is written in two parts is read, too.
        let mut from = 0;
        while from < count {
            let to_line = ((to + from * row.size).wrapping_neg() % stream::LINE) / row.size;
            let count = if to_line == 0 { most } else { to_line }.min(count - from);
            let mut at = places;
            for (at, (_, repeats)) in at.iter_mut().zip(&parts) {
                *at = at.wrapping_add(if *repeats { 0 } else { from * row.part_size });
            }
            work(piece.address(), at, count);
            // SAFETY: so many bytes have been written to the piece, and fit into the row.
            unsafe { piece.write((to + from * row.size) as *mut u8, count * row.size) };
            from += count;
        }
    }

    /// Where parts of a row are read, and whether each of their elements is the first one.
    #[inline(always)]
    fn parts<const N: usize>(&self, parts: [Part; N]) -> [(*const u8, bool); N] {
        parts.map(|part| self.part(part))
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
