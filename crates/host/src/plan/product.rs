//! Matrix products of tiles: how a plan says of one, and how it is done.

use crate::native::byte_product::{self, Bytes};
use crate::native::microkernel::Channels;
use crate::native::piecewise::{Elements, Piece, with_numbers};
use crate::native::product::{Goal, Operand, Product};

/// A product whose factors are packed on their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Which of the plan's.
    pub product: usize,
    /// Whether memory that the factors stand in holds the same numbers for the whole launch.
    pub stay: bool,
    pub when: When,
}

/// When a packed piece is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    AtOnce,
    /// When enough of them have come, or their loop has ended.
    Later,
}

/// The element types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProductKind {
    /// Sums of float32. Pairs of bfloat16 are multiplied by the CPU's own instructions, to which subnormal numbers are zero.
    Single(Elements),
    Double,
    /// i8 into i32.
    Integer,
}

impl ProductKind {
    /// Whether factors of half types are taken as they are.
    pub fn takes_halves(self) -> bool {
        matches!(self, ProductKind::Single(elements) if elements != Elements::Singles)
    }

    /// Bytes of a factor's element.
    pub fn factor_size(self) -> usize {
        match self {
            ProductKind::Single(elements) => elements.size(),
            ProductKind::Double => 8,
            ProductKind::Integer => 1,
        }
    }
}

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

/// A factor of these elements; whether the memory stays as it is.
pub(super) fn piece(factor: &Factor, elements: Elements, stays: bool) -> Piece {
    let size = elements.size() as isize;
    Piece { first: factor.address, strides: [factor.by_row / size, factor.by_column / size], stays }
}

/// Adds the product of two factors of float32 or a half type to the tile at an address, or stores it there, through the kernels of every other product. Programs
/// of a grid that are shared out over the threads keep theirs; a single one has all of them.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements, in whole numbers of 32 bits; the tile has rows x columns writable ones, whose rows follow each
/// other forwards, and overlaps neither.
pub(super) unsafe fn add_terms(
    elements: Elements,
    (rows, columns, depth): (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    [x, y]: [Factor; 2],
    accumulate: bool,
) {
    let Some(numbers) = elements.terms().numbers(depth).filter(|_| rows > 0 && columns > 0) else { return };
    let [x, y] = [x, y].map(|factor| piece(&factor, elements, false));
    let [by_term, by_column] = y.strides;
    // SAFETY: the caller's promise.
    unsafe {
        with_numbers(elements, x.first, (rows, numbers), x.strides, |left, by_left| {
            with_numbers(elements, y.first, (columns, numbers), [by_column, by_term], |right, [by_column, by_term]| {
                let product = Product {
                    rows,
                    depth: numbers,
                    columns,
                    terms: elements.terms(),
                    left: Operand::Strided(left, by_left),
                    right: Operand::Strided(right, [by_term, by_column]),
                    factor: 1.0,
                    goal: Goal::Memory { first: address.cast(), stride: pitch as usize / size_of::<f32>(), accumulate },
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
    shape: (usize, usize, usize),
    (address, pitch): (*mut u8, isize),
    factors: [Factor; 2],
) {
    let factors = factors.map(|of| Bytes { first: of.address.cast(), by_row: of.by_row, by_column: of.by_column });
    // SAFETY: the caller's promise; rows of i32 are whole numbers apart.
    unsafe { byte_product::add(shape, address.cast(), pitch / size_of::<i32>() as isize, factors) };
}
