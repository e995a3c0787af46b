//! Products of matrices and attention of many queries, in tiles.

use super::types::{BOOL, COMPLEX, FLOATS, Type, mul};
use super::{Constants, Kernel, Variant};
use crate::case::{Arg, Case, Check, groups, input, near, output};
use crate::kind::Kind;
use openmps_emulator::Value;

/// bm, bn, bk, wm, wn.
pub type Tile = [usize; 5];

const TILES: [Tile; 6] = [
    [64, 64, 16, 2, 2],
    [64, 64, 16, 1, 2],
    [64, 32, 32, 2, 2],
    [32, 64, 16, 1, 2],
    [32, 32, 16, 2, 2],
    [64, 32, 8, 4, 1],
];
/// bq, bk, bd.
const ATTENTION: [[usize; 3]; 7] =
    [[32, 16, 256], [32, 16, 192], [32, 16, 128], [32, 32, 96], [32, 32, 80], [32, 32, 72], [32, 32, 64]];

/// How names say which factor is turned.
pub const TURNS: [(&str, [bool; 2]); 4] =
    [("nn", [false, false]), ("nt", [false, true]), ("tn", [true, false]), ("tt", [true, true])];

/// A tile as names have it.
pub fn named([bm, bn, bk, wm, wn]: Tile) -> String {
    format!("bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}")
}

pub fn flags(list: &[(u32, bool)]) -> Constants {
    list.iter().map(|(at, on)| (*at, Value::Bool(*on))).collect()
}

pub fn words(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u32).to_ne_bytes()).collect()
}

pub fn longs(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u64).to_ne_bytes()).collect()
}

pub fn fused() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS.into_iter().chain([COMPLEX]) {
        for tile in TILES {
            for (turns, [a, b]) in TURNS {
                let [bm, bn, bk, wm, wn] = tile;
                let sizes = named(tile);
                let name = format!("steel_gemm_fused_{turns}_{}_{}_{sizes}", of.name, of.name);
                let instance = format!("gemm<{}, {bm}, {bn}, {bk}, {wm}, {wn}, {a}, {b}, float>", of.text);
                let constants = flags(&[10, 100, 110, 200, 201, 202].map(|at| (at, false)));
                let variant = Variant { constants, case: Box::new(move || product(of, tile, a, b)) };
                list.push(Kernel { name, instance: Some(instance), variants: vec![variant] });
            }
        }
    }
    list
}

/// Two matrices that are multiplied: M, N and K, and which of the two lies turned.
#[derive(Clone, Copy)]
pub struct Sides {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub turned: [bool; 2],
}

impl Sides {
    /// How far apart rows are.
    pub fn pitches(&self) -> [usize; 2] {
        let [a, b] = self.turned;
        [if a { self.m } else { self.k }, if b { self.k } else { self.n }]
    }

    /// Sums over a part of K, of terms that have a weight by row, place in K and column; none where it is zero.
    pub fn sums(
        &self,
        of: Type,
        [a, b]: [&[f64]; 2],
        part: std::ops::Range<usize>,
        weight: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<f64> {
        let (lanes, Sides { m, n, turned, .. }) = (of.lanes, *self);
        let [of_a, of_b] = self.pitches();
        let at_a = |row: usize, at: usize| if turned[0] { at * of_a + row } else { row * of_a + at } * lanes;
        let at_b = |at: usize, column: usize| if turned[1] { column * of_b + at } else { at * of_b + column } * lanes;
        let mut sums = Vec::new();
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let mut sum = vec![0.0; lanes];
            for at in part.clone() {
                let weight = weight(row, at, column);
                let term = match (&a[at_a(row, at)..][..lanes], &b[at_b(at, column)..][..lanes]) {
                    (&[x, y], &[z, w]) => mul([x, y], [z, w]).to_vec(),
                    (x, y) => vec![x[0] * y[0]],
                };
                sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += weight * term);
            }
            sums.extend(sum);
        }
        sums
    }

    pub fn whole(&self, of: Type, both: [&[f64]; 2]) -> Vec<f64> {
        self.sums(of, both, 0..self.k, |_, _, _| 1.0)
    }

    /// Tiles in N and in M.
    pub fn tiles(&self, [bm, bn, ..]: Tile) -> [usize; 2] {
        [self.n.div_ceil(bn), self.m.div_ceil(bm)]
    }

    /// `GEMMParams`, with distances between the matrices of a batch and its dimensions.
    pub fn parameters(&self, tile: Tile, strides: [usize; 3], dimensions: usize) -> Arg {
        let ([columns, rows], [a, b]) = (self.tiles(tile), self.pitches());
        let mut parameters = words(&[self.m, self.n, self.k, a, b, self.n, columns, rows]);
        parameters.extend(longs(&strides));
        parameters.extend(words(&[0, self.k / tile[2], dimensions, 0]));
        Arg::Bytes(parameters)
    }

    pub fn close(&self, of: Type, to: Kind, expected: Vec<f64>) -> Check {
        // float32 is as exact as its sums are.
        near(to, expected, 4.0, if to == Kind::F32 { (self.k * of.lanes) as f64 } else { 8.0 })
    }
}

