//! Products: matrix by vector, matrix by matrix, attention.

use crate::case::{Arg, Case, Check, float, groups, input, ints, near, output, sizes};
use crate::kind::Kind;

/// The number after a word, as in `_bm8`.
fn number(name: &str, word: &str) -> Option<usize> {
    let digits =
        name.split('_').filter_map(|part| part.strip_prefix(word)).find(|rest| rest.parse::<usize>().is_ok())?;
    digits.parse().ok()
}

pub fn gemv(name: &str) -> Option<Case> {
    let (turned, rest) =
        name.strip_prefix("gemv_t_").map(|rest| (true, rest)).or(Some((false, name.strip_prefix("gemv_")?)))?;
    let kind = Kind::named(rest.split('_').next()?)?;
    let [bm, bn, sm, sn, tm, tn] = ["bm", "bn", "sm", "sn", "tm", "tn"].map(|word| number(rest, word));
    let (bm, bn, sm, sn, tm, tn) = (bm?, bn?, sm?, sn?, tm?, tn?);
    let added = number(rest, "axpby")? == 1;
    let (batch, length, count) = (2, 75, 45);
    let (matrix, vector) = (kind.numbers(batch * length * count, 21), kind.numbers(batch * length, 22));
    let bias = kind.numbers(batch * count, 23);
    let (alpha, beta) = if added { (0.5, 2.0) } else { (1.0, 0.0) };
    let mut expected = Vec::new();
    for (b, out) in (0..batch).flat_map(|b| (0..count).map(move |out| (b, out))) {
        let at = |k: usize| b * length * count + if turned { k * count + out } else { out * length + k };
        let sum: f64 = (0..length).map(|k| matrix[at(k)] * vector[b * length + k]).sum();
        expected.push(alpha * sum + beta * bias[b * count + out]);
    }
    let args = vec![
        input(kind, &matrix),
        input(kind, &vector),
        input(kind, &bias),
        output(kind, batch * count),
        ints(&[length]),
        ints(&[count]),
        ints(&[if turned { count } else { length }]),
        float(alpha),
        float(beta),
        ints(&[1]),
        ints(&[batch]),
        sizes(&[length]),
        sizes(&[length * count]),
        sizes(&[count]),
        ints(&[1]),
    ];
    let per_group = if turned { bn * sn * tn } else { bm * sm * tm };
    Some(groups([count.div_ceil(per_group), 1, batch], [32, bn, bm], args, near(kind, expected, 4.0, 8.0)))
}

pub fn gemm(name: &str, aligned: bool) -> Option<Case> {
    let words: Vec<&str> = name.split('_').collect();
    let (turns, kind) = (words.get(1)?, Kind::named(words.get(2)?)?);
    let tile: Vec<usize> = words.get(4..9)?.iter().filter_map(|word| word.parse().ok()).collect();
    let [bm, bn, bk, ..] = tile[..] else { return None };
    let (m, n, k) = if aligned { (2 * bm, bn, 2 * bk) } else { (bm + 5, bn + 3, bk + 6) };
    let (a, b) = (kind.numbers(m * k, 24), kind.numbers(k * n, 25));
    let (a_turned, b_turned) = (turns.starts_with('t'), turns.ends_with('t'));
    let at_a = |row: usize, at: usize| a[if a_turned { at * m + row } else { row * k + at }];
    let at_b = |at: usize, column: usize| b[if b_turned { column * k + at } else { at * n + column }];
    let expected = (0..m * n).map(|index| (0..k).map(|at| at_a(index / n, at) * at_b(at, index % n)).sum()).collect();
    // float32 is as exact as its sums are.
    let scale = if kind == Kind::F32 { k as f64 } else { 8.0 };
    gemm_call(name, [m, n, k], [input(kind, &a), input(kind, &b)], near(kind, expected, 4.0, scale))
}

