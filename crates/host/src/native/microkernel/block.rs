//! What a call of the micro-kernel is told.

use crate::level::bfloats_at_once;
use crate::native::epilogue::Epilogue;

/// One call of the micro-kernel: a tile, or several side by side.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// Terms of each sum.
    pub depth: usize,
    /// Terms that are summed up before they are added to the others.
    pub part: usize,
    /// The panel's first number.
    pub left: *const f32,
    /// Where the others are.
    pub left_at: LeftAt,
    /// The first row of the right matrix; each has `columns` numbers, and all lanes are readable.
    pub right: *const f32,
    /// Where the other rows are.
    pub rows_at: RowsAt,
    /// The first element of the result.
    pub out: *mut f32,
    /// From one row of the result to the next.
    pub out_stride: usize,
    /// Whether the sums are added to what the result holds.
    pub accumulate: bool,
    /// Applied before storing; none while more terms are to come.
    pub epilogue: Option<&'a Epilogue<'a>>,
    /// The output channels of the block, for the epilogue.
    pub channels: Channels,
    /// The index of the block's first element in the whole output, for the epilogue's residual.
    pub index: usize,
    /// What is read soon, and how many numbers of it are asked for with each term.
    pub ahead: (*const f32, usize),
    /// Tiles of whole columns side by side, of this one panel.
    pub tiles: SideBySide,
}

/// How many tiles, and numbers from the first row of the right matrix of one to that of the next.
#[derive(Clone, Copy)]
pub(crate) struct SideBySide {
    pub count: usize,
    pub step: usize,
}

impl Block<'_> {
    /// Nothing is asked for ahead.
    pub const NOTHING: (*const f32, usize) = (std::ptr::null(), 0);
    /// The part of most products: the error of a sum grows with its length. Parts of 128 make that of 384 terms 0.6 times as large, and the tile 1 to 2 %
    /// slower; parts of 64 make it 4 % slower on a Zen 3.
    pub const PART: usize = 128;
    /// A tile alone.
    pub const ALONE: SideBySide = SideBySide { count: 1, step: 0 };
}

/// What 32 bits of the operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// A number.
    Singles,
    /// Two numbers of bfloat16, of two terms of a sum that follow each other.
    BfloatPairs,
}

impl Terms {
    /// How many numbers of 32 bits so many terms are; none where the CPU multiplies more of them at once.
    pub(crate) fn numbers(self, terms: usize) -> Option<usize> {
        match self {
            Terms::Singles => Some(terms),
            Terms::BfloatPairs => terms.is_multiple_of(bfloats_at_once()?).then_some(terms / 2),
        }
    }
}

/// Where the numbers of a panel are.
#[derive(Clone, Copy)]
pub(crate) enum LeftAt {
    /// As [`super::Kernels::order`] says, [`super::Kernels::rows`] numbers for each term.
    Packed,
    /// Each row's one after the other, the rows so many numbers apart. The right matrix's rows are found by a stride.
    Rows(usize),
}

/// Where row p of the right matrix starts, in elements from row 0.
#[derive(Clone, Copy)]
pub(crate) enum RowsAt {
    /// At `p * stride`.
    Stride(usize),
    /// At `table[p]`.
    Table(*const usize),
}

/// Which channel of an epilogue an element of a result has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channels {
    /// Each row has one, as the images of a convolution do; the first row's.
    Rows(usize),
    /// Each column has one, as the rows of a linear layer's result do; the first column's.
    Columns(usize),
}

impl Channels {
    /// Those of the part that begins at this row and column.
    pub(crate) fn at(self, row: usize, column: usize) -> Channels {
        match self {
            Channels::Rows(first) => Channels::Rows(first + row),
            Channels::Columns(first) => Channels::Columns(first + column),
        }
    }

    /// The first one.
    pub(crate) fn first(self) -> usize {
        match self {
            Channels::Rows(first) | Channels::Columns(first) => first,
        }
    }
}

/// How far the sums of a tile have come.
pub(crate) struct Place {
    pub left: *const f32,
    /// From one number of a column of the left matrix to the next, and from one column to the next.
    pub by_row: usize,
    pub by_term: usize,
    /// The first row of the right matrix where there is a table, else the next one.
    pub right: *const f32,
    pub stride: usize,
    pub table: *const usize,
    pub ahead: *const f32,
    pub ahead_step: usize,
}
