//! ggml's kernels over rows: sums, softmax, norms, rotary embedding, state spaces, attention, quantizing.

use crate::arrays::{Dims, count, each, layout, per_row, places, strides};
use crate::blocks::{block_size, decoded, levels};
use crate::case::{Arg, Case, float, groups, input, ints, near, output, sizes, within};
use crate::kind::Kind;
use crate::rows;
use half::f16;

pub fn network(name: &str, text: &str) -> Option<Case> {
    let name = name.strip_prefix("kernel_")?;
    if let Some(rest) = name.strip_prefix("soft_max_") {
        let (kind, fours) = rest.strip_suffix("_4").map_or((rest, false), |kind| (kind, true));
        return Some(softmax(Kind::named(kind)?, fours));
    }
    if let Some((way, kind)) = name.strip_prefix("rope_").and_then(|rest| rest.split_once('_')) {
        return Some(rope(Kind::named(kind)?, way == "neox"));
    }
    if let Some(order) = name.strip_prefix("argsort_f32_i32_") {
        return rows::sort(&format!("asort_{order}_f32"));
    }
    if let Some(format) = name.strip_prefix("cpy_f32_") {
        return packed(format, text);
    }
    if let Some(d) = name.strip_prefix("flash_attn_ext_f16_h") {
        return Some(attention(d.parse().ok()?, false));
    }
    if let Some(d) = name.strip_prefix("flash_attn_ext_vec_f16_h") {
        return Some(attention(d.parse().ok()?, true));
    }
    match name {
        "sum_rows" => Some(sums()),
        "norm" | "rms_norm" => Some(normed(name == "norm")),
        "group_norm" => Some(group_norm()),
        "ssm_conv_f32" => Some(state_convolution()),
        "ssm_scan_f32" => Some(state_scan()),
        _ => None,
    }
}

fn sums() -> Case {
    let (dims, out) = ([37, 3, 2, 2], [1, 3, 2, 2]);
    let values = Kind::F32.numbers(count(dims), 71);
    let expected = values.chunks(dims[0]).map(|row| row.iter().sum()).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, count(out))];
    args.extend([dims, out, out].into_iter().flat_map(|dims| layout(dims, 4)));
    per_row(dims, 1, args, near(Kind::F32, expected, 8.0, 8.0))
}

/// The factors of a mask: with a bias, each head has one of its own.
struct Slopes {
    bias: f64,
    /// The largest power of two that is not above the number of heads.
    whole: usize,
}

impl Slopes {
    fn new(heads: usize) -> Slopes {
        // Such that slopes are powers of two, of which products in half precision are exact.
        Slopes { bias: 4.0, whole: if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 } }
    }

    fn bases(&self) -> [f64; 2] {
        [(-self.bias / self.whole as f64).exp2(), (-self.bias / 2.0 / self.whole as f64).exp2()]
    }

    fn of(&self, head: usize) -> f64 {
        let [first, second] = self.bases();
        if head < self.whole { first.powi(head as i32 + 1) } else { second.powi(2 * (head - self.whole) as i32 + 1) }
    }

    fn args(&self) -> Vec<Arg> {
        let [first, second] = self.bases();
        vec![float(self.bias), float(first), float(second), ints(&[self.whole])]
    }
}

fn softened(row: &[f64]) -> Vec<f64> {
    let sum: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / sum).collect()
}

/// Softmax of scaled rows and a mask.
fn softmax(kind: Kind, fours: bool) -> Case {
    let (dims, scale) = ([100, 3, 3, 2], 0.75);
    let [length, rows, heads, _] = dims;
    let (values, mask) = (Kind::F32.numbers(count(dims), 72), kind.numbers(length * rows, 73));
    let slopes = Slopes::new(heads);
    let one = |(at, row): (usize, &[f64])| {
        let mask = &mask[at % rows * length..][..length];
        let slope = slopes.of(at / rows % heads);
        softened(&row.iter().zip(mask).map(|(x, mask)| scale * x + slope * mask).collect::<Vec<f64>>())
    };
    let expected = values.chunks(length).enumerate().flat_map(one).collect();
    let mut args = vec![input(Kind::F32, &values), input(kind, &mask), output(Kind::F32, count(dims))];
    args.extend([each(&dims[..3]), vec![float(scale)], slopes.args()].into_iter().flatten());
    let grid = [count(dims) / length, 1, 1];
    let width = if fours { 64 } else { 96 };
    Case { memory: vec![128], ..groups(grid, [width, 1, 1], args, near(Kind::F32, expected, 16.0, 0.02)) }
}

