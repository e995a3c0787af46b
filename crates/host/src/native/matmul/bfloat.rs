//! Products of bfloat16 by instructions that multiply pairs of it and add them up in float32 (`vdpbf16ps` of AVX-512 BF16): twice the terms of
//! float32's for each instruction, from half the memory. To these instructions subnormal factors and sums, below 1.2e-38, are zero.
//!
//! Two terms of a sum that follow each other are one number of 32 bits of the packed product. Where they are neighbours in memory they are read in
//! place; else two lines are woven into one.

use super::{Matrices, MatrixProduct};
use crate::level::multiplies_bfloats;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel::{Channels, Terms};
use crate::native::product::{Operand, Product};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Of fewer rows or columns the kernels that read a matrix where it lies are faster: 8 x 2048 by 2048 x 2048 took 0.36 to 0.50 ms there and 0.45 to
/// 0.59 here, 16 rows 0.81 to 0.93 and 0.57 to 0.75 (Zen 4).
const FEWEST: usize = 16;
/// Fewer terms than these are not worth weaving.
const SHORTEST: usize = 16;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    multiplies_bfloats() && product.rows.min(product.columns) >= FEWEST && product.depth >= SHORTEST
}

/// Computes one batch, without the factor of the product; the result is float32 and dense. Offsets are in elements.
///
/// # Safety
/// As `linear`, for one batch of bfloat16 that [`takes`] has accepted.
pub(super) unsafe fn run(
    product: &MatrixProduct,
    at: Matrices,
    [left, right, out]: [isize; 3],
    epilogue: Option<&Epilogue>,
) {
    let (rows, depth, columns) = (product.rows, product.depth, product.columns);
    let side = |address: usize, offset: isize, lines: usize, [by_line, by_term]: [isize; 2]| {
        let from = (address as *const u16).wrapping_offset(offset);
        Lines { from, lines, terms: depth, by_line, by_term }
    };
    let left = side(at.left, left, rows, product.left);
    let right = side(at.right, right, columns, [product.right[1], product.right[0]]);
    scratch::with(left.woven_len() + right.woven_len(), |woven: &mut [f32]| {
        let (for_left, for_right) = woven.split_at_mut(left.woven_len());
        // SAFETY: the caller vouches for the operands' elements; the copies have room for them.
        let ((left, [by_row, by_pair]), (right, [by_column, by_right_pair])) =
            unsafe { (left.pairs(for_left), right.pairs(for_right)) };
        let product = Product {
            rows,
            depth: depth.div_ceil(2),
            columns,
            terms: Terms::BfloatPairs,
            left: Operand::Strided(left, [by_row, by_pair]),
            right: Operand::Strided(right, [by_right_pair, by_column]),
            factor: 1.0,
            out: (at.out as *mut f32).wrapping_offset(out),
            out_stride: columns,
            accumulate: false,
            epilogue,
            channels: Channels::Columns(0),
            index: out as usize,
        };
        // SAFETY: the operands are there as pairs, the result is dense.
        unsafe { product.run() };
    });
}

/// An operand: lines of terms, which are rows of the left matrix and columns of the right one.
#[derive(Clone, Copy)]
struct Lines {
    from: *const u16,
    lines: usize,
    terms: usize,
    /// From one line to the next, and from one term to the next.
    by_line: isize,
    by_term: isize,
}

// SAFETY: tasks read the operand's elements, which nobody writes.
unsafe impl Sync for Lines {}

impl Lines {
    /// Whether pairs of terms are numbers of 32 bits as they lie.
    fn in_place(&self) -> bool {
        let even = self.terms.is_multiple_of(2) && self.by_line % 2 == 0;
        self.by_term == 1 && even && self.from.addr().is_multiple_of(align_of::<f32>())
    }

    /// Numbers of a copy as pairs; none where there is to be no copy.
    fn woven_len(&self) -> usize {
        if self.in_place() { 0 } else { self.lines * self.terms.div_ceil(2) }
    }

    /// The first pair, and the strides from one line to the next and from one pair to the next: in place, or of a copy in `to`.
    ///
    /// # Safety
    /// The elements are readable; `to` has [`Lines::woven_len`] numbers.
    unsafe fn pairs(&self, to: &mut [f32]) -> (*const f32, [isize; 2]) {
        if self.in_place() {
            return (self.from.cast(), [self.by_line / 2, 1]);
        }
        let strides = [1, self.lines as isize];
        let to = Shared::new(to);
        parallel_for(self.terms.div_ceil(2), self.lines / 8 + 1, |begin, end| {
            for pair in begin..end {
                // SAFETY: these pairs are this task's; the caller vouches for the elements.
                unsafe { self.weave(pair, to.part(pair * self.lines, self.lines)) };
            }
        });
        (to.at(0).cast_const(), strides)
    }

    /// One pair of terms of every line; a term that is not there is zero.
    ///
    /// # Safety
    /// The elements are readable; `to` has a number for each line.
    unsafe fn weave(&self, pair: usize, to: &mut [f32]) {
        let low = self.from.wrapping_offset(2 * pair as isize * self.by_term);
        let high = (2 * pair + 1 < self.terms).then(|| low.wrapping_offset(self.by_term));
        let by_line = self.by_line;
        // SAFETY: the caller's promise; `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(woven(low: *const u16, high: Option<*const u16>, by_line: isize, to: &mut [f32])) };
    }
}

/// # Safety
/// Both lines have an element for each number of `to`, `by_line` apart.
#[inline(always)]
unsafe fn woven<V: Lanes>(low: *const u16, high: Option<*const u16>, by_line: isize, to: &mut [f32]) {
    let pair = |low: u16, high: u16| f32::from_bits(u32::from(low) | u32::from(high) << 16);
    // SAFETY: the caller's promise, for each element.
    unsafe {
        match high {
            Some(high) if by_line == 1 => {
                // Loops over neighbours become vectors.
                for (i, to) in to.iter_mut().enumerate() {
                    *to = pair(*low.add(i), *high.add(i));
                }
            }
            _ => {
                for (i, to) in to.iter_mut().enumerate() {
                    let at = i as isize * by_line;
                    *to = pair(*low.offset(at), high.map_or(0, |high| *high.offset(at)));
                }
            }
        }
    }
}
