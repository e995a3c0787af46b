//! What planning knows of a value: a slot, a sum of indices, an address, a clipping mask, or a register.

use super::operand::{Extents, Operand, Part, Slot, Spread, Sum, ViewKind, Width};
use super::step::IndexOperation;
use openmps_tile::Scalar;

impl Spread {
    /// Nothing: the same number everywhere.
    pub const NONE: Spread = Spread { row_stride: None, column_stride: None, rows: None, columns: None };

    /// Whether no part of it is known only at run time.
    pub fn is_affine(&self) -> bool {
        self.rows.is_none() && self.columns.is_none()
    }

    /// Rows and columns exchanged, where there are no parts.
    pub fn transposed(self) -> Spread {
        Spread { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    /// What registers hold of it.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.rows.iter().chain(&self.columns)
    }
}

impl Sum {
    /// The same number everywhere.
    pub fn uniform(base: Slot) -> Sum {
        Sum { base, spread: Spread::NONE }
    }

    /// Whether it is the same number everywhere.
    pub fn is_uniform(&self) -> bool {
        self.spread == Spread::NONE
    }
}

/// What a value of the kernel is at planning time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Planned {
    /// A scalar, or a tile whose elements are all that scalar.
    Uniform(Slot),
    /// Integers that follow from the place in the tile.
    Index(Sum),
    /// Addresses `base` (bytes) and `offset` (elements).
    Pointer { base: Slot, offset: Sum },
    /// Addresses `base` and, in bytes, what the register (i64) holds for each element.
    Scattered { base: Slot, offsets: Operand },
    /// True exactly inside the extents.
    Clip(Extents),
    /// Data, defined in every element: what a mask leaves out is 0, or the load's `other`. Pointers do not come in this form.
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

/// What a slot was computed of, where it is an index or an address: whoever needs the same reads that slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Computed {
    Index { operation: IndexOperation, x: Slot, y: Slot, width: Width },
    Place { base: Slot, offset: Slot, size: i64 },
}

/// What a tile of float32 was made of, where a step that reads it can do that, too: on the way to the logistic function, before an exponential or
/// before a sum.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// `0 + x`.
    ZeroAnd(Operand),
    /// `x * y`.
    Product([Operand; 2]),
    /// `x - y`.
    Difference([Operand; 2]),
    /// `-x`.
    Negated(Operand),
    /// `e^-x`.
    ExponentialOfNegated(Operand),
    /// `1 + e^-x`.
    OneAndExponential(Operand),
}

/// Rows and columns of a tile's dimensions: the last dimension is along the columns.
pub(super) fn rows_and_columns(dims: &[usize]) -> (usize, usize) {
    match dims.split_last() {
        None => (1, 1),
        Some((&columns, outer)) => (outer.iter().product(), columns),
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
pub(super) fn width_of(scalar: Scalar) -> Width {
    match scalar {
        Scalar::I1 => Width::Truth,
        Scalar::I8 => Width::Bits8,
        Scalar::I16 => Width::Bits16,
        Scalar::I32 => Width::Bits32,
        _ => Width::Whole,
    }
}
