//! Products of integers, which wrap as the type does.

use super::{Matrices, MatrixProduct};
use crate::threads::parallel_for;

/// An integer type with wrapping arithmetic.
pub(super) trait Integer: Copy + Send + Sync {
    const ZERO: Self;
    fn multiply_add(self, factor: Self, addend: Self) -> Self;
    fn factor(value: f64) -> Self;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Integer for $type {
            const ZERO: Self = 0;
            #[inline(always)]
            fn multiply_add(self, factor: Self, addend: Self) -> Self {
                self.wrapping_mul(factor).wrapping_add(addend)
            }
            fn factor(value: f64) -> Self {
                // Wraps as everything else does; -1 is the largest uint8.
                value as i64 as Self
            }
        }
    )*};
}

integer!(u8, i8, i16, i32, i64);

/// # Safety
/// As [`super::matmul`], for elements of type `T`.
pub(super) unsafe fn run<T: Integer>(product: &MatrixProduct, at: Matrices, batches: &[[isize; 3]]) {
    let (alpha, beta) = (T::factor(product.alpha), T::factor(product.beta));
    parallel_for(batches.len() * product.rows, product.depth * product.columns / 2, |from, to| {
        let mut sums = vec![T::ZERO; product.columns];
        for task in from..to {
            let ([left, right, out], i) = (batches[task / product.rows], (task % product.rows) as isize);
            sums.fill(T::ZERO);
            for k in 0..product.depth as isize {
                // SAFETY: the caller vouches for the left matrix's row and the right matrix's.
                unsafe {
                    let a = *(at.left as *const T).offset(left + i * product.left[0] + k * product.left[1]);
                    let row = (at.right as *const T).offset(right + k * product.right[0]);
                    if product.right[1] == 1 {
                        let row = std::slice::from_raw_parts(row, product.columns);
                        sums.iter_mut().zip(row).for_each(|(sum, &b)| *sum = a.multiply_add(b, *sum));
                    } else {
                        for (j, sum) in sums.iter_mut().enumerate() {
                            *sum = a.multiply_add(*row.offset(j as isize * product.right[1]), *sum);
                        }
                    }
                }
            }
            for (j, &sum) in sums.iter().enumerate() {
                // SAFETY: an element of the result, written by this task alone.
                unsafe {
                    let to = (at.out as *mut T).offset(out + i * product.out[0] + j as isize * product.out[1]);
                    let kept = if product.beta == 0.0 { T::ZERO } else { beta.multiply_add(*to, T::ZERO) };
                    *to = alpha.multiply_add(sum, kept);
                }
            }
        }
    });
}
