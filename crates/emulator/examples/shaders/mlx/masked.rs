//! Products whose blocks are left out or scaled by masks: of results, of factors, or of both; of matrices and of vectors.

use super::steel::{Sides, TURNS, Tile, named};
use super::tiles::{aligned, strides};
use super::types::{BOOL, FLOATS, Type};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, groups, input, ints, near, output};
use crate::kind::Kind;

const TILES: [Tile; 2] = [[32, 32, 16, 2, 2], [64, 64, 16, 2, 2]];
const BATCH: usize = 2;
/// Factors of blocks, one after the other; of a mask of bool those that are not zero count as one.
const FACTORS: [f64; 5] = [1.0, 0.5, 2.0, 0.0, 1.0];

/// What a mask is of: nothing, bool, or numbers.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Nothing,
    Bool,
    Numbers,
}

/// Masks of results and of factors.
const MASKS: [[Of; 2]; 8] = {
    use Of::{Bool, Nothing, Numbers};
    [
        [Bool, Bool],
        [Numbers, Numbers],
        [Bool, Numbers],
        [Numbers, Bool],
        [Nothing, Bool],
        [Nothing, Numbers],
        [Bool, Nothing],
        [Numbers, Nothing],
    ]
};

/// The mask of one matrix: rows and columns of blocks.
struct Mask {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Of {
    /// Name and text of its type.
    fn names(self, of: Type) -> [&'static str; 2] {
        match self {
            Of::Nothing => ["nomask", "nomask_t"],
            Of::Bool => [BOOL.name, BOOL.text],
            Of::Numbers => [of.name, of.text],
        }
    }

    /// Masks of a batch, one behind the other; `turn` makes them different.
    fn mask(self, [rows, columns]: [usize; 2], turn: usize) -> Mask {
        let number = |at: usize| match self {
            Of::Nothing => 1.0,
            Of::Bool => f64::from(FACTORS[(at + turn) % FACTORS.len()] != 0.0),
            Of::Numbers => FACTORS[(at + turn) % FACTORS.len()],
        };
        Mask { rows, columns, values: (0..BATCH * rows * columns).map(number).collect() }
    }

    fn bound(self, of: Type, mask: &Mask) -> Arg {
        match self {
            // It is declared, and nobody reads it.
            Of::Nothing => Arg::Buffer(vec![0]),
            Of::Bool => input(Kind::Bool, &mask.values),
            Of::Numbers => input(of.kind, &mask.values),
        }
    }
}

impl Mask {
    fn at(&self, batch: usize, row: usize, column: usize) -> f64 {
        self.values[(batch * self.rows + row) * self.columns + column]
    }

    fn size(&self) -> usize {
        self.rows * self.columns
    }
}

pub fn matrices() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (of, tile) in FLOATS.into_iter().flat_map(|of| TILES.map(|tile| (of, tile))) {
        for ((turns, turned), masks) in TURNS.into_iter().flat_map(|turns| MASKS.map(|masks| (turns, masks))) {
            for (whole, depth) in [(true, true), (true, false), (false, true), (false, false)] {
                let [[out, out_text], [op, op_text]] = masks.map(|mask| mask.names(of));
                let tail = format!("{}_MN_{}_K_{}", named(tile), aligned(whole), aligned(depth));
                let name = format!("steel_gemm_block_outmask_{out}_opmask_{op}_{turns}_{0}_{0}_{tail}", of.name);
                let ([bm, bn, bk, wm, wn], [a, b]) = (tile, turned);
                let sizes = format!("{bm}, {bn}, {bk}, {wm}, {wn}, {a}, {b}, {whole}, {depth}");
                let instance = format!("block_masked_gemm<{}, {out_text}, {op_text}, {sizes}>", of.text);
                list.push(kernel(name, instance, move || matrix(of, tile, turned, masks, [whole, depth])));
            }
        }
    }
    list
}

/// Blocks are as wide as a tile in M, N and K.
fn matrix(of: Type, tile: Tile, turned: [bool; 2], [out, op]: [Of; 2], [whole, depth]: [bool; 2]) -> Case {
    let block = tile[0];
    let over = |is_whole: bool, more: usize| if is_whole { 0 } else { more };
    let m = if whole { 2 * block } else { block + 5 };
    let sides = Sides { m, n: block + over(whole, 3), k: block + tile[2] + over(depth, 6), turned };
    let Sides { m, n, k, .. } = sides;
    let [rows, columns, deep] = [m, n, k].map(|side| side.div_ceil(block));
    let (results, left, right) = (out.mask([rows, columns], 0), op.mask([rows, deep], 1), op.mask([deep, columns], 4));
    let (a, b) = (of.numbers(BATCH * m * k, 170), of.numbers(BATCH * k * n, 171));
    let mut expected = Vec::new();
    for batch in 0..BATCH {
        let weight = |row: usize, at: usize, column: usize| {
            let [row, at, column] = [row, at, column].map(|place| place / block);
            results.at(batch, row, column) * left.at(batch, row, at) * right.at(batch, at, column)
        };
        let both = [&a[batch * m * k..][..m * k], &b[batch * k * n..][..k * n]];
        expected.extend(sides.sums(of, both, 0..k, weight));
    }
    let mut of_batch = vec![m * k, k * n];
    let mut of_masks = Vec::new();
    if out != Of::Nothing {
        of_batch.push(results.size());
        of_masks.extend([1, columns]);
    }
    if op != Of::Nothing {
        of_batch.extend([left.size(), right.size()]);
        of_masks.extend([1, deep, 1, columns]);
    }
    let mut args = vec![input(of.kind, &a), input(of.kind, &b), Arg::None, output(of.kind, expected.len())];
    args.extend([sides.parameters(tile, [m * k, k * n, m * n], 1), Arg::None]);
    args.extend([ints(&[BATCH]), strides(&of_batch), Arg::None, Arg::None]);
    args.extend([out.bound(of, &results), op.bound(of, &left), op.bound(of, &right)]);
    args.push(ints(if of_masks.is_empty() { &[0] } else { &of_masks }));
    groups([columns, rows, BATCH], [32, tile[4], tile[3]], args, sides.close(of, of.kind, expected))
}

