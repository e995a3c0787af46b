//! Matrices packed for the micro-kernel: the left one in panels of a few rows, the right one in groups of a tile's columns.

use super::lanes::{EIGHT, Lanes, at_eight, at_level, has_eight, turn_rows_of_4};
use super::microkernel::{CHUNK, Kernels, Order, kernels};
use super::scratch;
use super::stored::{Stored, widen_lines};
use super::transpose::transpose;
use half::{bf16, f16};
use openmps_tile::DType;

/// How the rows of a left matrix are cut into panels: evenly, since a panel of one row would waste most of a tile of vectors.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    rows: usize,
    /// Rows of a panel at most, and numbers of each of its groups.
    pub height: usize,
    /// How many panels there are.
    pub count: usize,
    pub order: Order,
}

impl Panels {
    /// The panels of a matrix of float32, for the level in use.
    pub(crate) fn new(rows: usize) -> Panels {
        Panels::of(rows, kernels())
    }

    /// The panels of a matrix that these kernels read.
    pub(crate) fn of(rows: usize, kernels: &Kernels) -> Panels {
        let &Kernels { rows: height, order, .. } = kernels;
        Panels { rows, height, count: rows.div_ceil(height), order }
    }

    /// The first row of panel `p`, or the number of rows when there is no such panel.
    #[inline]
    pub(crate) fn start(&self, p: usize) -> usize {
        match self.order {
            Order::Terms => (p * self.rows).checked_div(self.count).unwrap_or(0),
            Order::Chunks => (p * self.height).min(self.rows),
        }
    }

    /// Elements of the packed matrix with this depth.
    pub(crate) fn packed_len(&self, depth: usize) -> usize {
        self.count * self.height * depth
    }

    /// Packs panels `first..last` of `depth` columns, multiplied by `factor`, to `packed` (which starts with panel `first`). The last numbers of a
    /// group of fewer rows are zero: no result has them, but they are multiplied where the right matrix is thin, and denormal ones slowly.
    ///
    /// # Safety
    /// `left + row * row_stride + column * column_stride` is readable for every row of these panels and column.
    pub(crate) unsafe fn pack(
        &self,
        (first, last): (usize, usize),
        left: *const f32,
        strides: (isize, isize),
        depth: usize,
        factor: f32,
        packed: &mut [f32],
    ) {
        if self.order == Order::Chunks {
            debug_assert!(factor == 1.0, "pairs of bfloat16 are not multiplied by a factor");
            // SAFETY: passed on to the caller.
            return unsafe { self.pack_chunks((first, last), left, strides, depth, packed) };
        }
        if strides.0 == 1 && self.rows.is_multiple_of(self.height) {
            let (from, packed) =
                (left.wrapping_add(self.start(first)), &mut packed[..(last - first) * self.height * depth]);
            // SAFETY: the caller's promise.
            unsafe { copy_panels((self.height, depth), from, strides.1, packed) };
            return scale(packed, factor);
        }
        for (p, panel) in (first..last).zip(packed.chunks_exact_mut((self.height * depth).max(1))) {
            let begin = self.start(p);
            let rows = self.start(p + 1) - begin;
            let from = left.wrapping_offset(begin as isize * strides.0);
            let there = self.start(last) - begin;
            // SAFETY: the caller's promise, for the rows of this panel and of those after it.
            unsafe { gather_among((depth, rows, there), self.height, from, (strides.1, strides.0), panel) };
            if rows < self.height {
                panel.chunks_exact_mut(self.height).for_each(|group| group[rows..].fill(0.0));
            }
            scale(panel, factor);
        }
    }

