//! Products of bfloat16 by instructions that multiply pairs of it and add them up in float32 (`vdpbf16ps` of AVX-512 BF16): twice the terms of
//! float32's for each instruction, from half the memory. To these instructions subnormal factors and sums, below 1.2e-38, are zero.

use super::{Matrices, MatrixProduct};
use crate::level::multiplies_bfloats;
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Channels, Terms};
use crate::native::pairs::Halves;
use crate::native::product::{Operand, Product};

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
        Halves { from, lines, terms: depth, by_line, by_term }
    };
    let left = side(at.left, left, rows, product.left);
    let right = side(at.right, right, columns, [product.right[1], product.right[0]]);
    // SAFETY: the caller vouches for the operands' elements, which are there as pairs then; the result is dense.
    unsafe {
        left.with_pairs(|left, by_left| {
            right.with_pairs(|right, [by_column, by_pair]| {
                let product = Product {
                    rows,
                    depth: depth.div_ceil(2),
                    columns,
                    terms: Terms::BfloatPairs,
                    left: Operand::Strided(left, by_left),
                    right: Operand::Strided(right, [by_pair, by_column]),
                    factor: 1.0,
                    out: (at.out as *mut f32).wrapping_offset(out),
                    out_stride: columns,
                    accumulate: false,
                    epilogue,
                    channels: Channels::Columns(0),
                    index: out as usize,
                };
                product.run();
            });
        });
    }
}
