//! Matrix products of tiles.

use crate::native::microkernel::{Channels, Terms};
use crate::native::piecewise::Piece;
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

/// A factor of float32; whether the memory stays as it is.
pub(super) fn piece(factor: &Factor, stays: bool) -> Piece {
    const SIZE: isize = size_of::<f32>() as isize;
    let strides = [factor.by_row / SIZE, factor.by_column / SIZE];
    Piece { first: factor.address.cast(), strides, stays }
}

/// Adds the product of two factors of float32 to the tile at an address, or stores it there, through the kernels of every other product. Programs of a grid that
/// are shared out over the threads keep theirs; a single one has all of them.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements; the tile has rows x columns writable ones and overlaps neither.
pub(super) unsafe fn add_singles(
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
    accumulate: bool,
) {
    let operand = |factor: &Factor| {
        let Piece { first, strides, .. } = piece(factor, false);
        Operand::Strided(first, strides)
    };
    let product = Product {
        rows,
        depth,
        columns,
        terms: Terms::Singles,
        left: operand(&x),
        right: operand(&y),
        factor: 1.0,
        out: address.cast(),
        out_stride: pitch as usize / size_of::<f32>(),
        accumulate,
        epilogue: None,
        channels: Channels::Rows(0),
        index: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { product.run() };
}

/// As [`add_singles`], of float64, on this thread.
///
/// # Safety
/// As for [`add_singles`].
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

/// As [`add_singles`], of i8 into i32, wrapping, on this thread.
///
/// # Safety
/// As for [`add_singles`].
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