    /// [`Panels::pack`] in [`Order::Chunks`]; what stands in rows that are not there goes to no result.
    ///
    /// # Safety
    /// As [`Panels::pack`]; the depth is whole chunks.
    unsafe fn pack_chunks(
        &self,
        (first, last): (usize, usize),
        left: *const f32,
        (by_row, by_column): (isize, isize),
        depth: usize,
        packed: &mut [f32],
    ) {
        for (p, panel) in (first..last).zip(packed.chunks_exact_mut((self.height * depth).max(1))) {
            let begin = self.start(p);
            let rows = self.start(p + 1) - begin;
            let from = left.wrapping_offset(begin as isize * by_row);
            for (c, chunk) in panel.chunks_exact_mut(self.height * CHUNK).enumerate() {
                let from = from.wrapping_offset((c * CHUNK) as isize * by_column);
                if by_column == 1 {
                    for (row, line) in chunk.chunks_exact_mut(CHUNK).take(rows).enumerate() {
                        // SAFETY: the caller vouches for the row's numbers.
                        unsafe { copy::<CHUNK>(from.wrapping_offset(row as isize * by_row), line) };
                    }
                    continue;
                }
                if by_row == 1 {
                    // SAFETY: the caller vouches for so many columns of neighbours.
                    unsafe { turn_chunk(rows, from, by_column, chunk) };
                    continue;
                }
                for (i, to) in chunk[..rows * CHUNK].iter_mut().enumerate() {
                    let (row, column) = ((i / CHUNK) as isize, (i % CHUNK) as isize);
                    // SAFETY: the caller vouches for the number.
                    *to = unsafe { from.wrapping_offset(row * by_row + column * by_column).read() };
                }
            }
        }
    }

    /// [`Panels::pack`] of `depth` columns of a matrix of half precision, from this one on.
    ///
    /// # Safety
    /// The elements of these panels and columns are readable.
    pub(crate) unsafe fn pack_halves(
        &self,
        (first, last): (usize, usize),
        left: &Halves,
        (column, depth): (usize, usize),
        factor: f32,
        packed: &mut [f32],
    ) {
        // So many rows at once that the lines of a matrix that lies transposed are vectors, and no more than a cache keeps.
        let at_once = (WIDENED_ROWS / self.height).max(1);
        for from in (first..last).step_by(at_once) {
            let until = last.min(from + at_once);
            let (begin, rows) = (self.start(from), self.start(until) - self.start(from));
            let to = &mut packed[(from - first) * self.height * depth..];
            scratch::with(rows * depth, |wide: &mut [f32]| {
                // SAFETY: the caller's promise, for the rows of these panels, of which the copy holds all.
                unsafe {
                    let strides = left.widen((begin, column), (rows, depth), wide);
                    let origin = wide.as_ptr().wrapping_offset(-(begin as isize) * strides.0);
                    self.pack((from, until), origin, strides, depth, factor, to);
                }
            });
        }
    }
}

/// One chunk of a panel, of columns that lie `by_column` numbers apart and are so many neighbours each.
///
/// # Safety
/// [`CHUNK`] such columns are readable.
pub(crate) unsafe fn turn_chunk(rows: usize, from: *const f32, by_column: isize, chunk: &mut [f32]) {
    const SIZE: isize = size_of::<f32>() as isize;
    let to = (chunk[..rows * CHUNK].as_mut_ptr() as isize, CHUNK as isize * SIZE);
    // SAFETY: the caller's promise; the chunk has a line for each row.
    unsafe { transpose(size_of::<f32>(), false, (CHUNK, rows), to, (from as isize, by_column * SIZE)) };
}

fn scale(packed: &mut [f32], factor: f32) {
    if factor != 1.0 {
        packed.iter_mut().for_each(|value| *value *= factor);
    }
}

/// Panels of whole groups of a matrix that lies transposed: some side by side, so that a line of the matrix is read at once.
///
/// # Safety
/// Each of `depth` rows, `stride` apart from `from` on, has a group of every panel of `packed`.
unsafe fn copy_panels((height, depth): (usize, usize), from: *const f32, stride: isize, packed: &mut [f32]) {
    let panel = (height * depth).max(1);
    for (i, some) in packed.chunks_mut(AT_ONCE * panel).enumerate() {
        for k in 0..depth {
            let from = from.wrapping_offset(k as isize * stride).wrapping_add(i * AT_ONCE * height);
            for (p, panel) in some.chunks_exact_mut(panel).enumerate() {
                let (from, to) = (from.wrapping_add(p * height), &mut panel[k * height..][..height]);
                // SAFETY: the caller's promise.
                unsafe { copy_group(from, to) };
            }
        }
    }
}

