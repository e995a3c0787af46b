//! Products of bfloat16 by instructions that multiply pairs of it and add them up in float32: twice the terms of float32's for each of AVX-512 BF16
//! (`vdpbf16ps`), from half the memory; tiles of them by AMX. To these instructions subnormal factors and sums, below 1.2e-38, are zero.

use super::{Matrices, MatrixProduct, Side};
use crate::level::bfloats_at_once;
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Channels, Terms};
use crate::native::pairs::Halves;
use crate::native::product::{Goal, Operand, Product};

/// Of fewer rows or columns the kernels that read a matrix where it lies are faster: 8 x 2048 by 2048 x 2048 took 0.36 to 0.50 ms there and 0.45 to
/// 0.59 here, 16 rows 0.81 to 0.93 and 0.57 to 0.75 (Zen 4).
const FEWEST: usize = 16;
/// Fewer terms than these are not worth weaving.
const SHORTEST: usize = 16;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    bfloats_at_once().is_some() && product.rows.min(product.columns) >= FEWEST && product.depth >= SHORTEST
}

/// Computes one batch, without the factor of the product; the result is float32 and dense. Offsets are in elements.
///
/// # Safety
/// As `linear`, for one batch of bfloat16 that [`takes`] has accepted.
pub(super) unsafe fn run(
    product: &MatrixProduct,
    at: Matrices,
    [left, right, out]: [isize; 3],
    goal: Option<Goal>,
    epilogue: Option<&Epilogue>,
) {
    let (first, stride) = ((at.out as *mut f32).wrapping_offset(out), product.columns);
    let goal = goal.unwrap_or(Goal::Memory { first, stride, accumulate: false });
    let (rows, depth, columns) = (product.rows, product.depth, product.columns);
    let side = |address: usize, offset: isize, lines: usize, [by_line, by_term]: [isize; 2]| {
        let from = (address as *const u16).wrapping_offset(offset);
        Halves { from, lines, terms: depth, by_line, by_term }
    };
    let left = side(at.left, left, rows, product.left);
    let right = side(at.right, right, columns, [product.right[1], product.right[0]]);
    let pairs = left.pairs();
    // SAFETY: the caller vouches for the operands' elements, which are there as pairs then; the result is dense.
    unsafe {
        with_operand(&left, Side::Left, |left| {
            with_operand(&right, Side::Right, |right| {
                let product = Product {
                    rows,
                    depth: pairs,
                    columns,
                    terms: Terms::BfloatPairs,
                    left,
                    right,
                    factor: 1.0,
                    goal,
                    epilogue,
                    channels: Channels::Columns(0),
                    index: out as usize,
                };
                product.run();
            });
        });
    }
}

/// Calls `work` with an operand: in place where pairs are numbers as they lie, to be woven as they are packed where lines are neighbours, else of a copy, which
/// does not last longer.
///
/// # Safety
/// The elements are readable.
unsafe fn with_operand(halves: &Halves, side: Side, work: impl FnOnce(Operand)) {
    if halves.by_line == 1 && !halves.in_place() {
        return work(Operand::Pairs(*halves));
    }
    // SAFETY: the caller's promise.
    unsafe {
        halves.with_pairs(|first, [by_line, by_pair]| {
            work(Operand::Strided(first, if side == Side::Left { [by_line, by_pair] } else { [by_pair, by_line] }));
        });
    }
}
