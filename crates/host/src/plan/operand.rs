//! What steps read and write: slots, registers and views of them, extents, addresses.

/// A 64-bit cell for a number that is the same for the whole tile. Integers are held sign-extended.
pub(super) type Slot = usize;

/// A piece of scratch memory for one tile, or the place in device memory that stands for it.
pub(super) type Register = usize;

/// How many elements of a dimension a step touches: all `full`, or fewer when the slot says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub full: usize,
    pub clip: Option<Slot>,
}

/// Rows and columns of a step: the last dimension along the columns, all others one after the other as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    pub rows: Extent,
    pub columns: Extent,
}

impl Extents {
    /// So many rows and columns, all of them.
    pub fn full(rows: usize, columns: usize) -> Extents {
        Extents { rows: Extent { full: rows, clip: None }, columns: Extent { full: columns, clip: None } }
    }

    /// Rows and columns of the whole tile.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows.full, self.columns.full)
    }

    /// Elements of the whole tile.
    pub fn len(&self) -> usize {
        self.rows.full * self.columns.full
    }

    /// Whether nothing is left out.
    pub fn is_whole(&self) -> bool {
        self.rows.clip.is_none() && self.columns.clip.is_none()
    }
}

/// How a step sees a register's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ViewKind {
    /// As they were written.
    Plain,
    /// The elements of one row as a column, each repeated along its row.
    Column,
    /// The first element of each row repeated along the row.
    RepeatColumns,
    /// The first row repeated.
    RepeatRows,
    /// Rows and columns exchanged, which only a factor of a product may be.
    Transposed,
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// One number in every element.
    Uniform(Slot),
    /// A register.
    Register { register: Register, view: ViewKind },
}

/// A register as it was written.
pub(super) fn plain(register: Register) -> Operand {
    Operand::Register { register, view: ViewKind::Plain }
}

/// Integers in a register, one for each row or each column of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub operand: Operand,
    /// Bytes of one integer: 4 or 8.
    pub size: usize,
    /// How many there are.
    pub count: usize,
}

/// By how much integers of a tile differ: `row * row_stride + column * column_stride + rows[row] + columns[column]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// None is 0.
    pub row_stride: Option<Slot>,
    pub column_stride: Option<Slot>,
    pub rows: Option<Part>,
    pub columns: Option<Part>,
}

/// Integers of a tile: `base` and what is added at each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub base: Slot,
    pub spread: Spread,
}

/// Addresses of elements: `base` in bytes, what is added in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub base: Slot,
    pub spread: Spread,
    /// Bytes of one element.
    pub size: usize,
}

/// Where the elements of a tile lie that a mask picks one by one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Places {
    /// At addresses that are known by row and by column.
    Sums(Address),
    /// At `base`, and what `offsets` (i64) says in bytes.
    Bytes { base: Slot, offsets: Operand },
}

/// Where a step writes: a register, and the device memory that may stand for it so that a store costs nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub register: Register,
    /// Bytes of one element.
    pub size: usize,
    pub store: Option<Address>,
}

/// How many bits of a slot are the number; the rest repeats its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Width {
    /// Truth value: 0 or 1.
    Truth,
    Bits8,
    Bits16,
    Bits32,
    /// All bits, or a float whose upper bits do not matter.
    Whole,
}

impl Width {
    /// The number that the lower bits of `raw` stand for.
    #[inline(always)]
    pub fn extend(self, raw: u64) -> u64 {
        match self {
            Width::Truth => raw & 1,
            Width::Bits8 => raw as i8 as u64,
            Width::Bits16 => raw as i16 as u64,
            Width::Bits32 => raw as i32 as u64,
            Width::Whole => raw,
        }
    }
}
