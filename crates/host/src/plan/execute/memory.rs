//! Loads and stores of tiles: as rows with strides wherever the addresses step evenly, which parts known only at run time often do.

use super::{Machine, RegisterMemory, Source};
use crate::native::transpose::transpose;
use crate::plan::call::copy_element;
use crate::plan::operand::{Address, Extents, Operand, Part};
use crate::plan::step::Rest;
use crate::vector::memory;

/// An element of any size that is 0.
pub(super) static ZERO: [u8; 8] = [0; 8];

/// Integers that are compared before it is looked whether they are even so far.
const AT_ONCE: usize = 16;

/// The integers of one part of a spread: the address of the first, bytes from one to the next, bytes of each.
#[derive(Clone, Copy)]
pub(super) struct Integers {
    address: *const u8,
    step: isize,
    size: usize,
}

impl Integers {
    pub fn new(address: *const u8, step: isize, size: usize) -> Integers {
        Integers { address, step, size }
    }

    /// # Safety
    /// There are more than `i` of them.
    #[inline(always)]
    pub unsafe fn get(self, i: usize) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.address.offset(self.step * i as isize);
            if self.size == 4 { at.cast::<i32>().read_unaligned().into() } else { at.cast::<i64>().read_unaligned() }
        }
    }

    /// Adds `scale` times the integers from `first` on to as many sums.
    ///
    /// # Safety
    /// There are so many.
    #[inline(always)]
    pub unsafe fn add_to(self, sums: &mut [i64], first: usize, scale: i64) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.step == self.size as isize {
                let from = self.address.add(first * self.size);
                return memory::add_scaled(self.size)(sums.as_mut_ptr(), from, scale, sums.len());
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(self.get(first + i).wrapping_mul(scale));
            }
        }
    }

    /// The first of `count` integers and the distance to the next, where that is always the same.
    ///
    /// # Safety
    /// There are so many.
    #[inline(always)]
    unsafe fn evenly(self, count: usize) -> Option<[i64; 2]> {
        if count == 0 {
            return Some([0, 0]);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let first = self.get(0);
            let distance = if count > 1 { self.get(1).wrapping_sub(first) } else { 0 };
            let expected = |i: usize| first.wrapping_add(distance.wrapping_mul(i as i64));
            // Those that are not even mostly differ soon.
            for begin in (2..count).step_by(AT_ONCE) {
                let mut even = true;
                for i in begin..count.min(begin + AT_ONCE) {
                    even &= self.get(i) == expected(i);
                }
                if !even {
                    return None;
                }
            }
            Some([first, distance])
        }
    }
}

/// Where the elements of a tile lie: every one at `base + row * by_row + column * by_column` bytes.
#[derive(Clone, Copy)]
struct Even {
    base: *mut u8,
    by_row: isize,
    by_column: isize,
}

