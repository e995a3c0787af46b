//! Cubes: tiles of a power of two elements whose dimensions are bits of the element's number, as Triton writes sorting networks and reversals.
//!
//! `x ^ (the exclusive or of x along a dimension of 2)` is the element at the other side of that dimension, bit by bit; where the greater of both stays is
//! said by the parity of a few bits. What is written in a dozen operations, most of them on rows of two, is one pass here. A rule for values: those of such
//! steps in a row that nobody else reads are one network, from its source, whatever dimensions it has, to its result; all others are lowered as they are.

use crate::vector::exchange::{Parity, order};
use openmps_tile::kernel::Number;
use openmps_tile::{Binary, Block, Cast, Combine, Compare, Instruction, Kernel, Operation, Scalar, Unary, Value};
use std::collections::{HashMap, HashSet};

/// A step of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Elements change places with those whose numbers differ in these bits.
    Places(usize),
    /// Either of two elements stays, the greater one where `keeps_greater` holds.
    Order { bit: usize, keeps_greater: Parity, compare: Compare, scalar: Scalar },
}

/// Steps between a source and the value that has them as its definition.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub source: Value,
    pub steps: Vec<Exchange>,
    /// The number of the block that it is in.
    block: usize,
}

impl Network {
    /// Adds a step; elements that change places twice go at once.
    fn add(&mut self, step: Exchange) {
        match (self.steps.last_mut(), step) {
            (Some(Exchange::Places(before)), Exchange::Places(bits)) => *before ^= bits,
            _ => self.steps.push(step),
        }
    }
}

/// The networks of a kernel.
#[derive(Debug, Default)]
pub(super) struct Cubes {
    /// By their results.
    networks: HashMap<Value, Network>,
    /// Tiles of 0 and 1 that follow from the elements' numbers: those of so many dimensions as are no rows and columns, which would be computed, since they are
    /// not indices either.
    parities: HashMap<Value, Parity>,
    /// Values that nobody reads beside networks and those tiles.
    unread: HashSet<Value>,
}

impl Cubes {
    /// Finds the networks of a kernel.
    pub fn new(kernel: &Kernel) -> Cubes {
        let (made, parities, networks) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut finder = Finder { kernel, made, parities, indices: HashSet::new(), networks, blocks: 0 };
        let mut order = Vec::new();
        finder.walk(&kernel.body, &mut order);
        let Finder { networks, mut parities, indices, .. } = finder;
        parities
            .retain(|value, parity| kernel.dims_of(*value).len() > 2 && parity.bits != 0 && !indices.contains(value));
        let mut cubes = Cubes { networks, parities, unread: HashSet::new() };
        if cubes.networks.values().all(|network| network.steps.is_empty()) {
            cubes.networks.clear();
            order.clear();
        }
        if !cubes.networks.is_empty() || !cubes.parities.is_empty() {
            let mut reads = HashMap::new();
            cubes.count(&kernel.body, &mut reads);
            order.iter().for_each(|&result| cubes.join(result, &reads));
        }
        cubes
    }

    /// What a tile says by the numbers of its elements, where that is known.
    pub fn parity(&self, result: Value) -> Option<Parity> {
        self.parities.get(&result).copied()
    }

    /// The network that makes a value.
    pub fn network(&self, result: Value) -> Option<&Network> {
        self.networks.get(&result)
    }

    /// Whether a value need not be made.
    pub fn is_unread(&self, value: Value) -> bool {
        self.unread.contains(&value)
    }