/// The call of a kernel for two matrices of a size.
pub fn gemm_call(name: &str, [m, n, k]: [usize; 3], [a, b]: [Arg; 2], check: Check) -> Option<Case> {
    let words: Vec<&str> = name.split('_').collect();
    let (turns, kind) = (words.get(1)?, Kind::named(words.get(2)?)?);
    let tile: Vec<usize> = words.get(4..9)?.iter().filter_map(|word| word.parse().ok()).collect();
    let [bm, bn, bk, wm, wn] = tile[..] else { return None };
    let (a_turned, b_turned) = (turns.starts_with('t'), turns.ends_with('t'));
    let (columns, rows) = (n.div_ceil(bn), m.div_ceil(bm));
    let mut parameters = Vec::new();
    for value in [m, n, k, if a_turned { m } else { k }, if b_turned { k } else { n }, n, columns, rows] {
        parameters.extend((value as u32).to_ne_bytes());
    }
    for value in [m * k, k * n, m * n] {
        parameters.extend((value as u64).to_ne_bytes());
    }
    for value in [0, k / bk, 1, 0] {
        parameters.extend((value as u32).to_ne_bytes());
    }
    let args = vec![a, b, Arg::None, output(kind, m * n), Arg::Bytes(parameters)];
    Some(groups([columns, rows, 1], [32, wn, wm], args, check))
}

/// softmax(q k / sqrt(d)) v for each head and query.
fn attended(q: &[f64], k: &[f64], v: &[f64], [queries, keys, d]: [usize; 3]) -> Vec<f64> {
    let mut result = Vec::new();
    for (row, q) in q.chunks(d).enumerate() {
        let begin = row / queries * keys * d;
        let (k, v) = (&k[begin..begin + keys * d], &v[begin..begin + keys * d]);
        let dot = |key: &[f64]| q.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (d as f64).sqrt();
        let weights: Vec<f64> = k.chunks(d).map(|key| dot(key).exp()).collect();
        let sum: f64 = weights.iter().sum();
        result.extend((0..d).map(|at| weights.iter().zip(v.chunks(d)).map(|(w, v)| w * v[at]).sum::<f64>() / sum));
    }
    result
}

pub fn attention(name: &str, aligned: bool) -> Option<Case> {
    if let Some(rest) = name.strip_prefix("steel_attention_") {
        return full_attention(rest, aligned);
    }
    let rest = name.strip_prefix("sdpa_vector_")?;
    if let Some(rest) = rest.strip_prefix("2pass_2_") {
        return second_pass(rest);
    }
    let first = rest.strip_prefix("2pass_1_");
    let (kind, d) = first.unwrap_or(rest).rsplit_once('_')?;
    let (kind, d): (_, usize) = (Kind::named(kind)?, d.parse().ok()?);
    let (heads, keys) = (3, 70);
    let [q, k, v] = [(1, 26), (keys, 27), (keys, 28)].map(|(rows, seed)| kind.numbers(heads * rows * d, seed));
    let expected = attended(&q, &k, &v, [1, keys, d]);
    let given = [&q, &k, &v].map(|numbers| input(kind, numbers));
    if first.is_some() {
        let whole = near(kind, expected, 16.0, 1.0);
        let check = Box::new(move |outputs: &[Vec<f64>]| whole(&[combined(&outputs[0], &outputs[1], &outputs[2], d)]));
        return Some(first_pass_call([heads, keys, d], given, check));
    }
    let mut args = Vec::from(given);
    args.push(output(kind, heads * d));
    args.extend(settings(keys, d));
    Some(groups([1, heads, 1], [1024, 1, 1], args, near(kind, expected, 8.0, 1.0)))
}

/// What kernels for one query are told beside their tensors.
fn settings(keys: usize, d: usize) -> [Arg; 6] {
    let scale = float(1.0 / (d as f64).sqrt());
    [ints(&[1]), ints(&[keys]), sizes(&[keys * d]), sizes(&[keys * d]), scale, float(1.0)]
}

/// The call of the kernel for one query of each head and parts of the keys.
pub fn first_pass_call([heads, keys, d]: [usize; 3], given: [Arg; 3], check: Check) -> Case {
    let mut args = Vec::from(given);
    args.extend([heads * BLOCKS * d, heads * BLOCKS, heads * BLOCKS].map(|count| output(Kind::F32, count)));
    args.extend(settings(keys, d));
    groups([1, heads, BLOCKS], [256, 1, 1], args, check)
}

/// The call of the kernel that puts the parts together: each part's result, sum of exponentials and maximum.
pub fn second_pass_call(kind: Kind, [heads, d]: [usize; 2], parts: [Arg; 3], check: Check) -> Case {
    let mut args = Vec::from(parts);
    args.push(output(kind, heads * d));
    groups([1, heads, 1], [1024, 1, 1], args, check)
}

