//! Products with packed weights in every form that MLX has kernels for: what each form's arguments are, and what it must give.

use crate::case::{Arg, Case, groups, input, ints, near, output, sizes};
use crate::kind::Kind;

/// Matrices of x, and of weights, where there are several.
const BATCH: usize = 2;
/// Which x and which weights gathered products take.
const CHOSEN: [[usize; 3]; 2] = [[1, 0, 1], [0, 1, 1]];
/// Which weights each row has, where rows say that: one until the row, then the other, then the first again.
const TURNS: [usize; 2] = [5, 22];

/// How factors are found.
#[derive(Clone, Copy, PartialEq)]
pub enum Form {
    Single,
    Batched,
    /// By indices of both.
    Gathered,
    /// Weights by an index for each row.
    OfRows,
    /// Vectors in parts, each with a result of its own.
    SplitVectors(usize),
    /// Tiles in such parts.
    SplitTiles(usize),
}

/// A product: rows of x, elements of a row, elements of a row of results, and whether the weights' rows are those of the results.
#[derive(Clone, Copy)]
pub struct Product {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub by_result: bool,
    pub form: Form,
    /// Whether M is an argument.
    pub tells_rows: bool,
    /// Threadgroups in x and y, and threads.
    pub grid: [usize; 2],
    pub threads: [usize; 3],
}

/// Weights of some matrices in a row: what is bound, how far apart two matrices are in each of it, and what the weights stand for.
pub struct Packed {
    pub args: Vec<Arg>,
    pub strides: Vec<usize>,
    /// A factor of all weights, bound behind them.
    pub global: Option<Arg>,
    pub numbers: Vec<f64>,
}

impl Product {
    const fn of(m: usize, k: usize, n: usize, by_result: bool, grid: [usize; 2], threads: [usize; 3]) -> Product {
        Product { m, k, n, by_result, form: Form::Single, tells_rows: false, grid, threads }
    }

    /// Some results a threadgroup.
    pub fn rows(m: usize, k: usize, n: usize, together: usize) -> Product {
        Product::of(m, k, n, true, [m, n.div_ceil(together)], [32, 2, 1])
    }

    /// 64 results a threadgroup.
    pub fn columns(m: usize, k: usize, n: usize) -> Product {
        Product::of(m, k, n, false, [m, n.div_ceil(64)], [32, 2, 1])
    }

    pub fn quads(m: usize, k: usize, n: usize) -> Product {
        Product::of(m, k, n, true, [m, n.div_ceil(64)], [32, 1, 1])
    }

    /// Some vectors at once, each row's sum shared by some lanes.
    pub fn wide(m: usize, k: usize, n: usize, vectors: usize, lanes: usize) -> Product {
        let product = Product::of(m, k, n, true, [m.div_ceil(vectors), n.div_ceil(64 / lanes)], [32, 2, 1]);
        Product { tells_rows: true, ..product }
    }

    pub fn tiles(m: usize, k: usize, n: usize, by_result: bool) -> Product {
        let product = Product::of(m, k, n, by_result, [n.div_ceil(32), m.div_ceil(32)], [32, 2, 2]);
        Product { tells_rows: true, ..product }
    }

    /// Tiles of 16 rows, each with weights of its own.
    pub fn of_rows(m: usize, k: usize, n: usize, by_result: bool) -> Product {
        let product = Product::of(m, k, n, by_result, [n.div_ceil(32), m.div_ceil(16)], [32, 2, 1]);
        Product { form: Form::OfRows, ..product }
    }

    /// A vector of `parts` parts of which the last is shorter.
    pub fn split(m: usize, n: usize, parts: usize) -> Product {
        Product { form: Form::SplitVectors(parts), ..Product::columns(m, parts * 37 - 5, n) }
    }

    /// The case, with numbers of `kind` and weights that `pack` makes: so many elements, so many matrices.
    pub fn case(&self, kind: Kind, pack: impl Fn(usize, usize) -> Packed) -> Case {
        let Product { m, k, n, form, .. } = *self;
        let (lefts, rights) = match form {
            Form::Single | Form::SplitVectors(_) | Form::SplitTiles(_) => (1, 1),
            Form::Batched | Form::Gathered => (BATCH, BATCH),
            Form::OfRows => (1, BATCH),
        };
        let packed = pack(k * n, rights);
        let x = kind.numbers(lefts * m * k, 153);
        let expected = self.expected(&x, &packed.numbers);
        let args = self.arguments(kind, &x, packed, expected.len());
        let depth = expected.len() / (m * n);
        let [columns, rows] = self.grid;
        // float32 is as exact as its sums are; others round weights first.
        let scale = if kind == Kind::F32 { k as f64 } else { 16.0 };
        groups([columns, rows, depth], self.threads, args, near(kind, expected, 8.0, scale))
    }