fn normed(centred: bool) -> Case {
    let (rows, length, apart) = (3, 100, 104);
    let values = Kind::F32.numbers(rows * apart, 74);
    let n = length as f64;
    let one = |row: &[f64]| {
        let row = &row[..length];
        let mean = if centred { row.iter().sum::<f64>() / n } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect::<Vec<f64>>()
    };
    let expected = values.chunks(apart).flat_map(one).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, rows * length)];
    args.extend([sizes(&[length]), sizes(&[4 * apart]), float(1e-5)]);
    let check = near(Kind::F32, expected, 8.0, 2.0);
    Case { memory: vec![256], ..groups([rows, 1, 1], [64, 1, 1], args, check) }
}

fn group_norm() -> Case {
    let (dims, parts) = ([9, 5, 6, 1], 2);
    let values = Kind::F32.numbers(count(dims), 75);
    let length = count(dims) / parts;
    let one = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / length as f64;
        let variance = part.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / length as f64;
        part.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect::<Vec<f64>>()
    };
    let expected = values.chunks(length).flat_map(one).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, count(dims))];
    args.extend(each(&dims[..3]).into_iter().chain(each(&strides(dims, 4)[..3])));
    args.extend([ints(&[parts]), float(1e-5)]);
    let check = near(Kind::F32, expected, 8.0, 2.0);
    Case { memory: vec![128], ..groups([parts, 1, 1], [64, 1, 1], args, check) }
}

const BASE: f64 = 10_000.0;
/// Elements of a row that are turned.
const TURNED: usize = 16;
/// YaRN: positions of the original context, how they are squeezed, how much of what follows is mixed in, a factor, and the two bounds.
const CONTEXT: usize = 128;
const SQUEEZED: f64 = 0.5;
const MIXED: f64 = 0.5;
const FACTOR: f64 = 1.25;
const BOUNDS: [f64; 2] = [32.0, 1.0];

/// Cosine and sine of a pair of elements, as the paper on YaRN has them.
fn angle(position: f64, pair: usize, divisor: f64) -> (f64, f64) {
    let of_bound = |turns: f64| {
        let rest = (CONTEXT as f64 / (turns * 2.0 * std::f64::consts::PI)).ln();
        TURNED as f64 * rest / (2.0 * BASE.ln())
    };
    let low = of_bound(BOUNDS[0]).floor().max(0.0);
    let high = of_bound(BOUNDS[1]).ceil().min(TURNED as f64 - 1.0);
    let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
    let mix = (1.0 - ramp) * MIXED;
    let theta = position * BASE.powf(-2.0 * pair as f64 / TURNED as f64) / divisor;
    let theta = SQUEEZED * theta * (1.0 - mix) + theta * mix;
    let scale = FACTOR * (1.0 + 0.1 * (1.0 / SQUEEZED).ln());
    (theta.cos() * scale, theta.sin() * scale)
}

/// Rotary embedding of pairs of neighbours, or of the two halves.
fn rope(kind: Kind, halves: bool) -> Case {
    let dims: Dims = [20, 3, 4, 2];
    let values = kind.numbers(count(dims), 76);
    let (positions, divisors) = ([3.0, 0.0, 11.0, 7.0], [1.0, 1.5, 1.25, 2.0, 1.0, 3.0, 1.75, 2.5]);
    let mut expected = values.clone();
    for (row, [_, _, position, _]) in places([1, dims[1], dims[2], dims[3]]).enumerate() {
        for (pair, divisor) in divisors.iter().enumerate() {
            let (c, s) = angle(positions[position], pair, *divisor);
            let first = row * dims[0] + if halves { pair } else { 2 * pair };
            let second = first + if halves { TURNED / 2 } else { 1 };
            expected[first] = values[first] * c - values[second] * s;
            expected[second] = values[first] * s + values[second] * c;
        }
    }
    let mut args = vec![input(kind, &values), input(Kind::I32, &positions), input(Kind::F32, &divisors)];
    args.push(output(kind, count(dims)));
    args.extend([dims, dims].into_iter().flat_map(|dims| layout(dims, kind.size())));
    args.extend([ints(&[0]), ints(&[TURNED]), ints(&[CONTEXT])]);
    args.extend([BASE, SQUEEZED, MIXED, FACTOR, BOUNDS[0], BOUNDS[1]].map(float));
    let roundings = if kind == Kind::F32 { 32.0 } else { 4.0 };
    per_row(dims, 4, args, near(kind, expected, roundings, 4.0))
}

