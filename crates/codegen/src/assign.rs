//! Which values are kept, in which layout, and which are computed anew wherever they are needed.
//!
//! Index arithmetic (ranges, splats, sums of them) is cheap and pure: such values are *rematerialized*, written as expressions of the element's
//! index in whatever layout their reader has, also where a row of indices was loaded and stands in every line of the tile. Shape changes are
//! *views*: the same registers, read by another index. Everything else is *materialized* in a layout: that of the first kept operand, so that
//! whole chains share one layout and no element moves between threads.

mod control;
mod factors;

use crate::arrangement::Arrangement;
use crate::axis::AxisInfo;
use crate::coalescing::Coalescing;
use crate::dot_operands::dot_operands;
use crate::layout::{IndexBit, Layout, bits_of_all, bits_of_axis};
use crate::target::Target;
use openmps_tile::{Block, Instruction, Kernel, Number, Operation, Scalar, Type, Unary, Value};
use std::collections::{HashMap, HashSet};

/// The most operations that a rematerialized value may stand for.
const MOST_COST: u32 = 24;

/// What a division by an unknown integer counts as: a GPU has no instruction for it. A value of several divisions is kept, so that a loop
/// that reads it does not divide in every iteration.
const DIVISION_COST: u32 = 12;

/// A tile counts as repeated from this many bits of its index on: each element stands there at least eight times.
const REPEATED_BITS: usize = 3;

/// How a value is represented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// One number, the same in every thread.
    Scalar,
    /// An expression of the index, of this many operations.
    Rematerialized(u32),
    /// Another value's registers, read by another index.
    View,
    /// Registers in a layout. A weak one follows its neighbours when it meets them: a loop's value whose layout is not settled yet.
    Materialized { layout: Layout, weak: bool },
}

/// The form of every value.
pub struct Forms<'k> {
    kernel: &'k Kernel,
    thread_bits: usize,
    target: &'k Target,
    /// How products are shared by simdgroups.
    pub arrangement: Arrangement,
    forms: Vec<Form>,
    definitions: Vec<Option<&'k Instruction>>,
    /// What is known of neighbouring elements.
    pub axis_info: AxisInfo<'k>,
    /// Loaded tiles that only products read.
    pub dot_operands: HashSet<Value>,
    coalescing: Coalescing<'k>,
    /// Left factors that are loaded before the loop that multiplies by them, in the layout of the matrix unit's blocks.
    left_blocks: HashMap<Value, Layout>,
}

