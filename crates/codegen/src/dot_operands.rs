//! Loaded tiles that nothing but products read, as they are or transposed. They may lie as their memory does, and stay as they are in memory
//! until they are staged.

use openmps_tile::kernel::Carried;
use openmps_tile::{Instruction, Kernel, Operation, Value};
use std::collections::{HashMap, HashSet};

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A product, as a factor.
    DotOperand,
    /// A loop's initial value or what its block yields; the loop's carried value.
    Carried(Value),
    /// A transposition; its result.
    Permuted(Value),
    Other,
}

/// The loads and the carried values that only products read.
pub fn dot_operands(kernel: &Kernel) -> HashSet<Value> {
    let mut search = Search::default();
    search.instructions(&kernel.body.instructions);
    search.answer()
}

#[derive(Default)]
struct Search {
    readers: HashMap<Value, Vec<Reader>>,
    loads: Vec<Value>,
    carried: Vec<Carried>,
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
            Operation::Permute { .. } => return self.read(operands[0], Reader::Permuted(instruction.results[0])),
            Operation::Dot => {
                self.read(operands[0], Reader::DotOperand);
                self.read(operands[1], Reader::DotOperand);
                return self.read(operands[2], Reader::Other);
            }
            Operation::For => {
                operands[..3].iter().for_each(|&bound| self.read(bound, Reader::Other));
                for carried in instruction.carried() {
                    self.read(carried.initial, Reader::Carried(carried.argument));
                    self.read(carried.next, Reader::Carried(carried.argument));
                    self.carried.push(carried);
                }
                return;
            }
            _ => {}
        }
        operands.iter().for_each(|&operand| self.read(operand, Reader::Other));
    }

    /// Whether all readers of a value are such, and it has some.
    fn only(&self, value: Value, with: &dyn Fn(Reader) -> bool) -> bool {
        self.readers.get(&value).is_some_and(|readers| readers.iter().all(|&reader| with(reader)))
    }

    fn is_factor(&self, reader: Reader) -> bool {
        match reader {
            Reader::DotOperand => true,
            Reader::Permuted(result) => self.only(result, &|reader| self.is_factor(reader)),
            Reader::Carried(_) | Reader::Other => false,
        }
    }

    fn answer(&self) -> HashSet<Value> {
        let is_factor = |value: Value| self.only(value, &|reader| self.is_factor(reader));
        let is_load = |value: &Value| self.loads.contains(value);
        let mut found = HashSet::new();
        for &Carried { initial, argument, next, result } in &self.carried {
            let carried = |reader: Reader| reader == Reader::Carried(argument);
            let both = is_load(&initial) && is_load(&next) && self.only(initial, &carried) && self.only(next, &carried);
            let read_after = self.readers.contains_key(&result);
            if both && !read_after && is_factor(argument) {
                found.extend([argument, initial, next]);
            }
        }
        found.extend(self.loads.iter().filter(|&&load| is_factor(load)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::{Builder, Scalar, Type, parse};

    /// A product in a loop whose left factor is loaded one step ahead; whether what was loaded last is stored after the loop.
    fn ahead(stored: bool) -> (Kernel, Value) {
        let mut b = Builder::new("ahead");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F16)));
        let range = b.range(16);
        let row = b.expand_dims(range, 0);
        let row = b.broadcast(row, &[16, 16]);
        let tile = |b: &mut Builder, pointer| b.add_pointer(pointer, row);
        let (from, to) = (tile(&mut b, x), tile(&mut b, out));
        let first = b.load(from, None, None);
        let none = b.constant(0.0, &Type::tile(Scalar::F32, &[16, 16]));
        let bounds = [0, 4, 1].map(|bound| b.integer(bound, Scalar::I64));
        let results = b.for_loop(bounds, &[first, none], |b, _, carried| {
            let next = b.load(from, None, None);
            vec![next, b.dot(carried[0], carried[0], carried[1])]
        });
        if stored {
            b.store(to, results[0], None);
        }
        (b.finish(), first)
    }

    #[test]
    fn what_is_loaded_ahead_is_a_factor_unless_somebody_reads_it_after_the_loop() {
        for stored in [false, true] {
            let (kernel, first) = ahead(stored);
            assert_eq!(dot_operands(&kernel).contains(&first), !stored);
        }
    }

    #[test]
    fn what_is_transposed_for_one_product_and_not_for_another_is_a_factor() {
        let kernel = parse(include_str!("../../tile/tests/ttir/half_attention_gradient.ttir")).expect("a kernel");
        let found = dot_operands(&kernel);
        let halves = found.iter().filter(|value| kernel.type_of(**value).number() == Some(Scalar::F16));
        assert_eq!((halves.count(), found.len()), (4, 4), "queries, keys, values, the result's gradient");
    }
}
