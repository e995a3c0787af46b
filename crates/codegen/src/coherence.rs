//! Whether programs of a kernel pass memory to each other while they run: by a lock, or by counting who comes last.

use openmps_tile::{Block, Instruction, Kernel, Operation, Value};
use std::collections::HashSet;

/// Whether a program learns from an atomic operation what others have done, so that what they stored before has to be seen. One that only adds
/// to a sum does not.
pub fn passes_memory(kernel: &Kernel) -> bool {
    let (mut old, mut read): (HashSet<Value>, HashSet<Value>) = Default::default();
    walk(&kernel.body, &mut |instruction| {
        if matches!(instruction.operation, Operation::Atomic(_) | Operation::CompareSwap) {
            old.extend(instruction.results.iter().copied());
        }
        read.extend(instruction.operands.iter().copied());
    });
    old.intersection(&read).next().is_some()
}

fn walk<'k>(block: &'k Block, visit: &mut impl FnMut(&'k Instruction)) {
    for instruction in &block.instructions {
        visit(instruction);
        instruction.blocks.iter().for_each(|block| walk(block, visit));
    }
}
