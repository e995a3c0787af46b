//! Which pointers among a kernel's parameters it stores through: what a device has to know to run kernels side by side.

use crate::kernel::{Block, Instruction, Kernel, Operation, Value};
use crate::types::Element;

/// Pointers that are told apart; a kernel with more counts as writing through each.
const MOST: usize = 128;

impl Kernel {
    /// For each parameter, whether the kernel may write memory through it. Numbers are never written.
    pub fn written_parameters(&self) -> Vec<bool> {
        let pointers: Vec<bool> = self.parameters.iter().map(|parameter| self.is_pointer(parameter.value)).collect();
        let Some(flow) = Flow::of(self) else { return pointers };
        let written = flow.written(&self.body);
        (0..pointers.len()).map(|place| written >> place & 1 == 1).collect()
    }

    /// For each value the parameters that a pointer may come from, as bits: what may be one place in memory has a bit in common.
    pub fn pointer_origins(&self) -> Vec<u128> {
        match Flow::of(self) {
            Some(flow) => flow.origins,
            None => {
                (0..self.types.len() as u32).map(|at| if self.is_pointer(Value(at)) { u128::MAX } else { 0 }).collect()
            }
        }
    }

    fn is_pointer(&self, value: Value) -> bool {
        matches!(self.type_of(value).element, Element::Pointer(_))
    }
}

fn any(block: &Block, is: &dyn Fn(&Operation) -> bool) -> bool {
    let within =
        |instruction: &Instruction| is(&instruction.operation) || instruction.blocks.iter().any(|block| any(block, is));
    block.instructions.iter().any(within)
}

/// The parameters, as bits, that each pointer may come from.
struct Flow {
    origins: Vec<u128>,
    changed: bool,
}

impl Flow {
    /// None where a pointer may come from anywhere.
    fn of(kernel: &Kernel) -> Option<Flow> {
        // An address that was a number may be anybody's.
        let opaque = any(&kernel.body, &|operation| matches!(operation, Operation::IntegerToPointer));
        if opaque || kernel.parameters.len() > MOST {
            return None;
        }
        let mut flow = Flow { origins: vec![0; kernel.types.len()], changed: true };
        for (place, parameter) in kernel.parameters.iter().enumerate() {
            flow.origins[parameter.value.0 as usize] = u128::from(kernel.is_pointer(parameter.value)) << place;
        }
        // Loops carry pointers round, so once is not enough.
        while std::mem::take(&mut flow.changed) {
            flow.block(kernel, &kernel.body);
        }
        Some(flow)
    }

    fn block(&mut self, kernel: &Kernel, block: &Block) {
        for instruction in &block.instructions {
            self.instruction(kernel, instruction);
            instruction.blocks.iter().for_each(|block| self.block(kernel, block));
        }
    }

    fn instruction(&mut self, kernel: &Kernel, instruction: &Instruction) {
        let (operands, results, blocks) = (&instruction.operands, &instruction.results, &instruction.blocks);
        match &instruction.operation {
            Operation::For => {
                let body = &blocks[0];
                self.pairs(&operands[3..], &body.arguments[1..]);
                self.pairs(&operands[3..], results);
                self.pairs(body.ends(), &body.arguments[1..]);
                self.pairs(body.ends(), results);
            }
            Operation::If => blocks.iter().for_each(|block| self.pairs(block.ends(), results)),
            Operation::While => {
                let (before, after) = (&blocks[0], &blocks[1]);
                let passed = before.ends().get(1..).unwrap_or_default();
                self.pairs(operands, &before.arguments);
                self.pairs(passed, &after.arguments);
                self.pairs(passed, results);
                self.pairs(after.ends(), &before.arguments);
            }
            // What is loaded is a number.
            Operation::Load => {}
            _ => {
                let from = operands.iter().fold(0, |bits, operand| bits | self.origins[operand.0 as usize]);
                let pointers =
                    results.iter().filter(|result| matches!(kernel.type_of(**result).element, Element::Pointer(_)));
                pointers.for_each(|result| self.add(*result, from));
            }
        }
    }

    fn pairs(&mut self, from: &[Value], to: &[Value]) {
        from.iter().zip(to).for_each(|(from, to)| self.add(*to, self.origins[from.0 as usize]));
    }

    fn add(&mut self, to: Value, bits: u128) {
        let origins = &mut self.origins[to.0 as usize];
        self.changed |= *origins | bits != *origins;
        *origins |= bits;
    }

    fn written(&self, block: &Block) -> u128 {
        let of = |instruction: &Instruction| {
            let stores = match instruction.operation {
                Operation::Store | Operation::CompareSwap => true,
                Operation::Atomic(atomic) => atomic.writes(),
                _ => false,
            };
            let own = if stores { self.origins[instruction.operands[0].0 as usize] } else { 0 };
            instruction.blocks.iter().fold(own, |bits, block| bits | self.written(block))
        };
        block.instructions.iter().fold(0, |bits, instruction| bits | of(instruction))
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::Atomic;
    use crate::samples;
    use crate::{Builder, Operation, Scalar, Type, parse};

    #[test]
    fn only_the_result_is_written() {
        assert_eq!(samples::vector_add(64).written_parameters(), [false, false, true, false]);
        assert_eq!(samples::row_softmax(64).written_parameters(), [false, true, false]);
    }

    #[test]
    fn pointers_that_a_loop_carries_keep_their_origin() {
        // Both operands of Triton's matrix product move along the loop; only the third is stored to.
        let kernel = parse(include_str!("../tests/ttir/matmul.ttir")).expect("a kernel");
        let written = kernel.written_parameters();
        assert_eq!(written[..3], [false, false, true]);
        assert!(!written[3..].contains(&true));
    }

    #[test]
    fn atomic_operations_write_and_numbers_as_addresses_may_write_everywhere() {
        let mut b = Builder::new("count");
        let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::I32)));
        let one = b.integer(1, Scalar::I32);
        b.load(x, None, None);
        b.emit(Operation::Atomic(crate::kernel::Atomic::Add), &[out, one], Type::scalar(Scalar::I32));
        assert_eq!(b.finish().written_parameters(), [false, true]);
        let mut b = Builder::new("far");
        b.parameter("x", Type::pointer(Scalar::I32));
        let n = b.parameter("n", Type::scalar(Scalar::I64));
        let one = b.integer(1, Scalar::I32);
        let far = b.emit(Operation::IntegerToPointer, &[n], Type::pointer(Scalar::I32));
        b.emit(Operation::Atomic(Atomic::Add), &[far, one], Type::scalar(Scalar::I32));
        assert_eq!(b.finish().written_parameters(), [true, false]);
    }
}
