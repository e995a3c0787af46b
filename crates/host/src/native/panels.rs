//! Matrices packed for the micro-kernel: the left one in panels of a few rows, the right one in groups of a tile's columns.

use super::lanes::{Lanes, at_level};
use super::microkernel::kernels;
use super::transpose::transpose;

/// How the rows of a left matrix are cut into panels: evenly, since a panel of one row would waste most of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    rows: usize,
    /// Rows of a panel at most, and numbers of each of its groups.
    pub height: usize,
    /// How many panels there are.
    pub count: usize,
}

impl Panels {
    /// The panels of a matrix, for the level in use.
    pub(crate) fn new(rows: usize) -> Panels {
        let height = kernels().rows;
        Panels { rows, height, count: rows.div_ceil(height) }
    }

    /// The first row of panel `p`, or the number of rows when there is no such panel.
    #[inline]
    pub(crate) fn start(&self, p: usize) -> usize {
        (p * self.rows).checked_div(self.count).unwrap_or(0)
    }

    /// Elements of the packed matrix with this depth.
    pub(crate) fn packed_len(&self, depth: usize) -> usize {
        self.count * self.height * depth
    }

    /// Packs panels `first..last` of `depth` columns, multiplied by `factor`, to `packed` (which starts with panel `first`). The last numbers of a
    /// group of fewer rows are left as they are; no tile reads them.
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
        for (p, panel) in (first..last).zip(packed.chunks_exact_mut((self.height * depth).max(1))) {
            let begin = self.start(p);
            let rows = self.start(p + 1) - begin;
            let from = left.wrapping_offset(begin as isize * strides.0);
            // SAFETY: the caller's promise, for the rows of this panel.
            unsafe { gather((depth, rows), self.height, from, (strides.1, strides.0), panel) };
            if factor != 1.0 {
                panel.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

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
        let (by_row, size) = (strides.0, (depth, whole));
        let to = packed[..((whole - 1) * terms + depth) * width].as_mut_ptr();
        // SAFETY: `to` has room for the groups; the caller vouches for as many neighbours in each row.
        unsafe {
            at_level!(copy_rows(right: *const f32, by_row: isize, size: (usize, usize), terms: usize, to: *mut f32))
        };
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

/// Rows of so many whole groups side by side: each row is read at once, however far apart the rows are.
#[inline(always)]
unsafe fn copy_rows<V: Lanes>(
    right: *const f32,
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
                V::prefetch(from.wrapping_offset(AHEAD * by_row));
                V::prefetch(from.wrapping_offset(AHEAD * by_row).wrapping_add(V::N));
                let to = to.add((group * terms + k) * width);
                V::load(from).store(to);
                V::load(from.add(V::N)).store(to.add(V::N));
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
    (by_group, by_one): (isize, isize),
    packed: &mut [f32],
) {
    let packed = &mut packed[..groups * width];
    if by_group == 1 {
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
                // Sizes that are known copy with a few instructions.
                (1, 8) => copy::<8>(from, group),
                (1, 6) => copy::<6>(from, group),
                (1, _) => from.copy_to_nonoverlapping(group.as_mut_ptr(), count),
                _ => group[..count].iter_mut().enumerate().for_each(|(j, to)| *to = *from.offset(j as isize * by_one)),
            }
        }
    }
}

/// # Safety
/// `from` has N readable numbers.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const f32, to: &mut [f32]) {
    // SAFETY: the caller's promise.
    to[..N].copy_from_slice(unsafe { &*from.cast::<[f32; N]>() });
}