/// A short convolution of each of several sequences, with weights for each row.
fn state_convolution() -> Case {
    let (width, inner, tokens, sequences) = (4, 5, 6, 2);
    let (dims, weights_dims, out) =
        ([tokens + width - 1, inner, sequences, 1], [width, inner, 1, 1], [inner, tokens, sequences, 1]);
    let (values, weights) = (Kind::F32.numbers(count(dims), 77), Kind::F32.numbers(count(weights_dims), 78));
    let value = |[row, token, sequence, _]: Dims| {
        let begin = (sequence * inner + row) * dims[0] + token;
        values[begin..begin + width].iter().zip(&weights[row * width..]).map(|(x, w)| x * w).sum()
    };
    let expected = places(out).map(value).collect();
    let mut args = vec![input(Kind::F32, &values), input(Kind::F32, &weights), output(Kind::F32, count(out))];
    args.extend([each(&dims[..3]), each(&strides(dims, 4)[..3])].into_iter().flatten());
    args.extend(each(&[width, inner, 4, 4 * width]));
    args.extend([each(&out[..3]), each(&strides(out, 4)[..3])].into_iter().flatten());
    groups([inner, tokens, sequences], [1, 1, 1], args, near(Kind::F32, expected, 8.0, 4.0))
}

/// A selective state space: results of every token, and behind them the last states.
fn state_scan() -> Case {
    let (state, inner, tokens, sequences) = (5, 3, 4, 2);
    let [states, x, steps] = [(state, 79), (tokens, 80), (tokens, 81)]
        .map(|(length, seed)| Kind::F32.numbers(length * inner * sequences, seed));
    let decay: Vec<f64> = Kind::F32.numbers(state * inner, 82).iter().map(|a| -a.abs()).collect();
    let [into, out_of] = [83, 84].map(|seed| Kind::F32.numbers(state * tokens * sequences, seed));
    let (mut results, mut last) = (vec![0.0; inner * tokens * sequences], states.clone());
    for [row, token, sequence, _] in places([inner, tokens, sequences, 1]) {
        let place = (sequence * tokens + token) * inner + row;
        let step = steps[place].exp().ln_1p();
        for at in 0..state {
            let (slot, shared) = ((sequence * inner + row) * state + at, (sequence * tokens + token) * state + at);
            last[slot] = last[slot] * (step * decay[row * state + at]).exp() + into[shared] * x[place] * step;
            results[place] += last[slot] * out_of[shared];
        }
    }
    let behind = 4 * results.len();
    results.extend(last);
    let total = results.len();
    let mut args: Vec<Arg> =
        [&states, &x, &steps, &decay, &into, &out_of].iter().map(|values| input(Kind::F32, values)).collect();
    args.push(output(Kind::F32, total));
    args.extend(each(&[state, inner, tokens, sequences, 4, 4 * state, 4 * state * inner]));
    args.extend(each(&[4, 4 * inner, 4 * inner * tokens, behind, 4, 4 * inner, 4 * inner * tokens]));
    args.extend(each(&[4, 4 * state, 4, 4 * state, 4 * state * tokens, 4, 4 * state, 4 * state * tokens]));
    groups([inner, sequences, 1], [1, 1, 1], args, near(Kind::F32, results, 16.0, 8.0))
}

/// Attention in half precision with a mask of biased heads and capped scores; `single` is the kernel for one query at a time.
fn attention(d: usize, single: bool) -> Case {
    let (batch, heads, key_heads, queries, keys, cap) = (2, 4, 2, 5, 96, 30.0);
    let scale = 1.0 / (d as f64).sqrt();
    let q = Kind::F32.numbers(batch * heads * queries * d, 85);
    let [k, v] = [86, 87].map(|seed| Kind::F16.numbers(batch * key_heads * keys * d, seed));
    let (mask, slopes) = (Kind::F16.numbers(8 * keys, 88), Slopes::new(heads));
    let mut expected = Vec::new();
    for [head, query, sequence, _] in places([heads, queries, batch, 1]) {
        let q = &q[((sequence * heads + head) * queries + query) * d..][..d];
        let begin = (sequence * key_heads + head / (heads / key_heads)) * keys * d;
        let score = |(key, mask): (&[f64], &f64)| {
            let product: f64 = q.iter().zip(key).map(|(q, k)| q * k).sum();
            cap * (product * scale / cap).tanh() + slopes.of(head) * mask
        };
        let scores: Vec<f64> = k[begin..].chunks(d).zip(&mask[query * keys..][..keys]).map(score).collect();
        let weights = softened(&scores);
        let value = |at: usize| weights.iter().zip(v[begin..].chunks(d)).map(|(w, v)| w * v[at]).sum::<f64>();
        expected.extend((0..d).map(|at| (value(at), 1.0)));
    }
    let mut args = vec![input(Kind::F32, &q), input(Kind::F16, &k), input(Kind::F16, &v), input(Kind::F16, &mask)];
    args.push(output(Kind::F32, batch * heads * queries * d));
    args.extend(each(&[queries, heads, batch, 4 * d, 4 * d * queries, 4 * d * queries * heads]));
    let of_keys = [2 * d, 2 * d * keys, 2 * d * keys * key_heads];
    args.extend(each(&[keys, key_heads, batch]).into_iter().chain(each(&of_keys)).chain(each(&of_keys)));
    args.extend([sizes(&[2 * keys]), sizes(&[heads]), sizes(&[queries]), float(scale / cap)]);
    args.extend(slopes.args());
    args.push(float(cap));
    // Simdgroups of a threadgroup; for one query their scratch memory is only aligned in the first.
    let (simdgroups, at_once) = if single { (1, 1) } else { (2, 8) };
    let of_query = d + 2 * simdgroups * (32 + at_once);
    let memory = 2 * (at_once * of_query + if single { simdgroups * d } else { 0 });
    // Sums and queries are kept in half precision.
    let check = within(expected, 4e-3);
    let grid = [queries.div_ceil(at_once), heads, batch];
    Case { memory: vec![memory.next_multiple_of(16)], ..groups(grid, [32, simdgroups, 1], args, check) }
}