/// Panels side by side of a matrix that lies transposed.
const AT_ONCE: usize = 8;

/// Rows that are widened before they are packed.
const WIDENED_ROWS: usize = 64;

/// Copies a `depth` x `columns` part of the right matrix to groups of `width` columns, of which each has `terms` rows; the rest of the last one, which
/// is there even of no columns, is zero.
///
/// # Safety
/// `right + row * row_stride + column * column_stride` is readable for these rows and columns; `width` is that of the level in use.
pub(crate) unsafe fn pack_right(
    right: *const f32,
    strides: (isize, isize),
    (depth, columns): (usize, usize),
    (width, terms): (usize, usize),
    packed: &mut [f32],
) {
    let whole = if strides.1 == 1 { columns / width } else { 0 };
    if whole > 0 {
        // SAFETY: the caller vouches for as many neighbours in each row.
        unsafe { copy_whole_groups(DType::F32, right as usize, strides.0, (depth, whole), (width, terms), packed) };
    }
    for group in whole..columns.div_ceil(width).max(1) {
        let count = width.min(columns - group * width);
        let (from, to) =
            (right.wrapping_offset((group * width) as isize * strides.1), &mut packed[group * terms * width..]);
        // SAFETY: the caller's promise.
        unsafe { gather((depth, count), width, from, strides, to) };
        if count < width {
            to.chunks_exact_mut(width).take(depth).for_each(|group| group[count..].fill(0.0));
        }
    }
}

/// A matrix of half precision, which packing widens.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    /// float16 or bfloat16.
    pub dtype: DType,
    /// The address of the first element.
    pub first: usize,
    /// From row to row, and from column to column.
    pub strides: [isize; 2],
}

impl Halves {
    /// The address of an element.
    fn at(&self, row: usize, column: usize) -> usize {
        let offset = row as isize * self.strides[0] + column as isize * self.strides[1];
        self.first.wrapping_add_signed(offset * self.dtype.size() as isize)
    }

    /// A dense copy in float32 of the part that begins in this row and column, in the order in which it lies; the copy's strides.
    ///
    /// # Safety
    /// The part's elements are readable; `wide` has room for them.
    unsafe fn widen(
        &self,
        (row, column): (usize, usize),
        (rows, columns): (usize, usize),
        wide: &mut [f32],
    ) -> (isize, isize) {
        let [by_row, by_column] = self.strides;
        let turned = by_row == 1 && by_column != 1;
        let (lines, length) = if turned { ([by_column, by_row], rows) } else { ([by_row, by_column], columns) };
        // SAFETY: the caller's promise.
        unsafe { widen_lines(self.dtype, self.at(row, column), lines, wide, length) };
        if turned { (1, rows as isize) } else { (columns as isize, 1) }
    }

    /// What [`pack_right`] does, for the part of the matrix that begins in this row and column.
    ///
    /// # Safety
    /// As [`pack_right`].
    pub(crate) unsafe fn pack(
        &self,
        (row, column): (usize, usize),
        (depth, columns): (usize, usize),
        (width, terms): (usize, usize),
        packed: &mut [f32],
    ) {
        let [by_row, by_column] = self.strides;
        let whole = if by_column == 1 { columns / width } else { 0 };
        if whole > 0 {
            let from = self.at(row, column);
            // SAFETY: the caller vouches for as many neighbours in each row.
            unsafe { copy_whole_groups(self.dtype, from, by_row, (depth, whole), (width, terms), packed) };
        }
        // The others are widened in the order in which they lie, a group at a time: its lines stay in a cache until they are packed.
        for group in whole..columns.div_ceil(width) {
            let count = width.min(columns - group * width);
            scratch::with(count * depth, |wide: &mut [f32]| {
                // SAFETY: the caller's promise about these columns.
                unsafe {
                    let strides = self.widen((row, column + group * width), (depth, count), wide);
                    let to = &mut packed[group * terms * width..];
                    pack_right(wide.as_ptr(), strides, (depth, count), (width, terms), to);
                }
            });
        }
    }
}

