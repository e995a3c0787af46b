//! Kernels as text, close to TTIR. Stable, so that snapshots of it can be kept.

#[cfg(test)]
mod tests;

use crate::kernel::*;
use crate::types::Type;
use std::borrow::Cow;
use std::fmt;

impl Operation {
    /// The operation's name, as in TTIR.
    pub fn name(&self) -> Cow<'static, str> {
        use Operation::*;
        Cow::Borrowed(match self {
            Constant(_) => "arith.constant",
            ProgramId(_) => "tt.get_program_id",
            ProgramCount(_) => "tt.get_num_programs",
            Range { .. } => "tt.make_range",
            Splat => "tt.splat",
            ExpandDims { .. } => "tt.expand_dims",
            Broadcast => "tt.broadcast",
            Reshape => "tt.reshape",
            AddPointer => "tt.addptr",
            Load => "tt.load",
            Store => "tt.store",
            Unary(operation) => return in_dialect(operation.text()),
            Binary(operation) => return in_dialect(operation.text()),
            Compare(_) => "arith.cmp",
            Select => "arith.select",
            Cast(crate::Cast::Bits) => "tt.bitcast",
            Cast(conversion) => return in_dialect(conversion.text()),
            Reduce { .. } | ReduceBlock { .. } => "tt.reduce",
            Scan { .. } => "tt.scan",
            Permute { .. } => "tt.trans",
            Join => "tt.join",
            Split => "tt.split",
            Concatenate => "tt.cat",
            Unsplat => "tt.unsplat",
            Gather { .. } => "tt.gather",
            Histogram => "tt.histogram",
            Atomic(_) => "tt.atomic_rmw",
            CompareSwap => "tt.atomic_cas",
            IntegerToPointer => "tt.int_to_ptr",
            PointerToInteger => "tt.ptr_to_int",
            MultiplyAdd => "math.fma",
            Assert { .. } => "tt.assert",
            Print(_) => "tt.print",
            Barrier => "ttg.barrier",
            If => "scf.if",
            While => "scf.while",
            Condition => "scf.condition",
            Dot => "tt.dot",
            For => "scf.for",
            Yield => "scf.yield",
        })
    }
}

/// `arith.` before names that have no dialect.
fn in_dialect(text: &'static str) -> Cow<'static, str> {
    if text.contains('.') { Cow::Borrowed(text) } else { Cow::Owned(format!("arith.{text}")) }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Names(self);
        write!(f, "tt.func @{}(", self.name)?;
        for (i, parameter) in self.parameters.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}%{}: {}", parameter.name, names.ty(parameter.value))?;
            if parameter.divisibility > 1 {
                write!(f, " {{tt.divisibility = {} : i32}}", parameter.divisibility)?;
            }
        }
        f.write_str(") {\n")?;
        names.block(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

/// Writes values by name; of a kernel that may not be verified.
struct Names<'a>(&'a Kernel);

