//! What a loop does to each element of some rows: values in the order in which they are computed, each one once.

use crate::Level;
use openmps_tile::{Combine, Compare};
use std::collections::HashMap;

/// A register's worth of numbers, or of truths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value(pub(super) usize);

/// How the elements of a row lie in memory. They are computed with in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    Single,
    Half,
    Bfloat,
}

impl Element {
    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Element::Single => 4,
            Element::Half | Element::Bfloat => 2,
        }
    }
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Two {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// `if x < y { x } else { y }`.
    Lower,
    /// `if x > y { x } else { y }`.
    Upper,
    /// The bits that both have.
    And,
    /// The bits that either has.
    Or,
    /// The bits that one of them has.
    Xor,
    AddIntegers,
    SubtractIntegers,
}

/// How two numbers are compared. The first three are false of NaN, the others true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Relation {
    Less,
    AtMost,
    Equal,
    Differs,
    /// Only of NaN.
    Unordered,
}

/// How a value is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    /// The elements of a row.
    Load(usize),
    /// The number of a slot in every lane.
    Slot(usize),
    /// A number in every lane, by its bits.
    Number(u32),
    Two(Two, Value, Value),
    Sqrt(Value),
    /// `x * y + z`, rounded once.
    MultiplyAdd(Value, Value, Value),
    /// `x` times two to the power `n`, which is integral: by the instruction that AVX-512 has for it.
    Scale(Value, Value),
    Compare(Relation, Value, Value),
    /// The second where the first holds, else the third.
    Choose(Value, Value, Value),
    /// The nearest float16 of each number, in half a register.
    ToHalf(Value),
    FromHalf(Value),
    /// The nearest integers.
    ToInteger(Value),
    /// Bits moved to higher or lower places.
    Shift(Shift, u32, Value),
}

/// Which way bits are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shift {
    Left,
    Right,
    /// To the right, copies of the highest bit in its place.
    RightSigned,
}

impl Operation {
    /// What it is made of.
    pub fn operands(self) -> [Option<Value>; 3] {
        match self {
            Operation::Load(_) | Operation::Slot(_) | Operation::Number(_) => [None; 3],
            Operation::Sqrt(x)
            | Operation::ToHalf(x)
            | Operation::FromHalf(x)
            | Operation::ToInteger(x)
            | Operation::Shift(_, _, x) => [Some(x), None, None],
            Operation::Two(_, x, y) | Operation::Scale(x, y) | Operation::Compare(_, x, y) => [Some(x), Some(y), None],
            Operation::MultiplyAdd(x, y, z) | Operation::Choose(x, y, z) => [Some(x), Some(y), Some(z)],
        }
    }

    /// Whether the first operand is a truth.
    pub fn reads_truth(self) -> bool {
        matches!(self, Operation::Choose(..))
    }

    /// Whether it is the same in every round of the loop.
    pub fn is_constant(self) -> bool {
        matches!(self, Operation::Slot(_) | Operation::Number(_))
    }
}

/// One combination of all elements of a value, and the slot that it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Total {
    pub combine: Combine,
    pub value: Value,
    pub slot: usize,
}

/// Where a row lies that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where it is read again soon.
    Scratch,
    /// In memory, perhaps past the caches.
    Memory,
}

/// What goes to which row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub row: usize,
    pub value: Value,
    pub place: Place,
}

/// The loop's body.
#[derive(Debug)]
pub(crate) struct Body {
    pub(super) level: Level,
    pub(super) operations: Vec<Operation>,
    known: HashMap<Operation, Value>,
    pub(super) rows: Vec<Element>,
    pub(super) stores: Vec<Store>,
    pub(super) totals: Vec<Total>,
}

impl Body {
    /// One that does nothing yet.
    pub fn new(level: Level) -> Body {
        let (operations, known) = (Vec::new(), HashMap::new());
        Body { level, operations, known, rows: Vec::new(), stores: Vec::new(), totals: Vec::new() }
    }

