//! Products of few rows, which cost what reading the right matrix costs: it is read once, where it lies, and converted in registers.

mod across;
mod dots;

pub(super) use across::MOST_HALF_ROWS;

use super::{Matrices, MatrixProduct, then};
use crate::native::epilogue::Epilogue;
use openmps_tile::DType;

/// Up to here reading both matrices in place beats packing the right one.
const MOST_ROWS: usize = 64;

/// Which kernel computes a product of few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// Sums along the neighbours of both matrices: `x weight^T`.
    Dots,
    /// Rows of the right matrix, each multiplied by a number of the left one.
    Across,
}

/// The kernel of a product whose left matrix and result are float32, and whose right matrix has elements of `right`.
fn kernel(product: &MatrixProduct, right: DType) -> Option<Kernel> {
    if product.rows > MOST_ROWS || !matches!(right, DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    if dots::takes(product, right) {
        return Some(Kernel::Dots);
    }
    across::takes(product, right).then_some(Kernel::Across)
}

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct, right: DType) -> bool {
    kernel(product, right).is_some()
}

/// Whether [`run`] takes this product of float32, and beats a right matrix that is packed already.
pub(super) fn beats_packed(product: &MatrixProduct) -> bool {
    match kernel(product, DType::F32) {
        Some(Kernel::Across) => across::beats_packed(product),
        other => other.is_some(),
    }
}

/// Computes one batch; offsets are in elements.
///
/// # Safety
/// As `matmul` or, with an epilogue, `linear`, for one batch of a float32 left matrix, a right one of `right` and a float32 result, which
/// [`takes`] has accepted.
pub(super) unsafe fn run(
    product: &MatrixProduct,
    right: DType,
    at: Matrices,
    offsets: [isize; 3],
    epilogue: Option<&Epilogue>,
) {
    let work = Work {
        product,
        epilogue,
        dtype: right,
        first: offsets[2] as usize,
        left: (at.left as *const f32).wrapping_offset(offsets[0]),
        right: at.right.wrapping_add_signed(offsets[1] * right.size() as isize),
        out: (at.out as *mut f32).wrapping_offset(offsets[2]),
    };
    // SAFETY: passed on to the caller.
    unsafe {
        match kernel(product, right) {
            Some(Kernel::Dots) => dots::run(&work),
            Some(Kernel::Across) => across::run(&work),
            None => unreachable!("a product that was not accepted"),
        }
    }
}

/// Computes a product of at most 64 rows from operands where they lie, whatever its other sizes: for callers who know that it is worth it.
///
/// # Safety
/// As [`run`] without an epilogue, for a left matrix and a right one of which rows or columns are neighbours (of the left one rows), and which
/// are not empty.
pub(in crate::native) unsafe fn read_once(product: &MatrixProduct, right: DType, at: Matrices) {
    let (left, out) = (at.left as *const f32, at.out as *mut f32);
    let work = Work { product, epilogue: None, dtype: right, first: 0, left, right: at.right, out };
    // SAFETY: passed on to the caller.
    unsafe { if product.right[0] == 1 { dots::run(&work) } else { across::run(&work) } }
}

struct Work<'a> {
    product: &'a MatrixProduct,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The element type of the right matrix.
    dtype: DType,
    /// The index of the result's first element in the whole output.
    first: usize,
    left: *const f32,
    right: usize,
    out: *mut f32,
}

// SAFETY: tasks read the matrices and write columns of the result that are theirs alone.
unsafe impl Sync for Work<'_> {}

impl Work<'_> {
    /// Writes finished columns of the result, and what follows them: `sums[row * stride + j]` is column `first + j`.
    ///
    /// # Safety
    /// The columns are in the result and this task's alone.
    unsafe fn finish(&self, (first, count): (usize, usize), sums: &[f32], stride: usize) {
        let product = self.product;
        for (i, sums) in sums.chunks_exact(stride).enumerate().take(product.rows) {
            let (alpha, sums) = (product.alpha as f32, &sums[..count]);
            let to = self.out.wrapping_offset(i as isize * product.out[0] + first as isize * product.out[1]);
            if product.out[1] == 1 && product.beta == 0.0 {
                // SAFETY: these elements of the result are this task's alone.
                let to = unsafe { std::slice::from_raw_parts_mut(to, count) };
                to.iter_mut().zip(sums).for_each(|(to, sum)| *to = alpha * sum);
                continue;
            }
            for (j, sum) in sums.iter().enumerate() {
                let value = alpha * sum;
                // SAFETY: an element of the result, written by this task alone.
                unsafe {
                    let to = to.wrapping_offset(j as isize * product.out[1]);
                    *to = if product.beta == 0.0 { value } else { value + product.beta as f32 * *to };
                }
            }
        }
        if let Some(epilogue) = self.epilogue {
            let (out, stride) = (self.out.wrapping_add(first), product.out[0] as usize);
            let index = self.first + first;
            let part = then::Part { out, stride, rows: product.rows, columns: (first, count), index };
            // SAFETY: this task's columns of a dense result.
            unsafe { then::part(epilogue, part) };
        }
    }
}

#[cfg(test)]
mod tests;
