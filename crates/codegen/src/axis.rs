//! What is known of neighbouring elements: how many follow each other, how many are equal, what divides the first of them.
//!
//! Triton's axis analysis. It decides how many elements are loaded and stored at once; every fact is a power of two, and holds for all
//! elements of a tile, in every program.

use openmps_tile::kernel::{Binary, Compare};
use openmps_tile::{Block, Cast, Element, Instruction, Kernel, Number, Operation, Type, Value};

/// What divides zero, and how long nothing changes in a number.
const ANY: u64 = 1 << 40;
/// How often a loop is looked at until its facts hold.
const ROUNDS: usize = 8;

/// What is known along one axis. Coalescing begin at multiples of their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements of a run in which each is the one before plus 1 (pointers: plus one element).
    pub contiguity: u64,
    /// What divides the first element of each such run (pointers: in bytes).
    pub divisibility: u64,
    /// Elements of a run of equal ones.
    pub constancy: u64,
}

const UNKNOWN: Axis = Axis { contiguity: 1, divisibility: 1, constancy: 1 };

impl Axis {
    /// What divides the elements at multiples of `run`, when a run's neighbours are `unit` apart.
    fn divisor(&self, run: u64, unit: u64) -> u64 {
        if self.contiguity > run { self.divisibility.min(run * unit) } else { self.divisibility }
    }

    fn meet(self, other: Axis) -> Axis {
        let contiguity = self.contiguity.min(other.contiguity);
        let divisibility = self.divisor(contiguity, 1).min(other.divisor(contiguity, 1));
        Axis { contiguity, divisibility, constancy: self.constancy.min(other.constancy) }
    }
}

/// The facts of every value.
pub struct AxisInfo<'k> {
    kernel: &'k Kernel,
    /// One axis for a scalar.
    facts: Vec<Vec<Axis>>,
    /// Integer constants, those that are splat among them.
    constants: Vec<Option<i64>>,
}

impl<'k> AxisInfo<'k> {
    /// Looks at a whole kernel.
    pub fn of(kernel: &'k Kernel) -> AxisInfo<'k> {
        let facts = kernel.types.iter().map(|ty| vec![UNKNOWN; ty.dims.len().max(1)]).collect();
        let mut all = AxisInfo { kernel, facts, constants: vec![None; kernel.types.len()] };
        for parameter in &kernel.parameters {
            let divisibility = highest_divisor(i64::from(parameter.divisibility));
            all.facts[parameter.value.0 as usize] = vec![Axis { divisibility, ..UNKNOWN }];
        }
        all.block(&kernel.body);
        all
    }

    /// What is known of a value along an axis.
    pub fn axis(&self, value: Value, axis: usize) -> Axis {
        self.facts[value.0 as usize].get(axis).copied().unwrap_or(UNKNOWN)
    }

    /// The axis along which a tile of pointers names neighbours, and how many of them may be accessed at once: at most 16 bytes, where the
    /// mask is the same for all.
    pub fn vector(&self, pointers: Value, mask: Option<Value>) -> Option<(usize, usize)> {
        let ty = self.type_of(pointers);
        let size = ty.target()?.size() as u64;
        let of = |axis: usize| {
            let fact = self.axis(pointers, axis);
            let same = mask.map_or(ANY, |mask| self.axis(mask, axis).constancy);
            let most = fact.contiguity.min(fact.divisibility / size).min(same).min(16 / size);
            (axis, most as usize)
        };
        (0..ty.dims.len()).rev().map(of).filter(|&(_, most)| most > 1).max_by_key(|&(_, most)| most)
    }

    fn type_of(&self, value: Value) -> &'k Type {
        self.kernel.type_of(value)
    }

    fn set(&mut self, value: Value, facts: Vec<Axis>) {
        self.facts[value.0 as usize] = facts;
    }

    fn get(&self, value: Value) -> &[Axis] {
        &self.facts[value.0 as usize]
    }

    /// What divides every element.
    fn divisor(&self, value: Value) -> u64 {
        self.get(value).iter().map(|axis| axis.divisor(1, 1)).min().unwrap_or(1)
    }

    fn block(&mut self, block: &Block) {
        block.instructions.iter().for_each(|instruction| self.instruction(instruction));
    }