    fn value(&mut self, operation: Operation) -> Value {
        let next = Value(self.operations.len());
        let value = *self.known.entry(operation).or_insert(next);
        if value == next {
            self.operations.push(operation);
        }
        value
    }

    /// A further row.
    pub fn row(&mut self, element: Element) -> usize {
        self.rows.push(element);
        self.rows.len() - 1
    }

    /// How many rows there are.
    pub fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// The elements of a row: numbers, or the bits of half types.
    pub fn load(&mut self, row: usize) -> Value {
        self.value(Operation::Load(row))
    }

    /// The numbers that elements stand for.
    pub fn widen(&mut self, element: Element, x: Value) -> Value {
        match element {
            Element::Single => x,
            Element::Half => self.value(Operation::FromHalf(x)),
            Element::Bfloat => self.value(Operation::Shift(Shift::Left, 16, x)),
        }
    }

    /// The nearest elements of numbers, as [`single_to_half`](crate::vector::math::single_to_half) and
    /// [`single_to_bfloat`](crate::vector::math::single_to_bfloat) make them.
    pub fn round(&mut self, element: Element, x: Value) -> Value {
        match element {
            Element::Single => x,
            Element::Half => self.value(Operation::ToHalf(x)),
            Element::Bfloat => {
                let upper = self.value(Operation::Shift(Shift::Right, 16, x));
                let [one, below_half, quiet] = [1, 0x7fff, 0x40].map(|bits| self.value(Operation::Number(bits)));
                let odd = self.two(Two::And, upper, one);
                let sum = self.two(Two::AddIntegers, x, below_half);
                let sum = self.two(Two::AddIntegers, sum, odd);
                let rounded = self.value(Operation::Shift(Shift::Right, 16, sum));
                let nan = self.two(Two::Or, upper, quiet);
                self.unless_nan(x, rounded, nan)
            }
        }
    }

    /// The number of a slot.
    pub fn slot(&mut self, slot: usize) -> Value {
        self.value(Operation::Slot(slot))
    }

    /// A number.
    pub fn number(&mut self, number: f32) -> Value {
        self.value(Operation::Number(number.to_bits()))
    }

    pub fn two(&mut self, operation: Two, x: Value, y: Value) -> Value {
        self.value(Operation::Two(operation, x, y))
    }

    pub fn sqrt(&mut self, x: Value) -> Value {
        self.value(Operation::Sqrt(x))
    }

    /// `x * y + z`, rounded once.
    pub fn multiply_add(&mut self, x: Value, y: Value, z: Value) -> Value {
        self.value(Operation::MultiplyAdd(x, y, z))
    }

    pub fn negate(&mut self, x: Value) -> Value {
        let sign = self.number(-0.0);
        self.two(Two::Xor, x, sign)
    }

    pub fn absolute(&mut self, x: Value) -> Value {
        let all_but_sign = self.value(Operation::Number(!(1 << 31)));
        self.two(Two::And, x, all_but_sign)
    }

    /// A comparison; none of those of integers.
    pub fn compare(&mut self, comparison: Compare, x: Value, y: Value) -> Option<Value> {
        let (relation, x, y) = match comparison {
            Compare::Less => (Relation::Less, x, y),
            Compare::LessEqual => (Relation::AtMost, x, y),
            Compare::Greater => (Relation::Less, y, x),
            Compare::GreaterEqual => (Relation::AtMost, y, x),
            Compare::Equal => (Relation::Equal, x, y),
            Compare::NotEqual => (Relation::Differs, x, y),
            _ => return None,
        };
        Some(self.value(Operation::Compare(relation, x, y)))
    }

    /// `yes` where `truth` holds, else `no`.
    pub fn choose(&mut self, truth: Value, yes: Value, no: Value) -> Value {
        self.value(Operation::Choose(truth, yes, no))
    }

