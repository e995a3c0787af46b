//! Numbers that are the same in every thread, and loops.

use super::element::Body;
use super::{Emitter, Result};
use crate::assign::Form;
use crate::layout::Layout;
use openmps_tile::{Instruction, Operation, Value};

/// A type whose value does not change.
pub(super) fn constant(ty: &str) -> String {
    if ty.ends_with('*') { format!("{ty} const") } else { format!("const {ty}") }
}

/// Where a loop's block puts one of the values that it yields.
#[derive(Clone)]
pub(super) struct Carried {
    value: Value,
    name: String,
}

impl<'k> Emitter<'k> {
    /// A number that is the same in every thread.
    pub(super) fn scalar(&mut self, instruction: &'k Instruction) -> Result<()> {
        let result = instruction.results[0];
        let words = self.keywords();
        let axis = |axis: u8| ["x", "y", "z"][usize::from(axis).min(2)];
        let text = match &instruction.operation {
            Operation::Constant(number) => {
                let literal = self.literal(*number, self.number(result));
                self.scalars.insert(result, literal);
                return Ok(());
            }
            Operation::ProgramId(of) => format!("{}.{}", words.program, axis(*of)),
            Operation::ProgramCount(of) => format!("{}.{}", words.programs, axis(*of)),
            Operation::Load => self.load_scalar(instruction)?,
            _ => {
                let operands: Vec<String> =
                    instruction.operands.iter().map(|&operand| self.scalar_name(operand)).collect::<Result<_>>()?;
                self.arithmetic(instruction, &operands)?
            }
        };
        let name = format!("v{}", result.0);
        let ty = self.register_type(self.type_of(result));
        self.line(format!("{} {name} = {text};", constant(&ty)));
        self.scalars.insert(result, name);
        Ok(())
    }

    /// `scf.for`: counts its iterations, because the index may wrap behind the last one.
    pub(super) fn for_loop(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let block = &instruction.blocks[0];
        let index = block.arguments[0];
        let scalar = self.number(index);
        let bounds: Vec<String> =
            instruction.operands[..3].iter().map(|&operand| self.scalar_name(operand)).collect::<Result<_>>()?;
        self.sum_in_place(instruction)?;
        self.enter(&block.arguments[1..], &instruction.operands[3..])?;
        let scope = self.arrays.len();
        let (register, signed) = (self.target.dialect.register(scalar), self.target.dialect.signed(scalar));
        let (lower, upper, step) = (&bounds[0], &bounds[1], &bounds[2]);
        let (count, name) = (format!("n{}", index.0), format!("v{}", index.0));
        self.line(format!(
            "{register} {count} = {signed}({lower}) < {signed}({upper}) ? {register}({upper} - {lower} - 1) / {step} + 1 : 0;"
        ));
        self.open(format!(
            "for ({register} {name} = {lower}; {count} != 0; --{count}, {name} = {register}({name} + {step})) {{"
        ));
        self.scalars.insert(index, name);
        // Another iteration may still be reading when the next one begins.
        let (before, taken) = (std::mem::replace(&mut self.scratch_in_use, true), self.scratch_taken);
        self.note_loads_of(block);
        let read = self.read_by_several;
        self.block(block)?;
        self.read_by_several |= read;
        self.close();
        self.arrays.truncate(scope);
        self.scratch_in_use = before || self.scratch_taken > taken;
        self.leave(&instruction.results)?;
        self.leave_sums(instruction)
    }

    /// Declares the carried values, with their initial ones.
    fn enter(&mut self, arguments: &[Value], initial: &[Value]) -> Result<()> {
        let mut carried = Vec::with_capacity(arguments.len());
        for (&argument, &initial) in arguments.iter().zip(initial) {
            let form = self.forms.of(argument).clone();
            let name = match form {
                _ if self.sums.contains_key(&argument) => String::new(),
                Form::Materialized { layout, .. } => {
                    let layout = layout.dense().0;
                    self.bring(initial, &layout)?;
                    let name = self.declare(argument, &layout)?;
                    self.copy(&name, initial, &layout)?;
                    name
                }
                _ => {
                    let (name, ty) = (format!("v{}", argument.0), self.register_type(self.type_of(argument)));
                    let initial = self.scalar_name(initial)?;
                    self.line(format!("{ty} {name} = {initial};"));
                    self.scalars.insert(argument, name.clone());
                    name
                }
            };
            carried.push(Carried { value: argument, name });
        }
        self.carried.push(carried);
        Ok(())
    }

    /// Copies a tile into registers of a layout in which it can be read.
    pub(super) fn copy(&mut self, name: &str, value: Value, layout: &Layout) -> Result<()> {
        self.open_registers(layout.registers());
        let element = self.element(&mut Body::default(), value, layout)?;
        self.line(format!("{} = {element};", self.place(name, layout)));
        self.close();
        Ok(())
    }

    /// `scf.if`
    pub(super) fn if_else(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let condition = self.scalar_name(instruction.operands[0])?;
        let targets = self.declare_targets(&instruction.results)?;
        // A side that is not there reads nothing more, and waits for nobody.
        let before = self.read_by_several;
        let mut after = before;
        for (block, head) in instruction.blocks.iter().zip([format!("if ({condition}) {{"), "else {".to_owned()]) {
            if block.instructions.len() == 1 && targets.is_empty() && head.starts_with("else") {
                continue;
            }
            self.carried.push(targets.clone());
            self.read_by_several = before;
            self.scope(head, block)?;
            after |= self.read_by_several;
            self.carried.pop();
        }
        self.read_by_several = after;
        Ok(())
    }

