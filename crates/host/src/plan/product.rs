//! Matrix products of tiles.

use crate::native::microkernel::{Channels, Terms};
use crate::native::piecewise::{Piece, with_numbers};
use crate::native::product::{Operand, Product};

/// A factor of a product.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// The first element.
    pub address: *const u8,
    /// Bytes from one row to the next.
    pub by_row: isize,
    /// Bytes from one column to the next.
    pub by_column: isize,
}

/// A factor of these terms; whether the memory stays as it is.
pub(super) fn piece(factor: &Factor, terms: Terms, stays: bool) -> Piece {
    let size = terms.size() as isize;
    Piece { first: factor.address, strides: [factor.by_row / size, factor.by_column / size], stays }
}

/// Adds the product of two factors of float32 or bfloat16 to the tile at an address, or stores it there, through the kernels of every other product. Programs
/// of a grid that are shared out over the threads keep theirs; a single one has all of them.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements, in whole numbers of 32 bits; the tile has rows x columns writable ones, whose rows follow each
/// other forwards, and overlaps neither.
pub(super) unsafe fn add_terms(
    terms: Terms,
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
    accumulate: bool,
) {
    let Some(numbers) = terms.numbers(depth).filter(|_| rows > 0 && columns > 0) else { return };
    let [x, y] = [x, y].map(|factor| piece(&factor, terms, false));
    let [by_term, by_column] = y.strides;
    // SAFETY: the caller's promise.
    unsafe {
        with_numbers(terms, x.first, (rows, numbers), x.strides, |left, by_left| {
            with_numbers(terms, y.first, (columns, numbers), [by_column, by_term], |right, [by_column, by_term]| {
                let product = Product {
                    rows,
                    depth: numbers,
                    columns,
                    terms,
                    left: Operand::Strided(left, by_left),
                    right: Operand::Strided(right, [by_term, by_column]),
                    factor: 1.0,
                    out: address.cast(),
                    out_stride: pitch as usize / size_of::<f32>(),
                    accumulate,
                    epilogue: None,
                    channels: Channels::Rows(0),
                    index: 0,
                };
                product.run();
            });
        });
    }
}

/// As [`add_terms`], of float64, on this thread.
///
/// # Safety
/// As for [`add_terms`].
pub(super) unsafe fn add_doubles(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
) {
    const SIZE: isize = size_of::<f64>() as isize;
    let strides = |factor: &Factor| (factor.by_column / SIZE, factor.by_row / SIZE);
    let ((x_column, x_row), (y_column, y_row)) = (strides(&x), strides(&y));
    let (out, x, y) = (address.cast::<f64>(), x.address.cast::<f64>(), y.address.cast::<f64>());
    let (by_row, threads) = (pitch / SIZE, gemm::Parallelism::None);
    // SAFETY: the caller's promise; strides are those of the factors.
    unsafe {
        gemm::gemm(
            rows, columns, depth, out, 1, by_row, true, x, x_column, x_row, y, y_column, y_row, 1.0, 1.0, false, false,
            false, threads,
        );
    }
}

/// As [`add_terms`], of i8 into i32, wrapping, on this thread.
///
/// # Safety
/// As for [`add_terms`].
pub(super) unsafe fn add_integers(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
) {
    let element = |factor: &Factor, row: usize, column: usize| {
        let bytes = factor.by_row * row as isize + factor.by_column * column as isize;
        factor.address.wrapping_offset(bytes).cast::<i8>()
    };
    for row in 0..rows {
        let to = address.wrapping_offset(pitch * row as isize).cast::<i32>();
        for k in 0..depth {
            let line = element(&y, k, 0);
            // SAFETY: the caller's promise about factors and tile.
            unsafe {
                let factor = i32::from(element(&x, row, k).read());
                for column in 0..columns {
                    let term = i32::from(line.offset(y.by_column * column as isize).read());
                    *to.add(column) = (*to.add(column)).wrapping_add(factor.wrapping_mul(term));
                }
            }
        }
    }
}