impl Machine<'_> {
    /// The integers of a part along the rows.
    #[inline(always)]
    pub(super) fn along_rows(&self, part: &Part) -> Integers {
        let source = self.source(&part.operand, part.size);
        Integers { address: source.address, step: source.pitch, size: part.size }
    }

    /// The integers of a part along the columns.
    #[inline(always)]
    pub(super) fn along_columns(&self, part: &Part) -> Integers {
        let source = self.source(&part.operand, part.size);
        Integers { address: source.address, step: source.by_column, size: part.size }
    }

    /// Addresses as strides, where the parts of these rows and columns step evenly.
    #[inline(always)]
    fn even(&self, address: &Address, (rows, columns): (usize, usize)) -> Option<Even> {
        let [first_row, by_row] = even_bytes(self.of_rows(address), address.size, rows)?;
        let [first_column, by_column] = even_bytes(self.of_columns(address), address.size, columns)?;
        let base = (self.get(address.base) as *mut u8).wrapping_offset(first_row).wrapping_offset(first_column);
        Some(Even { base, by_row, by_column })
    }

    /// Lists what is added to an address for each row and for each column, in bytes.
    pub(super) fn list_offsets(&mut self, address: &Address, (rows, columns): (usize, usize)) {
        let (of_rows, of_columns) = (self.of_rows(address), self.of_columns(address));
        list(&mut self.lists.rows, of_rows, address.size, rows);
        list(&mut self.lists.columns, of_columns, address.size, columns);
    }

    /// As [`Machine::list_offsets`], but where columns step evenly: then what is added for the first one, and from each to the next.
    pub(super) fn list_places(&mut self, address: &Address, (rows, columns): (usize, usize)) -> Option<[isize; 2]> {
        let (of_rows, of_columns) = (self.of_rows(address), self.of_columns(address));
        list(&mut self.lists.rows, of_rows, address.size, rows);
        let even = even_bytes(of_columns, address.size, columns);
        if even.is_none() {
            list(&mut self.lists.columns, of_columns, address.size, columns);
        }
        even
    }

    /// How addresses go on from row to row.
    #[inline(always)]
    fn of_rows(&self, address: &Address) -> Steps {
        let part = address.spread.rows.as_ref().map(|part| self.along_rows(part));
        (self.stride(address.spread.row_stride) as i64, part)
    }

    /// How addresses go on from column to column.
    #[inline(always)]
    fn of_columns(&self, address: &Address) -> Steps {
        let part = address.spread.columns.as_ref().map(|part| self.along_columns(part));
        (self.stride(address.spread.column_stride) as i64, part)
    }

    pub(super) unsafe fn load(
        &mut self,
        register: usize,
        address: &Address,
        extents: &Extents,
        full: (usize, usize),
        rest: Rest,
        direct: bool,
    ) {
        let (rows, columns) = self.extents(extents);
        let even = self.even(address, (rows, columns));
        let size = address.size as isize;
        let whole = matches!(rest, Rest::Unread) || (rows, columns) == full;
        if let Some(Even { base, by_column, .. }) = even
            && rows == 1
            && by_column == size
        {
            self.ahead.note(register, base, columns * address.size);
        }
        if let Some(Even { base, by_row, by_column }) = even
            && direct
            && whole
            && (by_column == size || by_column == 0 || columns <= 1)
        {
            let repeats = by_column == 0 && full.1 > 1;
            self.places[register] = RegisterMemory { address: base, pitch: by_row, repeats };
            return;
        }
        let pitch = (full.1 * address.size) as isize;
        let home = self.home(register);
        self.places[register] = RegisterMemory { address: home, pitch, repeats: false };
        // SAFETY: the register is as large as the full tile; device memory is valid inside the extents.
        unsafe {
            match even {
                Some(Even { base, by_row, by_column })
                    if goes_down(by_row, by_column, address.size, (rows, columns)) =>
                {
                    let from = (base as isize, by_column);
                    transpose(address.size, false, (columns, rows), (home as isize, pitch), from);
                }
                Some(Even { base, by_row, by_column }) => {
                    for row in 0..rows {
                        let (to, from) = (home.offset(pitch * row as isize), base.offset(by_row * row as isize));
                        memory::copy_strided(to, size, from, by_column, address.size, columns);
                    }
                }
                None => self.load_listed(home, pitch, address, (rows, columns)),
            }
            self.fill_rest((home, pitch), rest, (rows, columns), full, address.size);
        }
    }

    /// Loads row by row from addresses that do not step evenly.
    #[cold]
    unsafe fn load_listed(&mut self, home: *mut u8, pitch: isize, address: &Address, shape: (usize, usize)) {
        self.list_offsets(address, shape);
        let base = self.get(address.base) as *const u8;
        let size = address.size as isize;
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            // SAFETY: as in `load`.
            unsafe {
                let (to, from) = (home.offset(pitch * row as isize), base.wrapping_offset(by_row as isize));
                each_run(&self.lists.columns, size, |column, offset, count| {
                    let (to, from) = (to.offset(column as isize * size), from.wrapping_offset(offset));
                    copy_run(to, from, size, address.size, count);
                });
            }
        }
    }

    /// What a loaded tile holds outside of the rows and columns that are loaded.
    unsafe fn fill_rest(
        &self,
        (home, pitch): (*mut u8, isize),
        rest: Rest,
        (rows, columns): (usize, usize),
        full: (usize, usize),
        size: usize,
    ) {
        let other = match rest {
            _ if (rows, columns) == full => return,
            Rest::Unread => return,
            Rest::Zero => Source { address: ZERO.as_ptr(), pitch: 0, by_column: 0 },
            Rest::Other(other) => self.source(&other, size),
        };
        for row in 0..full.0 {
            let inside = if row < rows { columns } else { 0 };
            // SAFETY: the register is as large as the full tile.
            unsafe {
                let to = home.offset(pitch * row as isize).add(inside * size);
                let from = other.element(row, inside);
                memory::copy_strided(to, size as isize, from, other.by_column, size, full.1 - inside);
            }
        }
    }

    pub(super) unsafe fn store(&mut self, value: &Operand, address: &Address, extents: &Extents) {
        let (rows, columns) = self.extents(extents);
        let source = self.source(value, address.size);
        let size = address.size as isize;
        // SAFETY: the caller's addresses are valid inside the extents.
        unsafe {
            let Some(Even { base, by_row, by_column }) = self.even(address, (rows, columns)) else {
                return self.store_listed(&source, address, (rows, columns));
            };
            let by_column = if extents.columns.full == 1 { size } else { by_column };
            // Of elements that share a place the last one stays.
            let is_apart = by_column.unsigned_abs() >= rows * address.size;
            if source.by_column == size && is_apart && goes_down(by_row, by_column, address.size, (rows, columns)) {
                let (to, from) = ((base as isize, by_column), (source.address as isize, source.pitch));
                return transpose(address.size, false, (rows, columns), to, from);
            }
            for row in 0..rows {
                let to = base.offset(by_row * row as isize);
                memory::copy_strided(to, by_column, source.row(row), source.by_column, address.size, columns);
            }
        }
    }

    /// Stores row by row to addresses that do not step evenly.
    #[cold]
    unsafe fn store_listed(&mut self, source: &Source, address: &Address, shape: (usize, usize)) {
        self.list_offsets(address, shape);
        let base = self.get(address.base) as *mut u8;
        let size = address.size as isize;
        for (row, &by_row) in self.lists.rows.iter().enumerate() {
            let to = base.wrapping_offset(by_row as isize);
            each_run(&self.lists.columns, size, |column, offset, count| {
                // SAFETY: as in `store`.
                unsafe {
                    let (to, from) = (to.wrapping_offset(offset), source.element(row, column));
                    copy_run(to, from, source.by_column, address.size, count);
                }
            });
        }
    }
}

