//! The emitter: one walk over a kernel that writes statements.

mod arithmetic;
mod atomic;
mod block;
mod control;
mod convert;
mod dot;
mod element;
mod group;
mod memory;
mod order;
mod reduce;
mod shape;
mod signature;
mod vector;

use crate::assign::{Form, Forms};
use crate::coherence::passes_memory;
use crate::dialect::Dialect;
use crate::error::CodegenError;
use crate::layout::Layout;
use crate::target::{SIMD_WIDTH, Target};
use crate::{Source, names};
use group::Group;
use openmps_tile::{Block, Element, Instruction, Kernel, Operation, Scalar, Type, Value};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

type Result<T> = std::result::Result<T, CodegenError>;

/// Writes a kernel that the verifier has passed.
pub(crate) fn kernel(kernel: &Kernel, target: &Target) -> Result<Source> {
    let mut emitter = Emitter::new(kernel, target);
    emitter.check_target()?;
    emitter.find_raw(&kernel.body);
    emitter.scalars_of_parameters();
    emitter.block(&kernel.body)?;
    emitter.finish()
}

/// The state of the walk.
struct Emitter<'k> {
    kernel: &'k Kernel,
    target: &'k Target,
    forms: Forms<'k>,
    /// Whether programs pass memory to each other.
    coherent: bool,
    /// How often each value is read, by whom: the addresses of instructions.
    readers: HashMap<Value, Vec<*const Instruction>>,
    /// Tiles of half types that stay in registers as they are in memory.
    raw: HashSet<Value>,
    parameters: Vec<String>,
    /// The body so far.
    text: String,
    depth: usize,
    /// Numbers that are the same in every thread, by value.
    scalars: HashMap<Value, String>,
    /// Registers of tiles that are in scope: value, layout, name.
    arrays: Vec<(Value, Layout, String)>,
    /// Instructions to be written as one loop.
    group: Group<'k>,
    /// Where the loops around this place put what their blocks yield, the innermost last.
    carried: Vec<Vec<control::Carried>>,
    /// Bytes of threadgroup memory.
    scratch: usize,
    /// Whether a thread may still be reading it.
    scratch_in_use: bool,
    /// How often it was taken so far.
    scratch_taken: usize,
    helpers: BTreeSet<&'static str>,
    /// Products that are summed up in tensors of their own while a loop runs, by the loop's value; and whether there are any tensors.
    sums: HashMap<Value, dot::Sums>,
    tensors: bool,
    names: usize,
    /// How many registers the loop that was opened last goes through.
    registers: usize,
    /// By value: which parameters a pointer may come from, as bits.
    origins: Vec<u128>,
    /// Which parameters' elements several threads have read since the last barrier.
    read_by_several: u128,
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel, target: &'k Target) -> Emitter<'k> {
        let mut readers = HashMap::new();
        note_readers(&kernel.body, &mut readers);
        Emitter {
            kernel,
            target,
            forms: Forms::choose(kernel, target),
            coherent: passes_memory(kernel),
            readers,
            raw: HashSet::new(),
            parameters: names::parameters(kernel),
            text: String::new(),
            depth: 1,
            scalars: HashMap::new(),
            arrays: Vec::new(),
            group: Group::default(),
            carried: Vec::new(),
            scratch: 0,
            scratch_in_use: false,
            scratch_taken: 0,
            helpers: BTreeSet::new(),
            sums: HashMap::new(),
            tensors: false,
            names: 0,
            registers: 1,
            origins: kernel.pointer_origins(),
            read_by_several: 0,
        }
    }

    fn check_target(&self) -> Result<()> {
        let (threads, limit) = (self.target.threads, self.target.limits.threads);
        if threads > limit || threads < SIMD_WIDTH || !threads.is_power_of_two() {
            return Err(self.limit("threads of a threadgroup", threads, limit));
        }
        if self.target.dialect == Dialect::Metal && self.kernel.has(Scalar::F64) {
            return Err(self.unsupported("f64 (Apple's GPUs have none)"));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Source> {
        self.flush()?;
        let limit = self.target.limits.threadgroup_memory;
        if self.scratch > limit {
            return Err(self.limit("bytes of threadgroup memory", self.scratch, limit));
        }
        self.source()
    }

    fn keywords(&self) -> &'static crate::dialect::Keywords {
        self.target.dialect.keywords()
    }

    fn unsupported(&self, what: impl Into<String>) -> CodegenError {
        CodegenError::Unsupported { kernel: self.kernel.name.clone(), what: what.into(), target: self.keywords().name }
    }

    fn limit(&self, what: &'static str, needed: usize, limit: usize) -> CodegenError {
        CodegenError::Limit { kernel: self.kernel.name.clone(), what, needed, limit, target: self.keywords().name }
    }

    fn type_of(&self, value: Value) -> &'k Type {
        self.kernel.type_of(value)
    }

    /// The number type of a value; i64 for addresses.
    fn number(&self, value: Value) -> Scalar {
        self.type_of(value).number().unwrap_or(Scalar::I64)
    }

    /// The type of one element in a register.
    fn register_type(&self, ty: &Type) -> String {
        match ty.element {
            Element::Scalar(scalar) => self.target.dialect.register(scalar).to_owned(),
            Element::Pointer(to) => format!("{}{}*", self.device(), self.target.dialect.storage(to)),
        }
    }

    /// Writes a line of the body.
    fn line(&mut self, text: impl AsRef<str>) {
        let indent = 2 * self.depth;
        let _ = writeln!(self.text, "{:indent$}{}", "", text.as_ref());
    }

    /// Writes a line of the body that only those threads execute for which all conditions hold.
    fn line_where(&mut self, conditions: &[String], text: String) {
        self.line(if conditions.is_empty() { text } else { format!("if ({}) {text}", conditions.join(" && ")) });
    }

    /// Writes the line that opens a block.
    fn open(&mut self, text: impl AsRef<str>) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// Opens a loop over a thread's registers, which the compiler has to unroll for them to be registers; only a block for one.
    fn open_registers(&mut self, registers: usize) {
        self.registers = registers;
        if registers == 1 {
            return self.open("{");
        }
        self.line("#pragma unroll");
        self.open(format!("for (uint k = 0; k < {registers}; ++k) {{"));
    }

    /// Writes a statement once for each register.
    fn each_register(&mut self, registers: usize, statement: impl AsRef<str>) {
        if registers == 1 {
            return self.line(statement);
        }
        self.open_registers(registers);
        self.line(statement);
        self.close();
    }

    /// A tile's register `k`.
    fn place(&self, name: &str, layout: &Layout) -> String {
        if layout.registers() == 1 { name.to_owned() } else { format!("{name}[k]") }
    }

    /// Declares registers for a tile and makes them known.
    fn declare(&mut self, value: Value, layout: &Layout) -> Result<String> {
        let name = if self.arrays.iter().any(|(other, ..)| *other == value) {
            self.names += 1;
            format!("v{}_{}", value.0, self.names)
        } else {
            format!("v{}", value.0)
        };
        if self.raw.contains(&value) {
            let (storage, registers) = (self.target.dialect.storage(self.number(value)), layout.registers());
            if self.target.dialect == Dialect::Cuda {
                self.helpers.insert("packed");
                self.line(format!("packed<{storage}, {registers}> {name};"));
            } else {
                self.line(format!("{storage} {name}[{registers}];"));
            }
        } else {
            self.declare_named(&name, self.type_of(value), layout)?;
        }
        self.arrays.push((value, layout.clone(), name.clone()));
        Ok(name)
    }

    fn declare_named(&mut self, name: &str, ty: &Type, layout: &Layout) -> Result<()> {
        let registers = layout.registers();
        let words = registers * (element_size(ty).div_ceil(4));
        let limit = self.target.limits.registers;
        if words > limit {
            return Err(self.limit("registers of a thread for one tile", words, limit));
        }
        let register = self.register_type(ty);
        self.line(if registers == 1 {
            format!("{register} {name};")
        } else {
            format!("{register} {name}[{registers}];")
        });
        Ok(())
    }

    /// The registers of a tile in a layout, when they are in scope.
    fn array(&self, value: Value, layout: &Layout) -> Option<&str> {
        let found = self.arrays.iter().find(|(other, of, _)| *other == value && of == layout);
        found.map(|(_, _, name)| name.as_str())
    }

    /// What stands before a pointer into device memory.
    fn device(&self) -> &'static str {
        if self.coherent { self.keywords().coherent_device } else { self.keywords().device }
    }

    /// Waits for the threadgroup; device memory is as all of its threads, and other threadgroups where such things are passed, have left it.
    fn device_barrier(&mut self) {
        self.read_by_several = 0;
        if !self.coherent {
            return self.line(self.keywords().device_barrier);
        }
        if self.target.dialect == Dialect::Metal {
            self.helpers.insert("device_fence");
        }
        self.line(self.keywords().coherent_barrier);
    }

    fn block(&mut self, block: &'k Block) -> Result<()> {
        block.instructions.iter().try_for_each(|instruction| self.instruction(instruction))
    }

    fn instruction(&mut self, instruction: &'k Instruction) -> Result<()> {
        match &instruction.operation {
            Operation::For => return self.for_loop(instruction),
            Operation::If => return self.if_else(instruction),
            Operation::While => return self.while_loop(instruction),
            Operation::Yield => return self.yield_values(&instruction.operands),
            Operation::Condition => return self.condition(instruction),
            Operation::ReduceBlock { axis } => return self.reduce_block(instruction, *axis),
            Operation::Scan { axis, reverse } => return self.scan(instruction, *axis, *reverse),
            Operation::Join => return self.join_tiles(instruction, 0),
            Operation::Concatenate => return self.concatenate(instruction),
            Operation::Split => return self.split(instruction),
            Operation::Gather { axis } => return self.gather(instruction, *axis),
            Operation::Histogram => return self.histogram(instruction),
            Operation::Unsplat => return self.unsplat(instruction),
            Operation::Atomic(_) | Operation::CompareSwap => return self.atomic(instruction),
            Operation::Print(_) => return Err(self.unsupported("tt.print, whose lines would have no order on a GPU")),
            // A GPU has nobody to tell.
            Operation::Assert { .. } => return Ok(()),
            Operation::Barrier => {
                self.flush()?;
                self.device_barrier();
                return Ok(());
            }
            Operation::Reduce { axis, combine } => return self.reduce(instruction, *axis, *combine),
            Operation::Dot => return self.dot(instruction),
            Operation::Store if self.type_of(instruction.operands[0]).is_scalar() => {
                return self.store_scalar(instruction);
            }
            Operation::Store => return self.join(instruction),
            _ => {}
        }
        let result = instruction.results[0];
        match self.forms.of(result) {
            Form::Scalar => self.scalar(instruction),
            Form::Materialized { .. } => self.join(instruction),
            Form::Rematerialized(_) | Form::View => Ok(()),
        }
    }
}

/// Bytes that an element takes in threadgroup memory.
fn element_size(ty: &Type) -> usize {
    match ty.element {
        Element::Scalar(Scalar::F16 | Scalar::BF16) => 4,
        Element::Scalar(scalar) => scalar.size(),
        Element::Pointer(_) => 8,
    }
}

fn note_readers(block: &Block, readers: &mut HashMap<Value, Vec<*const Instruction>>) {
    for instruction in &block.instructions {
        for &operand in &instruction.operands {
            readers.entry(operand).or_default().push(instruction);
        }
        instruction.blocks.iter().for_each(|block| note_readers(block, readers));
    }
}
