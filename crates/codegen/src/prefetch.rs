//! Loops of products load the factors of the next iteration before they multiply those of this one, so that memory is not waited for.
//!
//! What a loop loads becomes a carried value: the first loads stand before the loop, and each iteration begins with the next one's, which
//! are masked off behind the last iteration. Only loops that write nothing are changed.

use openmps_tile::kernel::{Binary, Compare};
use openmps_tile::{Block, Instruction, Kernel, Operation, Scalar, Type, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A kernel whose loops load ahead.
pub fn prefetch(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    let mut body = std::mem::take(&mut kernel.body);
    Rewriter { kernel: &mut kernel, line: None }.block(&mut body);
    kernel.body = body;
    kernel
}

struct Rewriter<'k> {
    kernel: &'k mut Kernel,
    line: Option<u32>,
}

/// What is to be loaded ahead in a loop.
struct Prefetch {
    /// The loads' places in the block.
    loads: Vec<usize>,
    /// What they are computed from, as places in the block, in order.
    needed: Vec<usize>,
    /// The carried values that these use, by their index.
    carried: Vec<usize>,
    /// What the next ones of those are computed from.
    steps: Vec<usize>,
}

impl Rewriter<'_> {
    fn block(&mut self, block: &mut Block) {
        let mut at = 0;
        while at < block.instructions.len() {
            for inner in &mut block.instructions[at].blocks {
                self.block(inner);
            }
            if let Some(plan) = Prefetch::of(&block.instructions[at]) {
                let mut before = Vec::new();
                self.line = block.instructions[at].line;
                self.rotate(&mut block.instructions[at], &plan, &mut before);
                let count = before.len();
                block.instructions.splice(at..at, before);
                at += count;
            }
            at += 1;
        }
    }

    /// Loads for the first iteration before the loop, for the next one at its beginning.
    fn rotate(&mut self, instruction: &mut Instruction, plan: &Prefetch, before: &mut Vec<Instruction>) {
        let [lower, upper, step] = [0, 1, 2].map(|i| instruction.operands[i]);
        let mut block = std::mem::take(&mut instruction.blocks[0]);
        let index = block.arguments[0];
        // Before the loop: the index is the lower bound, carried values are the initial ones.
        let mut first: HashMap<Value, Value> = HashMap::from([(index, lower)]);
        first.extend(block.arguments[1..].iter().copied().zip(instruction.operands[3..].iter().copied()));
        let runs = self.emit(before, Operation::Compare(Compare::Less), &[lower, upper], Type::scalar(Scalar::I1));
        let initial = self.clone_loads(&block, plan, &mut first, runs, before);
        // In it: what the next iteration computes, from its index and the next carried values.
        let mut ahead = Vec::new();
        let ty = self.kernel.type_of(index).clone();
        let next_index = self.emit(&mut ahead, Operation::Binary(Binary::Add), &[index, step], ty.clone());
        let left = self.emit(&mut ahead, Operation::Binary(Binary::Subtract), &[upper, index], ty);
        let more = Operation::Compare(Compare::GreaterUnsigned);
        let runs = self.emit(&mut ahead, more, &[left, step], Type::scalar(Scalar::I1));
        let mut next = self.next_carried(&mut block, plan, &mut ahead);
        next.insert(index, next_index);
        let yielded = self.clone_loads(&block, plan, &mut next, runs, &mut ahead);
        // The loads themselves become carried values.
        let loaded: Vec<Value> = plan.loads.iter().map(|&at| block.instructions[at].results[0]).collect();
        block.arguments.extend(&loaded);
        for &load in &loaded {
            let result = self.value(self.kernel.type_of(load).clone());
            instruction.results.push(result);
        }
        instruction.operands.extend(initial);
        if let Some(end) = block.instructions.last_mut() {
            end.operands.extend(yielded);
        }
        let gone: HashSet<usize> = plan.loads.iter().copied().collect();
        let mut at = 0;
        block.instructions.retain(|_| {
            at += 1;
            !gone.contains(&(at - 1))
        });
        block.instructions.splice(0..0, ahead);
        drop_unread(&mut block);
        instruction.blocks[0] = block;
    }

    /// What the needed carried values will be in the next iteration, computed at the beginning of this one; the block yields these.
    fn next_carried(
        &mut self,
        block: &mut Block,
        plan: &Prefetch,
        out: &mut Vec<Instruction>,
    ) -> HashMap<Value, Value> {
        let mut same = HashMap::new();
        for &at in &plan.steps {
            self.copy(&block.instructions[at], &mut same, out);
        }
        let mut next = HashMap::new();
        for &carried in &plan.carried {
            let argument = block.arguments[carried + 1];
            let Some(end) = block.instructions.last_mut() else { continue };
            let value = same.get(&end.operands[carried]).copied().unwrap_or(end.operands[carried]);
            end.operands[carried] = value;
            next.insert(argument, value);
        }
        next
    }

    /// Copies of the loads and of what they need, masked off where there is no such iteration.
    fn clone_loads(
        &mut self,
        block: &Block,
        plan: &Prefetch,
        values: &mut HashMap<Value, Value>,
        runs: Value,
        out: &mut Vec<Instruction>,
    ) -> Vec<Value> {
        for &at in &plan.needed {
            self.copy(&block.instructions[at], values, out);
        }
        let load = |&at: &usize| {
            let load = &block.instructions[at];
            let mut operands: Vec<Value> = load.operands.iter().map(|x| values.get(x).copied().unwrap_or(*x)).collect();
            let truth = self.kernel.type_of(operands[0]).with_scalar(Scalar::I1);
            let everywhere = self.emit(out, Operation::Splat, &[runs], truth.clone());
            match operands.get_mut(1) {
                Some(mask) => {
                    *mask = self.emit(out, Operation::Binary(Binary::And), &[*mask, everywhere], truth);
                }
                None => operands.push(everywhere),
            }
            let ty = self.kernel.type_of(load.results[0]).clone();
            self.emit(out, Operation::Load, &operands, ty)
        };
        plan.loads.iter().map(load).collect()
    }

    fn copy(&mut self, instruction: &Instruction, values: &mut HashMap<Value, Value>, out: &mut Vec<Instruction>) {
        let operands: Vec<Value> = instruction.operands.iter().map(|x| values.get(x).copied().unwrap_or(*x)).collect();
        let result = instruction.results[0];
        let ty = self.kernel.type_of(result).clone();
        let value = self.emit(out, instruction.operation.clone(), &operands, ty);
        values.insert(result, value);
    }

    fn emit(&mut self, out: &mut Vec<Instruction>, operation: Operation, operands: &[Value], ty: Type) -> Value {
        let result = self.value(ty);
        let (operands, results) = (operands.to_vec(), vec![result]);
        out.push(Instruction { operation, operands, results, blocks: Vec::new(), line: self.line });
        result
    }

    fn value(&mut self, ty: Type) -> Value {
        self.kernel.types.push(ty);
        Value(self.kernel.types.len() as u32 - 1)
    }
}