    /// `of` where x is a number, else `instead`.
    pub fn unless_nan(&mut self, x: Value, of: Value, instead: Value) -> Value {
        let is_nan = self.value(Operation::Compare(Relation::Unordered, x, x));
        self.choose(is_nan, instead, of)
    }

    /// Whether a value holds truths.
    pub fn is_truth(&self, value: Value) -> bool {
        matches!(self.operations[value.0], Operation::Compare(..))
    }

    /// Writes a value to a row, once everything has been computed: numbers, or the bits of half types.
    pub fn store(&mut self, row: usize, value: Value, place: Place) {
        self.stores.push(Store { row, value, place });
    }

    /// Whether rows in memory are written.
    pub fn writes_memory(&self) -> bool {
        self.stores.iter().any(|store| store.place == Place::Memory)
    }

    /// Combines all elements to the number of a slot.
    pub fn total(&mut self, combine: Combine, value: Value, slot: usize) {
        self.totals.push(Total { combine, value, slot });
    }

    /// `x` within two bounds; NaN stays.
    fn clamp(&mut self, x: Value, low: f32, high: f32) -> Value {
        let (low, high) = (self.number(low), self.number(high));
        let x = self.two(Two::Lower, high, x);
        self.two(Two::Upper, low, x)
    }

    /// As [`exp`](crate::vector::math::exp).
    pub fn exp(&mut self, x: Value) -> Value {
        let x = self.clamp(x, -104.0, 89.0);
        let log = self.number(std::f32::consts::LOG2_E);
        let scaled = self.two(Two::Multiply, x, log);
        let n = self.nearest(scaled);
        let [high, low] = [-0.693_359_4, 2.121_944_4e-4].map(|part| self.number(part));
        let r = self.multiply_add(n, high, x);
        let r = self.multiply_add(n, low, r);
        let p = self.exp_near_zero(r);
        self.scale(p, n)
    }

    /// As [`exp2`](crate::vector::math::exp2).
    pub fn exp2(&mut self, x: Value) -> Value {
        let x = self.clamp(x, -151.0, 129.0);
        let n = self.nearest(x);
        let (rest, log) = (self.two(Two::Subtract, x, n), self.number(std::f32::consts::LN_2));
        let r = self.two(Two::Multiply, rest, log);
        let p = self.exp_near_zero(r);
        self.scale(p, n)
    }

    /// The nearest integer of a number below 2^22: adding 1.5 * 2^23 leaves it in the low bits.
    fn nearest(&mut self, x: Value) -> Value {
        let magic = self.number(12_582_912.0);
        let shifted = self.two(Two::Add, x, magic);
        self.two(Two::Subtract, shifted, magic)
    }

    /// `x` times two to the power `n`, which is integral and between -152 and 130: by two factors, because one alone leaves the range of normal numbers.
    fn scale(&mut self, x: Value, n: Value) -> Value {
        if self.level == Level::Avx512 {
            return self.value(Operation::Scale(x, n));
        }
        let n = self.value(Operation::ToInteger(n));
        let half = self.value(Operation::Shift(Shift::RightSigned, 1, n));
        let rest = self.two(Two::SubtractIntegers, n, half);
        let bias = self.value(Operation::Number(127));
        [half, rest].into_iter().fold(x, |x, n| {
            let exponent = self.two(Two::AddIntegers, n, bias);
            let power = self.value(Operation::Shift(Shift::Left, 23, exponent));
            self.two(Two::Multiply, x, power)
        })
    }

    fn exp_near_zero(&mut self, r: Value) -> Value {
        let mut p = self.number(1.987_569_1e-4);
        for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            let c = self.number(c);
            p = self.multiply_add(p, r, c);
        }
        let (square, one) = (self.two(Two::Multiply, r, r), self.number(1.0));
        let p = self.multiply_add(p, square, r);
        self.two(Two::Add, p, one)
    }
}