/// Rows of so many whole groups side by side: each row is read at once, however far apart the rows are.
///
/// # Safety
/// The matrix, of elements of `dtype`, has `groups` times `width` neighbours in each row; `width` is that of the level in use.
unsafe fn copy_whole_groups(
    dtype: DType,
    right: usize,
    by_row: isize,
    size @ (depth, groups): (usize, usize),
    (width, terms): (usize, usize),
    packed: &mut [f32],
) {
    let to = packed[..((groups - 1) * terms + depth) * width].as_mut_ptr();
    // SAFETY: `to` has room for the groups; the rest is the caller's promise.
    unsafe {
        at_level!(copy_rows(dtype: DType, right: usize, by_row: isize, size: (usize, usize), terms: usize, to: *mut f32));
    }
}

/// # Safety
/// As [`copy_whole_groups`]; `to` has room for the groups.
#[inline(always)]
unsafe fn copy_rows<V: Lanes>(
    dtype: DType,
    right: usize,
    by_row: isize,
    size: (usize, usize),
    terms: usize,
    to: *mut f32,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        match dtype {
            DType::F16 => copy_rows_of::<V, f16>(right as *const f16, by_row, size, terms, to),
            DType::BF16 => copy_rows_of::<V, bf16>(right as *const bf16, by_row, size, terms, to),
            _ => copy_rows_of::<V, f32>(right as *const f32, by_row, size, terms, to),
        }
    }
}

/// # Safety
/// As [`copy_rows`].
#[inline(always)]
unsafe fn copy_rows_of<V: Lanes, T: Stored>(
    right: *const T,
    by_row: isize,
    (depth, groups): (usize, usize),
    terms: usize,
    to: *mut f32,
) {
    let width = 2 * V::N;
    for k in 0..depth {
        let row = right.wrapping_offset(k as isize * by_row);
        for group in 0..groups {
            // SAFETY: the caller vouches for `groups` times two vectors in each row, and for the room.
            unsafe {
                let from = row.add(group * width);
                V::prefetch(from.wrapping_offset(AHEAD * by_row).cast());
                V::prefetch(from.wrapping_offset(AHEAD * by_row).wrapping_add(V::N).cast());
                let to = to.add((group * terms + k) * width);
                T::load::<V>(from).store(to);
                T::load::<V>(from.add(V::N)).store(to.add(V::N));
            }
        }
    }
}

/// Rows that are asked for ahead of the one that is copied: no hardware foresees steps of more than a page.
const AHEAD: isize = 4;

/// Rows that [`transpose`] turns at once.
const SQUARE: usize = 4;

/// Copies `groups` times `count` numbers, `by_group` and `by_one` apart, to groups of `width`.
///
/// # Safety
/// The numbers are readable; `count <= width`.
pub(crate) unsafe fn gather(
    (groups, count): (usize, usize),
    width: usize,
    from: *const f32,
    strides: (isize, isize),
    packed: &mut [f32],
) {
    // SAFETY: the caller's promise.
    unsafe { gather_among((groups, count, count), width, from, strides, packed) };
}

