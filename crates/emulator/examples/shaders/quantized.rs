//! Products with quantized weights, and rows of them.

use crate::blocks::{Weights, block_size, weights};
use crate::case::{Arg, Case, exact, groups, input, ints, output, sizes, within};
use crate::kind::Kind;
use half::f16;

pub fn quantized(name: &str, text: &str) -> Option<Case> {
    let rest = name.strip_prefix("kernel_")?;
    if let Some(format) = rest.strip_prefix("get_rows_") {
        return rows_of(format, text);
    }
    let with = |start: &str| rest.strip_prefix(start).and_then(|rest| rest.rsplit_once("_f32"));
    if let Some((format, "")) = with("mul_mm_id_") {
        return matrix_of_experts(format, text);
    }
    if let Some((format, "")) = with("mul_mv_id_") {
        return vectors_of_experts(format, text);
    }
    if let Some((format, "")) = with("mul_mm_") {
        return matrix(format, text);
    }
    vectors(rest.strip_prefix("mul_mv_")?, text)
}

/// Products of rows, with the sum of what was added up, which says how exact they can be.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let terms = || a.iter().zip(b).map(|(a, b)| a * b);
    (terms().sum(), terms().map(f64::abs).sum())
}

fn each(values: &[usize]) -> Vec<Arg> {
    values.iter().map(|value| sizes(&[*value])).collect()
}

fn rows_of(format: &str, text: &str) -> Option<Case> {
    let (rows, picked) = (7, [3_usize, 0, 6, 3, 5]);
    let (block, bytes) = block_size(format)?;
    let length = 3 * block;
    let mut weights = weights(format, rows * length, text)?;
    if format == "q8_0" {
        // Its product is one of a number and a whole number in half precision.
        weights = halved(format, weights);
    }
    let Weights { bytes: source, numbers } = weights;
    let expected: Vec<f64> = picked.iter().flat_map(|row| numbers[row * length..][..length].to_vec()).collect();
    let (of, count) = (if format == "i32" { Kind::I32 } else { Kind::F32 }, picked.len());
    let mut args =
        vec![Arg::Buffer(source), input(Kind::U32, &picked.map(|row| row as f64)), output(of, count * length)];
    args.extend(each(&[length, 3 * bytes, 0, count, 4, 0, 4 * length, 0]));
    let check = match format {
        "i32" | "f32" | "f16" | "bf16" => exact(of, expected),
        _ => within(expected.into_iter().map(|value| (value, value.abs() + 1.0)).collect(), 1e-6),
    };
    Some(groups([count, 1, 1], [128, 1, 1], args, check))
}

/// Weights as a kernel has them that keeps them in half precision.
fn halved(format: &str, mut weights: Weights) -> Weights {
    if format != "bf16" {
        weights.numbers.iter_mut().for_each(|weight| *weight = f16::from_f64(*weight).to_f64());
    }
    weights
}

/// A length that takes several steps of the loops over blocks.
fn short(format: &str) -> Option<usize> {
    Some(if block_size(format)?.0 == 256 { 256 } else { 96 })
}

fn matrix(format: &str, text: &str) -> Option<Case> {
    let (rows, columns, batch, length) = (68, 37, 2, short(format)?);
    let (block, bytes) = block_size(format)?;
    let Weights { bytes: source, numbers } = halved(format, weights(format, rows * length, text)?);
    let x = Kind::F32.numbers(batch * columns * length, 37);
    let expected = x.chunks(length).flat_map(|x| numbers.chunks(length).map(move |row| dot(row, x))).collect();
    let row = length / block * bytes;
    let mut args = vec![Arg::Buffer(source), input(Kind::F32, &x), output(Kind::F32, batch * columns * rows)];
    let of_x = [4, 4 * length, 4 * length * columns, 4 * length * columns * batch];
    args.extend(each(&[
        length,
        1,
        row,
        rows * row,
        rows * row,
        batch,
        of_x[0],
        of_x[1],
        of_x[2],
        of_x[3],
        rows,
        columns,
    ]));
    args.extend([ints(&[batch]), ints(&[1])]);
    let grid = [columns.div_ceil(32), rows.div_ceil(64), batch];
    Some(Case { memory: vec![8192], ..groups(grid, [128, 1, 1], args, within(expected, 2e-5)) })
}

const EXPERTS: usize = 3;
/// Experts that each token asks.
const ASKED: usize = 2;

/// Which experts each token asks, and what they make of it: of each answer its token and expert.
fn answers(tokens: usize) -> Vec<usize> {
    (0..tokens).flat_map(|token| [token % EXPERTS, (token + 1 + token / EXPERTS % 2) % EXPERTS]).collect()
}

fn expected_of_experts(weights: &Weights, x: &[f64], asked: &[usize], [rows, length]: [usize; 2]) -> Vec<(f64, f64)> {
    let answer = |(x, expert): (&[f64], &usize)| {
        let of_expert = &weights.numbers[expert * rows * length..][..rows * length];
        of_expert.chunks(length).map(|row| dot(row, x)).collect::<Vec<(f64, f64)>>()
    };
    x.chunks(length).zip(asked).flat_map(answer).collect()
}

