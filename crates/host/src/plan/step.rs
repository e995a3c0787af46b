//! The steps of a plan: what is left to do at run time once every index has been worked out symbolically.

use super::atomic::Change;
use super::call::Call;
use super::fold::Fold;
use super::operand::{Address, Extents, Operand, Places, Register, Slot, Sum, Target, Width};
use super::pass::rows::Pass;
use super::product::{Pieces, ProductKind};
use super::row::Row;
use crate::vector::binary::BinaryFunction;
use crate::vector::chain::ChainFunction;
use crate::vector::choice::{ChoiceFunction, Comparison};
use crate::vector::fused::FusedFunction;
use crate::vector::memory::SelectFunction;
use crate::vector::pair::{Arithmetic, Pair};
use crate::vector::reduce::ReduceFunction;
use crate::vector::sum_of_pairs::{PairSum, PairSumFunction};
use crate::vector::unary::UnaryFunction;
use openmps_tile::{Binary, Cast, Combine, Compare, Scalar, Unary};

/// Arithmetic on indices, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum IndexOperation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    /// The difference, or the nearest number where that is none of 64 bits.
    SaturatingSubtract,
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

/// Who still reads a loaded tile when a step stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The step itself, each element before it stores there: the tile may be where it stores, element for element.
    Element,
    /// The step itself, in another order.
    Step,
    /// Later steps.
    Later,
}

/// A loaded tile that is read by a storing step, or behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardedLoad {
    pub register: Register,
    /// Bytes of one element.
    pub size: usize,
    pub extents: Extents,
    pub reader: Reader,
}

/// An atomic operation on the elements of a tile.
#[derive(Clone, Debug)]
pub(super) struct Atomically {
    pub change: Change,
    pub places: Places,
    pub value: Operand,
    pub mask: Option<Operand>,
    /// Where what was in memory goes, if somebody reads it.
    pub old: Option<Register>,
    /// Bytes of one element.
    pub size: usize,
    pub extents: Extents,
}

/// What a step on two operands is, where it can be one with another.
#[derive(Clone, Copy, Debug)]
pub(super) enum MapKind {
    Arithmetic(Arithmetic),
    /// Of float32.
    Comparison(Compare),
    /// The lower or the upper of two float32.
    Extreme(Binary),
    /// An exponential of a difference of float32.
    Exponential(Unary),
    /// `x / (1 + e^-y)` of float32.
    Logistic,
    Other,
}

/// What a step on one operand is, where it can be one with others.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnaryKind {
    /// Of float32.
    Operation(Unary),
    /// From a number type to another one.
    Cast([Scalar; 2]),
    Other,
}

impl UnaryKind {
    /// What an operation on a number type is.
    pub fn of(operation: Unary, scalar: Scalar) -> UnaryKind {
        if scalar == Scalar::F32 { UnaryKind::Operation(operation) } else { UnaryKind::Other }
    }

    /// What a cast between number types is.
    pub fn of_cast(cast: Cast, from: Scalar, to: Scalar) -> UnaryKind {
        if cast == Cast::Float { UnaryKind::Cast([from, to]) } else { UnaryKind::Other }
    }
}

