//! From a kernel to steps: which file lowers what, and arithmetic on scalars and indices.

use super::call::{Call, Effect, Work, Written};
use super::step::{Extents, IndexOperation, Operand, Register, Slot, Spread, Step, Sum, Target, Width};
use super::value::{Filled, Form, Planned, rows_and_columns, width_of};
use super::{Program, registers};
use crate::error::Error;
use crate::vector::{binary, cast, unary};
use openmps_tile::interpret::element;
use openmps_tile::types::Element;
use openmps_tile::{Binary, Block, Instruction, Kernel, Number, Operation, Scalar, Value};
use std::collections::{HashMap, HashSet};

/// Plans a kernel.
pub(super) fn lower(kernel: &Kernel) -> Result<Program, Error> {
    let mut forced = HashSet::new();
    loop {
        let mut lowering = Lowering::new(kernel, std::mem::take(&mut forced));
        match lowering.run() {
            Ok(()) => return Ok(lowering.finish()),
            // A carried value turned out to be data although it starts as an index: start again, knowing that.
            Err(Stop::CarriedAsData(value)) if !lowering.forced.contains(&value) => {
                forced = lowering.forced;
                forced.insert(value);
            }
            Err(Stop::CarriedAsData(_)) => return Err(unsupported(kernel, "a carried value that changes its form")),
            Err(Stop::Unsupported(what)) => return Err(unsupported(kernel, &what)),
        }
    }
}

fn unsupported(kernel: &Kernel, what: &str) -> Error {
    Error::Unsupported { kernel: kernel.name.clone(), what: what.to_owned(), by: "the host" }
}

/// Why planning stops.
pub(super) enum Stop {
    Unsupported(String),
    CarriedAsData(Value),
}

/// The result of lowering something.
pub(super) type Lowered<T> = Result<T, Stop>;

/// Stops with the name of what the plan has no step for.
pub(super) fn refuse<T>(what: impl Into<String>) -> Lowered<T> {
    Err(Stop::Unsupported(what.into()))
}

pub(super) struct Lowering<'k> {
    pub kernel: &'k Kernel,
    pub planned: HashMap<Value, Planned>,
    slots: Vec<u64>,
    /// Slots whose number is known now.
    constants: HashMap<Slot, i64>,
    slot_of_constant: HashMap<i64, Slot>,
    /// Slots whose bits are known now.
    literals: HashSet<Slot>,
    /// Slots that depend on the arguments only.
    invariant: HashSet<Slot>,
    grid_slots: [Slot; 3],
    program_slots: [Slot; 3],
    prologue: Vec<Step>,
    /// Lists under construction, the innermost loop's last.
    pub open: Vec<Vec<Step>>,
    /// Bytes of each register.
    pub registers: Vec<usize>,
    /// Registers that hold one number outside of a part.
    pub filled: HashMap<Register, Filled>,
    /// Registers that are on the way to a logistic function.
    pub forms: HashMap<Register, Form>,
    /// Carried values that must be data.
    pub forced: HashSet<Value>,
    /// Inside the block of a reduction or scan: what each of its scalars stands for.
    pub lanes: Option<Extents>,
    /// Whether programs must run one after the other.
    pub is_ordered: bool,
    ns: f64,
    pub ns_scale: f64,
}