/// Whether neighbours in memory are the elements of a column, of so many that they are turned in registers.
#[inline(always)]
fn goes_down(by_row: isize, by_column: isize, size: usize, (rows, columns): (usize, usize)) -> bool {
    /// Rows and columns from which on that is worth it.
    const LEAST: usize = 4;
    by_row == size as isize && by_column != by_row && rows >= LEAST && columns >= LEAST
}

/// By how many elements the places of a line differ: a stride, and integers of a part, of which there is one for each place.
type Steps = (i64, Option<Integers>);

/// What is added for the first of `count` places, and from each to the next, in bytes, where that is always the same.
#[inline(always)]
fn even_bytes((stride, part): Steps, size: usize, count: usize) -> Option<[isize; 2]> {
    // SAFETY: parts have an integer for each row and each column of the tile.
    let [first, distance] = part.map_or(Some([0, 0]), |part| unsafe { part.evenly(count) })?;
    Some([first, stride.wrapping_add(distance)].map(|elements| elements.wrapping_mul(size as i64) as isize))
}

/// Copies a run to neighbours: where places are known one by one, most runs are one element, which takes less time than a call.
///
/// # Safety
/// As for [`memory::copy_strided`].
#[inline(always)]
pub(super) unsafe fn copy_run(to: *mut u8, from: *const u8, by_column: isize, size: usize, count: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match count {
            1 => copy_element(to, from, size),
            _ => memory::copy_strided(to, size as isize, from, by_column, size, count),
        }
    }
}

/// Lists what is added for each of `count` places, in bytes.
fn list(list: &mut Vec<i64>, (stride, part): Steps, size: usize, count: usize) {
    let (step, mut next) = (stride.wrapping_mul(size as i64), 0_i64);
    list.clear();
    list.resize_with(count, || {
        let offset = next;
        next = next.wrapping_add(step);
        offset
    });
    if let Some(part) = part {
        // SAFETY: parts have an integer for each row and each column of the tile.
        unsafe { part.add_to(list, 0, size as i64) };
    }
}

/// Calls `work` with the first index, the offset in bytes and the length of each run of neighbours.
#[inline(always)]
fn each_run(offsets: &[i64], size: isize, mut work: impl FnMut(usize, isize, usize)) {
    let mut begin = 0;
    while begin < offsets.len() {
        let mut end = begin + 1;
        while end < offsets.len() && offsets[end] == offsets[end - 1] + size as i64 {
            end += 1;
        }
        work(begin, offsets[begin] as isize, end - begin);
        begin = end;
    }
}
