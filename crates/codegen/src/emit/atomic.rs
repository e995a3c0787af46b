//! Atomic operations on device memory. One of the threads that hold an element does it; the others are told what was there.

use super::element::Body;
use super::{Emitter, Result};
use crate::dialect::Dialect;
use crate::error::CodegenError;
use crate::layout::Layout;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Instruction, Operation, Scalar};

impl<'k> Emitter<'k> {
    /// `tt.atomic_rmw` and `tt.atomic_cas`.
    pub(super) fn atomic(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let (pointers, result) = (instruction.operands[0], instruction.results[0]);
        let scalar = self.type_of(pointers).target().unwrap_or(Scalar::I8);
        let is_scalar = self.type_of(pointers).is_scalar();
        let layout = if is_scalar { Layout::new(Vec::new()) } else { self.forms.natural(result).0.dense().0 };
        for &operand in &instruction.operands {
            self.bring(operand, &layout)?;
        }
        let name = self.declare_old(instruction, &layout)?;
        // A single place mostly guards others: what was stored before must be seen before, what is loaded behind it behind.
        if is_scalar {
            self.device_barrier();
        } else {
            self.order_store(pointers);
        }
        self.open_registers(layout.registers());
        let mut body = Body::default();
        let operands: Vec<String> = (instruction.operands.iter())
            .map(|&operand| self.element(&mut body, operand, &layout))
            .collect::<Result<_>>()?;
        let mut conditions: Vec<String> = self.first_of_replicas(&layout).into_iter().collect();
        conditions.extend(self.inside(self.type_of(pointers), &layout));
        let call = match instruction.operation {
            Operation::Atomic(atomic) => {
                conditions.extend(operands.get(2).cloned());
                match atomic {
                    Atomic::Read => self.read(scalar, &operands[0]),
                    _ => self.exchange(atomic, scalar, &operands[0], &operands[1])?,
                }
            }
            _ => self.compare_swap(scalar, &operands)?,
        };
        let write = format!("{} = {call};", self.place(&name, &layout));
        self.line_where(&conditions, write);
        self.close();
        if is_scalar {
            self.device_barrier();
        }
        self.tell_replicas(instruction, &layout, &name)
    }

    /// Declares what the old values go into.
    fn declare_old(&mut self, instruction: &Instruction, layout: &Layout) -> Result<String> {
        let result = instruction.results[0];
        if !self.type_of(result).is_scalar() {
            return self.declare(result, layout);
        }
        let name = format!("v{}", result.0);
        self.declare_named(&name, self.type_of(result), layout)?;
        self.scalars.insert(result, name.clone());
        Ok(name)
    }

    /// Where several threads hold an element and somebody reads the old values, they get them through threadgroup memory.
    fn tell_replicas(&mut self, instruction: &Instruction, layout: &Layout, name: &str) -> Result<()> {
        let result = instruction.results[0];
        let is_read = self.readers.get(&result).is_some_and(|readers| !readers.is_empty());
        let Some(first) = self.first_of_replicas(layout).filter(|_| is_read) else { return Ok(()) };
        let element = self.scratch_type(self.type_of(result));
        let bytes = super::element_size(self.type_of(result)) << layout.bits().len();
        self.take_scratch(bytes);
        let (space, memory) = (self.scratch_space(), self.scratch_pointer(&element, 0));
        let (index, place) = (layout.index(0, layout.bits().len()), self.place(name, layout));
        self.open("{");
        self.line(format!("{space}{element}* old = {memory};"));
        self.each_register(layout.registers(), format!("if ({first}) old[{index}] = {place};"));
        self.scratch_written();
        self.each_register(layout.registers(), format!("{place} = old[{index}];"));
        self.close();
        Ok(())
    }

    /// What is at a place now, by its bits: arithmetic might change numbers that are NaN or subnormal. Metal has loads of 32 bits; others go by a
    /// volatile one, which no compiler moves out of a loop.
    fn read(&self, scalar: Scalar, pointer: &str) -> String {
        let bits = match scalar.size() {
            1 => Scalar::I8,
            2 => Scalar::I16,
            4 => Scalar::I32,
            _ => Scalar::I64,
        };
        let dialect = self.target.dialect;
        let read = match (dialect, bits) {
            (Dialect::Metal, Scalar::I32) => {
                format!("atomic_load_explicit((device atomic_uint*)({pointer}), memory_order_relaxed)")
            }
            _ => format!("*(volatile {}{}*)({pointer})", self.keywords().device, dialect.storage(bits)),
        };
        if scalar.is_float() { dialect.bits(bits, scalar, &read) } else { read }
    }

    /// The place as the language's atomic type, and whether the type is signed there.
    fn place_of(&self, scalar: Scalar, pointer: &str, signed: bool) -> Result<String> {
        let ty = match (self.target.dialect, scalar, signed) {
            (Dialect::Metal, Scalar::I32, false) => "device atomic_uint",
            (Dialect::Metal, Scalar::I32, true) => "device atomic_int",
            (Dialect::Metal, Scalar::F32, _) => "device atomic_float",
            (Dialect::Cuda, Scalar::I32, false) => "uint",
            (Dialect::Cuda, Scalar::I32, true) => "int",
            (Dialect::Cuda, Scalar::I64, false) => "ulong",
            (Dialect::Cuda, Scalar::I64, true) => "slong",
            (Dialect::Cuda, Scalar::F32, _) => "float",
            (Dialect::Cuda, Scalar::F64, _) => "double",
            _ => return Err(self.not_atomic(scalar)),
        };
        Ok(format!("({ty}*)({pointer})"))
    }