impl Prefetch {
    /// What can be loaded ahead in an instruction; none where it is no loop of products, or one that writes.
    fn of(instruction: &Instruction) -> Option<Prefetch> {
        if instruction.operation != Operation::For {
            return None;
        }
        let block = &instruction.blocks[0];
        let has_product = block.instructions.iter().any(|inner| inner.operation == Operation::Dot);
        if !has_product || block.instructions.iter().any(|inner| !inner.blocks.is_empty() || writes(&inner.operation)) {
            return None;
        }
        let slices = Slices::of(block);
        let (mut needed, mut steps, mut carried) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut loads = Vec::new();
        for (at, load) in block.instructions.iter().enumerate().filter(|(_, load)| load.operation == Operation::Load) {
            let mut own = (needed.clone(), steps.clone(), carried.clone());
            let operands = || load.operands.iter();
            if operands().all(|&x| slices.collect(x, &mut own.0, &mut own.2)) && slices.follow(&mut own.1, &mut own.2) {
                (needed, steps, carried) = own;
                loads.push(at);
            }
        }
        let list = |set: BTreeSet<usize>| set.into_iter().collect();
        (!loads.is_empty()).then(|| Prefetch {
            loads,
            needed: list(needed),
            carried: list(carried),
            steps: list(steps),
        })
    }
}

/// Where the values of a block come from.
struct Slices<'b> {
    block: &'b Block,
    /// Instructions by result.
    defined: HashMap<Value, usize>,
    yielded: &'b [Value],
}

impl<'b> Slices<'b> {
    fn of(block: &'b Block) -> Slices<'b> {
        let results = |(at, instruction): (usize, &Instruction)| {
            instruction.results.iter().map(|&result| (result, at)).collect::<Vec<_>>()
        };
        let defined = block.instructions.iter().enumerate().flat_map(results).collect();
        Slices { block, defined, yielded: block.ends() }
    }

    /// Notes what a value is computed from, and which carried values among that; whether all of it may be repeated.
    fn collect(&self, value: Value, needed: &mut BTreeSet<usize>, carried: &mut BTreeSet<usize>) -> bool {
        if let Some(&at) = self.defined.get(&value) {
            let instruction = &self.block.instructions[at];
            return is_pure(&instruction.operation)
                && (!needed.insert(at) || instruction.operands.iter().all(|&x| self.collect(x, needed, carried)));
        }
        carried.extend(self.block.arguments[1..].iter().position(|&argument| argument == value));
        true
    }

    /// Notes what the next ones of carried values are computed from, and of those that this needs.
    fn follow(&self, steps: &mut BTreeSet<usize>, carried: &mut BTreeSet<usize>) -> bool {
        let mut followed = BTreeSet::new();
        while let Some(&index) = carried.difference(&followed).next() {
            followed.insert(index);
            if !self.collect(self.yielded[index], steps, carried) {
                return false;
            }
        }
        true
    }
}

/// Operations that may be repeated, with one result.
fn is_pure(operation: &Operation) -> bool {
    use Operation::*;
    matches!(
        operation,
        Constant(_)
            | ProgramId(_)
            | ProgramCount(_)
            | Range { .. }
            | Splat
            | ExpandDims { .. }
            | Broadcast
            | Reshape
            | Permute { .. }
            | AddPointer
            | Unary(_)
            | Binary(_)
            | Compare(_)
            | Select
            | Cast(_)
            | IntegerToPointer
            | PointerToInteger
    )
}

fn writes(operation: &Operation) -> bool {
    use Operation::*;
    matches!(operation, Store | Atomic(_) | CompareSwap | Barrier | Assert { .. } | Print(_))
}

/// Drops pure instructions whose results nothing reads.
fn drop_unread(block: &mut Block) {
    let mut read: HashSet<Value> = HashSet::new();
    let mut kept: Vec<Instruction> = Vec::with_capacity(block.instructions.len());
    while let Some(instruction) = block.instructions.pop() {
        let unread = instruction.results.iter().all(|result| !read.contains(result));
        if !(unread && is_pure(&instruction.operation)) {
            read.extend(&instruction.operands);
            kept.push(instruction);
        }
    }
    kept.reverse();
    block.instructions = kept;
}