    fn instruction(&mut self, instruction: &Instruction) {
        match &instruction.operation {
            Operation::For => return self.for_loop(instruction),
            Operation::If => return self.if_else(instruction),
            Operation::While => return instruction.blocks.iter().for_each(|block| self.block(block)),
            _ => {}
        }
        let Some(&result) = instruction.results.first() else { return };
        let operands = &instruction.operands;
        let dims = &self.type_of(result).dims;
        let facts = match &instruction.operation {
            Operation::Constant(Number::Integer(value)) => {
                self.constants[result.0 as usize] = Some(*value);
                same_everywhere(highest_divisor(*value), dims)
            }
            Operation::Constant(Number::Float(_)) => same_everywhere(1, dims),
            Operation::Range { start } => {
                let contiguity = highest_divisor(dims[0] as i64);
                let whole = if dims[0].is_power_of_two() { ANY } else { contiguity };
                vec![Axis { contiguity, divisibility: highest_divisor(i64::from(*start)).min(whole), constancy: 1 }]
            }
            Operation::Splat => {
                self.constants[result.0 as usize] = self.constants[operands[0].0 as usize];
                same_everywhere(self.divisor(operands[0]), dims)
            }
            Operation::ExpandDims { axis } => {
                let mut facts = self.get(operands[0]).to_vec();
                facts.insert(*axis, Axis { divisibility: self.divisor(operands[0]), ..UNKNOWN });
                facts
            }
            Operation::Broadcast => self.broadcast(operands[0], dims),
            Operation::Permute { order } => order.iter().map(|&axis| self.axis(operands[0], axis)).collect(),
            Operation::Cast(Cast::Signed | Cast::Unsigned) => self.get(operands[0]).to_vec(),
            Operation::AddPointer => self.sum(operands[0], operands[1], self.element_size(operands[0])),
            Operation::Binary(binary) => self.binary(*binary, operands[0], operands[1]),
            Operation::Compare(comparison) => self.compare(*comparison, operands[0], operands[1]),
            _ => vec![UNKNOWN; dims.len().max(1)],
        };
        self.set(result, facts);
    }

    fn element_size(&self, pointers: Value) -> u64 {
        match self.type_of(pointers).element {
            Element::Pointer(target) => target.size() as u64,
            Element::Scalar(_) => 1,
        }
    }

    fn broadcast(&self, x: Value, dims: &[usize]) -> Vec<Axis> {
        let from = &self.type_of(x).dims;
        let along = |axis: usize| {
            let fact = self.axis(x, axis);
            if from[axis] == dims[axis] {
                return fact;
            }
            Axis { contiguity: 1, divisibility: fact.divisibility, constancy: highest_divisor(dims[axis] as i64) }
        };
        (0..dims.len()).map(along).collect()
    }

    fn pairs(&self, x: Value, y: Value) -> impl Iterator<Item = (Axis, Axis)> {
        self.get(x).iter().copied().zip(self.get(y).iter().copied())
    }

    /// `x + y`, where one step of `y` is `unit` of `x`.
    fn sum(&self, x: Value, y: Value, unit: u64) -> Vec<Axis> {
        let along = |(x, y): (Axis, Axis)| {
            let contiguity = x.contiguity.min(y.constancy).max(x.constancy.min(y.contiguity));
            let divisibility = x.divisor(contiguity, unit).min(y.divisor(contiguity, 1).saturating_mul(unit));
            Axis { contiguity, divisibility, constancy: x.constancy.min(y.constancy) }
        };
        self.pairs(x, y).map(along).collect()
    }