    /// The error for elements that no instruction of the device changes at once.
    fn not_atomic(&self, scalar: Scalar) -> CodegenError {
        let why = match (self.target.dialect, scalar.size()) {
            (Dialect::Metal, 8) => "Metal's atomic types have 32 bits",
            (_, 2) => "of 16 bits there are addition, exchange and compare-and-swap",
            _ => "the device has none of this size",
        };
        self.unsupported(format!("an atomic operation on {} ({why})", scalar.name()))
    }

    fn exchange(&mut self, atomic: Atomic, scalar: Scalar, pointer: &str, value: &str) -> Result<String> {
        let dialect = self.target.dialect;
        let by_bits = |text: &str, to: Scalar, from: Scalar| dialect.bits(from, to, text);
        match (atomic, scalar) {
            (Atomic::AddFloat, Scalar::F16) => return Ok(self.on_16_bits("add_half", scalar, pointer, value)),
            (Atomic::AddFloat, Scalar::BF16) => return Ok(self.on_16_bits("add_bfloat", scalar, pointer, value)),
            (Atomic::Exchange, Scalar::I16) => return Ok(self.on_16_bits("exchange_16", scalar, pointer, value)),
            (Atomic::Exchange, Scalar::F16 | Scalar::BF16) => {
                let bits = by_bits(value, Scalar::I16, scalar);
                return Ok(self.on_16_bits("exchange_16", scalar, pointer, &bits));
            }
            // CUDA exchanges no float64, but their bits.
            (Atomic::Exchange, Scalar::F64) => {
                let bits = by_bits(value, Scalar::I64, scalar);
                let old = self.exchange(atomic, Scalar::I64, pointer, &bits)?;
                return Ok(by_bits(&old, scalar, Scalar::I64));
            }
            _ => {}
        }
        let signed = matches!(atomic, Atomic::Maximum | Atomic::Minimum);
        let place = self.place_of(scalar, pointer, signed)?;
        let value = if signed { format!("{}({value})", dialect.signed(scalar)) } else { value.to_owned() };
        let (metal, cuda) = match atomic {
            Atomic::Add | Atomic::AddFloat => ("fetch_add", "Add"),
            Atomic::And => ("fetch_and", "And"),
            Atomic::Or => ("fetch_or", "Or"),
            Atomic::Xor => ("fetch_xor", "Xor"),
            Atomic::Maximum | Atomic::MaximumUnsigned => ("fetch_max", "Max"),
            Atomic::Minimum | Atomic::MinimumUnsigned => ("fetch_min", "Min"),
            Atomic::Exchange => ("exchange", "Exch"),
            Atomic::Read => return Err(self.unsupported("a read that is computed".to_owned())),
        };
        Ok(match dialect {
            Dialect::Metal => format!("atomic_{metal}_explicit({place}, {value}, memory_order_relaxed)"),
            Dialect::Cuda => format!("atomic{cuda}({place}, {value})"),
        })
    }

    /// A function of ours on the 16 bits of a number, which neither language has for all types; what was there, as a register holds it.
    fn on_16_bits(&mut self, name: &'static str, scalar: Scalar, pointer: &str, values: &str) -> String {
        let dialect = self.target.dialect;
        if dialect == Dialect::Metal {
            self.helpers.extend(["compare_and_swap", "compare_and_swap_16"]);
        }
        let arguments = format!("({}ushort*)({pointer}), {values}", self.keywords().device);
        let old = match name {
            "compare_and_swap_16" => format!("{}({arguments})", self.keywords().compare_and_swap_16),
            _ => self.function(name, &arguments),
        };
        if scalar.is_float() { dialect.bits(Scalar::I16, scalar, &old) } else { old }
    }

    /// Compares bits, so that floats go as integers.
    fn compare_swap(&mut self, scalar: Scalar, operands: &[String]) -> Result<String> {
        let dialect = self.target.dialect;
        let integer = match scalar.size() {
            1 => return Err(self.not_atomic(scalar)),
            2 => Scalar::I16,
            8 => Scalar::I64,
            _ => Scalar::I32,
        };
        let bits = |text: &String| if scalar.is_float() { dialect.bits(scalar, integer, text) } else { text.clone() };
        let values = format!("{}, {}", bits(&operands[1]), bits(&operands[2]));
        if integer == Scalar::I16 {
            return Ok(self.on_16_bits("compare_and_swap_16", scalar, &operands[0], &values));
        }
        let place = self.place_of(integer, &operands[0], false)?;
        let call = match dialect {
            Dialect::Metal => self.function("compare_and_swap", &format!("{place}, {values}")),
            Dialect::Cuda => format!("atomicCAS({place}, {values})"),
        };
        Ok(if scalar.is_float() { dialect.bits(integer, scalar, &call) } else { call })
    }
}