fn matrix_of_experts(format: &str, text: &str) -> Option<Case> {
    let (rows, tokens, length) = (67, 52, short(format)?);
    let (block, bytes) = block_size(format)?;
    let weights = halved(format, weights(format, EXPERTS * rows * length, text)?);
    let (x, asked) = (Kind::F32.numbers(tokens * ASKED * length, 38), answers(tokens));
    let expected = expected_of_experts(&weights, &x, &asked, [rows, length]);
    let row = length / block * bytes;
    let ids: Vec<f64> = asked.iter().map(|expert| *expert as f64).collect();
    let out = output(Kind::F32, tokens * ASKED * rows);
    let mut args = vec![Arg::Buffer(weights.bytes), input(Kind::F32, &x), out, input(Kind::U32, &ids)];
    args.extend(each(&[ASKED, tokens, 4 * ASKED, length, EXPERTS, row, rows * row, ASKED, tokens, 1]));
    args.extend(each(&[4, 4 * length, 4 * length * ASKED, rows, ASKED, 4 * rows]));
    let grid = [tokens.div_ceil(32), rows.div_ceil(64), EXPERTS];
    let memory = vec![8192 + (tokens * ASKED * 4).next_multiple_of(16)];
    Some(Case { memory, ..groups(grid, [128, 1, 1], args, within(expected, 2e-5)) })
}

/// How a kernel that multiplies vectors is dispatched.
struct Vectors {
    /// Rows that a threadgroup computes, and its threads.
    rows_per_group: usize,
    threads: usize,
    /// Rows of the matrix; a multiple of the above where the kernel writes all of its rows.
    rows: usize,
    length: usize,
}

fn shape(format: &str) -> Option<Vectors> {
    let (rows_per_group, threads, rows) = match format {
        "f32" | "f16" => (1, 32, 13),
        "q4_0" | "q4_1" | "q5_0" | "q5_1" | "q8_0" => (8, 64, 13),
        "iq4_nl" => (4, 64, 13),
        "q3_K" | "q5_K" | "iq4_xs" => (4, 64, 16),
        "q4_K" => (4, 32, 16),
        "q6_K" => (2, 64, 16),
        _ => (8, 64, 16),
    };
    let length = if block_size(format)?.0 == 256 { 5 * 256 } else { 17 * 32 };
    Some(Vectors { rows_per_group, threads, rows, length })
}

/// `q4_0_f32`, `f16_f16`, `f16_f32_l4`.
fn vectors(name: &str, text: &str) -> Option<Case> {
    let (format, rest) = name.split_once("_f32").or_else(|| name.split_once("_f16"))?;
    let (kind, share) = if name == "f16_f16" { (Kind::F16, 1e-3) } else { (Kind::F32, 2e-5) };
    let (batch, count) = (2, 5);
    let Vectors { rows_per_group, threads, rows, length } = shape(format)?;
    let (block, bytes) = block_size(format)?;
    // Rows are read, though not written, up to the next multiple.
    let Weights { bytes: source, numbers } = weights(format, (batch * rows + 3) * length, text)?;
    let x = kind.numbers(batch * count * length, 39);
    let of_batch = |(at, x): (usize, &[f64])| {
        let weights = &numbers[at / count * rows * length..][..rows * length];
        weights.chunks(length).map(|row| dot(row, x)).collect::<Vec<(f64, f64)>>()
    };
    let expected = x.chunks(length).enumerate().flat_map(of_batch).collect();
    let (row, of_x) = (length / block * bytes, length * kind.size());
    let mut args = vec![Arg::Buffer(source), input(kind, &x), output(Kind::F32, batch * count * rows)];
    args.extend(each(&[length, rows, batch, bytes, row, rows * row, length, count, batch]));
    args.extend(each(&[kind.size(), of_x, count * of_x, rows, count]));
    args.extend([ints(&[1]), ints(&[1])]);
    let down = match rest {
        "_l4" => 1,
        "" if Kind::named(format).is_some() => count.div_ceil(4),
        _ => count,
    };
    let grid = [rows.div_ceil(rows_per_group), down, batch];
    Some(Case { memory: vec![8192], ..groups(grid, [threads, 1, 1], args, within(expected, share)) })
}

fn vectors_of_experts(format: &str, text: &str) -> Option<Case> {
    let tokens = 4;
    let Vectors { rows_per_group, threads, rows, length } = shape(format)?;
    let (block, bytes) = block_size(format)?;
    let weights = weights(format, (EXPERTS * rows + 3) * length, text)?;
    let (x, asked) = (Kind::F32.numbers(tokens * ASKED * length, 40), answers(tokens));
    let expected = expected_of_experts(&weights, &x, &asked, [rows, length]);
    let (row, of_x) = (length / block * bytes, 4 * length);
    let ids: Vec<f64> = asked.iter().map(|expert| *expert as f64).collect();
    let out = output(Kind::F32, tokens * ASKED * rows);
    let mut args = vec![Arg::Buffer(weights.bytes), input(Kind::F32, &x), out, input(Kind::U32, &ids)];
    args.extend(each(&[ASKED, tokens, 4 * ASKED, length, rows, EXPERTS, bytes, row, rows * row]));
    args.extend(each(&[length, ASKED, tokens, 1, 4, of_x, of_x * ASKED, rows, ASKED, 4 * rows]));
    let grid = [rows.div_ceil(rows_per_group), 1, tokens * ASKED];
    Some(Case { memory: vec![8192], ..groups(grid, [threads, 1, 1], args, within(expected, 2e-5)) })
}