impl MapKind {
    /// What an operation on a number type is.
    pub fn of(operation: Binary, scalar: Scalar) -> MapKind {
        use Binary::{Maximum, MaximumNumber, Minimum, MinimumNumber};
        let is_extreme = matches!(operation, Minimum | Maximum | MinimumNumber | MaximumNumber);
        match Arithmetic::of(operation, scalar) {
            Some(arithmetic) => MapKind::Arithmetic(arithmetic),
            None if is_extreme && scalar == Scalar::F32 => MapKind::Extreme(operation),
            None => MapKind::Other,
        }
    }
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
    /// `base + offset * size`.
    Place {
        destination: Slot,
        base: Slot,
        offset: Slot,
        size: i64,
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
    /// `(sum + elements) * scale + bytes` as i64: where elements lie whose places are known only one by one.
    Offsets {
        target: Target,
        sum: Sum,
        /// Integers of this many bytes, one for each element.
        elements: Option<(Operand, usize)>,
        scale: i64,
        /// i64.
        bytes: Option<Operand>,
        extents: Extents,
    },
    /// Elements of which a mask says one by one, or whose addresses are known only so.
    Gather {
        register: Register,
        places: Places,
        mask: Option<Operand>,
        other: Option<Operand>,
        size: usize,
        extents: Extents,
    },
    Scatter {
        value: Operand,
        places: Places,
        mask: Option<Operand>,
        size: usize,
        extents: Extents,
    },
    Atomic(Atomically),
    /// A sum without parts, as integers.
    CountUp {
        target: Target,
        sum: Sum,
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
        kind: UnaryKind,
        target: Target,
        x: Operand,
        x_size: usize,
        extents: Extents,
    },
    MapBinary {
        function: BinaryFunction,
        kind: MapKind,
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
    /// Two operations on three operands: `x * y + z` rounded once, or what were two steps, which four may become.
    MapFused {
        function: FusedFunction,
        pair: Option<Pair>,
        target: Target,
        operands: [Operand; 3],
        extents: Extents,
    },
    /// What were four steps on five operands.
    MapChain {
        function: ChainFunction,
        target: Target,
        operands: [Operand; 5],
        extents: Extents,
    },
    /// Of four operands the third where the first and the second compare so, else the fourth.
    MapChoice {
        function: ChoiceFunction,
        comparison: Comparison,
        target: Target,
        operands: [Operand; 4],
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
    /// The matrix products of two tiles, added to a third, which may be the target's register. `extents` are those of all products, one below
    /// the other.
    Dot {
        target: Target,
        kind: ProductKind,
        x: Operand,
        y: Operand,
        sum: Operand,
        batch: usize,
        depth: usize,
        extents: Extents,
        pieces: Option<Pieces>,
    },
    /// Behind the loop of such a product: what has not been multiplied yet.
    EndPieces {
        product: usize,
        sum: Register,
    },
    /// `direct`: a number that is the source may stand for the register.
    CopyTile {
        target: Target,
        source: Operand,
        extents: Extents,
        direct: bool,
    },

    /// A step on one row, in its short form.
    Row(Row),
    /// Several, compiled. They are done one after the other where rows overlap, or where one is an element repeated.
    Pass {
        pass: Box<Pass>,
        steps: Vec<Step>,
    },

    /// All elements to one slot.
    ReduceAll {
        function: ReduceFunction,
        /// Of float32.
        combine: Option<Combine>,
        destination: Slot,
        source: Operand,
        size: usize,
        width: Width,
        extents: Extents,
    },
    /// The sum of what becomes of each two elements of float32, to one slot: their product, or the square of their difference.
    SumOfPairs {
        function: PairSumFunction,
        kind: PairSum,
        destination: Slot,
        operands: [Operand; 2],
        extents: Extents,
    },
    /// Each row to one element; `result` is how these are laid out.
    ReduceRows {
        function: ReduceFunction,
        target: Target,
        source: Operand,
        extents: Extents,
        result: Extents,
    },
    /// The rows to one row.
    ReduceColumns {
        combine: BinaryFunction,
        identity: [u8; 8],
        target: Target,
        source: Operand,
        extents: Extents,
    },

    /// A reduction or scan by a block.
    Fold(Fold),
    /// An operation on whole tiles.
    Call(Call),

    Loop {
        index: Slot,
        lower: Slot,
        upper: Slot,
        step: Slot,
        body: Vec<Step>,
    },
    /// One of two bodies, the first where the condition holds.
    If {
        condition: Slot,
        bodies: [Vec<Step>; 2],
    },
    /// The first body, and while the condition holds then, the second and the first again.
    While {
        condition: Slot,
        bodies: [Vec<Step>; 2],
    },
}

impl Step {
    /// The tile that a step makes, where it makes one.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Step::Offsets { target, .. }
            | Step::CountUp { target, .. }
            | Step::MaskTile { target, .. }
            | Step::MapUnary { target, .. }
            | Step::MapBinary { target, .. }
            | Step::MapSelect { target, .. }
            | Step::MapFused { target, .. }
            | Step::MapChain { target, .. }
            | Step::MapChoice { target, .. }
            | Step::MapClip { target, .. }
            | Step::Dot { target, .. }
            | Step::CopyTile { target, .. }
            | Step::ReduceRows { target, .. }
            | Step::ReduceColumns { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Whether a step leaves a tile in scratch memory for later ones.
    pub fn keeps_a_tile(&self) -> bool {
        match self {
            Step::LoadTile { direct, .. } => !direct,
            Step::Call(_) | Step::Fold(_) | Step::Gather { .. } => true,
            Step::Atomic(atomic) => atomic.old.is_some(),
            Step::Row(row) => row.keeps_a_tile(),
            Step::Pass { pass, .. } => pass.keeps_a_tile(),
            step => step.target().is_some_and(|target| target.store.is_none()),
        }
    }

    /// The lists of steps that a step contains.
    pub fn bodies(&self) -> &[Vec<Step>] {
        match self {
            Step::Loop { body, .. } => std::slice::from_ref(body),
            Step::Fold(fold) => std::slice::from_ref(&fold.body),
            Step::Pass { steps, .. } => std::slice::from_ref(steps),
            Step::If { bodies, .. } | Step::While { bodies, .. } => bodies,
            _ => &[],
        }
    }

    /// As [`Step::bodies`].
    pub fn bodies_mut(&mut self) -> &mut [Vec<Step>] {
        match self {
            Step::Loop { body, .. } => std::slice::from_mut(body),
            Step::Fold(fold) => std::slice::from_mut(&mut fold.body),
            Step::Pass { steps, .. } => std::slice::from_mut(steps),
            Step::If { bodies, .. } | Step::While { bodies, .. } => bodies,
            _ => &mut [],
        }
    }
}
