//! From a kernel to steps: which file lowers what.

mod best;
mod compare;
mod control;
mod cube;
mod effect;
mod emit;
mod memory;
mod motion;
mod pointer;
mod reduce;
mod running;
mod scalar;
mod shape;
mod tile;

use super::cube::Cubes;
use super::effects::changes_outside;
use super::operand::{Extents, Register, Slot, Spread, Sum};
use super::second::Range;
use super::step::Step;
use super::value::{Computed, Filled, Form, Planned, rows_and_columns};
use super::{Program, registers, turns};
use crate::error::Error;
use openmps_tile::types::Element;
use openmps_tile::{Block, Instruction, Kernel, Operation, Scalar, Value};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Which loops are steps of a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loops {
    All,
    /// Those are not whose end is a parameter: they are taken to run once.
    Once,
}

/// Plans a kernel; with the loops whose end is a parameter.
pub(super) fn lower(kernel: &Kernel, loops: Loops) -> Result<(Program, Vec<Range>), Error> {
    let mut forced = HashSet::new();
    loop {
        let mut lowering = Lowering::new(kernel, std::mem::take(&mut forced), loops);
        match lowering.run() {
            Ok(()) => {
                let ranges = std::mem::take(&mut lowering.ranges);
                return Ok((lowering.finish(), ranges));
            }
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
    cubes: Rc<Cubes>,
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
    open: Vec<Vec<Step>>,
    /// For each of them what it has computed of indices and addresses.
    computed: Vec<HashMap<Computed, Slot>>,
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
    loops: Loops,
    /// Loops whose end is a parameter.
    ranges: Vec<Range>,
    ns: f64,
    pub ns_scale: f64,
}

impl<'k> Lowering<'k> {
    fn new(kernel: &'k Kernel, forced: HashSet<Value>, loops: Loops) -> Lowering<'k> {
        let parameters = kernel.parameters.len();
        let mut lowering = Lowering {
            kernel,
            planned: HashMap::new(),
            cubes: Rc::new(Cubes::new(kernel)),
            slots: vec![0; parameters],
            constants: HashMap::new(),
            slot_of_constant: HashMap::new(),
            literals: HashSet::new(),
            invariant: (0..parameters).collect(),
            grid_slots: [0; 3],
            program_slots: [0; 3],
            prologue: Vec::new(),
            open: vec![Vec::new()],
            computed: vec![HashMap::new()],
            registers: Vec::new(),
            filled: HashMap::new(),
            forms: HashMap::new(),
            forced,
            lanes: None,
            is_ordered: false,
            loops,
            ranges: Vec::new(),
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
        let one = self.slot_of_constant.get(&1).copied();
        let assigned = registers::assign(&mut body, &self.registers, self.slots.len(), one);
        Program {
            stored: stored(&body),
            name: self.kernel.name.clone(),
            parameters: self.kernel.parameters.len(),
            slots: self.slots,
            grid_slots: self.grid_slots,
            program_slots: self.program_slots,
            prologue: self.prologue,
            body,
            registers: assigned.offsets,
            scratch_bytes: assigned.scratch_bytes,
            products: assigned.products,
            ns_per_program: self.ns as usize,
            is_ordered: self.is_ordered,
            places: turns::places(self.kernel),
            by: 1,
            wide: None,
            seconds: Vec::new(),
        }
    }

    pub fn block(&mut self, block: &Block) -> Lowered<()> {
        block.instructions.iter().try_for_each(|instruction| self.instruction(instruction))
    }

    fn instruction(&mut self, instruction: &Instruction) -> Lowered<()> {
        use Operation::*;
        let operation = &instruction.operation;
        if self.lanes.is_some() && !is_done_by_lane(operation) {
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
        if self.cubes.is_unread(result) {
            return Ok(());
        }
        let cubes = Rc::clone(&self.cubes);
        let planned = match operation {
            _ if let Some(network) = cubes.network(result) => self.network(network, result)?,
            _ if let Some(parity) = cubes.parity(result) => self.parity(parity, result)?,
            For => return self.for_loop(instruction),
            If => return self.if_else(instruction),
            While => return self.while_loop(instruction),
            ReduceBlock { axis } => {
                if self.best(instruction, *axis)? {
                    return Ok(());
                }
                return self.by_block(instruction, *axis, None);
            }
            Scan { axis, reverse } => {
                if self.running(instruction, *axis, *reverse)? {
                    return Ok(());
                }
                return self.by_block(instruction, *axis, Some(*reverse));
            }
            Split => return self.split(operands[0], &instruction.results),
            Constant(number) => self.number(*number, result),
            ProgramId(axis) => Planned::Uniform(self.program_slots[usize::from(*axis).min(2)]),
            ProgramCount(axis) => Planned::Uniform(self.grid_slots[usize::from(*axis).min(2)]),
            // A range of one number is that number: masks made of it hold for whole rows.
            Range { start } if self.kernel.type_of(result).len() == 1 => {
                Planned::Uniform(self.constant(i64::from(*start)))
            }
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
}

/// Bytes that rows store at most, where they may be stored late: not where a lock, say, is released by a store behind them.
fn stored(body: &[Step]) -> usize {
    let by_row = |step: &Step| match step {
        Step::Row(row) => row.stored(),
        Step::Pass { pass, .. } => pass.stored(),
        _ => 0,
    };
    if changes_outside(body) { 0 } else { body.iter().map(by_row).sum() }
}

/// What can be done for many elements at once where a block says it for one.
fn is_done_by_lane(operation: &Operation) -> bool {
    operation.is_elementwise() || matches!(operation, Operation::Constant(_) | Operation::Yield)
}