/// Parts of a row of keys, in the kernels that attend in two passes.
pub const BLOCKS: usize = 32;

/// The whole of attention from that of parts: each part's result, sum of exponentials and maximum.
fn combined(parts: &[f64], sums: &[f64], most: &[f64], d: usize) -> Vec<f64> {
    let mut result = Vec::new();
    for (head, parts) in parts.chunks(BLOCKS * d).enumerate() {
        let (sums, most) = (&sums[head * BLOCKS..][..BLOCKS], &most[head * BLOCKS..][..BLOCKS]);
        let top = most.iter().copied().fold(f64::MIN, f64::max);
        let factors: Vec<f64> = most.iter().map(|m| (m - top).exp()).collect();
        let sum: f64 = sums.iter().zip(&factors).map(|(sum, factor)| sum * factor).sum();
        result.extend(
            (0..d).map(|at| (0..BLOCKS).map(|block| parts[block * d + at] * factors[block]).sum::<f64>() / sum),
        );
    }
    result
}

fn second_pass(rest: &str) -> Option<Case> {
    let (kind, d) = rest.rsplit_once('_')?;
    let (kind, d): (_, usize) = (Kind::named(kind)?, d.parse().ok()?);
    let heads = 2;
    let (parts, most) = (Kind::F32.numbers(heads * BLOCKS * d, 29), Kind::F32.numbers(heads * BLOCKS, 30));
    let sums: Vec<f64> = Kind::F32.numbers(heads * BLOCKS, 31).iter().map(|x| Kind::F32.round(x.abs() + 1.0)).collect();
    let expected = combined(&parts, &sums, &most, d);
    let given = [&parts, &sums, &most].map(|numbers| input(Kind::F32, numbers));
    Some(second_pass_call(kind, [heads, d], given, near(kind, expected, 8.0, 1.0)))
}

fn full_attention(rest: &str, aligned: bool) -> Option<Case> {
    let kind = Kind::named(rest.split('_').next()?)?;
    let [bq, bk, d] = ["bq", "bk", "bd"].map(|word| number(rest, word));
    let (bq, bk, d) = (bq?, bk?, d?);
    let heads = 2;
    let (queries, keys) = if aligned { (bq, 2 * bk) } else { (bq + 5, bk + 7) };
    let [q, k, v] = [(queries, 32), (keys, 33), (keys, 34)].map(|(rows, seed)| kind.numbers(heads * rows * d, seed));
    let expected = attended(&q, &k, &v, [queries, keys, d]);
    let given = [&q, &k, &v].map(|numbers| input(kind, numbers));
    full_call(rest, [heads, queries, keys], given, near(kind, expected, 16.0, 1.0))
}

/// The call of a kernel for heads, queries and keys.
pub fn full_call(rest: &str, [heads, queries, keys]: [usize; 3], [q, k, v]: [Arg; 3], check: Check) -> Option<Case> {
    let kind = Kind::named(rest.split('_').next()?)?;
    let [bq, bk, d, wm, wn] = ["bq", "bk", "bd", "wm", "wn"].map(|word| number(rest, word));
    let (bq, bk, d, wm, wn) = (bq?, bk?, d?, wm?, wn?);
    let mut parameters = Vec::new();
    for value in [1, heads, d, queries, keys, 1] {
        parameters.extend((value as u32).to_ne_bytes());
    }
    parameters.extend((1.0 / (d as f32).sqrt()).to_ne_bytes());
    parameters.extend(1.0_f32.to_ne_bytes());
    let (nq, nk) = (queries.div_ceil(bq), keys.div_ceil(bk));
    for value in [nq, nk, queries / bq, keys / bk, queries % bq, keys % bk, keys.wrapping_sub(queries)] {
        parameters.extend((value as u32).to_ne_bytes());
    }
    parameters.extend([0; 4]);
    for rows in [queries, keys, keys, queries] {
        for value in [heads * rows * d, rows * d, d] {
            parameters.extend((value as u64).to_ne_bytes());
        }
    }
    let out = output(kind, heads * queries * d);
    let args = vec![q, k, v, out, Arg::Bytes(parameters)];
    Some(groups([nq, heads, 1], [32, wm, wn], args, check))
}