    /// Counts who reads each value, from the last instruction to the first, so that what only unread ones read is unread too.
    fn count(&mut self, block: &Block, reads: &mut HashMap<Value, usize>) {
        for instruction in block.instructions.iter().rev() {
            if let [result] = instruction.results[..]
                && !reads.contains_key(&result)
                && only_computes(&instruction.operation)
            {
                self.unread.insert(result);
                continue;
            }
            instruction.blocks.iter().rev().for_each(|block| self.count(block, reads));
            let result = instruction.results.first();
            let read = match result.and_then(|result| self.networks.get(result)) {
                Some(network) => std::slice::from_ref(&network.source),
                None if result.is_some_and(|result| self.parities.contains_key(result)) => &[],
                None => &instruction.operands[..],
            };
            read.iter().for_each(|&value| *reads.entry(value).or_default() += 1);
        }
    }

    /// Lets a network begin where the one before it does, which nobody else reads; not a loop's where one in front of the loop does, which runs once.
    fn join(&mut self, result: Value, reads: &HashMap<Value, usize>) {
        let Some(&Network { source, block, .. }) = self.networks.get(&result) else { return };
        if self.unread.contains(&result) || reads.get(&source) != Some(&1) {
            return;
        }
        if self.networks.get(&source).is_none_or(|before| before.block != block) {
            return;
        }
        let Some(before) = self.networks.remove(&source) else { return };
        self.unread.insert(source);
        if let Some(network) = self.networks.get_mut(&result) {
            let behind = std::mem::replace(network, before).steps;
            behind.into_iter().for_each(|step| network.add(step));
        }
    }
}

/// Whether an operation is left out where nobody reads its result.
fn only_computes(operation: &Operation) -> bool {
    use Operation::*;
    operation.is_elementwise()
        || matches!(
            operation,
            Constant(_) | Range { .. } | Splat | ExpandDims { .. } | Broadcast | Reshape | Reduce { .. }
        )
}

struct Finder<'k> {
    kernel: &'k Kernel,
    made: HashMap<Value, &'k Instruction>,
    /// Tiles of 0 and 1 that follow from the elements' numbers.
    parities: HashMap<Value, Parity>,
    /// Those of them that are planned as indices.
    indices: HashSet<Value>,
    networks: HashMap<Value, Network>,
    blocks: usize,
}

impl<'k> Finder<'k> {
    /// Notes networks of one step, or of none where dimensions change behind one, in the order of the kernel.
    fn walk(&mut self, block: &'k Block, order: &mut Vec<Value>) {
        self.blocks += 1;
        let number = self.blocks;
        for instruction in &block.instructions {
            if let [result] = instruction.results[..] {
                self.made.insert(result, instruction);
                if let Some(parity) = self.parity(instruction, result) {
                    self.parities.insert(result, parity);
                    if self.is_index(instruction) {
                        self.indices.insert(result);
                    }
                }
                if let Some((source, step)) = self.step(instruction, result) {
                    let source = self.origin(source);
                    let network = Network { source, steps: step.into_iter().collect(), block: number };
                    self.networks.insert(result, network);
                    order.push(result);
                }
            }
            instruction.blocks.iter().for_each(|block| self.walk(block, order));
        }
    }

    /// What an instruction is as a step, and of what.
    fn step(&self, instruction: &Instruction, result: Value) -> Option<(Value, Option<Exchange>)> {
        match instruction.operation {
            Operation::Binary(Binary::Xor) => {
                let (source, bit) = self.places(instruction, result)?;
                Some((source, Some(Exchange::Places(bit))))
            }
            Operation::Select => {
                let (source, step) = self.order(instruction)?;
                Some((source, Some(step)))
            }
            _ => {
                let source = self.renamed(instruction)?;
                self.networks.contains_key(&self.origin(source)).then_some((source, None))
            }
        }
    }

    /// What an instruction only gives other dimensions, or another type of the same bits.
    fn renamed(&self, instruction: &Instruction) -> Option<Value> {
        use Operation::{ExpandDims, Reshape};
        let is_one = matches!(instruction.operation, Reshape | ExpandDims { .. } | Operation::Cast(Cast::Bits));
        let &[source] = &instruction.operands[..] else { return None };
        (is_one && self.kernel.type_of(source).number().is_some()).then_some(source)
    }