impl Names<'_> {
    fn value(&self, value: Value) -> String {
        match self.0.parameters.iter().find(|x| x.value == value) {
            Some(parameter) => format!("%{}", parameter.name),
            None => format!("%{}", value.0),
        }
    }

    fn values(&self, values: &[Value]) -> String {
        let names: Vec<String> = values.iter().map(|&x| self.value(x)).collect();
        names.join(", ")
    }

    fn ty(&self, value: Value) -> String {
        self.0.types.get(value.0 as usize).map_or_else(|| "?".to_owned(), Type::to_string)
    }

    fn types(&self, values: &[Value]) -> String {
        let types: Vec<String> = values.iter().map(|&x| self.ty(x)).collect();
        types.join(", ")
    }

    fn block(&self, f: &mut fmt::Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        block.instructions.iter().try_for_each(|instruction| self.instruction(f, instruction, depth))
    }

    fn instruction(&self, f: &mut fmt::Formatter<'_>, instruction: &Instruction, depth: usize) -> fmt::Result {
        let indent = 2 * depth;
        write!(f, "{:indent$}", "")?;
        if !instruction.results.is_empty() {
            write!(f, "{} = ", self.values(&instruction.results))?;
        }
        f.write_str(&instruction.operation.name())?;
        match &instruction.operation {
            Operation::For => self.loop_header(f, instruction)?,
            operation => self.line(f, operation, instruction)?,
        }
        for block in &instruction.blocks {
            f.write_str(" {")?;
            if !block.arguments.is_empty() && instruction.operation != Operation::For {
                write!(f, " ({}: {})", self.values(&block.arguments), self.types(&block.arguments))?;
            }
            f.write_str("\n")?;
            self.block(f, block, depth + 1)?;
            write!(f, "{:indent$}}}", "")?;
        }
        f.write_str("\n")
    }

    /// Attributes, operands and types.
    fn line(&self, f: &mut fmt::Formatter<'_>, operation: &Operation, instruction: &Instruction) -> fmt::Result {
        let attributes = match operation {
            Operation::Constant(Number::Integer(x)) => Some(x.to_string()),
            Operation::Constant(Number::Float(x)) => Some(format!("{x:?}")),
            Operation::ProgramId(axis) | Operation::ProgramCount(axis) => Some(axis.to_string()),
            Operation::Range { start } => Some(format!("start = {start}")),
            Operation::ExpandDims { axis } => Some(format!("axis = {axis}")),
            Operation::Compare(comparison) => Some(comparison.text().to_owned()),
            Operation::Reduce { axis, combine } => Some(format!("{}, axis = {axis}", combine.text())),
            Operation::ReduceBlock { axis } | Operation::Gather { axis } => Some(format!("axis = {axis}")),
            Operation::Scan { axis, reverse } => Some(format!("axis = {axis}, reverse = {reverse}")),
            Operation::Permute { order } => Some(format!("order = {order:?}")),
            Operation::Atomic(atomic) => Some(atomic.text().to_owned()),
            Operation::Assert { message } => Some(format!("{message:?}")),
            Operation::Print(print) => Some(format!("{:?}", print.prefix)),
            _ => None,
        };
        let operands = Some(self.values(&instruction.operands)).filter(|x| !x.is_empty());
        let words: Vec<String> = attributes.into_iter().chain(operands).collect();
        if !words.is_empty() {
            write!(f, " {}", words.join(", "))?;
        }
        let signature = self.signature(instruction);
        if signature.is_empty() { Ok(()) } else { write!(f, " : {signature}") }
    }

    /// The operands' types and the results'; once when all are the same.
    fn signature(&self, instruction: &Instruction) -> String {
        let (operands, results) = (self.types(&instruction.operands), self.types(&instruction.results));
        let mut all = instruction.operands.iter().chain(&instruction.results).map(|&x| self.ty(x));
        let first = all.next().unwrap_or_default();
        if !instruction.results.is_empty() && all.all(|x| x == first) {
            return first;
        }
        match (operands.is_empty(), results.is_empty()) {
            (_, true) => operands,
            (true, false) => results,
            (false, false) if matches!(instruction.operation, Operation::Cast(_)) => format!("{operands} to {results}"),
            (false, false) => format!("{operands} -> {results}"),
        }
    }

    fn loop_header(&self, f: &mut fmt::Formatter<'_>, instruction: &Instruction) -> fmt::Result {
        let arguments = instruction.blocks.first().map_or(&[][..], |block| &block.arguments);
        let operand = |i| instruction.operands.get(i).map_or_else(|| "?".to_owned(), |&x| self.value(x));
        let index = arguments.first().map_or_else(|| "?".to_owned(), |&x| self.value(x));
        write!(f, " {index} = {} to {} step {}", operand(0), operand(1), operand(2))?;
        let initial = instruction.operands.iter().skip(3);
        let carried: Vec<String> = (arguments.iter().skip(1).zip(initial))
            .map(|(&argument, &initial)| format!("{} = {}", self.value(argument), self.value(initial)))
            .collect();
        if !carried.is_empty() {
            write!(f, " iter_args({}) -> ({})", carried.join(", "), self.types(&instruction.results))?;
        }
        let index_type = arguments.first().map_or_else(|| "?".to_owned(), |&x| self.ty(x));
        write!(f, " : {index_type}")
    }
}
