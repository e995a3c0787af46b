//! Loaded tiles that nothing but products read. They may lie as their memory does, and stay as they are in memory until they are staged.

use openmps_tile::{Instruction, Kernel, Operation, Value};
use std::collections::{HashMap, HashSet};

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A product, as a factor.
    Factor,
    /// A loop's initial value or what its block yields; the loop's carried value.
    Carried(Value),
    Other,
}

/// The loads and the carried values that only products read.
pub fn factors(kernel: &Kernel) -> HashSet<Value> {
    let mut search = Search::default();
    search.instructions(&kernel.body.instructions);
    search.answer()
}

#[derive(Default)]
struct Search {
    readers: HashMap<Value, Vec<Reader>>,
    loads: Vec<Value>,
    /// A loop's carried value, its initial one, and what the block yields.
    carried: Vec<[Value; 3]>,
}

impl Search {
    fn instructions(&mut self, instructions: &[Instruction]) {
        for instruction in instructions {
            self.instruction(instruction);
            for block in &instruction.blocks {
                // What a loop yields was noted with the loop.
                let is_loop = instruction.operation == Operation::For;
                let count = block.instructions.len() - usize::from(is_loop && !block.instructions.is_empty());
                self.instructions(&block.instructions[..count]);
            }
        }
    }

    fn read(&mut self, value: Value, reader: Reader) {
        self.readers.entry(value).or_default().push(reader);
    }

    fn instruction(&mut self, instruction: &Instruction) {
        let operands = &instruction.operands;
        match instruction.operation {
            Operation::Load => self.loads.extend(&instruction.results),
            Operation::Dot => {
                self.read(operands[0], Reader::Factor);
                self.read(operands[1], Reader::Factor);
                return self.read(operands[2], Reader::Other);
            }
            Operation::For => {
                let block = &instruction.blocks[0];
                operands[..3].iter().for_each(|&bound| self.read(bound, Reader::Other));
                let Some(end) = block.instructions.last() else { return };
                let values = block.arguments[1..].iter().zip(&operands[3..]).zip(&end.operands);
                for ((&argument, &initial), &next) in values {
                    self.read(initial, Reader::Carried(argument));
                    self.read(next, Reader::Carried(argument));
                    self.carried.push([argument, initial, next]);
                }
                return;
            }
            _ => {}
        }
        operands.iter().for_each(|&operand| self.read(operand, Reader::Other));
    }

    fn answer(&self) -> HashSet<Value> {
        let only = |value: Value, with: &dyn Fn(Reader) -> bool| {
            self.readers.get(&value).is_some_and(|readers| readers.iter().all(|&reader| with(reader)))
        };
        let is_load = |value: &Value| self.loads.contains(value);
        let mut found = HashSet::new();
        for &[argument, initial, next] in &self.carried {
            let carried = |reader: Reader| reader == Reader::Carried(argument);
            let both = is_load(&initial) && is_load(&next) && only(initial, &carried) && only(next, &carried);
            if both && only(argument, &|reader| reader == Reader::Factor) {
                found.extend([argument, initial, next]);
            }
        }
        let single = |&&load: &&Value| only(load, &|reader| reader == Reader::Factor);
        found.extend(self.loads.iter().filter(single));
        found
    }
}
