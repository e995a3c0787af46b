//! Packs operands of products as a whole, by all threads: a sum's terms are cut into parts, of which each is packed on its own.

use crate::native::Shared;
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel::{CHUNK, Kernels, kernels};
use crate::native::pairs;
use crate::native::panels::{Halves, Panels, pack_right};
use crate::threads::parallel_for;

/// An operand: its first element and its strides (from row to row, from column to column), the same of half precision, or what [`pack_left`] or
/// [`pack_right_whole`] made of it.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    Strided(*const f32, [isize; 2]),
    Halves(Halves),
    /// Pairs of bfloat16 that are woven as they are packed.
    Pairs(pairs::Halves),
    Packed(&'a [f32]),
}

// SAFETY: what shares an operand reads its elements, which nobody writes.
unsafe impl Sync for Operand<'_> {}

impl Operand<'_> {
    /// Packs panels of a left matrix, `terms` columns of it from this one on, as [`Panels::pack`] does.
    ///
    /// # Safety
    /// The elements of these panels and columns are readable.
    pub unsafe fn pack_left(
        &self,
        (panels, which): (Panels, (usize, usize)),
        (from, terms): (usize, usize),
        factor: f32,
        to: &mut [f32],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Operand::Strided(left, [by_row, by_column]) => {
                    let left = left.wrapping_offset(from as isize * by_column);
                    panels.pack(which, left, (*by_row, *by_column), terms, factor, to);
                }
                Operand::Halves(halves) => panels.pack_halves(which, halves, (from, terms), factor, to),
                Operand::Pairs(halves) => halves.pack_panels((panels, which), (from, terms), to),
                Operand::Packed(_) => unreachable!("it is packed"),
            }
        }
    }

    /// Packs part of a right matrix, from this row and column on, as [`pack_right`] does.
    ///
    /// # Safety
    /// The part's elements are readable.
    pub unsafe fn pack_right(
        &self,
        (row, column): (usize, usize),
        size: (usize, usize),
        groups: (usize, usize),
        to: &mut [f32],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Operand::Strided(right, [by_row, by_column]) => {
                    let from = right.wrapping_offset(row as isize * by_row + column as isize * by_column);
                    pack_right(from, (*by_row, *by_column), size, groups, to);
                }
                Operand::Halves(halves) => halves.pack((row, column), size, groups, to),
                Operand::Pairs(halves) => halves.pack_groups((row, column), size, groups, to),
                Operand::Packed(_) => unreachable!("it is packed"),
            }
        }
    }
}

/// The parts that a sum is cut into: about equal ones, since a short last one would cost a whole pass over the result.
#[derive(Clone, Copy)]
pub struct Parts {
    pub depth: usize,
    pub count: usize,
}

impl Parts {
    pub fn new(depth: usize, kernels: &Kernels) -> Parts {
        Parts { depth, count: depth.div_ceil(kernels.depth).max(1) }
    }

    /// The first term of part `i` and their number: whole chunks of a panel, but for what the last part has left over.
    pub fn get(self, i: usize) -> (usize, usize) {
        let start = |i: usize| if i < self.count { i * self.depth / self.count / CHUNK * CHUNK } else { self.depth };
        (start(i), start(i + 1) - start(i))
    }

    pub fn longest(self) -> usize {
        (0..self.count).map(|i| self.get(i).1).max().unwrap_or(0)
    }
}

/// Numbers of a packed left matrix.
pub(crate) fn left_len(rows: usize, depth: usize) -> usize {
    Panels::new(rows).packed_len(depth)
}

/// Numbers of a packed right matrix.
pub(crate) fn right_len(depth: usize, columns: usize) -> usize {
    columns.next_multiple_of(kernels().width) * depth
}