/// What is left of 32 numbers when they are quantized by the largest of them, or by the least and the most.
fn quantized(format: &str, numbers: &[f64], levels: &[f64]) -> Option<Vec<f64>> {
    let half = |x: f64| f16::from_f64(x).to_f64();
    let top = numbers.iter().copied().fold(0.0, |top: f64, x| if x.abs() > top.abs() { x } else { top });
    let least = numbers.iter().copied().fold(f64::MAX, f64::min);
    let most = numbers.iter().copied().fold(f64::MIN, f64::max);
    let around = |middle: f64| {
        let d = top / -middle;
        let one = |x: &f64| half(d) * ((x / d + middle + 0.5).floor().min(2.0 * middle - 1.0) - middle);
        numbers.iter().map(one).collect()
    };
    let between = |steps: f64| {
        let d = (most - least) / steps;
        numbers.iter().map(|x| half(d) * ((x - least) / d + 0.5).floor().min(steps) + half(least)).collect()
    };
    Some(match format {
        "q8_0" => numbers.iter().map(|x| half(top.abs() / 127.0) * (x * 127.0 / top.abs()).round()).collect(),
        "q4_0" => around(8.0),
        "q5_0" => around(16.0),
        "q4_1" => between(15.0),
        "q5_1" => between(31.0),
        "iq4_nl" => to_levels(numbers, top, levels),
        _ => return None,
    })
}

/// The nearest levels, by the factor that fits them best, large numbers first.
fn to_levels(numbers: &[f64], top: f64, levels: &[f64]) -> Vec<f64> {
    let nearest = |x: &f64| {
        let wanted = x * levels[0] / top;
        levels.iter().copied().min_by(|a, b| (a - wanted).abs().total_cmp(&(b - wanted).abs())).unwrap_or(0.0)
    };
    let chosen: Vec<f64> = numbers.iter().map(nearest).collect();
    let sum = |f: fn(f64, f64) -> f64| numbers.iter().zip(&chosen).map(|(x, level)| f(*x, *level)).sum::<f64>();
    let factor = sum(|x, level| x * x * x * level) / sum(|x, level| x * x * level * level);
    chosen.iter().map(|level| f16::from_f64(factor).to_f64() * level).collect()
}

/// Quantizing, judged by what the blocks stand for.
fn packed(format: &str, text: &str) -> Option<Case> {
    let (dims, levels) = ([96, 3, 2, 2], levels(text)?);
    let (block, bytes) = block_size(format)?;
    let values = Kind::F32.numbers(count(dims), 89);
    let blocks: Option<Vec<Vec<f64>>> =
        values.chunks(block).map(|numbers| quantized(format, numbers, &levels)).collect();
    // The factor may be rounded twice, which is in all of a block.
    let expected = blocks?.concat().into_iter().map(|value| (value, value.abs() + 1e-3)).collect();
    let whole = within(expected, 1.5e-3);
    let (format, text) = (format.to_owned(), text.to_owned());
    let check = Box::new(move |outputs: &[Vec<f64>]| {
        let bytes: Vec<u8> = outputs[0].iter().map(|byte| *byte as u8).collect();
        whole(&[decoded(&format, &bytes, &text).ok_or("a format without decoder")?])
    });
    let mut args = vec![input(Kind::F32, &values), output(Kind::U8, count(dims) / block * bytes)];
    args.extend(layout(dims, 4).into_iter().chain(each(&dims)));
    let row = dims[0] / block * bytes;
    args.extend(each(&[bytes, row, row * dims[1], row * dims[1] * dims[2]]));
    Some(per_row(dims, 2, args, check))
}
