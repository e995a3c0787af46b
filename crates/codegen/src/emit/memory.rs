//! Loads and stores, of tiles and of single numbers.

use super::element::Body;
use super::{Emitter, Result};
use crate::layout::Layout;
use openmps_tile::{Instruction, Scalar};

impl<'k> Emitter<'k> {
    /// One element of a loaded tile.
    pub(super) fn load(&mut self, body: &mut Body, instruction: &'k Instruction, layout: &Layout) -> Result<String> {
        let operands: Vec<String> =
            (instruction.operands.iter()).map(|&operand| self.element(body, operand, layout)).collect::<Result<_>>()?;
        let inside = self.inside(self.type_of(instruction.operands[0]), layout);
        Ok(self.loaded(instruction, &operands, inside))
    }

    fn loaded(&self, instruction: &Instruction, operands: &[String], inside: Option<String>) -> String {
        let target = self.type_of(instruction.operands[0]).target().unwrap_or(Scalar::I8);
        let read = self.target.dialect.widen(target, &format!("*{}", operands[0]));
        let conditions: Vec<String> = operands.get(1).cloned().into_iter().chain(inside).collect();
        if conditions.is_empty() {
            return read;
        }
        let register = self.target.dialect.register(target);
        let other = operands.get(2).cloned().unwrap_or_else(|| "0".to_owned());
        format!("{} ? {read} : {register}({other})", conditions.join(" && "))
    }

    /// Stores one element of a tile.
    pub(super) fn store(&mut self, body: &mut Body, instruction: &'k Instruction, layout: &Layout) -> Result<()> {
        let operands: Vec<String> =
            (instruction.operands.iter()).map(|&operand| self.element(body, operand, layout)).collect::<Result<_>>()?;
        let inside = self.inside(self.type_of(instruction.operands[0]), layout);
        let first = self.first_of_replicas(layout);
        self.stored(instruction, &operands, first.into_iter().chain(inside).collect());
        Ok(())
    }

    fn stored(&mut self, instruction: &Instruction, operands: &[String], mut conditions: Vec<String>) {
        let target = self.type_of(instruction.operands[0]).target().unwrap_or(Scalar::I8);
        let value = self.target.dialect.narrow(target, &operands[1]);
        conditions.extend(operands.get(2).cloned());
        let write = format!("*{} = {value};", operands[0]);
        self.line_where(&conditions, write);
    }

    /// Loads one number, in every thread.
    pub(super) fn load_scalar(&mut self, instruction: &'k Instruction) -> Result<String> {
        self.flush()?;
        let operands: Vec<String> =
            instruction.operands.iter().map(|&operand| self.scalar_name(operand)).collect::<Result<_>>()?;
        self.note_load(instruction);
        Ok(self.loaded(instruction, &operands, None))
    }

    /// Stores one number, from one thread.
    pub(super) fn store_scalar(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let operands: Vec<String> =
            instruction.operands.iter().map(|&operand| self.scalar_name(operand)).collect::<Result<_>>()?;
        self.order_store(instruction.operands[0]);
        self.stored(instruction, &operands, vec!["thread_index == 0".to_owned()]);
        Ok(())
    }
}
