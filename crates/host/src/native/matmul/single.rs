//! Large products of float32, to which half precision is widened: from packed parts ([`crate::native::product`]).

use super::{Matrices, MatrixProduct};
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Channels, Terms};
use crate::native::panels::Halves;
use crate::native::product::{Goal, Operand, Product};
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
    // SAFETY: passed on to the caller.
    unsafe { run_typed(product, [DType::F32; 2], at, [left, right, out], None, epilogue) };
}

/// Computes one batch of matrices of float32 and of half precision, which is widened as it is packed; the result is float32.
///
/// # Safety
/// As `linear`, for one batch of matrices of these types that [`takes`] has accepted, and whose result has rows of neighbours.
pub(super) unsafe fn run_typed(
    product: &MatrixProduct,
    types: [DType; 2],
    at: Matrices,
    [left, right, out]: [isize; 3],
    goal: Option<Goal>,
    epilogue: Option<&Epilogue>,
) {
    let (first, stride) = ((at.out as *mut f32).wrapping_offset(out), product.out[0] as usize);
    let goal = goal.unwrap_or(Goal::Memory { first, stride, accumulate: product.beta != 0.0 });
    let operand = |dtype: DType, address: usize, offset: isize, strides: [isize; 2]| {
        let first = address.wrapping_add_signed(offset * dtype.size() as isize);
        match dtype {
            DType::F32 => Operand::Strided(first as *const f32, strides),
            _ => Operand::Halves(Halves { dtype, first, strides }),
        }
    };
    let product = Product {
        rows: product.rows,
        depth: product.depth,
        columns: product.columns,
        terms: Terms::Singles,
        left: operand(types[0], at.left, left, product.left),
        right: operand(types[1], at.right, right, product.right),
        factor: product.alpha as f32,
        goal,
        epilogue,
        channels: Channels::Columns(0),
        index: out as usize,
    };
    // SAFETY: the caller's promise.
    unsafe { product.run() };
}
