//! Attention of a few queries: in one pass, and in two, with masks of three kinds and with sinks.

use super::types::{FLOATS, Type};
use super::{Constants, Kernel, Variant};
use crate::case::{Arg, Case, float, groups, input, ints, near, output, sizes};
use crate::kind::Kind;
use openmps_emulator::Value;

/// Sizes of queries and keys, and of values.
const SIZES: [[usize; 2]; 6] = [[64, 64], [96, 96], [128, 128], [192, 128], [192, 192], [256, 256]];
/// Those with many heads of queries to one of keys, and how many of these a simdgroup has.
const SHARED: [[usize; 2]; 2] = [[64, 8], [128, 4]];
const MERGED: [usize; 5] = [64, 96, 128, 192, 256];
/// Heads of queries to one of keys in [`SHARED`].
const GROUP: usize = 8;
/// Parts of a row of keys.
const BLOCKS: usize = 32;
const KEYS: usize = 70;

#[derive(Clone, Copy, PartialEq)]
enum Mask {
    None,
    Bool,
    Float,
    Causal,
    /// A number in each row that takes part in the sum and has no value.
    Sinks,
}

const MASKS: [Mask; 5] = [Mask::None, Mask::Bool, Mask::Float, Mask::Causal, Mask::Sinks];

fn constants(mask: Mask) -> Constants {
    let masked = matches!(mask, Mask::Bool | Mask::Float);
    let flags = [masked, false, mask == Mask::Causal, mask == Mask::Bool, mask == Mask::Float, mask == Mask::Sinks];
    let mut constants: Constants = (20..).zip(flags.map(Value::Bool)).collect();
    constants.push((26, Value::Int(BLOCKS as i64)));
    constants
}

/// Types under the names that these kernels have them.
const TYPES: [(usize, &str); 3] = [(1, "float"), (2, "bfloat16_t"), (0, "float16_t")];

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (of, text) in TYPES.map(|(at, text)| (FLOATS[at], text)) {
        let mut push = |name: String, instance: String, variants: Vec<Variant>| {
            list.push(Kernel { name, instance: Some(instance), variants });
        };
        let masks = |case: fn(Shape, Mask) -> Case, shape: Shape| -> Vec<Variant> {
            MASKS
                .iter()
                .map(|mask| Variant { constants: constants(*mask), case: Box::new(move || case(shape, *mask)) })
                .collect()
        };
        for [d, v] in SIZES {
            let shape = Shape { of, d, v, heads: 6, kept: 3, queries: 2 };
            let (name, arguments) = (format!("{text}_{d}_{v}"), format!("<{text}, {d}, {v}>"));
            push(format!("sdpa_vector_{name}"), format!("sdpa_vector{arguments}"), masks(whole, shape));
            push(format!("sdpa_vector_2pass_1_{name}"), format!("sdpa_vector_2pass_1{arguments}"), masks(parts, shape));
        }
        for [d, each] in SHARED {
            let shape = Shape { of, d, v: d, heads: 2 * GROUP, kept: 2, queries: 1 };
            let variant =
                Variant { constants: constants(Mask::None), case: Box::new(move || parts(shape, Mask::None)) };
            let instance = format!("sdpa_vector_2pass_1_gqa<{text}, {d}, {d}, {GROUP}, {each}>");
            push(format!("sdpa_vector_2pass_1_gqa_{text}_{d}_{d}"), instance, vec![variant]);
        }
        for v in MERGED {
            let variant = Variant { constants: constants(Mask::None), case: Box::new(move || merged(of, v)) };
            push(format!("sdpa_vector_2pass_2_{text}_{v}"), format!("sdpa_vector_2pass_2<{text}, {v}>"), vec![variant]);
        }
    }
    list
}

#[derive(Clone, Copy)]
struct Shape {
    of: Type,
    d: usize,
    v: usize,
    /// Of queries, and of keys and values.
    heads: usize,
    kept: usize,
    queries: usize,
}

struct Given {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    mask: Vec<f64>,
    sinks: Vec<f64>,
}

impl Shape {
    fn given(&self, mask: Mask) -> Given {
        let rows = self.heads * self.queries;
        let [q, k, v] = [(rows * self.d, 120), (self.kept * KEYS * self.d, 121), (self.kept * KEYS * self.v, 122)]
            .map(|(count, seed)| self.of.numbers(count, seed));
        let kind = if mask == Mask::Bool { Kind::Bool } else { self.of.kind };
        let mut mask = kind.numbers(rows * KEYS, 123);
        // No row without a key.
        mask.iter_mut().step_by(KEYS).for_each(|first| *first = 1.0);
        Given { q, k, v, mask, sinks: self.of.numbers(self.heads, 124) }
    }