/// Packs a left matrix as a whole, for these kernels: part by part, panel by panel.
///
/// # Safety
/// The matrix's elements are readable.
pub(crate) unsafe fn pack_left(
    kernels: &Kernels,
    (rows, depth): (usize, usize),
    left: Operand,
    factor: f32,
    packed: &mut [f32],
) {
    let (panels, parts) = (Panels::of(rows, kernels), Parts::new(depth, kernels));
    let (packed, left) = (Shared::new(packed), &left);
    parallel_for(parts.count * panels.count, panels.height * parts.longest() / 8, |begin, end| {
        let mut task = begin;
        while task < end {
            let (panel, (from, terms)) = (task % panels.count, parts.get(task / panels.count));
            let count = (panels.count - panel).min(end - task);
            task += count;
            // SAFETY: this task alone has the panels; their elements lie in the matrix.
            unsafe {
                let to =
                    packed.part((from * panels.count + panel * terms) * panels.height, count * terms * panels.height);
                left.pack_left((panels, (panel, panel + count)), (from, terms), factor, to);
            }
        }
    });
}

/// Packs a right matrix as a whole, for these kernels: part by part, group by group.
///
/// # Safety
/// The matrix's elements are readable.
pub(crate) unsafe fn pack_right_whole(
    kernels: &Kernels,
    (depth, columns): (usize, usize),
    right: Operand,
    packed: &mut [f32],
) {
    let (width, parts) = (kernels.width, Parts::new(depth, kernels));
    let groups = columns.div_ceil(width);
    let (packed, right) = (Shared::new(packed), &right);
    parallel_for(parts.count * groups, width * parts.longest() / 8, |begin, end| {
        let mut task = begin;
        while task < end {
            let (group, (from, terms)) = (task % groups, parts.get(task / groups));
            let count = (groups - group).min(end - task);
            task += count;
            // SAFETY: this task alone has the groups; their elements lie in the matrix.
            unsafe {
                let to = packed.part((from * groups + group * terms) * width, count * terms * width);
                let columns = (count * width).min(columns - group * width);
                right.pack_right((from, group * width), (terms, columns), (width, terms), to);
            }
        }
    });
}

/// Packs a right matrix of which the caller makes `at_once` rows at a time: `rows(i, write)` calls `write(j, row)` for j below `at_once` with row
/// `i * at_once + j`, which has whole groups.
pub(crate) fn fill_right(
    (depth, columns): (usize, usize),
    at_once: usize,
    packed: &mut [f32],
    rows: impl Fn(usize, &mut dyn FnMut(usize, &[f32])) + Sync,
) {
    let (width, parts) = (kernels().width, Parts::new(depth, kernels()));
    let groups = columns.div_ceil(width);
    assert!(depth.is_multiple_of(at_once) && packed.len() == groups * width * depth);
    // The part of each row, from which its place follows.
    let part_of = |k: usize| (0..parts.count).map(|i| parts.get(i)).find(|(from, terms)| k < from + terms);
    let packed = Shared::new(packed);
    parallel_for(depth / at_once, at_once * columns / 4, |begin, end| {
        for i in begin..end {
            rows(i, &mut |j, row| {
                let k = i * at_once + j;
                let Some((from, terms)) = part_of(k) else { return };
                assert!(row.len() >= groups * width);
                let (row, size, step) = (row.as_ptr(), (groups, width), terms * width);
                let to = packed.at((from * groups + k - from) * width);
                // SAFETY: the row has whole groups; this task alone writes them as row `k`, and all lie in the packed matrix.
                unsafe { at_level!(spread(row: *const f32, size: (usize, usize), to: *mut f32, step: usize)) };
            });
        }
    });
}

/// Copies groups of `width` numbers, which follow each other, to places that lie `step` numbers apart. A group is whole vectors.
#[inline(always)]
unsafe fn spread<V: Lanes>(from: *const f32, (groups, width): (usize, usize), to: *mut f32, step: usize) {
    for group in 0..groups {
        for i in (0..width).step_by(V::N) {
            // SAFETY: the caller vouches for the groups on both sides.
            unsafe { V::load(from.add(group * width + i)).store(to.add(group * step + i)) };
        }
    }
}
