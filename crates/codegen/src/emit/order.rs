//! The order of a program's loads and stores, where several threads read one element: none overwrites it before all have read it.

use super::Emitter;
use crate::assign::Form;
use openmps_tile::{Block, Instruction, Operation, Value};

impl<'k> Emitter<'k> {
    /// Notes a load, of which other threads than the one that stores may still be about to read an element.
    pub(super) fn note_load(&mut self, instruction: &Instruction) {
        self.read_by_several |= self.origins_of_shared(instruction);
    }

    /// Before a store through these pointers.
    pub(super) fn order_store(&mut self, pointers: Value) {
        if self.read_by_several & self.origins[pointers.0 as usize] != 0 {
            self.device_barrier();
        }
    }

    /// What a block that may run again has read by the time that it runs again.
    pub(super) fn note_loads_of(&mut self, block: &Block) {
        for instruction in &block.instructions {
            self.note_load(instruction);
            instruction.blocks.iter().for_each(|block| self.note_loads_of(block));
        }
    }

    /// Where a load reads, as bits of parameters, if several threads read one element.
    fn origins_of_shared(&self, instruction: &Instruction) -> u128 {
        if instruction.operation != Operation::Load {
            return 0;
        }
        let is_shared = match self.forms.of(instruction.results[0]) {
            Form::Materialized { layout, .. } => self.first_of_replicas(&layout.dense().0).is_some(),
            _ => true,
        };
        if is_shared { self.origins[instruction.operands[0].0 as usize] } else { 0 }
    }
}
