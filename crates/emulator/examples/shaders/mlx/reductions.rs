//! Reductions of whole arrays, of rows and of columns, of one, two and five dimensions.

use super::folds::{AND, MAX, MIN, OR, Operation, PROD, SUM};
use super::types::{BOOL, COMPLEX, FLOATS, Type, WHOLE};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, Check, groups, input, ints, near, output, sizes, threads};
use openmps_emulator::Grid;

const OPERATIONS: [(Operation, &str); 6] =
    [(AND, "And"), (OR, "Or"), (SUM, "Sum"), (PROD, "Prod"), (MIN, "Min"), (MAX, "Max")];

/// Rows: what is reduced besides the row, in one, two and five dimensions, and the outputs around and inside of that.
const ROW_DIMS: [(usize, &[usize]); 3] = [(1, &[6]), (2, &[2, 3]), (5, &[2, 1, 3, 1, 1])];
const OUTER: usize = 2;
const INNER: usize = 3;
/// Columns: rows that are reduced.
const COLUMN_DIMS: [(usize, &[usize]); 3] = [(1, &[70]), (2, &[7, 10]), (5, &[7, 1, 5, 1, 2])];
const HEIGHT: usize = 70;

#[derive(Clone, Copy)]
struct Reduction {
    operation: Operation,
    from: Type,
    to: Type,
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (operation, text) in OPERATIONS {
        for of in initial_types(operation.name) {
            let reduction = Reduction { operation, from: of, to: of };
            let name = format!("init_reduce_{}{}", operation.name, of.name);
            list.push(kernel(name, format!("init_reduce<{}, {text}<{}>>", of.text, of.text), move || {
                reduction.begun()
            }));
        }
        for (from, to) in types(operation.name) {
            forms(&mut list, Reduction { operation, from, to }, text);
        }
    }
    list
}

fn initial_types(operation: &str) -> Vec<Type> {
    match operation {
        "and" | "or" => vec![BOOL],
        "sum" | "prod" => WHOLE[6..].iter().copied().chain(FLOATS).chain([COMPLEX]).collect(),
        _ => WHOLE.into_iter().chain(FLOATS).chain([COMPLEX, BOOL]).collect(),
    }
}

fn types(operation: &str) -> Vec<(Type, Type)> {
    let numbers = WHOLE.into_iter().chain(FLOATS).chain([COMPLEX]);
    let wider = |of: Type| match of.name {
        "uint8" | "int8" | "int16" => WHOLE[6],
        "uint16" => WHOLE[2],
        _ => of,
    };
    match operation {
        "and" | "or" => WHOLE[5..].iter().copied().chain(FLOATS).chain([BOOL]).map(|of| (of, BOOL)).collect(),
        "sum" | "prod" => numbers.map(|of| (of, wider(of))).collect(),
        _ => numbers.map(|of| (of, of)).collect(),
    }
}

fn forms(list: &mut Vec<Kernel>, reduction: Reduction, text: &str) {
    let Reduction { operation, from, to } = reduction;
    let name = format!("{}{}", operation.name, from.name);
    let types = format!("{}, {}, {text}<{}>", from.text, to.text, to.text);
    list.push(kernel(format!("all_reduce_{name}"), format!("all_reduce<{types}>"), move || reduction.all()));
    list.push(kernel(format!("row_reduce_simple_{name}"), format!("row_reduce_simple<{types}>"), move || {
        reduction.simple()
    }));
    for (large, index) in [("", "int"), ("large_", "int64_t")] {
        for (dims, shape) in ROW_DIMS {
            let tail = format!("{large}{dims}_reduce_{name}");
            let arguments = format!("{types}, {index}, {dims}");
            let mut push = |form: &str, length: usize| {
                let looped = form == "looped";
                let instance = format!("row_reduce_{form}<{arguments}>");
                list.push(kernel(format!("row_reduce_{form}_{tail}"), instance, move || {
                    reduction.rows(shape, length, looped)
                }));
            };
            push("small", 13);
            push("looped", 301);
        }
        for (dims, shape) in COLUMN_DIMS {
            let arguments = format!("{types}, {index}, {dims}");
            let mut push = |form: &'static str, tile: &str| {
                let tiles = if tile.is_empty() { "" } else { ", 32, 32" };
                let instance = format!("col_reduce_{form}<{arguments}{tiles}>");
                let name = format!("col_reduce_{form}_{large}{dims}{tile}_reduce_{name}");
                list.push(kernel(name, instance, move || reduction.columns(form, shape)));
            };
            push("small", "");
            push("longcolumn", "");
            push("looped", "_32_32");
            push("2pass", "_32_32");
        }
    }
}

/// Strides of dimensions that lie one in the other, around so many elements.
fn strides(shape: &[usize], inside: usize) -> Vec<usize> {
    (0..shape.len()).map(|at| shape[at + 1..].iter().product::<usize>() * inside).collect()
}