    /// The value whose elements a value has under other names.
    fn origin(&self, mut value: Value) -> Value {
        while let Some(source) = self.made.get(&value).and_then(|by| self.renamed(by)) {
            value = source;
        }
        value
    }

    /// What a truth value was before it was widened to compare it with an integer.
    fn narrow(&self, value: Value) -> Value {
        match self.operation(value) {
            Some((Operation::Cast(Cast::Unsigned), &[truth]))
                if self.kernel.type_of(truth).number() == Some(Scalar::I1) =>
            {
                truth
            }
            _ => value,
        }
    }

    fn operation(&self, value: Value) -> Option<(&Operation, &[Value])> {
        let by = self.made.get(&value)?;
        Some((&by.operation, &by.operands[..]))
    }

    /// `x ^ broadcast(exclusive or of x along a dimension of 2)`: x, and the bit that is that dimension.
    fn places(&self, instruction: &Instruction, result: Value) -> Option<(Value, usize)> {
        let dims = self.kernel.dims_of(result);
        if !dims.iter().all(|dim| dim.is_power_of_two()) {
            return None;
        }
        let &[first, second] = &instruction.operands[..] else { return None };
        [(first, second), (second, first)].into_iter().find_map(|(x, both)| {
            let (Operation::Broadcast, &[one]) = self.operation(both)? else { return None };
            let (Operation::ExpandDims { .. } | Operation::Reshape, &[reduced]) = self.operation(one)? else {
                return None;
            };
            let (&Operation::Reduce { axis, combine: Combine::Xor }, of) = self.operation(reduced)? else {
                return None;
            };
            let mut expected = dims.to_vec();
            if expected[axis] != 2 {
                return None;
            }
            expected[axis] = 1;
            let is_kept = self.kernel.dims_of(one)[..] == expected[..];
            (of == [x] && is_kept).then(|| (x, dims[axis + 1..].iter().product()))
        })
    }

    /// `select((x > y) != side, y, x)` where y is x on the other side of a dimension.
    fn order(&self, instruction: &Instruction) -> Option<(Value, Exchange)> {
        let &[condition, y, x] = &instruction.operands[..] else { return None };
        let &[Exchange::Places(bit)] = &self.networks.get(&self.origin(y))?.steps[..] else { return None };
        if self.origin(self.networks[&self.origin(y)].source) != self.origin(x) {
            return None;
        }
        let (Operation::Compare(Compare::NotEqual) | Operation::Binary(Binary::Xor), &[first, second]) =
            self.operation(condition)?
        else {
            return None;
        };
        [(first, second), (second, first)].into_iter().find_map(|(greater, side)| {
            let (&Operation::Compare(compare), of) = self.operation(self.narrow(greater))? else { return None };
            let (keeps_greater, scalar) = (*self.parities.get(&side)?, self.kernel.type_of(x).number()?);
            order(compare, scalar)?;
            (of == [x, y]).then_some((x, Exchange::Order { bit, keeps_greater, compare, scalar }))
        })
    }

    /// Whether what an instruction makes follows from the place in a tile as an index does.
    fn is_index(&self, instruction: &Instruction) -> bool {
        use Operation::{Broadcast, ExpandDims, Range, Reshape, Splat};
        let is_of_one = matches!(
            instruction.operation,
            Splat | ExpandDims { .. } | Reshape | Broadcast | Operation::Cast(Cast::Signed | Cast::Unsigned)
        ) || matches!(instruction.operation, Operation::Binary(Binary::Subtract));
        let is_index = |value: &Value| self.indices.contains(value);
        matches!(instruction.operation, Range { .. }) || is_of_one && instruction.operands.iter().any(is_index)
    }

