//! Products of matrices and attention of many queries, in tiles.

use super::types::{BOOL, COMPLEX, FLOATS, Type, mul};
use super::{Constants, Kernel, Variant};
use crate::case::{Arg, Case, groups, input, near, output};
use crate::kind::Kind;
use openmps_emulator::Value;

/// bm, bn, bk, wm, wn.
const TILES: [[usize; 5]; 6] = [
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

fn flags(list: &[(u32, bool)]) -> Constants {
    list.iter().map(|(at, on)| (*at, Value::Bool(*on))).collect()
}

fn words(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u32).to_ne_bytes()).collect()
}

fn longs(values: &[usize]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u64).to_ne_bytes()).collect()
}

pub fn fused() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS.into_iter().chain([COMPLEX]) {
        for tile in TILES {
            for (turns, a, b) in [("nn", false, false), ("nt", false, true), ("tn", true, false), ("tt", true, true)] {
                let [bm, bn, bk, wm, wn] = tile;
                let sizes = format!("bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}");
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

/// Of two matrices whose sides are no multiples of a tile's.
fn product(of: Type, [bm, bn, bk, wm, wn]: [usize; 5], a_turned: bool, b_turned: bool) -> Case {
    let (m, n, k, lanes) = (bm + 5, bn + 3, bk + 6, of.lanes);
    let (a, b) = (of.numbers(m * k, 130), of.numbers(k * n, 131));
    let at_a = |row: usize, at: usize| &a[lanes * if a_turned { at * m + row } else { row * k + at }..][..lanes];
    let at_b =
        |at: usize, column: usize| &b[lanes * if b_turned { column * k + at } else { at * n + column }..][..lanes];
    let mut expected = Vec::new();
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let mut sum = vec![0.0; lanes];
        for at in 0..k {
            let term = match (at_a(row, at), at_b(at, column)) {
                (&[x, y], &[z, w]) => mul([x, y], [z, w]).to_vec(),
                (x, y) => vec![x[0] * y[0]],
            };
            sum.iter_mut().zip(term).for_each(|(sum, term)| *sum += term);
        }
        expected.extend(sum);
    }
    let (columns, rows) = (n.div_ceil(bn), m.div_ceil(bm));
    let mut parameters =
        words(&[m, n, k, if a_turned { m } else { k }, if b_turned { k } else { n }, n, columns, rows]);
    parameters.extend(longs(&[m * k, k * n, m * n]));
    parameters.extend(words(&[0, k / bk, 1, 0]));
    let args =
        vec![input(of.kind, &a), input(of.kind, &b), Arg::None, output(of.kind, m * n * lanes), Arg::Bytes(parameters)];
    // float32 is as exact as its sums are.
    let scale = if of.kind == Kind::F32 { (k * lanes) as f64 } else { 8.0 };
    groups([columns, rows, 1], [32, wn, wm], args, near(of.kind, expected, 4.0, scale))
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