impl<'k> Forms<'k> {
    /// Chooses for a whole kernel.
    pub fn choose(kernel: &'k Kernel, target: &'k Target) -> Forms<'k> {
        let count = kernel.types.len();
        let mut definitions = vec![None; count];
        define(&kernel.body, &mut definitions);
        let thread_bits = target.thread_bits();
        let (axis_info, dot_operands) = (AxisInfo::of(kernel), dot_operands(kernel));
        let coalescing = Coalescing::of(kernel, target, &axis_info, &dot_operands, &definitions);
        let (forms, arrangement, left_blocks) = (vec![Form::Scalar; count], Arrangement::of(kernel), HashMap::new());
        let mut forms = Forms {
            kernel,
            thread_bits,
            target,
            arrangement,
            forms,
            definitions,
            axis_info,
            dot_operands,
            coalescing,
            left_blocks,
        };
        forms.find_left_blocks(&kernel.body, None);
        forms.block(&kernel.body);
        forms
    }

    /// The instruction whose result a value is; none for parameters and blocks' arguments.
    pub fn definition(&self, value: Value) -> Option<&'k Instruction> {
        self.definitions[value.0 as usize]
    }

    /// The number that all elements of a tile are, where it is a constant.
    pub fn constant(&self, value: Value) -> Option<f64> {
        let instruction = self.definition(value)?;
        match instruction.operation {
            Operation::Constant(Number::Float(number)) => Some(number),
            Operation::Constant(Number::Integer(number)) => Some(number as f64),
            Operation::Splat => self.constant(instruction.operands[0]),
            _ => None,
        }
    }

    /// The layout in which an instruction without a result (a store) is written: as if it had one.
    pub fn of_effect(&self, instruction: &Instruction) -> Layout {
        let ty = self.kernel.type_of(instruction.operands[0]);
        match self.elementwise(instruction, ty, None) {
            Form::Materialized { layout, .. } => layout.dense().0,
            _ => self.plain(ty),
        }
    }

    /// The form of a value.
    pub fn of(&self, value: Value) -> &Form {
        &self.forms[value.0 as usize]
    }

    fn set(&mut self, value: Value, form: Form) {
        self.forms[value.0 as usize] = form;
    }

    fn dims(&self, value: Value) -> &[usize] {
        self.kernel.dims_of(value)
    }

    /// The layout for a tile that has no better one.
    pub fn plain(&self, ty: &Type) -> Layout {
        self.coalescing.plain(&ty.dims)
    }

    fn block(&mut self, block: &Block) {
        for instruction in &block.instructions {
            self.instruction(instruction);
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        match &instruction.operation {
            Operation::For => return self.for_loop(instruction),
            Operation::If => return self.if_else(instruction),
            Operation::While => return self.while_loop(instruction),
            Operation::ReduceBlock { axis } => return self.reduced(instruction, *axis),
            Operation::Scan { .. } => return self.scanned(instruction),
            Operation::Split => return self.halves(instruction),
            _ => {}
        }
        let Some(&result) = instruction.results.first() else { return };
        let ty = self.kernel.type_of(result);
        if ty.is_scalar() {
            return self.set(result, Form::Scalar);
        }
        let form = match &instruction.operation {
            Operation::Constant(_) | Operation::Range { .. } | Operation::Splat => Form::Rematerialized(1),
            Operation::ExpandDims { .. } | Operation::Broadcast | Operation::Reshape | Operation::Permute { .. } => {
                match self.of(instruction.operands[0]) {
                    Form::Rematerialized(cost) => Form::Rematerialized(*cost),
                    _ => Form::View,
                }
            }
            Operation::Load if self.left_blocks.contains_key(&result) => {
                Form::Materialized { layout: self.left_blocks[&result].clone(), weak: false }
            }
            Operation::Load | Operation::Atomic(_) | Operation::CompareSwap => match self.coalescing.own(result) {
                Some(layout) => Form::Materialized { layout, weak: false },
                None => self.elementwise(instruction, ty, None),
            },
            Operation::Join => self.doubled(instruction.operands[0], 0),
            Operation::Concatenate => {
                let top = bits_of_all(self.dims(instruction.operands[0]));
                self.doubled(instruction.operands[0], top)
            }
            Operation::Gather { .. } => {
                Form::Materialized { layout: self.natural(instruction.operands[1]).0.dense().0, weak: false }
            }
            Operation::Histogram => Form::Materialized { layout: self.plain(ty), weak: false },
            Operation::Reduce { axis, .. } => self.without_axis(instruction.operands[0], *axis),
            Operation::Dot => Form::Materialized { layout: self.product(instruction), weak: false },
            operation => self.elementwise(instruction, ty, Some(operation)),
        };
        self.set(result, form);
    }

    /// What is left of a tile's layout when an axis is reduced.
    fn without_axis(&self, x: Value, axis: usize) -> Form {
        let layout = self.natural(x).0;
        let gone = bits_of_axis(self.dims(x), axis);
        let kept: Vec<usize> = (0..layout.bits().len()).filter(|bit| !gone.contains(bit)).collect();
        Form::Materialized { layout: layout.select(&kept).dense().0, weak: false }
    }

    /// The operand whose layout several tiles that are walked together follow: the first that is kept.
    pub fn leader(&self, operands: &[Value]) -> Value {
        let kept = |value: &&Value| matches!(self.of(**value), Form::Materialized { .. } | Form::View);
        operands.iter().find(kept).or(operands.first()).copied().unwrap_or(Value(0))
    }

    fn reduced(&mut self, instruction: &Instruction, axis: usize) {
        let form = self.without_axis(self.leader(&instruction.operands), axis);
        for &result in &instruction.results {
            let scalar = self.kernel.type_of(result).is_scalar();
            self.set(result, if scalar { Form::Scalar } else { form.clone() });
        }
    }

    fn scanned(&mut self, instruction: &Instruction) {
        let layout = self.natural(self.leader(&instruction.operands)).0.dense().0;
        for &result in &instruction.results {
            self.set(result, Form::Materialized { layout: layout.clone(), weak: false });
        }
    }

    /// A tile's layout with one more bit, kept in a further register.
    fn doubled(&self, x: Value, at: usize) -> Form {
        let layout = self.natural(x).0.dense().0;
        let mut bits = layout.bits().to_vec();
        bits.insert(at, IndexBit::Register(layout.registers().trailing_zeros() as u8));
        Form::Materialized { layout: Layout::new(bits), weak: false }
    }

    /// The layout in which a tile is split: neighbours along the last dimension in one thread.
    pub fn of_pairs(&self, x: Value) -> Layout {
        let layout = self.natural(x).0.dense().0;
        if matches!(layout.bits().first(), Some(IndexBit::Register(_))) {
            return layout;
        }
        let rest = Layout::distributed(layout.bits().len() - 1, self.thread_bits, 0);
        let mut bits = rest.bits().to_vec();
        bits.insert(0, IndexBit::Register(rest.registers().trailing_zeros() as u8));
        Layout::new(bits)
    }

    fn halves(&mut self, instruction: &Instruction) {
        let layout = self.of_pairs(instruction.operands[0]);
        let rest: Vec<usize> = (1..layout.bits().len()).collect();
        for &result in &instruction.results {
            self.set(result, Form::Materialized { layout: layout.select(&rest).dense().0, weak: false });
        }
    }

    /// Rematerialized where it is cheap and all operands are (`cheap` is none for what must be kept); else in the layout of an operand.
    fn elementwise(&self, instruction: &Instruction, ty: &Type, cheap: Option<&Operation>) -> Form {
        if let Some(operation) = cheap.filter(|operation| is_cheap(operation)) {
            let own = if self.divides(instruction) { DIVISION_COST } else { 1 };
            let is_index = !ty.number().is_some_and(Scalar::is_float);
            let cost = instruction.operands.iter().try_fold(own, |sum, &operand| match self.of(operand) {
                Form::Rematerialized(cost) => Some(sum + cost),
                Form::View if is_index && self.is_repeated(operand) => Some(sum + 1),
                _ => None,
            });
            if let Some(cost) = cost.filter(|&cost| cost <= MOST_COST || matches!(operation, Operation::AddPointer)) {
                return Form::Rematerialized(cost);
            }
        }
        let (mut weak_layout, mut repeated_layout) = (None, None);
        for &operand in &instruction.operands {
            match self.of(operand) {
                // A row or column that stands everywhere lies as it likes in most of the tile: whole tiles have a say before it.
                Form::View if self.is_repeated(operand) => {
                    repeated_layout.get_or_insert(self.natural(operand).0);
                }
                Form::Materialized { .. } | Form::View => {
                    let (layout, weak) = self.natural(operand);
                    if !weak {
                        return Form::Materialized { layout, weak: false };
                    }
                    weak_layout.get_or_insert(layout);
                }
                Form::Scalar | Form::Rematerialized(_) => {}
            }
        }
        match (weak_layout, repeated_layout) {
            (Some(layout), _) => Form::Materialized { layout, weak: true },
            (None, Some(layout)) => Form::Materialized { layout, weak: false },
            (None, None) => Form::Materialized { layout: self.plain(ty), weak: false },
        }
    }

    /// Whether a view repeats a much smaller kept tile, which moves between threads at less cost than what is computed of it.
    fn is_repeated(&self, view: Value) -> bool {
        let mut source = view;
        while let (Form::View, Some(definition)) = (self.of(source), self.definition(source)) {
            source = definition.operands[0];
        }
        bits_of_all(self.dims(source)) + REPEATED_BITS <= bits_of_all(self.dims(view))
    }

    /// Whether this is a quotient or remainder by an integer that the target's compiler does not know.
    fn divides(&self, instruction: &Instruction) -> bool {
        use openmps_tile::Binary::{Divide, DivideUnsigned, Remainder, RemainderUnsigned};
        let Operation::Binary(Divide | DivideUnsigned | Remainder | RemainderUnsigned) = instruction.operation else {
            return false;
        };
        let divisor = instruction.operands[1];
        let integers = self.kernel.type_of(divisor).number().is_some_and(|scalar| !scalar.is_float());
        integers && self.constant(divisor).is_none()
    }

    /// The layout in which a tile can be read without moving elements, and whether it is not settled yet.
    pub fn natural(&self, value: Value) -> (Layout, bool) {
        match self.of(value) {
            Form::Materialized { layout, weak } => (layout.clone(), *weak),
            Form::View => self.of_view(value),
            Form::Scalar | Form::Rematerialized(_) => (self.plain(self.kernel.type_of(value)), false),
        }
    }

    fn of_view(&self, value: Value) -> (Layout, bool) {
        let Some(instruction) = self.definition(value) else {
            return (self.plain(self.kernel.type_of(value)), false);
        };
        let source = instruction.operands[0];
        let (layout, weak) = self.natural(source);
        match instruction.operation {
            Operation::Broadcast => (self.widened(&layout, self.dims(source), self.dims(value)), weak),
            Operation::Permute { ref order } => {
                let of = |axis: &usize| bits_of_axis(self.dims(source), *axis);
                let bits: Vec<usize> = order.iter().rev().flat_map(of).collect();
                (layout.select(&bits), weak)
            }
            _ => (layout, weak),
        }
    }

    /// A layout whose repeated dimensions take free threads first, then further registers.
    fn widened(&self, layout: &Layout, from: &[usize], to: &[usize]) -> Layout {
        let mut free = layout.free_threads(self.thread_bits).into_iter();
        let mut register = layout.registers().trailing_zeros() as u8;
        let mut bits = vec![IndexBit::Register(0); bits_of_all(to)];
        for axis in 0..to.len() {
            let (source, target) = (bits_of_axis(from, axis), bits_of_axis(to, axis));
            if from[axis] == to[axis] {
                bits[target].copy_from_slice(&layout.bits()[source]);
                continue;
            }
            for bit in target {
                bits[bit] = free.next().map(IndexBit::Thread).unwrap_or_else(|| {
                    register += 1;
                    IndexBit::Register(register - 1)
                });
            }
        }
        Layout::new(bits)
    }
}

/// Operations that cost less to repeat than to keep their result.
fn is_cheap(operation: &Operation) -> bool {
    match operation {
        Operation::AddPointer | Operation::Binary(_) | Operation::Compare(_) => true,
        Operation::Select | Operation::Cast(_) | Operation::IntegerToPointer | Operation::PointerToInteger => true,
        Operation::Unary(unary) => matches!(unary, Unary::Negate | Unary::Not | Unary::Absolute),
        _ => false,
    }
}

/// Notes for each result which instruction defines it.
fn define<'k>(block: &'k Block, definitions: &mut [Option<&'k Instruction>]) {
    for instruction in &block.instructions {
        for result in &instruction.results {
            definitions[result.0 as usize] = Some(instruction);
        }
        instruction.blocks.iter().for_each(|block| define(block, definitions));
    }
}
