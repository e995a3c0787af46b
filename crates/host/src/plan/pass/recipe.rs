//! What the steps of a pass do to each element.

use super::rows::{Input, Output, Pass};
use crate::jit::{Body, Compiled, Element, MOST_ROWS, Place, Two, Value};
use crate::level;
use crate::plan::effects::operands;
use crate::plan::operand::{Address, Extents, Operand, Register, Slot, Target, ViewKind};
use crate::plan::step::{MapKind, Step, UnaryKind};
use crate::vector::pair::Arithmetic;
use crate::vector::sum_of_pairs::PairSum;
use openmps_tile::{Binary, Combine, Scalar, Unary};
use std::collections::HashMap;
use std::sync::Arc;

/// The extents of a step that may be part of a pass: one row of float32, neighbours in memory where it stores.
pub(super) fn extents(step: &Step, one: Option<Slot>) -> Option<Extents> {
    const SINGLE: usize = size_of::<f32>();
    let (target, extents) = match step {
        Step::MapUnary { kind: UnaryKind::Operation(operation), target, extents, .. } if is_known(*operation) => {
            (Some(target), extents)
        }
        Step::MapUnary { kind: UnaryKind::Cast(scalars), target, extents, .. } if cast(*scalars).is_some() => {
            (Some(target), extents)
        }
        Step::MapBinary { kind: MapKind::Other, .. } => return None,
        Step::MapBinary { target, extents, size: SINGLE, .. } => (Some(target), extents),
        Step::MapSelect { target, extents, .. } if target.size == SINGLE => (Some(target), extents),
        Step::MapFused { pair: None, target, extents, .. } if target.size == SINGLE => (Some(target), extents),
        Step::CopyTile { source: Operand::Register { .. }, target, extents, .. } if target.size == SINGLE => {
            (Some(target), extents)
        }
        Step::StoreTile { value: Operand::Register { .. }, address, extents }
            if address.size == SINGLE && are_neighbours(address, one) =>
        {
            (None, extents)
        }
        Step::ReduceAll { combine: Some(combine), extents, .. } if has_total(*combine) => (None, extents),
        Step::SumOfPairs { extents, .. } => (None, extents),
        _ => return None,
    };
    let stores_well = target.and_then(|target| target.store).is_none_or(|address| are_neighbours(&address, one));
    let mut is_row = extents.rows.full == 1 && stores_well;
    operands(step, |operand| {
        let is_plain = |view| matches!(view, ViewKind::Plain | ViewKind::RepeatRows);
        is_row &= matches!(operand, Operand::Uniform(_))
            || matches!(operand, Operand::Register { view, .. } if is_plain(*view));
    });
    is_row.then_some(*extents)
}

/// Whether a step of a pass stores.
pub(super) fn stores(step: &Step) -> bool {
    matches!(step, Step::StoreTile { .. }) || step.target().is_some_and(|target| target.store.is_some())
}

fn are_neighbours(address: &Address, one: Option<Slot>) -> bool {
    address.spread.is_affine() && one.is_some() && address.spread.column_stride == one
}

fn is_known(operation: Unary) -> bool {
    matches!(operation, Unary::Negate | Unary::Absolute | Unary::Sqrt | Unary::Rsqrt | Unary::Exp | Unary::Exp2)
}

fn has_total(combine: Combine) -> bool {
    use Combine::{Maximum, MaximumNumber, Minimum, MinimumNumber, Product, Sum};
    matches!(combine, Sum | Product | Minimum | Maximum | MinimumNumber | MaximumNumber)
}

/// A conversion between float32 and a half type.
#[derive(Clone, Copy)]
enum Conversion {
    From(Element),
    To(Element),
}

fn cast([from, to]: [Scalar; 2]) -> Option<Conversion> {
    let half = |scalar| match scalar {
        Scalar::F16 => Some(Element::Half),
        Scalar::BF16 => Some(Element::Bfloat),
        _ => None,
    };
    match (from, to) {
        (from, Scalar::F32) => half(from).map(Conversion::From),
        (Scalar::F32, to) => half(to).map(Conversion::To),
        _ => None,
    }
}

/// A register's elements, as the elements of which type.
#[derive(Clone, Copy)]
struct Held {
    element: Element,
    value: Value,
}

