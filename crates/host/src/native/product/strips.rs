//! Strips of an operand: how large they are, where they are read, and where their sums are added up.

use super::goal::Goal;
use super::packing::{Operand, Parts};
use crate::native::microkernel::{Kernels, MOST_COLUMNS, Order};

/// Bytes of a right matrix that stays in the first-level cache as it lies.
const SMALL: usize = 16 << 10;
/// Panels for which packing takes longer than it saves, as long as a group's rows do not all fall into a few sets of the first-level cache: of a matrix
/// that the third-level cache keeps twice as many, of one that the second keeps any number.
const FEW_PANELS: usize = 4;
/// Strips of a right matrix that the second-level cache keeps, and of one that the third does.
const STRIPS_OF_SECOND: usize = 2;
const STRIPS_OF_THIRD: usize = 8;
/// Bytes of a line of the first-level cache, its sets, and the lines of a set that are for these rows: of eight.
const LINE: usize = 64;
const SETS: usize = 64;
const WAYS: usize = 6;

/// Numbers of a strip, so that it takes less than half of the second-level cache: of that, CPUs with AVX-512 have 1 MB at least, others 512 KB, and
/// those with a matrix unit 2 MB.
pub fn numbers_of_a_strip(kernels: &Kernels) -> usize {
    match kernels.order {
        Order::Chunks => 192 << 10,
        Order::Terms if kernels.width == MOST_COLUMNS => 128 << 10,
        Order::Terms => 48 << 10,
    }
}

/// Places of the first-level cache that lines so many bytes apart fall into.
fn sets_of_rows(bytes: usize) -> usize {
    let lines = bytes / LINE;
    if bytes.is_multiple_of(LINE) && lines > 0 {
        SETS >> lines.trailing_zeros().min(SETS.trailing_zeros())
    } else {
        SETS
    }
}

/// Whether whole groups of columns are best read where they lie: they are read once or a few times, or come from a near cache. Of rows that are a
/// multiple of a page apart few stay in the first one. (Images of 7 to 112 pixels' sides take 10 to 25 % less time so, matrices of some megabytes 3 to
/// 10 % more.)
pub fn in_place(right: &Operand, kernels: &Kernels, parts: Parts, panels: usize) -> bool {
    let Operand::Strided(_, [by_row, by_column]) = *right else { return false };
    let bytes = by_row.unsigned_abs() * size_of::<f32>();
    let whole = bytes.saturating_mul(parts.depth);
    let once = panels == 1 && !bytes.is_multiple_of(2048);
    let strip = numbers_of_a_strip(kernels) * size_of::<f32>();
    let (most, sets) = match whole {
        _ if whole <= STRIPS_OF_SECOND * strip => (usize::MAX, 4),
        _ if whole <= STRIPS_OF_THIRD * strip => (2 * FEW_PANELS, 4),
        _ => (FEW_PANELS, 8),
    };
    let spread = sets_of_rows(bytes) >= sets || parts.longest() <= WAYS * sets_of_rows(bytes);
    let few = panels <= most && spread;
    by_column == 1 && by_row >= 0 && (once || few || whole <= SMALL)
}

/// Groups of a strip side by side, of which the last one may have fewer columns.
#[derive(Clone, Copy)]
pub struct Run {
    pub groups: (usize, usize),
    /// The first number of the first group's first row.
    pub first: *const f32,
    /// From one row to the next, and from one group to the next.
    pub stride: usize,
    pub step: usize,
}

impl Run {
    /// Of no groups.
    pub const NONE: Run = Run { groups: (0, 0), first: std::ptr::null(), stride: 0, step: 0 };

    pub fn at(&self, group: usize) -> *const f32 {
        self.first.wrapping_add((group - self.groups.0) * self.step)
    }
}

/// Where sums are added up: the first one of some row and column.
#[derive(Clone, Copy)]
pub struct Sums {
    pub first: *mut f32,
    /// From one row to the next; columns are neighbours.
    pub stride: usize,
    /// Whether they are added to what is there, from their first part on.
    pub accumulate: bool,
    pub origin: (usize, usize),
}

impl Sums {
    /// The same memory for the sums from this row and column on, unless it is the result's.
    pub fn from(self, origin: (usize, usize), goal: Goal) -> Sums {
        match goal {
            Goal::Memory { .. } => self,
            Goal::Parts(_) => Sums { origin, ..self },
        }
    }

    pub fn at(&self, row: usize, column: usize) -> *mut f32 {
        self.first.wrapping_add((row - self.origin.0) * self.stride + column - self.origin.1)
    }
}
