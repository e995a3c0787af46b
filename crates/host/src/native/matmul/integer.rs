//! Products of integers, which wrap as the type does.

use super::{Matrices, MatrixProduct};
use crate::native::memory::slice;
use crate::threads::parallel_for;
use crate::vector::leveled;

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

/// Columns of a strip, and steps along the depth that are added to its sums in one run.
const COLUMNS: usize = 64;
const STEPS: usize = 4;

/// Rows for which a strip, once it is copied, is used.
const BLOCK: usize = 64;

/// # Safety
/// As [`super::matmul`], for elements of type `T`.
pub(super) unsafe fn run<T: Integer>(product: &MatrixProduct, at: Matrices, batches: &[[isize; 3]]) {
    let (strips, blocks) = (product.columns.div_ceil(COLUMNS), product.rows.div_ceil(BLOCK));
    let (multiply, ns) = (leveled_block::<T>(), product.depth * COLUMNS * BLOCK.min(product.rows) / 16);
    parallel_for(batches.len() * strips * blocks, ns, |from, to| {
        let (mut strip, mut copied) = (Vec::new(), None);
        for task in from..to {
            let (number, row) = (task / blocks, task % blocks * BLOCK);
            let (batch, column) = (batches[number / strips], number % strips * COLUMNS);
            // SAFETY: the caller vouches for the matrices; a task writes rows and columns of its own.
            unsafe {
                if copied != Some(number) {
                    copy_strip(product, at.right as *const T, batch[1], column, &mut strip);
                    copied = Some(number);
                }
                multiply(product, at, batch, [row, column], strip.as_ptr().addr());
            }
        }
    });
}

/// How many columns a strip has that begins with this one, and its rows: those of the depth, and zeros up to a multiple of the steps.
fn sizes(product: &MatrixProduct, first: usize) -> (usize, usize) {
    (COLUMNS.min(product.columns - first), product.depth.next_multiple_of(STEPS))
}

/// Copies a strip of the right matrix, row by row.
///
/// # Safety
/// The right matrix can be read.
unsafe fn copy_strip<T: Integer>(
    product: &MatrixProduct,
    right: *const T,
    batch: isize,
    first: usize,
    strip: &mut Vec<T>,
) {
    let (width, rows) = sizes(product, first);
    strip.clear();
    for k in 0..product.depth as isize {
        let begin = batch + k * product.right[0];
        // SAFETY: the caller's promise.
        strip.extend((first..first + width).map(|j| unsafe { *right.offset(begin + j as isize * product.right[1]) }));
    }
    strip.resize(rows * width, T::ZERO);
}

type Block = unsafe fn(&MatrixProduct, Matrices, [isize; 3], [usize; 2], usize);

leveled! {
    fn leveled_block<T>(product: &MatrixProduct, matrices: Matrices, batch: [isize; 3], at: [usize; 2], strip: usize) -> Block
    where { T: Integer } = block
}

/// The product of a block of rows and a strip of columns, from the first ones on.
///
/// # Safety
/// As [`run`], for elements that no other task writes; the strip is a copy of these columns.
#[inline(always)]
unsafe fn block<T: Integer>(
    product: &MatrixProduct,
    matrices: Matrices,
    [of_left, _, of_out]: [isize; 3],
    [first, column]: [usize; 2],
    strip: usize,
) {
    let (width, rows) = sizes(product, column);
    // SAFETY: the caller's promise.
    let strip = unsafe { slice::<T>(strip, rows * width) };
    let (alpha, beta) = (T::factor(product.alpha), T::factor(product.beta));
    let (left, out) = (matrices.left as *const T, matrices.out as *mut T);
    for row in first..product.rows.min(first + BLOCK) {
        let begin = of_left + row as isize * product.left[0];
        let mut sums = [T::ZERO; COLUMNS];
        let sums = &mut sums[..width];
        for (step, rows) in strip.chunks_exact(STEPS * width).enumerate() {
            let [a, b, c, d]: [T; STEPS] = std::array::from_fn(|i| match step * STEPS + i {
                // SAFETY: the caller's promise.
                k if k < product.depth => unsafe { *left.offset(begin + k as isize * product.left[1]) },
                _ => T::ZERO,
            });
            let (first, others) = rows.split_at(width);
            let (second, others) = others.split_at(width);
            let (third, fourth) = others.split_at(width);
            // A length that the compiler does not know: a row of registers would be gathered along the depth instead.
            for ((((sum, &w), &x), &y), &z) in sums.iter_mut().zip(first).zip(second).zip(third).zip(fourth) {
                *sum = a.multiply_add(w, b.multiply_add(x, c.multiply_add(y, d.multiply_add(z, *sum))));
            }
        }
        let begin = of_out + row as isize * product.out[0];
        for (j, &sum) in sums.iter().enumerate() {
            // SAFETY: an element of the result, which this task alone writes.
            unsafe {
                let to = out.offset(begin + (column + j) as isize * product.out[1]);
                let kept = if product.beta == 0.0 { T::ZERO } else { beta.multiply_add(*to, T::ZERO) };
                *to = alpha.multiply_add(sum, kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wrapping products of every layout, of sizes around the tiles' and the blocks', as the plain loop gives them.
    #[test]
    fn every_size_and_layout() {
        let value = |i: usize| (i as i32).wrapping_mul(0x9E37_79B1_u32.cast_signed());
        let strides = |rows: usize, columns: usize, transposed: bool| {
            if transposed { [1, rows as isize] } else { [columns as isize, 1] }
        };
        for [rows, depth, columns] in
            [[1, 1, 1], [3, 0, 5], [4, 7, 16], [5, 33, 17], [64, 9, 64], [65, 21, 70], [131, 3, 1]]
        {
            for layout in 0..8 {
                let [of_left, of_right, of_out] = [1, 2, 4].map(|bit| layout & bit != 0);
                let product = MatrixProduct {
                    left: strides(rows, depth, of_left),
                    right: strides(depth, columns, of_right),
                    out: strides(rows, columns, of_out),
                    alpha: 3.0,
                    beta: -1.0,
                    ..MatrixProduct::dense(rows, depth, columns)
                };
                let [left, right] =
                    [rows * depth, depth * columns].map(|count| (0..count).map(value).collect::<Vec<_>>());
                let mut out: Vec<i32> = (0..rows * columns).map(|i| i as i32).collect();
                let mut expected = out.clone();
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let at =
                        |strides: [isize; 2], i: usize, j: usize| i * strides[0] as usize + j * strides[1] as usize;
                    let sum = (0..depth).fold(0_i32, |sum, k| {
                        left[at(product.left, i, k)].multiply_add(right[at(product.right, k, j)], sum)
                    });
                    let to = &mut expected[at(product.out, i, j)];
                    *to = sum.wrapping_mul(3).wrapping_sub(*to);
                }
                let [left, right] = [&left, &right].map(|matrix| matrix.as_ptr() as usize);
                let at = Matrices { left, right, out: out.as_mut_ptr() as usize };
                // SAFETY: three matrices of these sizes.
                unsafe { run::<i32>(&product, at, &[[0; 3]]) };
                assert_eq!(out, expected, "{rows} x {depth} x {columns}, layout {layout}");
            }
        }
    }
}