impl<'k> Lowering<'k> {
    fn new(kernel: &'k Kernel, forced: HashSet<Value>) -> Lowering<'k> {
        let parameters = kernel.parameters.len();
        let mut lowering = Lowering {
            kernel,
            planned: HashMap::new(),
            slots: vec![0; parameters],
            constants: HashMap::new(),
            slot_of_constant: HashMap::new(),
            literals: HashSet::new(),
            invariant: (0..parameters).collect(),
            grid_slots: [0; 3],
            program_slots: [0; 3],
            prologue: Vec::new(),
            open: vec![Vec::new()],
            registers: Vec::new(),
            filled: HashMap::new(),
            forms: HashMap::new(),
            forced,
            lanes: None,
            is_ordered: false,
            ns: 10.0,
            ns_scale: 1.0,
        };
        for axis in 0..3 {
            lowering.grid_slots[axis] = lowering.slot();
            lowering.invariant.insert(lowering.grid_slots[axis]);
            lowering.program_slots[axis] = lowering.slot();
        }
        lowering
    }

    fn run(&mut self) -> Lowered<()> {
        for (index, parameter) in self.kernel.parameters.iter().enumerate() {
            let planned = match self.kernel.type_of(parameter.value).target() {
                Some(_) => Planned::Pointer { base: index, offset: Sum::uniform(self.constant(0)) },
                None => Planned::Uniform(index),
            };
            self.planned.insert(parameter.value, planned);
        }
        self.block(&self.kernel.body)
    }

    fn finish(mut self) -> Program {
        let mut body = self.open.pop().unwrap_or_default();
        let (registers, scratch_bytes) = registers::assign(&mut body, &self.registers, self.slots.len());
        Program {
            name: self.kernel.name.clone(),
            parameters: self.kernel.parameters.len(),
            slots: self.slots,
            grid_slots: self.grid_slots,
            program_slots: self.program_slots,
            prologue: self.prologue,
            body,
            registers,
            scratch_bytes,
            ns_per_program: self.ns as usize,
            is_ordered: self.is_ordered,
        }
    }

    pub fn block(&mut self, block: &Block) -> Lowered<()> {
        block.instructions.iter().try_for_each(|instruction| self.instruction(instruction))
    }

    fn instruction(&mut self, instruction: &Instruction) -> Lowered<()> {
        use Operation::*;
        let operation = &instruction.operation;
        if self.lanes.is_some() && !is_elementwise(operation) {
            return refuse(format!("{} in the block of a reduction or scan", operation.name()));
        }
        let operands = &instruction.operands;
        let Some(&result) = instruction.results.first() else {
            return match operation {
                For => self.for_loop(instruction),
                If => self.if_else(instruction),
                While => self.while_loop(instruction),
                Store => self.store(operands),
                Assert { message } => self.assert(instruction, message),
                Print(print) => self.print(operands, print),
                _ => Ok(()),
            };
        };
        let planned = match operation {
            For => return self.for_loop(instruction),
            If => return self.if_else(instruction),
            While => return self.while_loop(instruction),
            ReduceBlock { axis } => return self.by_block(instruction, *axis, None),
            Scan { axis, reverse } => return self.by_block(instruction, *axis, Some(*reverse)),
            Split => return self.split(operands[0], &instruction.results),
            Constant(number) => self.number(*number, result),
            ProgramId(axis) => Planned::Uniform(self.program_slots[usize::from(*axis).min(2)]),
            ProgramCount(axis) => Planned::Uniform(self.grid_slots[usize::from(*axis).min(2)]),
            Range { start } => {
                let (base, one) = (self.constant(i64::from(*start)), self.constant(1));
                Planned::Index(Sum { base, spread: Spread { column_stride: Some(one), ..Spread::NONE } })
            }
            Splat => self.get(operands[0])?,
            ExpandDims { .. } | Reshape => self.reshape(operands[0], result)?,
            Broadcast => self.broadcast(operands[0], result)?,
            Permute { order } => self.permute(operands[0], order, result)?,
            Join => self.join(operands, result)?,
            Concatenate => self.concatenate(operands, result)?,
            Unsplat => self.unsplat(operands[0], result)?,
            Operation::Gather { axis } => self.gather(operands, *axis, result)?,
            Histogram => self.histogram(operands, result)?,
            AddPointer => self.add_pointer(operands)?,
            IntegerToPointer => self.integer_to_pointer(operands[0])?,
            PointerToInteger => self.pointer_to_integer(operands[0])?,
            Load => self.load(operands, result)?,
            Atomic(atomic) => self.atomic(*atomic, operands, result)?,
            CompareSwap => self.compare_swap(operands, result)?,
            Unary(operation) => self.unary(*operation, operands[0], result)?,
            Binary(operation) => self.binary(*operation, operands, result)?,
            Compare(comparison) => self.compare(*comparison, operands, result)?,
            Select => self.select(operands, result)?,
            Cast(cast) => self.cast(*cast, operands[0], result)?,
            MultiplyAdd => self.multiply_add(operands, result)?,
            Dot => self.dot(operands)?,
            Reduce { axis, combine } => self.reduce(*combine, operands[0], *axis, result)?,
            Store | Assert { .. } | Print(_) | Barrier | Condition | Yield => return refuse(operation.name()),
        };
        self.planned.insert(result, planned);
        Ok(())
    }

    /// What a value is.
    pub fn get(&self, value: Value) -> Lowered<Planned> {
        match self.planned.get(&value) {
            Some(planned) => Ok(*planned),
            None => refuse(format!("value %{} before its definition", value.0)),
        }
    }

    /// The number type of a value, or of what it points to.
    pub fn scalar_of(&self, value: Value) -> Scalar {
        let ty = self.kernel.type_of(value);
        ty.number().or(ty.target()).unwrap_or(Scalar::I64)
    }

    /// Bytes of one element of a value.
    pub fn element_size(&self, value: Value) -> usize {
        match self.kernel.type_of(value).element {
            Element::Scalar(scalar) => scalar.size(),
            Element::Pointer(_) => 8,
        }
    }

    /// Whether a value's elements are addresses.
    pub fn is_pointer(&self, value: Value) -> bool {
        self.kernel.type_of(value).target().is_some()
    }

    /// Whether a value is one element: what is a scalar in a block that combines stands for many.
    pub fn is_one(&self, value: Value) -> bool {
        self.kernel.type_of(value).is_scalar() && self.lanes.is_none()
    }

    /// The full extents of a value.
    pub fn extents_of(&self, value: Value) -> Extents {
        if let Some(lanes) = self.lanes.filter(|_| self.kernel.type_of(value).is_scalar()) {
            return lanes;
        }
        let (rows, columns) = rows_and_columns(self.kernel.dims_of(value));
        Extents::full(rows, columns)
    }

    /// A fresh slot.
    pub fn slot(&mut self) -> Slot {
        self.slots.push(0);
        self.slots.len() - 1
    }

    /// The slot of an integer constant.
    pub fn constant(&mut self, value: i64) -> Slot {
        if let Some(&slot) = self.slot_of_constant.get(&value) {
            return slot;
        }
        let slot = self.bits(value as u64);
        self.constants.insert(slot, value);
        self.slot_of_constant.insert(value, slot);
        slot
    }

    /// A slot that holds these bits from the start.
    fn bits(&mut self, bits: u64) -> Slot {
        let slot = self.slot();
        self.slots[slot] = bits;
        self.invariant.insert(slot);
        self.literals.insert(slot);
        slot
    }

    /// The constant in a slot, if it is one.
    pub fn known(&self, slot: Slot) -> Option<i64> {
        self.constants.get(&slot).copied()
    }

    /// The bits in a slot, if they are known.
    pub fn literal(&self, slot: Slot) -> Option<u64> {
        self.literals.contains(&slot).then(|| self.slots[slot])
    }

    fn number(&mut self, number: Number, result: Value) -> Planned {
        let scalar = self.scalar_of(result);
        let bits = element::constant(number, scalar);
        let slot =
            if scalar.is_float() { self.bits(bits) } else { self.constant(width_of(scalar).extend(bits) as i64) };
        Planned::Uniform(slot)
    }

    /// A fresh register for a tile of `bytes`.
    pub fn register(&mut self, bytes: usize) -> Register {
        self.registers.push(bytes);
        self.registers.len() - 1
    }

    /// A fresh register as target for elements of `size` bytes.
    pub fn target(&mut self, extents: &Extents, size: usize) -> Target {
        let register = self.register(extents.len() * size);
        Target { register, size, store: None }
    }

    /// Adds a step on tiles of these extents and accounts for its time.
    pub fn emit_tile(&mut self, step: Step, extents: &Extents, ns_per_element: f64) {
        self.ns += self.ns_scale * (8.0 + ns_per_element * extents.len() as f64);
        self.emit(step);
    }

    /// Adds a call that has a tile, or one number, as its only result.
    pub fn emit_call(
        &mut self,
        name: &'static str,
        reads: Vec<Operand>,
        result: Value,
        ns: f64,
        work: Work,
    ) -> Planned {
        let (written, operand) = self.home(result);
        let call = Call { name, reads, writes: vec![written], effect: Effect::Nothing, work };
        self.emit_tile(Step::Call(call), &self.extents_of(result), ns);
        self.as_planned(result, operand)
    }

    /// A fresh place for a value's elements one row after the other.
    pub fn home(&mut self, value: Value) -> (Written, Operand) {
        if self.is_one(value) {
            let (slot, width) = (self.slot(), self.width_of(value));
            return (Written::Number(slot, width), Operand::Uniform(slot));
        }
        let (extents, size) = (self.extents_of(value), self.element_size(value));
        let target = self.target(&extents, size);
        (Written::Tile(target, extents), super::lower_tile::plain(target.register))
    }

    /// The step width of a value's slot.
    pub fn width_of(&self, value: Value) -> Width {
        if self.is_pointer(value) { Width::Whole } else { width_of(self.scalar_of(value)) }
    }

    /// What a value is whose elements are the operand's: numbers, or addresses.
    pub fn as_planned(&mut self, value: Value, operand: Operand) -> Planned {
        match (self.is_pointer(value), operand) {
            (true, Operand::Uniform(base)) => Planned::Pointer { base, offset: Sum::uniform(self.constant(0)) },
            (true, offsets) => Planned::Scattered { base: self.constant(0), offsets },
            (false, Operand::Uniform(slot)) => Planned::Uniform(slot),
            (false, data) => Planned::Data(data),
        }
    }

    /// Adds a step to the innermost list.
    pub fn emit(&mut self, step: Step) {
        if let Some(list) = self.open.last_mut() {
            list.push(step);
        }
    }

    /// Adds a scalar step, to the prologue when all it reads depends on the arguments only.
    pub fn emit_scalar(&mut self, reads: &[Slot], make: impl FnOnce(Slot) -> Step) -> Slot {
        let destination = self.slot();
        let step = make(destination);
        if reads.iter().all(|slot| self.invariant.contains(slot)) {
            self.invariant.insert(destination);
            self.prologue.push(step);
        } else {
            self.ns += self.ns_scale * 2.0;
            self.emit(step);
        }
        destination
    }

    /// Arithmetic on 64-bit slots, folded where the operands are known.
    pub fn index(&mut self, operation: IndexOperation, x: Slot, y: Slot, width: Width) -> Slot {
        use IndexOperation::{Add, Multiply, Subtract};
        match (operation, self.known(x), self.known(y)) {
            (operation, Some(x), Some(y)) => {
                let raw = super::execute::index_operation(operation, x, y);
                return self.constant(width.extend(raw as u64) as i64);
            }
            (Add, Some(0), _) | (Multiply, Some(1), _) => return y,
            (Add | Subtract, _, Some(0)) | (Multiply, _, Some(1)) => return x,
            (Multiply, Some(0), _) | (Multiply, _, Some(0)) => return self.constant(0),
            _ => {}
        }
        self.emit_scalar(&[x, y], |destination| Step::Index { operation, destination, x, y, width })
    }

    /// A primitive on one slot.
    pub fn scalar_unary(&mut self, function: unary::UnaryFunction, x: Slot, width: Width) -> Slot {
        self.emit_scalar(&[x], |destination| Step::Unary { function, destination, x, width })
    }

    /// A primitive on two slots.
    pub fn scalar_binary(&mut self, function: binary::BinaryFunction, x: Slot, y: Slot, width: Width) -> Slot {
        self.emit_scalar(&[x, y], |destination| Step::Binary { function, destination, x, y, width })
    }

    /// A choice between two slots.
    pub fn scalar_select(&mut self, condition: Slot, x: Slot, y: Slot) -> Slot {
        self.emit_scalar(&[condition, x, y], |destination| Step::Select { destination, condition, x, y })
    }

    /// A conversion of a slot. Integers are sign-extended already, so widening them is a copy.
    pub fn scalar_cast(&mut self, kind: openmps_tile::Cast, from: Scalar, to: Scalar, x: Slot) -> Lowered<Slot> {
        if let (openmps_tile::Cast::Signed, true) = (kind, to.size() >= from.size() && to != Scalar::I1) {
            return Ok(x);
        }
        if let (Some(value), openmps_tile::Cast::Signed) = (self.known(x), kind) {
            return Ok(self.constant(width_of(to).extend(value as u64) as i64));
        }
        match cast::cast(kind, from, to) {
            Some(function) => Ok(self.scalar_unary(function, x, width_of(to))),
            None => refuse(format!("{} from {} to {}", kind.text(), from.name(), to.name())),
        }
    }

    /// `base + offset * size`.
    pub fn byte_address(&mut self, base: Slot, offset: Slot, size: usize) -> Slot {
        let size = self.constant(size as i64);
        let bytes = self.index(IndexOperation::Multiply, offset, size, Width::Whole);
        self.index(IndexOperation::Add, base, bytes, Width::Whole)
    }

    /// The index operation that a binary operation on integers is, if the plan does it symbolically.
    pub fn index_operation(operation: Binary) -> Option<IndexOperation> {
        Some(match operation {
            Binary::Add => IndexOperation::Add,
            Binary::Subtract => IndexOperation::Subtract,
            Binary::Multiply => IndexOperation::Multiply,
            Binary::Divide => IndexOperation::Divide,
            Binary::Remainder => IndexOperation::Remainder,
            Binary::Minimum => IndexOperation::Minimum,
            Binary::Maximum => IndexOperation::Maximum,
            _ => return None,
        })
    }
}

/// What can be done for many elements at once where a block says it for one.
fn is_elementwise(operation: &Operation) -> bool {
    use Operation::*;
    matches!(operation, Constant(_) | Unary(_) | Binary(_) | Compare(_) | Select | Cast(_) | MultiplyAdd | Yield)
}