    /// What a tile of 0 and 1 says by the numbers of its elements.
    fn parity(&self, instruction: &Instruction, result: Value) -> Option<Parity> {
        let ty = self.kernel.type_of(result);
        if ty.number().is_none() || !ty.dims.iter().all(|dim| dim.is_power_of_two()) {
            return None;
        }
        let of = |at: usize| self.parities.get(instruction.operands.get(at)?).copied();
        let differ = |x: Parity, y: Parity, contrary: bool| Parity {
            bits: x.bits ^ y.bits,
            contrary: x.contrary ^ y.contrary ^ contrary,
        };
        match instruction.operation {
            Operation::Constant(Number::Integer(number @ (0 | 1))) => Some(Parity { bits: 0, contrary: number == 1 }),
            Operation::Range { start: 0 } if ty.len() <= 2 => Some(Parity { bits: ty.len() - 1, contrary: false }),
            Operation::Splat | Operation::Reshape | Operation::ExpandDims { .. } => of(0),
            Operation::Broadcast => {
                let Parity { bits, contrary } = of(0)?;
                let bits = broadcast(bits, self.kernel.dims_of(instruction.operands[0]), &ty.dims);
                Some(Parity { bits, contrary })
            }
            Operation::Cast(Cast::Unsigned | Cast::UnsignedToFloat) => of(0),
            // The sign of a truth value is its only bit.
            Operation::Cast(Cast::Signed | Cast::SignedToFloat) => {
                let from = self.kernel.type_of(instruction.operands[0]).number();
                of(0).filter(|_| from != Some(Scalar::I1))
            }
            Operation::Binary(Binary::Subtract) if of(0)? == ONE => {
                of(1).map(|x| Parity { contrary: !x.contrary, ..x })
            }
            Operation::Unary(Unary::Not) if ty.number() == Some(Scalar::I1) => {
                of(0).map(|x| Parity { contrary: !x.contrary, ..x })
            }
            Operation::Binary(Binary::Xor) | Operation::Compare(Compare::NotEqual) => {
                Some(differ(of(0)?, of(1)?, false))
            }
            Operation::Compare(Compare::Equal) => Some(differ(of(0)?, of(1)?, true)),
            _ => None,
        }
    }
}

/// 1 everywhere.
const ONE: Parity = Parity { bits: 0, contrary: true };

/// Bits of numbers in a tile as those in one that repeats it along dimensions of 1.
fn broadcast(bits: usize, from: &[usize], to: &[usize]) -> usize {
    let (mut result, mut from_step, mut to_step) = (0, 1, 1);
    for (&from, &to) in from.iter().zip(to).rev() {
        result |= ((bits / from_step) & (from - 1)) * to_step;
        from_step *= from;
        to_step *= to;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_move_with_their_dimensions() {
        assert_eq!(broadcast(0b1, &[1, 1, 2], &[2, 2, 2]), 0b1);
        assert_eq!(broadcast(0b1, &[1, 2, 1], &[2, 2, 2]), 0b10);
        assert_eq!(broadcast(0b11, &[2, 1, 2], &[2, 2, 2]), 0b101);
        assert_eq!(broadcast(0b101, &[4, 2], &[4, 2]), 0b101);
    }

    #[test]
    fn a_sort_is_one_network() {
        const TEXT: &str = include_str!("../../../tile/tests/ttir/sort.ttir");
        let kernel = openmps_tile::parse(TEXT).expect("Triton's text");
        let cubes = Cubes::new(&kernel);
        // What is reversed behind the sort is part of the network.
        let network = cubes.networks.values().max_by_key(|network| network.steps.len()).expect("a network");
        let bits = network.steps.iter().filter_map(|step| match step {
            Exchange::Order { bit, .. } => Some(*bit),
            Exchange::Places(_) => None,
        });
        assert_eq!(bits.collect::<Vec<_>>(), [1, 2, 1, 4, 2, 1, 8, 4, 2, 1], "{cubes:?}");
        assert_eq!(kernel.dims_of(network.source)[..], [16], "{cubes:?}");
    }
}
