//! What sums, products and the like do with elements of a type: shared by scans and reductions.

use super::types::{self, Type};
use crate::kind::Kind;

/// Two elements, or what is gathered so far and an element, become one.
pub type Fold = fn(&[f64], &[f64]) -> Vec<f64>;

/// An operation: as kernels are named after it, its element that changes nothing, and what it does.
#[derive(Clone, Copy)]
pub struct Operation {
    pub name: &'static str,
    pub identity: fn(Type) -> f64,
    pub fold: Fold,
}

pub const SUM: Operation =
    Operation { name: "sum", identity: |_| 0.0, fold: |x, y| x.iter().zip(y).map(|(x, y)| x + y).collect() };
pub const PROD: Operation = Operation { name: "prod", identity: |_| 1.0, fold: product };
pub const MAX: Operation =
    Operation { name: "max", identity: least, fold: |x, y| if is_greater(y, x) { y.to_vec() } else { x.to_vec() } };
pub const MIN: Operation =
    Operation { name: "min", identity: most, fold: |x, y| if is_greater(x, y) { y.to_vec() } else { x.to_vec() } };
pub const AND: Operation =
    Operation { name: "and", identity: |_| 1.0, fold: |x, y| vec![f64::from(x[0] != 0.0 && y[0] != 0.0)] };
pub const OR: Operation =
    Operation { name: "or", identity: |_| 0.0, fold: |x, y| vec![f64::from(x[0] != 0.0 || y[0] != 0.0)] };
pub const LOG_ADD_EXP: Operation = Operation { name: "logaddexp", identity: least, fold: log_add_exp };

fn product(x: &[f64], y: &[f64]) -> Vec<f64> {
    match (x, y) {
        (&[a, b], &[c, d]) => types::mul([a, b], [c, d]).to_vec(),
        _ => vec![x[0] * y[0]],
    }
}

fn is_greater(x: &[f64], y: &[f64]) -> bool {
    match (x, y) {
        (&[a, b], &[c, d]) => types::is_greater([a, b], [c, d]),
        _ => x[0] > y[0],
    }
}

fn log_add_exp(x: &[f64], y: &[f64]) -> Vec<f64> {
    let (most, least) = if is_greater(x, y) { (x, y) } else { (y, x) };
    match (most, least) {
        _ if least[0] == f64::NEG_INFINITY => most.to_vec(),
        (&[a, b], &[c, d]) => {
            let rest = types::exp([c - a, d - b]);
            types::add([a, b], types::ln([1.0 + rest[0], rest[1]])).to_vec()
        }
        _ => vec![most[0] + (least[0] - most[0]).exp().ln_1p()],
    }
}

/// What nothing is less than.
fn least(of: Type) -> f64 {
    match of.kind {
        Kind::I8 => f64::from(i8::MIN),
        Kind::I16 => f64::from(i16::MIN),
        Kind::I32 => f64::from(i32::MIN),
        Kind::I64 => i64::MIN as f64,
        kind if kind.is_float() => f64::NEG_INFINITY,
        _ => 0.0,
    }
}

fn most(of: Type) -> f64 {
    match of.kind {
        Kind::I8 => f64::from(i8::MAX),
        Kind::I16 => f64::from(i16::MAX),
        Kind::I32 => f64::from(i32::MAX),
        Kind::I64 => i64::MAX as f64,
        Kind::U8 => f64::from(u8::MAX),
        Kind::U16 => f64::from(u16::MAX),
        Kind::U32 => f64::from(u32::MAX),
        Kind::U64 => u64::MAX as f64,
        Kind::Bool => 1.0,
        _ => f64::INFINITY,
    }
}

impl Operation {
    /// What an empty row gives, in each lane; a complex one is a number.
    pub fn nothing(&self, of: Type) -> Vec<f64> {
        let identity = (self.identity)(of);
        let numbered = matches!(self.name, "sum" | "prod");
        (0..of.lanes).map(|lane| if lane == 1 && numbered { 0.0 } else { identity }).collect()
    }

    /// All elements in order.
    pub fn over<'a>(&self, of: Type, elements: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
        elements.fold(self.nothing(of), |sum, element| (self.fold)(&sum, element))
    }

    /// Elements that the operation makes nothing too large of.
    pub fn numbers(&self, of: Type, count: usize, seed: u64) -> Vec<f64> {
        let values = of.numbers(count, seed);
        let lanes = of.lanes;
        let place = |(at, x): (usize, f64)| match self.name {
            "prod" if of.kind.is_float() => of.kind.round(if at % lanes == 0 { 1.0 + x / 64.0 } else { x / 64.0 }),
            // Whole numbers other than one are rare, and so are zeros among bools.
            "prod" | "and" => {
                if at % 97 == 13 {
                    if of.kind == Kind::Bool || self.name == "and" { 0.0 } else { 3.0 }
                } else {
                    1.0
                }
            }
            "or" => f64::from(at % 97 == 13),
            _ => x,
        };
        values.into_iter().enumerate().map(place).collect()
    }

    /// Roundings of partial results that are allowed, and the size of these.
    pub fn tolerance(&self, of: Type) -> (f64, f64) {
        match self.name {
            _ if !of.kind.is_float() => (0.0, 0.0),
            "sum" => (16.0, 16.0),
            "prod" => (32.0, 2.0),
            "logaddexp" => (64.0, 4.0),
            _ => (0.0, 0.0),
        }
    }
}