/// Of two matrices whose sides are no multiples of a tile's.
fn product(of: Type, tile: Tile, a_turned: bool, b_turned: bool) -> Case {
    let [bm, bn, bk, wm, wn] = tile;
    let sides = Sides { m: bm + 5, n: bn + 3, k: bk + 6, turned: [a_turned, b_turned] };
    let Sides { m, n, k, .. } = sides;
    let (a, b) = (of.numbers(m * k, 130), of.numbers(k * n, 131));
    let expected = sides.whole(of, [&a, &b]);
    let parameters = sides.parameters(tile, [m * k, k * n, m * n], 1);
    let args = vec![input(of.kind, &a), input(of.kind, &b), Arg::None, output(of.kind, expected.len()), parameters];
    let [columns, rows] = sides.tiles(tile);
    groups([columns, rows, 1], [32, wn, wm], args, sides.close(of, of.kind, expected))
}

#[derive(Clone, Copy, PartialEq)]
enum Mask {
    None,
    /// Sides that are multiples of a tile's.
    Aligned,
    Given,
    Causal,
    /// A number in each row that takes part in the sum and has no value.
    Sinks,
}

pub fn attention() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS {
        for mask in [of, BOOL] {
            for tile in ATTENTION {
                let [bq, bk, bd] = tile;
                let name = format!("steel_attention_{}_bq{bq}_bk{bk}_bd{bd}_wm4_wn1_mask{}", of.name, mask.name);
                let instance = format!("attention<{}, {bq}, {bk}, {bd}, 4, 1, {}, float>", of.text, mask.text);
                let variant = |kind: Mask| {
                    let aligned = kind == Mask::Aligned;
                    let constants = flags(&[
                        (200, aligned),
                        (201, aligned),
                        (300, kind == Mask::Given),
                        (301, kind == Mask::Causal),
                        (302, kind == Mask::Sinks),
                    ]);
                    Variant { constants, case: Box::new(move || attended(of, tile, mask, kind)) }
                };
                let variants = [Mask::None, Mask::Aligned, Mask::Given, Mask::Causal, Mask::Sinks].map(variant).into();
                list.push(Kernel { name, instance: Some(instance), variants });
            }
        }
    }
    list
}

fn attended(of: Type, [bq, bk, d]: [usize; 3], mask_type: Type, kind: Mask) -> Case {
    let (heads, kept) = (4, 2);
    let (queries, keys) = if kind == Mask::Aligned { (bq, 2 * bk) } else { (bq + 5, 2 * bk + 7) };
    let [q, k, v] =
        [(heads * queries, 132), (kept * keys, 133), (kept * keys, 134)].map(|(rows, seed)| of.numbers(rows * d, seed));
    let mut mask = mask_type.numbers(heads * queries * keys, 135);
    // No row without a key.
    mask.iter_mut().step_by(keys).for_each(|first| *first = 1.0);
    let sinks = of.numbers(heads, 136);
    let mut expected = Vec::new();
    for (row, q) in q.chunks(d).enumerate() {
        let (head, query) = (row / queries, row % queries);
        let begin = head / (heads / kept) * keys;
        let score = |key: usize| {
            let dot = q.iter().zip(&k[(begin + key) * d..][..d]).map(|(q, k)| q * k).sum::<f64>() / (d as f64).sqrt();
            match (kind, mask[row * keys + key]) {
                (Mask::Given, 0.0) if mask_type.kind == Kind::Bool => f64::NEG_INFINITY,
                (Mask::Given, added) if mask_type.kind != Kind::Bool => dot + added,
                (Mask::Causal, _) if key > keys - queries + query => f64::NEG_INFINITY,
                _ => dot,
            }
        };
        let weights: Vec<f64> = (0..keys).map(|key| score(key).exp()).collect();
        let sink = if kind == Mask::Sinks { sinks[head].exp() } else { 0.0 };
        let sum = weights.iter().sum::<f64>() + sink;
        let values = &v[begin * d..][..keys * d];
        let value = |at: usize| weights.iter().zip(values.chunks(d)).map(|(w, v)| w * v[at]).sum::<f64>() / sum;
        expected.extend((0..d).map(value));
    }
    let mut parameters = words(&[1, heads, d, queries, keys, heads / kept]);
    parameters.extend((1.0 / (d as f32).sqrt()).to_ne_bytes());
    let (nq, nk) = (queries.div_ceil(bq), keys.div_ceil(bk));
    parameters.extend(words(&[nq, nk, queries / bq, keys / bk, queries % bq, keys % bk, keys - queries]));
    for (heads, rows) in [(heads, queries), (kept, keys), (kept, keys), (heads, queries)] {
        parameters.extend(longs(&[heads * rows * d, rows * d, d]));
    }
    let mut args =
        vec![input(of.kind, &q), input(of.kind, &k), input(of.kind, &v), output(of.kind, heads * queries * d)];
    args.extend([Arg::Bytes(parameters), Arg::Bytes(longs(&[heads * queries * keys, queries * keys, keys]))]);
    args.extend([input(mask_type.kind, &mask), input(of.kind, &sinks)]);
    groups([nq, heads, 1], [32, 4, 1], args, near(of.kind, expected, 16.0, 1.0))
}
