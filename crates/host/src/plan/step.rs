//! The steps of a plan: what is left to do at run time once every index has been worked out symbolically.

use crate::vector::binary::BinaryFunction;
use crate::vector::memory::SelectFunction;
use crate::vector::reduce::ReduceFunction;
use crate::vector::unary::UnaryFunction;

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

/// Rows and columns of a step. A tile of one dimension is one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    pub rows: Extent,
    pub columns: Extent,
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
}

/// What a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// One number in every element.
    Uniform(Slot),
    /// A register.
    Register { register: Register, view: ViewKind },
}

/// Addresses `base + row * row_stride + column * column_stride`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub base: Slot,
    /// In elements; none is 0.
    pub row_stride: Option<Slot>,
    pub column_stride: Option<Slot>,
    /// Bytes of one element.
    pub size: usize,
}

/// Where a step writes: a register, and the device memory that may stand for it so that a store costs nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub register: Register,
    /// Bytes of one element.
    pub size: usize,
    pub store: Option<Address>,
}

/// Arithmetic on indices, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexOperation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    /// The quotient of non-negative numbers, rounded up.
    DivideUp,
}

/// What a loaded tile holds outside of the extents that are loaded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// There is nothing outside, or nobody reads it.
    Unread,
    Zero,
    Other(Operand),
}

/// How a step stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// Each element after it has been computed from the same elements of the operands.
    Elements,
    /// Each element needs rows and columns of the operands.
    Product,
    /// What is in a register already.
    Copy,
}

/// A loaded tile that a storing step reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedLoad {
    pub register: Register,
    /// Bytes of one element.
    pub size: usize,
    pub extents: Extents,
    /// Whether the tile may be where the step stores, element for element.
    pub in_place: bool,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Arithmetic on 64-bit slots; `width` is what the result wraps to.
    Index {
        operation: IndexOperation,
        destination: Slot,
        x: Slot,
        y: Slot,
        width: Width,
    },
    /// A primitive on one element, or (with `y`) two.
    Unary {
        function: UnaryFunction,
        destination: Slot,
        x: Slot,
        width: Width,
    },
    Binary {
        function: BinaryFunction,
        destination: Slot,
        x: Slot,
        y: Slot,
        width: Width,
    },
    Select {
        destination: Slot,
        condition: Slot,
        x: Slot,
        y: Slot,
    },
    Copy {
        destination: Slot,
        source: Slot,
    },
    /// One element between device memory and a slot; none is moved where the mask's slot is 0.
    LoadScalar {
        destination: Slot,
        address: Slot,
        mask: Option<Slot>,
        other: Option<Slot>,
        size: usize,
        width: Width,
    },
    StoreScalar {
        address: Slot,
        value: Slot,
        mask: Option<Slot>,
        size: usize,
    },

    /// A tile from device memory. `direct`: the memory may stand for the register, unless the rest has to be filled.
    LoadTile {
        register: Register,
        address: Address,
        extents: Extents,
        full: (usize, usize),
        rest: Rest,
        direct: bool,
    },
    StoreTile {
        value: Operand,
        address: Address,
        extents: Extents,
    },
    /// In front of a step that stores: loads that stand in memory are copied where that step would overwrite them too early.
    Guard {
        address: Address,
        extents: Extents,
        writer: Writer,
        loads: Vec<GuardedLoad>,
    },
    /// Elements at offsets that are known only element by element.
    Gather {
        register: Register,
        base: Slot,
        offsets: Operand,
        offset_size: usize,
        mask: Option<Operand>,
        other: Option<Operand>,
        size: usize,
        extents: Extents,
    },
    Scatter {
        value: Operand,
        base: Slot,
        offsets: Operand,
        offset_size: usize,
        mask: Option<Operand>,
        size: usize,
        extents: Extents,
    },
    /// `base + row * row_stride + column * column_stride` as integers.
    CountUp {
        target: Target,
        base: Slot,
        row_stride: Option<Slot>,
        column_stride: Option<Slot>,
        extents: Extents,
    },
    /// 1 inside the clipped extents, 0 outside.
    MaskTile {
        target: Target,
        clip: Extents,
        extents: Extents,
    },

    MapUnary {
        function: UnaryFunction,
        target: Target,
        x: Operand,
        x_size: usize,
        extents: Extents,
    },
    MapBinary {
        function: BinaryFunction,
        target: Target,
        x: Operand,
        y: Operand,
        size: usize,
        extents: Extents,
    },
    MapSelect {
        function: SelectFunction,
        target: Target,
        condition: Operand,
        x: Operand,
        y: Operand,
        extents: Extents,
    },
    /// `inside` within the clip, `outside` beyond it.
    MapClip {
        target: Target,
        clip: Extents,
        inside: Operand,
        outside: Operand,
        extents: Extents,
    },
    /// The matrix product of two tiles of float32 or float64, added to a third, which may be the target's register.
    Dot {
        target: Target,
        x: Operand,
        y: Operand,
        sum: Operand,
        depth: usize,
        extents: Extents,
    },
    CopyTile {
        target: Target,
        source: Operand,
        extents: Extents,
    },

    /// All elements to one slot.
    ReduceAll {
        function: ReduceFunction,
        destination: Slot,
        source: Operand,
        size: usize,
        width: Width,
        extents: Extents,
    },
    /// Each row to one element of a row.
    ReduceRows {
        function: ReduceFunction,
        target: Target,
        source: Operand,
        extents: Extents,
    },
    /// The rows to one row.
    ReduceColumns {
        combine: BinaryFunction,
        identity: [u8; 8],
        target: Target,
        source: Operand,
        extents: Extents,
    },

    Loop {
        index: Slot,
        lower: Slot,
        upper: Slot,
        step: Slot,
        body: Vec<Step>,
    },
}

/// How many bits of a slot are the number; the rest repeats its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
