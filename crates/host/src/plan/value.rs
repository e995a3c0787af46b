//! What planning knows of a value: a slot, an affine index, an address, a clipping mask, or a register.

use super::step::{Extents, Operand, Slot, ViewKind};
use openmps_tile::Scalar;

/// `base + row * row_stride + column * column_stride`; strides of none are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Affine {
    pub base: Slot,
    pub row_stride: Option<Slot>,
    pub column_stride: Option<Slot>,
}

impl Affine {
    /// The same number everywhere.
    pub fn uniform(base: Slot) -> Affine {
        Affine { base, row_stride: None, column_stride: None }
    }

    /// Whether it is the same number everywhere.
    pub fn is_uniform(&self) -> bool {
        self.row_stride.is_none() && self.column_stride.is_none()
    }
}

/// What a value of the kernel is at planning time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned {
    /// A scalar, or a tile whose elements are all that scalar.
    Uniform(Slot),
    /// Integers that follow from the place in the tile.
    Index(Affine),
    /// Addresses `base` (bytes) `+ offset` (elements).
    Pointer { base: Slot, offset: Affine },
    /// Addresses whose offsets (elements, in a register) are known only at run time.
    ScatteredPointer { base: Slot, offsets: Operand, offset_size: usize },
    /// True exactly inside the extents.
    Clip(Extents),
    /// Data, defined in every element: what a mask leaves out is 0, or the load's `other`.
    Data(Operand),
}

/// A tile that holds one number outside of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    /// What it holds in the part.
    pub inside: Operand,
    pub part: Extents,
    /// The number.
    pub rest: Slot,
}

/// What a tile of float32 was made of, on the way to the logistic function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `-x`.
    Negated(Operand),
    /// `e^-x`.
    ExponentialOfNegated(Operand),
    /// `1 + e^-x`.
    OneAndExponential(Operand),
}

/// Rows and columns of a tile's dimensions: a vector is one row.
pub(super) fn rows_and_columns(dims: &[usize]) -> Option<(usize, usize)> {
    match *dims {
        [] => Some((1, 1)),
        [columns] => Some((1, columns)),
        [rows, columns] => Some((rows, columns)),
        _ => None,
    }
}

/// A view after a row of elements has become a column, or size-1 dimensions have been repeated.
pub(super) fn compose(view: ViewKind, next: ViewKind) -> Option<ViewKind> {
    match (view, next) {
        (ViewKind::Plain, next) => Some(next),
        (view, ViewKind::Plain) => Some(view),
        // A column has one element a row; repeating it along the row is what the view says already.
        (ViewKind::Column, ViewKind::RepeatColumns) => Some(ViewKind::Column),
        (ViewKind::RepeatRows, ViewKind::RepeatRows) => Some(ViewKind::RepeatRows),
        _ => None,
    }
}

/// The step width of a number type's slot.
pub(super) fn width_of(scalar: Scalar) -> super::step::Width {
    use super::step::Width;
    match scalar {
        Scalar::I1 => Width::Truth,
        Scalar::I8 => Width::Bits8,
        Scalar::I16 => Width::Bits16,
        Scalar::I32 => Width::Bits32,
        _ => Width::Whole,
    }
}