impl Reduction {
    fn numbers(&self, count: usize) -> Vec<f64> {
        self.operation.numbers(self.from, count, 100)
    }

    /// Elements of these places, reduced.
    fn over(&self, values: &[f64], places: impl Iterator<Item = usize>) -> Vec<f64> {
        let lanes = self.from.lanes;
        self.operation.over(self.to, places.map(|at| &values[at * lanes..][..lanes]))
    }

    fn check(&self, expected: Vec<f64>) -> Check {
        let (roundings, scale) = self.operation.tolerance(self.to);
        near(self.to.kind, expected, roundings, scale)
    }

    fn out(&self, count: usize) -> Arg {
        output(self.to.kind, count * self.to.lanes)
    }

    fn begun(&self) -> Case {
        let expected = (0..37).flat_map(|_| self.operation.nothing(self.to)).collect();
        threads(37, vec![self.out(37)], self.check(expected))
    }

    /// In three parts, the last one shorter.
    fn all(&self) -> Case {
        let (count, part) = (1001, 400);
        let values = self.numbers(count);
        let begins = (0..count).step_by(part);
        let expected = begins.flat_map(|begin| self.over(&values, begin..count.min(begin + part))).collect();
        let args = vec![input(self.from.kind, &values), self.out(3), sizes(&[count]), sizes(&[part])];
        groups([1, 3, 1], [64, 1, 1], args, self.check(expected))
    }

    /// Rows one after the other, four to a threadgroup.
    fn simple(&self) -> Case {
        let (rows, length) = (6, 301);
        let values = self.numbers(rows * length);
        let expected = (0..rows).flat_map(|row| self.over(&values, row * length..(row + 1) * length)).collect();
        let args = vec![input(self.from.kind, &values), self.out(rows), sizes(&[length]), sizes(&[rows])];
        groups([1, rows.div_ceil(4), 1], [64, 1, 1], args, self.check(expected))
    }

    /// Rows, and what lies between the outputs' two dimensions.
    fn rows(&self, shape: &[usize], length: usize, looped: bool) -> Case {
        let between: usize = shape.iter().product();
        let values = self.numbers(OUTER * between * INNER * length);
        let outputs = OUTER * INNER;
        let of_output = |at: usize| {
            let rows = (0..between).map(move |k| ((at / INNER * between + k) * INNER + at % INNER) * length);
            self.over(&values, rows.flat_map(|begin| begin..begin + length))
        };
        let expected = (0..outputs).flat_map(of_output).collect();
        let mut args = vec![input(self.from.kind, &values), self.out(outputs), sizes(&[length]), sizes(&[between])];
        args.extend([ints(&[OUTER, INNER]), sizes(&[between * INNER * length, length]), ints(&[2])]);
        args.extend([ints(shape), sizes(&strides(shape, INNER * length)), ints(&[shape.len()])]);
        let case = groups([1, outputs, 1], [64, 1, 1], args, self.check(expected));
        if looped { case } else { Case { grid: Grid::Threads([outputs as u32, 1, 1]), ..case } }
    }

    /// Columns of two outputs; two forms give partial results.
    fn columns(&self, form: &str, shape: &[usize]) -> Case {
        // As wide as the form takes with all of its threads.
        let width = match form {
            "small" => 61,
            "longcolumn" => 29,
            _ => 45,
        };
        let values = self.numbers(OUTER * HEIGHT * width);
        // Which rows make a partial result: those of every other step, or of every 32nd.
        let (parts, step) = match form {
            "longcolumn" => (2, 4),
            "2pass" => (32, 32),
            _ => (1, HEIGHT),
        };
        let mut expected = Vec::new();
        for (part, outer) in (0..parts).flat_map(|part| (0..OUTER).map(move |outer| (part, outer))) {
            for column in 0..width {
                let rows = (0..HEIGHT).filter(|row| row / step % parts == part);
                expected.extend(self.over(&values, rows.map(|row| (outer * HEIGHT + row) * width + column)));
            }
        }
        let mut args =
            vec![input(self.from.kind, &values), self.out(parts * OUTER * width), sizes(&[10]), sizes(&[width])];
        args.extend([ints(&[OUTER]), sizes(&[HEIGHT * width]), ints(&[1])]);
        args.extend([ints(shape), sizes(&strides(shape, width)), ints(&[shape.len()]), sizes(&[HEIGHT / 10])]);
        // One counts elements of the output, the other its outer dimension.
        args.push(sizes(&[if form == "longcolumn" { OUTER * width } else { OUTER }]));
        let (grid, group) = match form {
            "small" => ([width.div_ceil(32), OUTER, 1], [8, 4, 1]),
            "longcolumn" => ([OUTER, 1, parts], [width, step, 1]),
            _ => ([width.div_ceil(32), OUTER * parts, 1], [32, 8, 1]),
        };
        groups(grid, group, args, self.check(expected))
    }
}