    /// Elements of x of a part, the last one's fewer.
    fn part(&self, parts: usize) -> usize {
        self.k.div_ceil(parts)
    }

    fn expected(&self, x: &[f64], weights: &[f64]) -> Vec<f64> {
        let Product { m, k, n, by_result, form, .. } = *self;
        let sums = |left: usize, right: usize, row: usize, range: std::ops::Range<usize>| {
            let (x, weights) = (&x[(left * m + row) * k..][..k], &weights[right * k * n..][..k * n]);
            let place = move |at: usize, column: usize| if by_result { column * k + at } else { at * n + column };
            let sum = move |column: usize| range.clone().map(|at| x[at] * weights[place(at, column)]).sum::<f64>();
            (0..n).map(sum).collect::<Vec<f64>>()
        };
        let whole = |left: usize, right: usize| (0..m).flat_map(move |row| sums(left, right, row, 0..k));
        match form {
            Form::Single => whole(0, 0).collect(),
            Form::Batched => (0..BATCH).flat_map(|at| whole(at, at)).collect(),
            Form::Gathered => (0..3).flat_map(|at| whole(CHOSEN[0][at], CHOSEN[1][at])).collect(),
            Form::OfRows => (0..m).flat_map(|row| sums(0, weights_of(row), row, 0..k)).collect(),
            Form::SplitVectors(parts) | Form::SplitTiles(parts) => {
                let part = self.part(parts);
                let rows = (0..parts).flat_map(|at| (0..m).map(move |row| (at, row)));
                rows.flat_map(|(at, row)| sums(0, 0, row, at * part..(at * part + part).min(k))).collect()
            }
        }
    }

    fn arguments(&self, kind: Kind, x: &[f64], packed: Packed, results: usize) -> Vec<Arg> {
        let Product { m, k, n, form, .. } = *self;
        let Packed { args: mut weights, strides, global, .. } = packed;
        weights.extend(global);
        let (x, y) = (input(kind, x), output(kind, results));
        if form == Form::OfRows {
            let of_rows: Vec<usize> = (0..m).map(weights_of).collect();
            let mut args = vec![x];
            args.extend(weights);
            args.extend([Arg::Buffer(words(&of_rows)), y, ints(&[m]), ints(&[n]), ints(&[k])]);
            return args;
        }
        let mut args = weights;
        args.push(x);
        if form == Form::Gathered {
            args.extend(CHOSEN.map(|which| Arg::Buffer(words(&which))));
        }
        args.extend([y, ints(&[if let Form::SplitVectors(parts) = form { self.part(parts) } else { k }]), ints(&[n])]);
        if self.tells_rows {
            args.push(ints(&[m]));
        }
        match form {
            Form::SplitTiles(parts) => {
                args.extend([ints(&[self.part(parts)]), ints(&[m * n])]);
                return args;
            }
            Form::SplitVectors(parts) => {
                let part = self.part(parts);
                args.extend([ints(&[1]), ints(&[parts, m, part]), sizes(&[part]), ints(&[1]), ints(&[parts, part, n])]);
                // Part of a matrix of which rows are parts.
                args.extend(strides.iter().map(|stride| sizes(&[part * stride / k])));
                args.push(ints(&[k - (parts - 1) * part]));
                return args;
            }
            _ => args.extend([ints(&[1]), ints(&[BATCH, m, k]), sizes(&[m * k]), ints(&[1]), ints(&[BATCH, n, k])]),
        }
        args.extend(strides.iter().map(|stride| sizes(&[*stride])));
        if form == Form::Gathered {
            args.extend([ints(&[1]), ints(&[CHOSEN[0].len()]), sizes(&[1]), sizes(&[1])]);
        }
        args
    }
}

fn weights_of(row: usize) -> usize {
    usize::from(TURNS[0] <= row && row < TURNS[1])
}

fn words(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u32).to_ne_bytes()).collect()
}
