//! Large float32 products: from packed parts ([`crate::native::product`]).

use super::{Matrices, MatrixProduct};
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Channels, Terms};
use crate::native::panels::Halves;
use crate::native::product::{Operand, Product};
use openmps_tile::DType;

/// Fewer rows or columns than these leave most of a tile empty.
const FEWEST: usize = 6;

/// Whether [`run`] takes this product: its result or its transpose has rows of neighbouring elements, and beta is 0 or 1.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    let neighbours = product.out[1] == 1 || product.out[0] == 1;
    neighbours && (product.beta == 0.0 || product.beta == 1.0) && product.rows.min(product.columns) >= FEWEST
}

/// Computes one batch; offsets are in elements.
///
/// # Safety
/// As `matmul` or, with an epilogue, `linear`, for one batch of float32 that [`takes`] has accepted.
pub(super) unsafe fn run(
    product: &MatrixProduct,
    at: Matrices,
    [left, right, out]: [isize; 3],
    epilogue: Option<&Epilogue>,
) {
    if product.out[1] != 1 {
        debug_assert!(epilogue.is_none(), "what follows a product is for dense results");
        let at = Matrices { left: at.right, right: at.left, out: at.out };
        // SAFETY: the transposed product: the same elements by other names.
        return unsafe { run(&product.transposed(), at, [right, left, out], epilogue) };
    }
    let from = |address: usize, offset: isize| (address as *const f32).wrapping_offset(offset);
    let right = Operand::Strided(from(at.right, right), product.right);
    // SAFETY: passed on to the caller.
    unsafe { run_with(product, at, [left, out], right, epilogue) };
}

/// Whether [`run_halves`] takes this product, which [`takes`] has accepted: its result has rows of neighbours, so that the right matrix stays that.
pub(super) fn takes_halves(product: &MatrixProduct) -> bool {
    product.out[1] == 1 && takes(product)
}

/// Computes one batch with a right matrix of half precision, which is widened as it is packed.
///
/// # Safety
/// As `linear`, for one batch of such matrices that [`takes_halves`] has accepted.
pub(super) unsafe fn run_halves(
    product: &MatrixProduct,
    dtype: DType,
    at: Matrices,
    [left, right, out]: [isize; 3],
    epilogue: Option<&Epilogue>,
) {
    let first = at.right.wrapping_add_signed(right * dtype.size() as isize);
    let right = Operand::Halves(Halves { dtype, first, strides: product.right });
    // SAFETY: passed on to the caller.
    unsafe { run_with(product, at, [left, out], right, epilogue) };
}

/// # Safety
/// As [`run`] or [`run_halves`], with the right matrix as an operand.
unsafe fn run_with(
    product: &MatrixProduct,
    at: Matrices,
    [left, out]: [isize; 2],
    right: Operand,
    epilogue: Option<&Epilogue>,
) {
    let from = |address: usize, offset: isize| (address as *const f32).wrapping_offset(offset);
    let product = Product {
        rows: product.rows,
        depth: product.depth,
        columns: product.columns,
        terms: Terms::Singles,
        left: Operand::Strided(from(at.left, left), product.left),
        right,
        factor: product.alpha as f32,
        out: from(at.out, out).cast_mut(),
        out_stride: product.out[0] as usize,
        accumulate: product.beta != 0.0,
        epilogue,
        channels: Channels::Columns(0),
        index: out as usize,
    };
    // SAFETY: the caller's promise.
    unsafe { product.run() };
}