    /// `scf.while`
    pub(super) fn while_loop(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let [before, after] = &instruction.blocks[..] else { return Err(self.unsupported("scf.while")) };
        self.enter(&before.arguments, &instruction.operands)?;
        let passed = self.declare_targets(&instruction.results)?;
        for (&argument, target) in after.arguments.iter().zip(&passed) {
            self.name_target(argument, &target.name);
        }
        let scope = self.arrays.len();
        self.scratch_in_use = true;
        self.open("while (true) {");
        self.note_loads_of(before);
        self.note_loads_of(after);
        let read = self.read_by_several;
        self.carried.push(passed);
        self.block(before)?;
        self.carried.pop();
        self.block(after)?;
        self.read_by_several |= read;
        self.close();
        self.arrays.truncate(scope);
        self.scratch_in_use = true;
        self.carried.pop();
        Ok(())
    }

    /// `scf.condition`: passes its values on, and leaves the loop when the condition does not hold.
    pub(super) fn condition(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.yield_values(&instruction.operands[1..])?;
        let condition = self.scalar_name(instruction.operands[0])?;
        self.line(format!("if (!{condition}) break;"));
        Ok(())
    }

    /// A block in braces, whose tiles are gone behind it.
    fn scope(&mut self, head: String, block: &'k openmps_tile::Block) -> Result<()> {
        let scope = self.arrays.len();
        self.open(head);
        self.scratch_in_use = true;
        self.block(block)?;
        self.flush()?;
        self.close();
        self.arrays.truncate(scope);
        self.scratch_in_use = true;
        Ok(())
    }

    /// Declares what blocks put their values into.
    fn declare_targets(&mut self, results: &[Value]) -> Result<Vec<Carried>> {
        let mut targets = Vec::with_capacity(results.len());
        for &result in results {
            let name = match self.forms.of(result).clone() {
                Form::Materialized { layout, .. } => self.declare(result, &layout.dense().0)?,
                _ => {
                    let (name, ty) = (format!("v{}", result.0), self.register_type(self.type_of(result)));
                    self.line(format!("{ty} {name};"));
                    self.scalars.insert(result, name.clone());
                    name
                }
            };
            targets.push(Carried { value: result, name });
        }
        Ok(targets)
    }

    /// Lets a value be known by the name of another one.
    fn name_target(&mut self, value: Value, name: &str) {
        match self.forms.of(value).clone() {
            Form::Materialized { layout, .. } => self.arrays.push((value, layout.dense().0, name.to_owned())),
            _ => {
                self.scalars.insert(value, name.to_owned());
            }
        }
    }

    /// `scf.yield`: what another carried value is still to be read from is kept aside before it is overwritten.
    pub(super) fn yield_values(&mut self, operands: &[Value]) -> Result<()> {
        self.flush()?;
        let carried = self.carried.last().cloned().unwrap_or_default();
        let mut aside = Vec::new();
        let stays =
            |own: &Self, target: &Carried, operand| target.value == operand || own.sums.contains_key(&target.value);
        for (target, &operand) in carried.iter().zip(operands) {
            if stays(self, target, operand) {
                continue;
            }
            if carried.iter().any(|other| self.reads(operand, other.value)) {
                self.names += 1;
                let name = format!("next{}", self.names);
                self.assign(target, operand, Some(&name))?;
                aside.push((target, name));
            }
        }
        for (target, &operand) in carried.iter().zip(operands) {
            if !stays(self, target, operand) && !aside.iter().any(|(other, _)| other.value == target.value) {
                self.assign(target, operand, None)?;
            }
        }
        for (target, name) in aside {
            let registers = self.registers_of(target.value);
            let (to, from) = if registers == 1 {
                (target.name.clone(), name)
            } else {
                (format!("{}[k]", target.name), format!("{name}[k]"))
            };
            self.each_register(registers, format!("{to} = {from};"));
        }
        Ok(())
    }

    /// Whether a value is another one, or a view or an expression of it.
    fn reads(&self, value: Value, other: Value) -> bool {
        value == other
            || matches!(self.forms.of(value), Form::View | Form::Rematerialized(_))
                && self.forms.definition(value).is_some_and(|from| from.operands.iter().any(|&x| self.reads(x, other)))
    }

    fn registers_of(&self, value: Value) -> usize {
        if let Form::Materialized { layout, .. } = self.forms.of(value) { layout.registers() } else { 1 }
    }

    /// Gives a carried value, or new registers like its own, what the block yields.
    fn assign(&mut self, target: &Carried, operand: Value, aside: Option<&str>) -> Result<()> {
        let name = aside.unwrap_or(&target.name);
        if let Form::Materialized { layout, .. } = self.forms.of(target.value).clone() {
            let layout = layout.dense().0;
            self.bring(operand, &layout)?;
            if aside.is_some() {
                self.declare_named(name, self.type_of(target.value), &layout)?;
            }
            return self.copy(name, operand, &layout);
        }
        let value = self.scalar_name(operand)?;
        let ty = self.register_type(self.type_of(target.value));
        self.line(if aside.is_some() { format!("{ty} {name} = {value};") } else { format!("{name} = {value};") });
        Ok(())
    }

    /// After the loop its results are what was carried last.
    fn leave(&mut self, results: &[Value]) -> Result<()> {
        let carried = self.carried.pop().unwrap_or_default();
        for (Carried { value, name }, &result) in carried.into_iter().zip(results) {
            if !self.sums.contains_key(&value) {
                self.name_target(result, &name);
            }
        }
        Ok(())
    }
}