    fn binary(&self, binary: Binary, x: Value, y: Value) -> Vec<Axis> {
        let constant = self.constants[y.0 as usize];
        let equal = |(x, y): (Axis, Axis)| Axis { constancy: x.constancy.min(y.constancy), ..UNKNOWN };
        match binary {
            Binary::Add => self.sum(x, y, 1),
            Binary::Subtract => self.pairs(x, y).map(difference).collect(),
            Binary::Multiply if constant == Some(1) => self.get(x).to_vec(),
            Binary::Multiply if self.constants[x.0 as usize] == Some(1) => self.get(y).to_vec(),
            Binary::Multiply => {
                let of = |pair: (Axis, Axis)| {
                    let divisibility = pair.0.divisor(1, 1).saturating_mul(pair.1.divisor(1, 1)).min(ANY);
                    Axis { divisibility, ..equal(pair) }
                };
                self.pairs(x, y).map(of).collect()
            }
            Binary::ShiftLeft => {
                let distance = constant.filter(|distance| (0..32).contains(distance)).unwrap_or(0);
                let of = |pair: (Axis, Axis)| Axis {
                    divisibility: (pair.0.divisor(1, 1) << distance).min(ANY),
                    ..equal(pair)
                };
                self.pairs(x, y).map(of).collect()
            }
            Binary::Remainder | Binary::RemainderUnsigned => self.pairs(x, y).map(remainder).collect(),
            Binary::DivideUnsigned => self.pairs(x, y).map(quotient).collect(),
            _ => self.pairs(x, y).map(equal).collect(),
        }
    }

    /// A run of numbers from a multiple of something on is on one side of another multiple of it.
    fn compare(&self, comparison: Compare, x: Value, y: Value) -> Vec<Axis> {
        use Compare::{Greater, GreaterEqual, GreaterEqualUnsigned, GreaterUnsigned};
        use Compare::{Less, LessEqual, LessEqualUnsigned, LessUnsigned};
        let along = |(x, y): (Axis, Axis)| {
            let split = |run: Axis, bound: Axis| {
                let aligned = run.contiguity.min(run.divisibility).min(bound.divisor(1, 1));
                aligned.min(bound.constancy)
            };
            let constancy = x.constancy.min(y.constancy).max(match comparison {
                Less | LessUnsigned | GreaterEqual | GreaterEqualUnsigned => split(x, y),
                Greater | GreaterUnsigned | LessEqual | LessEqualUnsigned => split(y, x),
                _ => 1,
            });
            Axis { constancy, ..UNKNOWN }
        };
        self.pairs(x, y).map(along).collect()
    }

    /// AxisInfo of carried values are those of the first iteration that the others share.
    fn for_loop(&mut self, instruction: &Instruction) {
        let (block, operands) = (&instruction.blocks[0], &instruction.operands);
        let divisibility = self.divisor(operands[0]).min(self.divisor(operands[2]));
        self.set(block.arguments[0], vec![Axis { divisibility, ..UNKNOWN }]);
        let carried = &block.arguments[1..];
        for (&argument, &initial) in carried.iter().zip(&operands[3..]) {
            self.set(argument, self.get(initial).to_vec());
        }
        let mut settled = false;
        for _ in 0..ROUNDS {
            self.block(block);
            settled = true;
            for (&argument, &next) in carried.iter().zip(block.ends()) {
                let met = meet(self.get(argument), self.get(next));
                settled &= met == self.get(argument);
                self.set(argument, met);
            }
            if settled {
                break;
            }
        }
        if !settled {
            carried.iter().for_each(|&argument| self.forget(argument));
            self.block(block);
        }
        for (&result, &argument) in instruction.results.iter().zip(carried) {
            self.set(result, self.get(argument).to_vec());
        }
    }

    fn forget(&mut self, value: Value) {
        let axes = self.get(value).len();
        self.set(value, vec![UNKNOWN; axes]);
    }

    fn if_else(&mut self, instruction: &Instruction) {
        instruction.blocks.iter().for_each(|block| self.block(block));
        let [first, second] = &instruction.blocks[..] else { return };
        for ((&result, &x), &y) in instruction.results.iter().zip(first.ends()).zip(second.ends()) {
            self.set(result, meet(self.get(x), self.get(y)));
        }
    }
}

fn meet(x: &[Axis], y: &[Axis]) -> Vec<Axis> {
    x.iter().zip(y).map(|(x, y)| x.meet(*y)).collect()
}

fn difference((x, y): (Axis, Axis)) -> Axis {
    let contiguity = x.contiguity.min(y.constancy);
    let divisibility = x.divisor(contiguity, 1).min(y.divisor(contiguity, 1));
    Axis { contiguity, divisibility, constancy: x.constancy.min(y.constancy) }
}

