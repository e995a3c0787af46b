//! Elements at addresses that are known only one by one.

use super::memory::{Integers, ZERO};
use super::{Machine, Source};
use crate::plan::call::copy_element;
use crate::plan::operand::{Address, Extents, Operand, Places, Sum, Target};
use crate::plan::step::Step;
use crate::vector::{CHUNK, memory};

impl Machine<'_> {
    pub(super) unsafe fn scattered(&mut self, step: &Step) {
        // SAFETY: as in `step`.
        unsafe {
            match step {
                Step::Offsets { target, sum, elements, scale, bytes, extents } => {
                    self.offsets(target, sum, [*elements, bytes.map(|bytes| (bytes, 8))], *scale, extents);
                }
                Step::Gather { register, places, mask, other, size, extents } => {
                    let target = Target { register: *register, size: *size, store: None };
                    let (address, pitch) = self.open(&target, extents);
                    let zero = Source { address: ZERO.as_ptr(), pitch: 0, by_column: 0 };
                    let other = other.as_ref().map_or(zero, |other| self.source(other, *size));
                    let to = Source { address, pitch, by_column: *size as isize };
                    let mask = mask.as_ref().map(|mask| self.source(mask, 1));
                    match places {
                        Places::Sums(address) => self.gather_sums(&to, address, mask, &other, extents),
                        Places::Bytes { base, offsets } => {
                            self.gather(to, *base, offsets, mask, &other, *size, extents);
                        }
                    }
                }
                Step::Scatter { value, places, mask, size, extents } => {
                    let value = self.source(value, *size);
                    let mask = mask.as_ref().map(|mask| self.source(mask, 1));
                    match places {
                        Places::Sums(address) => self.scatter_sums(&value, address, mask, extents),
                        Places::Bytes { base, offsets } => self.scatter(&value, *base, offsets, mask, *size, extents),
                    }
                }
                _ => {}
            }
        }
    }

    /// # Safety
    /// As for [`Machine::run`].
    unsafe fn offsets(
        &mut self,
        target: &Target,
        sum: &Sum,
        tiles: [Option<(Operand, usize)>; 2],
        scale: i64,
        extents: &Extents,
    ) {
        let (rows, columns) = self.extents(extents);
        let spread = &sum.spread;
        let [base, by_row, by_column] =
            [self.get(sum.base), self.stride(spread.row_stride) as i64, self.stride(spread.column_stride) as i64];
        let row_part = spread.rows.as_ref().map(|part| self.along_rows(part));
        let column_part = spread.columns.as_ref().map(|part| self.along_columns(part));
        let tile = |tile: Option<(Operand, usize)>| tile.map(|(operand, size)| (self.source(&operand, size), size));
        let [elements, bytes] = tiles.map(tile);
        let (address, pitch) = self.open(target, extents);
        for row in 0..rows {
            // SAFETY: registers hold the elements of their full extents.
            unsafe {
                let to = address.offset(pitch * row as isize).cast::<i64>();
                let row_part = row_part.map_or(0, |part| part.get(row));
                let start = base.wrapping_add(by_row.wrapping_mul(row as i64)).wrapping_add(row_part);
                let parts = [column_part.map(|part| (part, scale)), line(&elements, row, scale), line(&bytes, row, 1)];
                let mut done = 0;
                while done < columns {
                    // A chunk is read before it is written: the result may take the place of an operand.
                    let mut sums = [0_i64; CHUNK];
                    let count = CHUNK.min(columns - done);
                    for (i, sum) in sums[..count].iter_mut().enumerate() {
                        let column = by_column.wrapping_mul((done + i) as i64);
                        *sum = start.wrapping_add(column).wrapping_mul(scale);
                    }
                    for (part, scale) in parts.iter().flatten() {
                        for (i, sum) in sums[..count].iter_mut().enumerate() {
                            *sum = sum.wrapping_add(part.get(done + i).wrapping_mul(*scale));
                        }
                    }
                    std::ptr::copy_nonoverlapping(sums.as_ptr(), to.add(done), count);
                    done += count;
                }
            }
        }
        // SAFETY: passed on to the caller.
        unsafe { self.close(target, extents) };
    }

    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    unsafe fn gather(
        &self,
        to: Source,
        base: usize,
        offsets: &Operand,
        mask: Option<Source>,
        other: &Source,
        size: usize,
        extents: &Extents,
    ) {
        let base = self.get(base) as *const u8;
        let offsets = self.source(offsets, 8);
        let (rows, columns) = self.extents(extents);
        for row in 0..rows {
            for column in 0..columns {
                // SAFETY: the caller's promise.
                unsafe {
                    let from = if is_on(mask.as_ref(), row, column) {
                        base.wrapping_offset(offset(&offsets, row, column))
                    } else {
                        other.element(row, column)
                    };
                    copy_element(to.element(row, column).cast_mut(), from, size);
                }
            }
        }
    }

    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    unsafe fn scatter(
        &self,
        value: &Source,
        base: usize,
        offsets: &Operand,
        mask: Option<Source>,
        size: usize,
        extents: &Extents,
    ) {
        let base = self.get(base) as *mut u8;
        let offsets = self.source(offsets, 8);
        let (rows, columns) = self.extents(extents);
        for row in 0..rows {
            // SAFETY: the caller's promise.
            unsafe {
                for column in (0..columns).filter(|&column| is_on(mask.as_ref(), row, column)) {
                    let to = base.wrapping_offset(offset(&offsets, row, column));
                    copy_element(to, value.element(row, column), size);
                }
            }
        }
    }

    /// Where a mask leaves whole rows, those are copied at once.
    ///
    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    unsafe fn gather_sums(
        &mut self,
        to: &Source,
        address: &Address,
        mask: Option<Source>,
        other: &Source,
        extents: &Extents,
    ) {
        let ((rows, columns), size) = (self.extents(extents), address.size);
        self.list_offsets(address, (rows, columns));
        let (base, step) = (self.get(address.base) as *const u8, size as isize);
        let run = first_of_run(&self.lists.columns, step);
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            let from = base.wrapping_offset(by_row as isize);
            // SAFETY: the caller's promise.
            unsafe {
                let line = to.row(row).cast_mut();
                match (left(mask.as_ref(), row), run) {
                    (Left::Nothing, _) => {
                        memory::copy_strided(line, step, other.row(row), other.by_column, size, columns);
                    }
                    (Left::All, Some(first)) => {
                        memory::copy_strided(line, step, from.wrapping_offset(first), step, size, columns);
                    }
                    _ => {
                        for (column, &by_column) in self.lists.columns.iter().enumerate() {
                            let on = is_on(mask.as_ref(), row, column);
                            let here = from.wrapping_offset(by_column as isize);
                            let from = if on { here } else { other.element(row, column) };
                            copy_element(to.element(row, column).cast_mut(), from, size);
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    unsafe fn scatter_sums(&mut self, value: &Source, address: &Address, mask: Option<Source>, extents: &Extents) {
        let ((rows, columns), size) = (self.extents(extents), address.size);
        self.list_offsets(address, (rows, columns));
        let (base, step) = (self.get(address.base) as *mut u8, size as isize);
        let run = first_of_run(&self.lists.columns, step);
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            let to = base.wrapping_offset(by_row as isize);
            // SAFETY: the caller's promise.
            unsafe {
                match (left(mask.as_ref(), row), run) {
                    (Left::Nothing, _) => {}
                    (Left::All, Some(first)) => {
                        let to = to.wrapping_offset(first);
                        memory::copy_strided(to, step, value.row(row), value.by_column, size, columns);
                    }
                    _ => {
                        for (column, &by_column) in self.lists.columns.iter().enumerate() {
                            if is_on(mask.as_ref(), row, column) {
                                copy_element(to.wrapping_offset(by_column as isize), value.element(row, column), size);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The offset of the first column, where each is the neighbour of the one before.
fn first_of_run(columns: &[i64], step: isize) -> Option<isize> {
    let first = *columns.first()? as isize;
    columns.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(step as i64)).then_some(first)
}

/// What a mask leaves of a row.
enum Left {
    All,
    Nothing,
    Some,
}

/// # Safety
/// The row lies within the mask.
#[inline(always)]
unsafe fn left(mask: Option<&Source>, row: usize) -> Left {
    match mask {
        Some(mask) if !mask.repeats() => Left::Some,
        mask => {
            // SAFETY: the caller's promise.
            let on = unsafe { is_on(mask, row, 0) };
            if on { Left::All } else { Left::Nothing }
        }
    }
}

/// One row of a tile of integers, and by what each of them counts.
fn line(tile: &Option<(Source, usize)>, row: usize, scale: i64) -> Option<(Integers, i64)> {
    // SAFETY: the row lies within the tile.
    tile.map(|(source, size)| (Integers::new(unsafe { source.row(row) }, source.by_column, size), scale))
}

/// # Safety
/// The element lies within the mask.
#[inline(always)]
unsafe fn is_on(mask: Option<&Source>, row: usize, column: usize) -> bool {
    // SAFETY: the caller's promise.
    mask.is_none_or(|mask| unsafe { *mask.element(row, column) } != 0)
}

/// # Safety
/// The element lies within the tile of i64.
#[inline(always)]
unsafe fn offset(offsets: &Source, row: usize, column: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { offsets.element(row, column).cast::<i64>().read_unaligned() as isize }
}
