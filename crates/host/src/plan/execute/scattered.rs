//! Elements at addresses that are known only one by one.

use super::memory::{Integers, ZERO, copy_run};
use super::{Machine, Source};
use crate::native::memory::by_size;
use crate::plan::operand::{Address, Extents, Operand, Places, Sum, Target};
use crate::plan::step::Step;
use crate::vector::{CHUNK, memory};
use std::ops::Range;

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
                    let mut next = start.wrapping_add(by_column.wrapping_mul(done as i64)).wrapping_mul(scale);
                    for sum in &mut sums[..count] {
                        *sum = next;
                        next = next.wrapping_add(by_column.wrapping_mul(scale));
                    }
                    for (part, scale) in parts.iter().flatten() {
                        part.add_to(&mut sums[..count], done, *scale);
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
            // SAFETY: the caller's promise.
            unsafe {
                each_truth(mask.as_ref(), row, columns, |run, holds| {
                    let line = to.element(row, run.start).cast_mut();
                    if !holds {
                        return fill(line, other, (row, run), size);
                    }
                    by_size!(size, T => for (i, column) in run.enumerate() {
                        let from = base.wrapping_offset(offset(&offsets, row, column)).cast::<T>();
                        line.cast::<T>().add(i).write_unaligned(from.read_unaligned());
                    });
                });
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
                each_truth(mask.as_ref(), row, columns, |run, holds| {
                    by_size!(size, T => for column in run.filter(|_| holds) {
                        let to = base.wrapping_offset(offset(&offsets, row, column)).cast::<T>();
                        to.write_unaligned(value.element(row, column).cast::<T>().read_unaligned());
                    });
                });
            }
        }
    }

    /// Where columns step evenly, what a mask leaves of a row without a gap is copied at once.
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
        let even = self.list_places(address, (rows, columns));
        let base = self.get(address.base) as *const u8;
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            let base = base.wrapping_offset(by_row as isize);
            // SAFETY: the caller's promise.
            unsafe {
                each_truth(mask.as_ref(), row, columns, |run, holds| {
                    let (line, step) = (to.element(row, run.start).cast_mut(), size as isize);
                    match even {
                        _ if !holds => fill(line, other, (row, run), size),
                        Some([first, by_column]) => {
                            let from = base.wrapping_offset(first + by_column * run.start as isize);
                            memory::copy_strided(line, step, from, by_column, size, run.len());
                        }
                        None => by_size!(size, T => for (i, &by_column) in self.lists.columns[run].iter().enumerate() {
                            let from = base.wrapping_offset(by_column as isize).cast::<T>();
                            line.cast::<T>().add(i).write_unaligned(from.read_unaligned());
                        }),
                    }
                });
            }
        }
    }

    /// As [`Machine::gather_sums`].
    ///
    /// # Safety
    /// As for [`Machine::run`]; addresses behind a false mask are not touched.
    unsafe fn scatter_sums(&mut self, value: &Source, address: &Address, mask: Option<Source>, extents: &Extents) {
        let ((rows, columns), size) = (self.extents(extents), address.size);
        let even = self.list_places(address, (rows, columns));
        let base = self.get(address.base) as *mut u8;
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            let base = base.wrapping_offset(by_row as isize);
            // SAFETY: the caller's promise.
            unsafe {
                each_truth(mask.as_ref(), row, columns, |run, holds| match even {
                    _ if !holds => {}
                    Some([first, by_column]) => {
                        let to = base.wrapping_offset(first + by_column * run.start as isize);
                        let from = value.element(row, run.start);
                        memory::copy_strided(to, by_column, from, value.by_column, size, run.len());
                    }
                    None => by_size!(size, T => for column in run {
                        let to = base.wrapping_offset(self.lists.columns[column] as isize).cast::<T>();
                        to.write_unaligned(value.element(row, column).cast::<T>().read_unaligned());
                    }),
                });
            }
        }
    }
}

/// What a mask leaves out of a row.
///
/// # Safety
/// The run lies within `other`, and there is room for it.
#[inline(always)]
unsafe fn fill(to: *mut u8, other: &Source, (row, run): (usize, Range<usize>), size: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_run(to, other.element(row, run.start), other.by_column, size, run.len()) }
}

/// Calls `work` with each run of a mask's row whose elements are alike, and whether they hold.
///
/// # Safety
/// The row has so many elements.
#[inline(always)]
pub(super) unsafe fn each_truth(
    mask: Option<&Source>,
    row: usize,
    columns: usize,
    mut work: impl FnMut(Range<usize>, bool),
) {
    let Some(mask) = mask.filter(|mask| !mask.repeats()) else {
        // SAFETY: the caller's promise.
        return work(0..columns, unsafe { is_on(mask, row, 0) });
    };
    // SAFETY: a mask that does not repeat has a byte for each column.
    let truths = unsafe { std::slice::from_raw_parts(mask.row(row), columns) };
    let mut begin = 0;
    while begin < columns {
        let holds = truths[begin] != 0;
        let end = begin + alike(&truths[begin..], holds);
        work(begin..end, holds);
        begin = end;
    }
}

/// How many bytes from the first on hold, or do not: most masks begin or end once in a row.
#[inline(always)]
fn alike(truths: &[u8], holds: bool) -> usize {
    let (words, _) = truths.as_chunks::<8>();
    let all = [u8::from(holds); 8];
    let whole = 8 * words.iter().take_while(|&&word| word == all).count();
    whole + truths[whole..].iter().take_while(|&&truth| (truth != 0) == holds).count()
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
pub(super) unsafe fn offset(offsets: &Source, row: usize, column: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { offsets.element(row, column).cast::<i64>().read_unaligned() as isize }
}