/// bm, bn, sm, sn, tm, tn.
type Blocks = [usize; 6];

const PLAIN: [Blocks; 5] =
    [[2, 1, 4, 8, 1, 4], [2, 1, 4, 8, 4, 4], [2, 1, 2, 16, 1, 4], [2, 1, 2, 16, 4, 4], [4, 1, 2, 16, 4, 4]];
const TURNED: [Blocks; 6] = [
    [1, 1, 8, 4, 4, 1],
    [1, 2, 8, 4, 4, 4],
    [1, 1, 8, 4, 8, 1],
    [1, 1, 8, 4, 8, 4],
    [1, 2, 8, 4, 8, 4],
    [1, 4, 8, 4, 8, 4],
];

pub fn vectors() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (word, template, turned, all) in
        [("gemv", "gemv_masked", false, &PLAIN[..]), ("gemv_t", "gemv_t_masked", true, &TURNED[..])]
    {
        for (of, blocks) in FLOATS.into_iter().flat_map(|of| all.iter().map(move |blocks| (of, *blocks))) {
            for (masks, several) in MASKS.into_iter().flat_map(|masks| [0, 1].map(|several| (masks, several))) {
                let [[out, out_text], [op, op_text]] = masks.map(|mask| mask.names(of));
                let [bm, bn, sm, sn, tm, tn] = blocks;
                let tail = format!("{}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}_nc{several}", of.name);
                let sizes = format!("{bm}, {bn}, {sm}, {sn}, {tm}, {tn}, {several}");
                let instance = format!("{template}<{}, {out_text}, {op_text}, {sizes}>", of.text);
                let name = format!("{word}_outmask_{out}_opmask_{op}_{tail}");
                list.push(kernel(name, instance, move || vector(of, blocks, turned, masks)));
            }
        }
    }
    list
}

/// Blocks of the vector's elements and of results are as long as what a threadgroup reads at a time.
fn vector(of: Type, blocks: Blocks, turned: bool, [out, op]: [Of; 2]) -> Case {
    let [bm, bn, sm, sn, tm, tn] = blocks;
    let (down, across) = (bm * sm * tm, bn * sn * tn);
    let (block, each) = if turned { (down, across) } else { (across, down) };
    let (length, count) = (2 * block + 11, block + 7);
    let [deep, high] = [length, count].map(|side| side.div_ceil(block));
    // Of results, of the matrix by results and elements, of the vector.
    let (results, matrix, of_vector) = (out.mask([high, 1], 0), op.mask([high, deep], 1), op.mask([1, deep], 4));
    let (values, x) = (of.numbers(BATCH * length * count, 172), of.numbers(BATCH * length, 173));
    let mut expected = Vec::new();
    for (batch, result) in (0..BATCH).flat_map(|batch| (0..count).map(move |result| (batch, result))) {
        let term = |at: usize| {
            let place = if turned { at * count + result } else { result * length + at };
            let mask = matrix.at(batch, result / block, at / block) * of_vector.at(batch, 0, at / block);
            values[batch * length * count + place] * x[batch * length + at] * mask
        };
        expected.push((0..length).map(term).sum::<f64>() * results.at(batch, result / block, 0));
    }
    // Strides of masks lie as those of matrices of which the vector is one, which is a column or a row.
    let mut of_batch = Vec::new();
    let mut of_masks = Vec::new();
    if out != Of::Nothing {
        of_batch.push(results.size());
        of_masks.extend([1, 1]);
    }
    if op != Of::Nothing {
        of_batch.extend([matrix.size(), of_vector.size()]);
        of_masks.extend(if turned { [deep, 1, 1, 1] } else { [1, deep, 1, 1] });
    }
    let mut args = vec![input(of.kind, &values), input(of.kind, &x), Arg::None, output(of.kind, expected.len())];
    args.extend([ints(&[length]), ints(&[count]), ints(&[if turned { count } else { length }])]);
    args.extend([Arg::None, Arg::None, ints(&[1]), ints(&[BATCH]), strides(&[length]), strides(&[length * count])]);
    args.extend((13..20).map(|_| Arg::None));
    args.extend([out.bound(of, &results), op.bound(of, &matrix), op.bound(of, &of_vector)]);
    args.extend([ints(if of_masks.is_empty() { &[0] } else { &of_masks }), strides(&of_batch)]);
    // float32 is as exact as its sums are.
    let check = near(of.kind, expected, 8.0, if of.kind == Kind::F32 { 64.0 } else { 8.0 });
    groups([count.div_ceil(each), 1, BATCH], [32, bn, bm], args, check)
}