/// The same of groups of which `there` numbers are readable, `count` of them wanted.
///
/// # Safety
/// As [`gather`]; `count <= there`.
unsafe fn gather_among(
    (groups, count, there): (usize, usize, usize),
    width: usize,
    from: *const f32,
    (by_group, by_one): (isize, isize),
    packed: &mut [f32],
) {
    let packed = &mut packed[..groups * width];
    if by_group == 1 {
        // SAFETY: the caller's promise.
        let done = unsafe { turn_eights((groups, count, there), width, from, by_one, packed) };
        let (groups, from, packed) = (groups - done, from.wrapping_add(done), &mut packed[done * width..]);
        let to = (packed.as_mut_ptr() as isize, (size_of::<f32>() * width) as isize);
        let from = (from as isize, size_of::<f32>() as isize * by_one);
        let rows = |first: usize, count: usize| {
            let (to, from) =
                ((to.0 + (size_of::<f32>() * first) as isize, to.1), (from.0 + from.1 * first as isize, from.1));
            // SAFETY: the caller vouches for `count` rows of `groups` neighbours, and `packed` has a group for each of those.
            unsafe { transpose(size_of::<f32>(), false, (count, groups), to, from) }
        };
        // Rows beyond whole squares go with some that have gone before, so that all go through vectors.
        let rest = if count > SQUARE { count % SQUARE } else { 0 };
        rows(0, count - rest);
        if rest > 0 {
            rows(count - SQUARE, SQUARE);
        }
        return;
    }
    for (k, group) in packed.chunks_exact_mut(width).enumerate() {
        let from = from.wrapping_offset(k as isize * by_group);
        // SAFETY: the caller's promise; a group has room for `width` numbers.
        unsafe {
            match (by_one, count) {
                (1, _) => copy_group(from, &mut group[..count]),
                _ => group[..count].iter_mut().enumerate().for_each(|(j, to)| *to = *from.offset(j as isize * by_one)),
            }
        }
    }
}

/// Copies neighbours.
///
/// # Safety
/// There are as many as the group has.
#[inline]
unsafe fn copy_group(from: *const f32, group: &mut [f32]) {
    // SAFETY: the caller's promise.
    unsafe {
        match group.len() {
            // Sizes that are known copy with a few instructions.
            8 => copy::<8>(from, group),
            6 => copy::<6>(from, group),
            len => from.copy_to_nonoverlapping(group.as_mut_ptr(), len),
        }
    }
}

/// Bytes of a page.
const PAGE: isize = 4096;

/// What [`gather_among`] does for groups of neighbours, eight rows at a time, as far as the CPU has registers of eight; how many groups are done.
///
/// # Safety
/// As [`gather_among`].
unsafe fn turn_eights(
    (groups, count, there): (usize, usize, usize),
    width: usize,
    from: *const f32,
    by_one: isize,
    packed: &mut [f32],
) -> usize {
    // Rows a multiple of a page apart share the first-level cache's eight ways with what is written; squares of four are turned line by line.
    if (by_one * size_of::<f32>() as isize) % PAGE == 0 {
        return 0;
    }
    let blocks = count.div_ceil(EIGHT);
    // What one block of eight writes past a group's numbers, the next group's overwrites; so the last group is left out, and several blocks are within
    // their group.
    let fits = there >= blocks * EIGHT && (blocks <= 1 || blocks * EIGHT <= width);
    if !has_eight() || !fits || by_one < 0 || groups == 0 {
        return 0;
    }
    let done = (groups - 1) / SQUARE * SQUARE;
    let (to, by_one) = (packed.as_mut_ptr(), by_one as usize);
    for block in (0..blocks * EIGHT).step_by(EIGHT) {
        let (from, to) = (from.wrapping_add(block * by_one), to.wrapping_add(block));
        // SAFETY: there are eight rows of `groups` numbers; the groups before the last one have room for them and for two that follow.
        unsafe { at_eight!(turn(done: usize, width: usize, from: *const f32, by_one: usize, to: *mut f32)) };
    }
    done
}

/// Turns a register of rows: `to[k * width + i] = from[i * by_one + k]`, for groups that are a multiple of [`SQUARE`].
///
/// # Safety
/// As many rows of `groups` numbers are readable, and a register is writable at each group.
#[inline(always)]
unsafe fn turn<V: Lanes>(groups: usize, width: usize, from: *const f32, by_one: usize, to: *mut f32) {
    for k in (0..groups).step_by(SQUARE) {
        // SAFETY: the caller's promise.
        unsafe { turn_rows_of_4::<V>(from.add(k), by_one, to.add(k * width), width) };
    }
}

/// # Safety
/// `from` has N readable numbers.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const f32, to: &mut [f32]) {
    // SAFETY: the caller's promise.
    to[..N].copy_from_slice(unsafe { &*from.cast::<[f32; N]>() });
}
