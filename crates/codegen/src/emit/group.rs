//! Elementwise instructions that follow each other in one layout, written as one loop over a thread's registers.

use super::control::constant;
use super::element::Body;
use super::{Emitter, Result};
use crate::assign::Form;
use crate::layout::Layout;
use openmps_tile::{Instruction, Operation, Value};

/// Instructions to be written as one loop.
#[derive(Default)]
pub(super) struct Group<'k> {
    layout: Option<Layout>,
    instructions: Vec<&'k Instruction>,
}

impl Group<'_> {
    fn defines(&self, value: Value) -> bool {
        self.instructions.iter().any(|instruction| instruction.results.contains(&value))
    }

    fn has(&self, operation: &Operation) -> bool {
        self.instructions.iter().any(|instruction| instruction.operation == *operation)
    }

    /// All loads of a tile come before its stores, and the compiler can issue them together when nothing stands between.
    fn takes(&self, instruction: &Instruction, layout: &Layout) -> bool {
        let order = match instruction.operation {
            Operation::Load => self.instructions.iter().all(|other| other.operation == Operation::Load),
            Operation::Store => !self.has(&Operation::Load),
            _ => true,
        };
        order && self.layout.as_ref().is_none_or(|own| own == layout)
    }
}

impl<'k> Emitter<'k> {
    /// Puts an instruction into the group at hand, or begins a new one.
    pub(super) fn join(&mut self, instruction: &'k Instruction) -> Result<()> {
        let layout = match instruction.results.first().map(|&result| self.forms.of(result)) {
            Some(Form::Materialized { layout, .. }) => layout.dense().0,
            _ => self.forms.of_effect(instruction),
        };
        let vector = self.vector_of(instruction, &layout);
        if vector.is_some() || !self.group.takes(instruction, &layout) || !self.all_at_hand(instruction, &layout) {
            self.flush()?;
            for &operand in &instruction.operands {
                self.bring(operand, &layout)?;
            }
        }
        match vector {
            Some(vector) if instruction.operation == Operation::Store => {
                return self.store_vectors(instruction, &layout, &vector);
            }
            Some(vector) => return self.load_vectors(instruction, &layout, &vector),
            None => {}
        }
        self.group.layout = Some(layout);
        self.group.instructions.push(instruction);
        Ok(())
    }

    /// Whether every operand can be read in the group's loop as things stand.
    fn all_at_hand(&self, instruction: &Instruction, layout: &Layout) -> bool {
        let mut leaves = instruction.operands.iter().flat_map(|&operand| self.leaves(operand, layout));
        leaves.all(|(value, of_value)| {
            if self.group.defines(value) {
                return of_value == *layout;
            }
            self.array(value, &of_value.dense().0).is_some()
        })
    }

    /// The kept tiles that are read when an operand is read in a layout.
    fn leaves(&self, value: Value, layout: &Layout) -> Vec<(Value, Layout)> {
        match self.forms.of(value) {
            Form::Materialized { .. } => vec![(value, layout.clone())],
            Form::View => {
                let (source, of_source) = self.through_view(value, layout);
                self.leaves(source, &of_source)
            }
            Form::Rematerialized(_) => {
                let Some(definition) = self.forms.definition(value) else { return Vec::new() };
                if is_shape_change(&definition.operation) {
                    let (source, of_source) = self.through_view(value, layout);
                    return self.leaves(source, &of_source);
                }
                definition.operands.iter().flat_map(|&operand| self.leaves(operand, layout)).collect()
            }
            Form::Scalar => Vec::new(),
        }
    }

    /// Makes an operand readable in a layout, by moving elements between threads where needed.
    pub(super) fn bring(&mut self, value: Value, layout: &Layout) -> Result<()> {
        for (value, of_value) in self.leaves(value, layout) {
            let dense = of_value.dense().0;
            if self.array(value, &dense).is_none() {
                self.convert(value, &dense)?;
            }
        }
        Ok(())
    }

    /// Writes the group at hand.
    pub(super) fn flush(&mut self) -> Result<()> {
        let group = std::mem::take(&mut self.group);
        let Some(layout) = group.layout.clone() else { return Ok(()) };
        let escaping: Vec<bool> =
            group.instructions.iter().map(|instruction| self.escapes(&group, instruction)).collect();
        for (instruction, _) in group.instructions.iter().zip(&escaping).filter(|(_, escapes)| **escapes) {
            self.declare(instruction.results[0], &layout)?;
        }
        for store in group.instructions.iter().filter(|instruction| instruction.operation == Operation::Store) {
            self.order_store(store.operands[0]);
        }
        self.open_registers(layout.registers());
        let mut body = Body::default();
        for (instruction, escapes) in group.instructions.iter().zip(escaping) {
            self.grouped(&mut body, instruction, &layout, escapes)?;
        }
        self.close();
        group.instructions.iter().for_each(|instruction| self.note_load(instruction));
        Ok(())
    }

    /// Whether a result is read elsewhere than in the group's own loop.
    fn escapes(&self, group: &Group, instruction: &Instruction) -> bool {
        let Some(result) = instruction.results.first() else { return false };
        let readers = self.readers.get(result).map_or(&[][..], Vec::as_slice);
        readers.iter().any(|&reader| !group.instructions.iter().any(|&other| std::ptr::eq(other, reader)))
    }

    fn grouped(&mut self, body: &mut Body, instruction: &'k Instruction, layout: &Layout, escapes: bool) -> Result<()> {
        if instruction.operation == Operation::Store {
            return self.store(body, instruction, layout);
        }
        let text = match instruction.operation {
            Operation::Load => self.load(body, instruction, layout)?,
            _ => self.computed(body, instruction, layout)?,
        };
        let result = instruction.results[0];
        let name = if escapes {
            let place = self.place(self.array(result, layout).unwrap_or_default(), layout);
            self.line(format!("{place} = {text};"));
            place
        } else {
            let name = body.name(result);
            let ty = self.register_type(self.type_of(result));
            self.line(format!("{} {name} = {text};", constant(&ty)));
            name
        };
        body.define(result, layout, name);
        Ok(())
    }
}

/// Whether an operation only gives a tile other dimensions.
fn is_shape_change(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::ExpandDims { .. } | Operation::Broadcast | Operation::Reshape | Operation::Permute { .. }
    )
}