/// A pass under construction.
pub(super) struct Recipe {
    body: Body,
    registers: HashMap<Register, Held>,
    inputs: Vec<Input>,
    /// What is stored.
    stored: Vec<(Output, Held)>,
    /// Registers that have been written.
    made: Vec<Register>,
}

impl Recipe {
    pub fn new() -> Recipe {
        Recipe {
            body: Body::new(level()),
            registers: HashMap::new(),
            inputs: Vec::new(),
            stored: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Adds what a step does; none where a pass cannot do it.
    pub fn add(&mut self, step: &Step) -> Option<()> {
        match step {
            Step::MapUnary { kind: UnaryKind::Operation(operation), target, x, .. } => {
                let x = self.number(x)?;
                let value = self.unary(*operation, x)?;
                self.make(target, Element::Single, value)
            }
            Step::MapUnary { kind: UnaryKind::Cast(scalars), target, x, .. } => match cast(*scalars)? {
                Conversion::From(element) => {
                    let bits = self.read(x, element)?;
                    let value = self.body.widen(element, bits);
                    self.make(target, Element::Single, value)
                }
                Conversion::To(element) => {
                    let x = self.number(x)?;
                    let value = self.body.round(element, x);
                    self.make(target, element, value)
                }
            },
            Step::MapBinary { kind, target, x, y, .. } => {
                let [x, y] = [self.number(x)?, self.number(y)?];
                let value = self.binary(*kind, x, y)?;
                self.make(target, Element::Single, value)
            }
            Step::MapSelect { target, condition, x, y, .. } => {
                let Operand::Register { register, .. } = condition else { return None };
                let truth = self.registers.get(register).map(|held| held.value);
                let truth = truth.filter(|&value| self.body.is_truth(value))?;
                let [x, y] = [self.number(x)?, self.number(y)?];
                let value = self.body.choose(truth, x, y);
                self.make(target, Element::Single, value)
            }
            Step::MapFused { target, operands: [x, y, z], .. } => {
                let [x, y, z] = [self.number(x)?, self.number(y)?, self.number(z)?];
                let value = self.body.multiply_add(x, y, z);
                self.make(target, Element::Single, value)
            }
            Step::CopyTile { target, source, .. } => {
                let value = self.number(source)?;
                self.make(target, Element::Single, value)
            }
            Step::StoreTile { value, address, .. } => {
                let Operand::Register { register, .. } = *value else { return None };
                let held = Held { element: Element::Single, value: self.number(value)? };
                self.stored.push((Output { register, size: address.size, store: Some(address.base) }, held));
                Some(())
            }
            Step::ReduceAll { combine, destination, source, .. } => {
                let value = self.number(source)?;
                self.body.total((*combine)?, value, *destination);
                Some(())
            }
            Step::SumOfPairs { kind, destination, operands: [x, y], .. } => {
                let [x, y] = [self.number(x)?, self.number(y)?];
                let summand = match kind {
                    PairSum::Products => self.body.two(Two::Multiply, x, y),
                    PairSum::SquaredDifferences => {
                        let difference = self.body.two(Two::Subtract, x, y);
                        self.body.two(Two::Multiply, difference, difference)
                    }
                };
                self.body.total(Combine::Sum, summand, *destination);
                Some(())
            }
            _ => None,
        }
    }

    fn unary(&mut self, operation: Unary, x: Value) -> Option<Value> {
        let body = &mut self.body;
        Some(match operation {
            Unary::Negate => body.negate(x),
            Unary::Absolute => body.absolute(x),
            Unary::Sqrt => body.sqrt(x),
            Unary::Rsqrt => {
                let (one, root) = (body.number(1.0), body.sqrt(x));
                body.two(Two::Divide, one, root)
            }
            Unary::Exp => body.exp(x),
            Unary::Exp2 => body.exp2(x),
            _ => return None,
        })
    }

    fn binary(&mut self, kind: MapKind, x: Value, y: Value) -> Option<Value> {
        let body = &mut self.body;
        match kind {
            MapKind::Arithmetic(arithmetic) => {
                let two = match arithmetic {
                    Arithmetic::Add => Two::Add,
                    Arithmetic::Subtract => Two::Subtract,
                    Arithmetic::Multiply => Two::Multiply,
                    Arithmetic::Divide => Two::Divide,
                };
                Some(body.two(two, x, y))
            }
            MapKind::Comparison(comparison) => body.compare(comparison, x, y),
            MapKind::Extreme(extreme) => {
                let (two, passes_nan) = match extreme {
                    Binary::Minimum => (Two::Lower, true),
                    Binary::Maximum => (Two::Upper, true),
                    Binary::MinimumNumber => (Two::Lower, false),
                    Binary::MaximumNumber => (Two::Upper, false),
                    _ => return None,
                };
                // Where one is NaN the operation has the second one; where x is, it is to have x or y.
                let (first, second) = if passes_nan { (x, y) } else { (y, x) };
                let value = body.two(two, first, second);
                Some(body.unless_nan(x, value, first))
            }
            MapKind::Exponential(operation) => {
                let difference = body.two(Two::Subtract, x, y);
                self.unary(operation, difference)
            }
            MapKind::Logistic => {
                let (one, opposite) = (body.number(1.0), body.negate(y));
                let power = body.exp(opposite);
                let sum = body.two(Two::Add, one, power);
                Some(body.two(Two::Divide, x, sum))
            }
            MapKind::Other => None,
        }
    }

    /// The numbers of an operand.
    fn number(&mut self, operand: &Operand) -> Option<Value> {
        match *operand {
            Operand::Uniform(slot) => Some(self.body.slot(slot)),
            Operand::Register { .. } => self.read(operand, Element::Single).filter(|&value| !self.body.is_truth(value)),
        }
    }

    /// The elements of a register; those of one that has not been made here lie in a row.
    fn read(&mut self, operand: &Operand, element: Element) -> Option<Value> {
        let Operand::Register { register, .. } = *operand else { return None };
        if let Some(held) = self.registers.get(&register) {
            return (held.element == element).then_some(held.value);
        }
        let row = self.body.row(element);
        let value = self.body.load(row);
        self.inputs.push(Input { register, size: element.size(), is_read_elsewhere: false });
        self.registers.insert(register, Held { element, value });
        Some(value)
    }

    fn make(&mut self, target: &Target, element: Element, value: Value) -> Option<()> {
        let (held, register) = (Held { element, value }, target.register);
        match target.store {
            Some(address) => {
                self.stored.push((Output { register, size: target.size, store: Some(address.base) }, held));
            }
            None => {
                self.registers.insert(register, held);
                self.made.push(register);
            }
        }
        Some(())
    }

    /// The pass that does all of it. Registers are read so often, in the pass and elsewhere.
    pub fn finish(mut self, run: &[&Step], extents: &Extents, reads: &[usize]) -> Option<Pass> {
        let mut inside: HashMap<Register, usize> = HashMap::new();
        for step in run {
            operands(step, |operand| {
                if let Operand::Register { register, .. } = operand {
                    *inside.entry(*register).or_default() += 1;
                }
            });
        }
        let is_read_elsewhere = |register: Register| reads[register] > inside.get(&register).copied().unwrap_or(0);
        for input in &mut self.inputs {
            input.is_read_elsewhere = is_read_elsewhere(input.register);
        }
        let is_input = |register| self.inputs.iter().any(|input| input.register == register);
        let mut kept: Vec<Register> = self.made.clone();
        kept.sort_unstable();
        kept.dedup();
        // What has been read before it was written is read again where a loop goes on.
        kept.retain(|&register| is_input(register) || is_read_elsewhere(register));
        for register in kept {
            let held = self.registers[&register];
            self.stored.push((Output { register, size: held.element.size(), store: None }, held));
        }
        if self.inputs.len() + self.stored.len() > MOST_ROWS {
            return None;
        }
        for (output, held) in &self.stored {
            if self.body.is_truth(held.value) || output.size != held.element.size() {
                return None;
            }
            let row = self.body.row(held.element);
            let place = if output.store.is_some() { Place::Memory } else { Place::Scratch };
            self.body.store(row, held.value, place);
        }
        let compiled = Arc::new(Compiled::new(&self.body)?);
        let outputs = self.stored.iter().map(|(output, _)| *output).collect();
        let inputs = self.inputs;
        Some(Pass { compiled, inputs, outputs, checks: Vec::new(), extents: *extents })
    }
}