/// A run that begins at a multiple of something stays one up to the next multiple of it, where the divisor is such a multiple. As in
/// Triton, an index that wraps around is taken not to be negative.
fn remainder((x, y): (Axis, Axis)) -> Axis {
    let contiguity = x.contiguity.min(x.divisibility).min(y.divisor(1, 1)).min(y.constancy);
    let divisibility = x.divisor(contiguity, 1).min(y.divisor(1, 1));
    Axis { contiguity, divisibility, constancy: x.constancy.min(y.constancy) }
}

fn quotient((x, y): (Axis, Axis)) -> Axis {
    let aligned = x.contiguity.min(x.divisibility).min(y.divisor(1, 1)).min(y.constancy);
    Axis { constancy: x.constancy.min(y.constancy).max(aligned), ..UNKNOWN }
}

/// The largest power of two that divides a number.
fn highest_divisor(value: i64) -> u64 {
    if value == 0 { ANY } else { (1 << value.trailing_zeros().min(40)).min(ANY) }
}

fn same_everywhere(divisibility: u64, dims: &[usize]) -> Vec<Axis> {
    let along = |&size: &usize| Axis { contiguity: 1, divisibility, constancy: highest_divisor(size as i64) };
    if dims.is_empty() { vec![Axis { divisibility, ..UNKNOWN }] } else { dims.iter().map(along).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::{Builder, Scalar};

    /// A kernel with a pointer and a number, both divisible by 16, and what is known of what it loads through.
    fn vector(build: impl FnOnce(&mut Builder, Value, Value) -> (Value, Option<Value>)) -> Option<(usize, usize)> {
        let mut b = Builder::new("k");
        let x = b.parameter("x", Type::pointer(Scalar::F16));
        b.divisible(16);
        let n = b.parameter("n", Type::scalar(Scalar::I32));
        b.divisible(16);
        let (pointers, mask) = build(&mut b, x, n);
        AxisInfo::of(&b.finish()).vector(pointers, mask)
    }

    #[test]
    fn neighbours_from_a_multiple_on_are_accessed_together() {
        assert_eq!(vector(|b, x, _| (offset(b, x, 0), None)), Some((0, 8)));
        assert_eq!(vector(|b, x, _| (offset(b, x, 64), None)), Some((0, 8)));
        assert_eq!(vector(|b, x, _| (offset(b, x, 4), None)), Some((0, 4)));
        assert_eq!(vector(|b, x, _| (offset(b, x, 1), None)), None);
    }

    #[test]
    fn a_mask_splits_them_where_it_may_change() {
        let below = |bound: i64| {
            vector(move |b, x, n| {
                let lanes = b.range(64);
                let bound = match bound {
                    0 => n,
                    bound => b.integer(bound, Scalar::I32),
                };
                let bound = b.splat(bound, &[64]);
                let mask = b.compare(Compare::Less, lanes, bound);
                (b.add_pointer(x, lanes), Some(mask))
            })
        };
        assert_eq!(below(0), Some((0, 8)));
        assert_eq!(below(12), Some((0, 4)));
        assert_eq!(below(13), None);
    }

    #[test]
    fn a_loop_knows_what_all_its_iterations_share() {
        for (step, expected) in [(64, Some((0, 8))), (2, Some((0, 2))), (3, None)] {
            let found = vector(|b, x, n| {
                let pointers = offset(b, x, 0);
                let (zero, one) = (b.integer(0, Scalar::I32), b.integer(1, Scalar::I32));
                let mut inner = pointers;
                b.for_loop([zero, n, one], &[pointers], |b, _, carried| {
                    inner = carried[0];
                    let step = b.integer(step, Scalar::I32);
                    let steps = b.splat(step, &[64]);
                    vec![b.add_pointer(carried[0], steps)]
                });
                (inner, None)
            });
            assert_eq!(found, expected, "step {step}");
        }
    }

    fn offset(b: &mut Builder, x: Value, by: i64) -> Value {
        let (lanes, by) = (b.range(64), b.integer(by, Scalar::I32));
        let by = b.splat(by, &[64]);
        let offsets = b.add(lanes, by);
        b.add_pointer(x, offsets)
    }
}