    fn expected(&self, given: &Given, mask: Mask) -> Vec<f64> {
        let mut result = Vec::new();
        for (row, q) in given.q.chunks(self.d).enumerate() {
            let (head, query) = (row / self.queries, row % self.queries);
            let kept = head / (self.heads / self.kept);
            let score = |key: usize| {
                let k = &given.k[(kept * KEYS + key) * self.d..][..self.d];
                let dot = q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / (self.d as f64).sqrt();
                match mask {
                    Mask::Bool if given.mask[row * KEYS + key] == 0.0 => f64::NEG_INFINITY,
                    Mask::Float => dot + given.mask[row * KEYS + key],
                    Mask::Causal if key > KEYS - self.queries + query => f64::NEG_INFINITY,
                    _ => dot,
                }
            };
            let weights: Vec<f64> = (0..KEYS).map(|key| score(key).exp()).collect();
            let sink = if mask == Mask::Sinks { given.sinks[head].exp() } else { 0.0 };
            let sum = weights.iter().sum::<f64>() + sink;
            let value = |at: usize| {
                let values = &given.v[kept * KEYS * self.v..][..KEYS * self.v];
                weights.iter().zip(values.chunks(self.v)).map(|(w, v)| w * v[at]).sum::<f64>() / sum
            };
            result.extend((0..self.v).map(value));
        }
        result
    }

    /// Where heads and keys are, and what scores are multiplied with.
    fn strides(&self) -> Vec<Arg> {
        let mut args: Vec<Arg> = [KEYS * self.d, self.d, KEYS * self.v, self.v].map(|size| sizes(&[size])).into();
        args.push(float(1.0 / (self.d as f64).sqrt()));
        args
    }

    fn masks(&self, given: &Given, mask: Mask) -> Vec<Arg> {
        let kind = if mask == Mask::Bool { Kind::Bool } else { self.of.kind };
        let mut args = vec![input(kind, &given.mask), input(kind, &given.mask)];
        args.extend([1, KEYS, self.queries * KEYS].map(|stride| ints(&[stride])));
        args.push(input(self.of.kind, &given.sinks));
        args
    }
}

fn whole(shape: Shape, mask: Mask) -> Case {
    let given = shape.given(mask);
    let expected = shape.expected(&given, mask);
    let kind = shape.of.kind;
    let mut args =
        vec![input(kind, &given.q), input(kind, &given.k), input(kind, &given.v), output(kind, expected.len())];
    args.extend([ints(&[shape.heads / shape.kept]), ints(&[KEYS])]);
    args.extend(shape.strides());
    args.extend(shape.masks(&given, mask));
    args.push(ints(&[shape.heads]));
    groups([shape.heads, shape.queries, 1], [1024, 1, 1], args, near(kind, expected, 8.0, 1.0))
}

/// The whole from parts: each part's result, sum of exponentials and maximum.
fn combined(parts: &[f64], sums: &[f64], most: &[f64], v: usize) -> Vec<f64> {
    let mut result = Vec::new();
    for (row, parts) in parts.chunks(BLOCKS * v).enumerate() {
        let (sums, most) = (&sums[row * BLOCKS..][..BLOCKS], &most[row * BLOCKS..][..BLOCKS]);
        let top = most.iter().copied().fold(f64::MIN, f64::max);
        let factors: Vec<f64> = most.iter().map(|m| (m - top).exp()).collect();
        let sum: f64 = sums.iter().zip(&factors).map(|(sum, factor)| sum * factor).sum();
        let one = |at: usize| (0..BLOCKS).map(|block| parts[block * v + at] * factors[block]).sum::<f64>() / sum;
        result.extend((0..v).map(one));
    }
    result
}

fn parts(shape: Shape, mask: Mask) -> Case {
    let given = shape.given(mask);
    let kind = shape.of.kind;
    let rows = shape.heads * shape.queries;
    let mut args = vec![input(kind, &given.q), input(kind, &given.k), input(kind, &given.v)];
    args.extend([
        output(kind, rows * BLOCKS * shape.v),
        output(Kind::F32, rows * BLOCKS),
        output(Kind::F32, rows * BLOCKS),
    ]);
    args.extend([Arg::None, ints(&[KEYS])]);
    args.extend(shape.strides());
    args.extend(shape.masks(&given, mask));
    let whole = near(kind, shape.expected(&given, mask), 16.0, 1.0);
    let v = shape.v;
    let check = Box::new(move |outputs: &[Vec<f64>]| whole(&[combined(&outputs[0], &outputs[1], &outputs[2], v)]));
    groups([shape.kept, 1, BLOCKS], [32, shape.heads / shape.kept, shape.queries], args, check)
}

fn merged(of: Type, v: usize) -> Case {
    let (heads, queries) = (3, 2);
    let rows = heads * queries;
    let (parts, most) = (of.numbers(rows * BLOCKS * v, 125), Kind::F32.numbers(rows * BLOCKS, 126));
    let sums: Vec<f64> = Kind::F32.numbers(rows * BLOCKS, 127).iter().map(|x| Kind::F32.round(x.abs() + 1.0)).collect();
    let expected = combined(&parts, &sums, &most, v);
    let mut args = vec![input(of.kind, &parts), input(Kind::F32, &sums), input(Kind::F32, &most)];
    args.extend([output(of.kind, rows * v), ints(&[BLOCKS])]);
    groups([heads, queries, 1], [1024, 1, 1], args, near(of.kind, expected, 8.0, 1.0))
}
