//! Scans: sums so far and the like, along rows and down columns, forwards and backwards, with each element or without.

use super::folds::{LOG_ADD_EXP, MAX, MIN, Operation, PROD, SUM};
use super::types::{BOOL, COMPLEX, FLOATS, Type, WHOLE};
use super::{Kernel, kernel};
use crate::case::{Case, Check, groups, input, near, output, sizes};

/// Name and operation as the text has it.
const OPERATIONS: [(Operation, &str); 5] =
    [(SUM, "CumSum"), (PROD, "CumProd"), (MAX, "CumMax"), (MIN, "CumMin"), (LOG_ADD_EXP, "CumLogaddexp")];
const ROWS: usize = 3;
/// More than a threadgroup takes at once.
const LENGTH: usize = 301;
/// Columns, which are taken 32 at a time, and their length.
const COLUMNS: usize = 45;
const HEIGHT: usize = 37;

#[derive(Clone, Copy)]
struct Scan {
    operation: Operation,
    from: Type,
    to: Type,
    inclusive: bool,
    reverse: bool,
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (operation, text) in OPERATIONS {
        for (from, to) in types(operation.name) {
            for (inclusive, reverse) in [(true, false), (false, false), (true, true), (false, true)] {
                let scan = Scan { operation, from, to, inclusive, reverse };
                let each = if to.size() == 8 { 2 } else { 4 };
                let arguments =
                    format!("{}, {}, {text}<{}>, {each}, {inclusive}, {reverse}", from.text, to.text, to.text);
                let direction = if reverse { "reverse_" } else { "" };
                let ends = if inclusive { "inclusive" } else { "exclusive" };
                let name = format!("{direction}{ends}_{}_{}_{}", operation.name, from.name, to.name);
                list.push(kernel(format!("contig_scan_{name}"), format!("contiguous_scan<{arguments}>"), move || {
                    rows(scan)
                }));
                list.push(kernel(format!("strided_scan_{name}"), format!("strided_scan<{arguments}>"), move || {
                    columns(scan, each)
                }));
            }
        }
    }
    list
}

/// From which type to which.
fn types(operation: &str) -> Vec<(Type, Type)> {
    let numbers = WHOLE.into_iter().chain(FLOATS).chain([COMPLEX]);
    let mut list: Vec<(Type, Type)> = numbers.map(|of| (of, of)).collect();
    match operation {
        "logaddexp" => list.retain(|(of, _)| of.kind.is_float()),
        "sum" => list.extend([(BOOL, WHOLE[6]), (BOOL, WHOLE[2])]),
        _ => list.push((BOOL, BOOL)),
    }
    list
}

impl Scan {
    /// Of one row.
    fn row(&self, elements: &[&[f64]]) -> Vec<Vec<f64>> {
        let mut sum = self.operation.nothing(self.to);
        let mut result = Vec::new();
        let order: Box<dyn Iterator<Item = &&[f64]>> =
            if self.reverse { Box::new(elements.iter().rev()) } else { Box::new(elements.iter()) };
        for element in order {
            let before = sum.clone();
            sum = (self.operation.fold)(&sum, element);
            result.push(if self.inclusive { sum.clone() } else { before });
        }
        if self.reverse {
            result.reverse();
        }
        result
    }

    fn check(&self, expected: Vec<f64>) -> Check {
        let (roundings, scale) = self.operation.tolerance(self.to);
        if self.operation.name != "logaddexp" || !self.to.is_complex() {
            return near(self.to.kind, expected, roundings, scale);
        }
        // The angle of a sum is known but for whole turns.
        Box::new(move |outputs| {
            let turn = std::f64::consts::TAU;
            let of = |at: usize, got: f64| {
                if at % 2 == 1 && expected[at].is_finite() { expected[at] + (got - expected[at]) % turn } else { got }
            };
            let turned: Vec<f64> = outputs[0].iter().enumerate().map(|(at, got)| of(at, *got)).collect();
            let close = |x: f64, y: f64| x == y || (x - y).abs() < 1e-4 || ((x - y).abs() - turn).abs() < 1e-4;
            let wrong = turned.iter().zip(&expected).position(|(got, expected)| !close(*got, *expected));
            wrong.map_or(Ok(()), |at| Err(format!("{} at {at}, not {}", turned[at], expected[at])))
        })
    }
}

fn rows(scan: Scan) -> Case {
    let Scan { from, to, .. } = scan;
    let values = scan.operation.numbers(from, ROWS * LENGTH, 95);
    let elements: Vec<&[f64]> = values.chunks(from.lanes).collect();
    let expected = elements.chunks(LENGTH).flat_map(|row| scan.row(row)).flatten().collect();
    let args = vec![input(from.kind, &values), output(to.kind, ROWS * LENGTH * to.lanes), sizes(&[LENGTH])];
    groups([1, ROWS, 1], [64, 1, 1], args, scan.check(expected))
}

fn columns(scan: Scan, each: usize) -> Case {
    let Scan { from, to, .. } = scan;
    let count = ROWS * HEIGHT * COLUMNS;
    let values = scan.operation.numbers(from, count, 96);
    let elements: Vec<&[f64]> = values.chunks(from.lanes).collect();
    let mut expected = vec![0.0; count * to.lanes];
    for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (row, column))) {
        let place = |at: usize| (row * HEIGHT + at) * COLUMNS + column;
        let of_column: Vec<&[f64]> = (0..HEIGHT).map(|at| elements[place(at)]).collect();
        for (at, value) in scan.row(&of_column).into_iter().enumerate() {
            expected[place(at) * to.lanes..][..to.lanes].copy_from_slice(&value);
        }
    }
    let blocks = COLUMNS.div_ceil(32);
    let mut args = vec![input(from.kind, &values), output(to.kind, count * to.lanes)];
    args.extend([HEIGHT, COLUMNS, blocks].map(|size| sizes(&[size])));
    groups([1, ROWS * blocks, 1], [32 / each * 32, 1, 1], args, scan.check(expected))
}
