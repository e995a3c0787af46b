//! Kernels over rows: reductions, softmax, norms, rotary embedding, sorting, indexing.

use crate::case::{Arg, Case, exact, float, groups, input, ints, near, output, sizes, threads};
use crate::kind::Kind;

const ROWS: usize = 3;
const COLUMNS: usize = 100;
const COUNT: usize = ROWS * COLUMNS;
const WIDTH: usize = 64;

/// Rows of a matrix whose columns lie one after the other, or of one in order.
fn matrix(values: &[f64], is_strided: bool) -> Vec<Vec<f64>> {
    let at = |row: usize, column: usize| values[if is_strided { column * ROWS + row } else { row * COLUMNS + column }];
    (0..ROWS).map(|row| (0..COLUMNS).map(|column| at(row, column)).collect()).collect()
}

pub fn reduce(name: &str) -> Option<Case> {
    let (plain, is_strided) = name.strip_suffix("_strided").map_or((name, false), |name| (name, true));
    let (operation, kind) = plain.rsplit_once('_')?;
    let kind = Kind::named(kind)?;
    match operation {
        "softmax" | "rmsnorm" | "layernorm" => Some(normalised(operation, kind)),
        "rope_i" | "rope" | "rope_thd" => Some(rope(operation, kind)),
        _ => folded(operation.strip_prefix("fast_")?, kind, is_strided),
    }
}

fn folded(operation: &str, kind: Kind, is_strided: bool) -> Option<Case> {
    let mut values = kind.numbers(COUNT, 11);
    match (operation, kind) {
        ("sum", Kind::U8) => values.iter_mut().for_each(|x| *x = (*x / 8.0).floor()),
        ("mul", kind) if kind.is_float() => values.iter_mut().for_each(|x| *x = kind.round(1.0 + *x / 64.0)),
        ("mul", _) => values.iter_mut().enumerate().for_each(|(at, x)| *x = if at % 60 == 7 { 3.0 } else { 1.0 }),
        _ => {}
    }
    let first = |row: &[f64], best: f64| row.iter().position(|x| *x == best).unwrap_or(0) as f64;
    let (least, most) = (
        |row: &[f64]| row.iter().copied().fold(f64::MAX, f64::min),
        |row: &[f64]| row.iter().copied().fold(f64::MIN, f64::max),
    );
    let f = |row: &Vec<f64>| {
        Some(match operation {
            "sum" => row.iter().sum(),
            "mul" => row.iter().product(),
            "min" => least(row),
            "max" => most(row),
            "argmin" => first(row, least(row)),
            "argmax" => first(row, most(row)),
            _ => return None,
        })
    };
    let expected: Option<Vec<f64>> = matrix(&values, is_strided).iter().map(f).collect();
    let of = if operation.starts_with("arg") { Kind::U32 } else { kind };
    let mut args = vec![ints(&[COUNT]), ints(&[2]), ints(&[ROWS, COLUMNS])];
    if is_strided {
        args.push(ints(&[1, ROWS]));
    }
    args.extend([ints(&[COLUMNS]), input(kind, &values), output(of, ROWS)]);
    // 16-bit partial results are rounded at every step.
    Some(groups([ROWS, 1, 1], [WIDTH, 1, 1], args, near(of, expected?, 32.0, 1.0)))
}

fn normalised(operation: &str, kind: Kind) -> Case {
    let (values, alpha, beta) = (kind.numbers(COUNT, 12), kind.numbers(COLUMNS, 13), kind.numbers(COLUMNS, 14));
    let n = COLUMNS as f64;
    let mut args = vec![ints(&[COUNT]), ints(&[COLUMNS]), input(kind, &values), output(kind, COUNT)];
    let mut expected = Vec::new();
    for row in matrix(&values, false) {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        let mean = row.iter().sum::<f64>() / n;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
        let square = row.iter().map(|x| x * x).sum::<f64>() / n;
        expected.extend(row.iter().enumerate().map(|(at, x)| match operation {
            "softmax" => x.exp() / sum,
            "rmsnorm" => x / (square + 1e-5).sqrt() * alpha[at],
            _ => (x - mean) / (variance + 1e-5).sqrt() * alpha[at] + beta[at],
        }));
    }
    match operation {
        "softmax" => {}
        "rmsnorm" => args.extend([input(kind, &alpha), float(1e-5)]),
        _ => args.extend([input(kind, &alpha), input(kind, &beta), float(1e-5)]),
    }
    let scale = if operation == "softmax" { 0.02 } else { 2.0 };
    groups([ROWS, 1, 1], [WIDTH, 1, 1], args, near(kind, expected, 8.0, scale))
}

fn rope(operation: &str, kind: Kind) -> Case {
    let (b, t, h, d) = (2, 3, 2, 8);
    let count = b * t * h * d;
    let (values, cos, sin) = (kind.numbers(count, 15), kind.numbers(t * d / 2, 16), kind.numbers(t * d / 2, 17));
    let mut expected = vec![0.0; count];
    for at in 0..count / 2 {
        let (vector, pair) = (at / (d / 2), at % (d / 2));
        let position = if operation == "rope_thd" { vector / h % t } else { vector % t };
        let (x, y) =
            if operation == "rope_i" { (2 * at, 2 * at + 1) } else { (vector * d + pair, vector * d + pair + d / 2) };
        let (c, s) = (cos[position * d / 2 + pair], sin[position * d / 2 + pair]);
        expected[x] = values[x] * c - values[y] * s;
        expected[y] = values[x] * s + values[y] * c;
    }
    let shape: &[usize] = match operation {
        "rope_i" => &[b * h, t * d, 0],
        "rope" => &[b * h, t * d, d, 0],
        _ => &[b, t, h, d, 0],
    };
    let mut args: Vec<Arg> = shape.iter().map(|size| sizes(&[*size])).collect();
    args.extend([input(kind, &values), input(kind, &cos), input(kind, &sin), output(kind, count)]);
    threads(count / 2, args, near(kind, expected, 4.0, 4.0))
}

pub fn sort(name: &str) -> Option<Case> {
    let (order, kind) = name.strip_prefix("asort_")?.split_once('_')?;
    let kind = Kind::named(kind)?;
    let (columns, padded) = (50, 64);
    let values = if kind.is_float() {
        kind.numbers(ROWS * columns, 18)
    } else {
        // No two alike: the order of equal ones is left open.
        (0..ROWS * columns).map(|at| ((at % columns) * 37 % 101) as f64).collect()
    };
    let rows: Vec<Vec<f64>> = values.chunks(columns).map(<[f64]>::to_vec).collect();
    let ascending = order == "asc";
    let check = Box::new(move |outputs: &[Vec<f64>]| {
        for (row, indices) in rows.iter().zip(outputs[0].chunks(columns)) {
            let mut expected = row.clone();
            expected.sort_by(|a, b| if ascending { a.total_cmp(b) } else { b.total_cmp(a) });
            let mut seen: Vec<usize> = indices.iter().map(|index| *index as usize).collect();
            let got: Vec<f64> = seen.iter().map(|index| row.get(*index).copied().unwrap_or(f64::NAN)).collect();
            seen.sort_unstable();
            seen.dedup();
            if got != expected || seen.len() != columns {
                return Err(format!("{indices:?} does not sort {row:?}"));
            }
        }
        Ok(())
    });
    let args = vec![input(kind, &values), output(Kind::U32, ROWS * columns), sizes(&[columns]), sizes(&[padded])];
    Some(Case { memory: vec![padded * 4], ..groups([1, ROWS, 1], [padded, 1, 1], args, check) })
}

pub fn indexing(name: &str) -> Option<Case> {
    let mut words = name.split('_');
    let (operation, ids, kind) = (words.next()?, Kind::named(words.next()?)?, Kind::named(words.next()?)?);
    // Source, indices and destination: left x dimension x right.
    let (left, from, to, right) = (2, 4, 6, 3);
    let place = |l: usize, at: usize, r: usize, dimension: usize| (l * dimension + at) * right + r;
    let all = |dimension: usize| {
        (0..left).flat_map(move |l| (0..dimension).flat_map(move |at| (0..right).map(move |r| (l, at, r))))
    };
    let per_element = matches!(operation, "gather" | "s" | "sa");
    let picked = if per_element { left * to * right } else { to };
    let limit = if matches!(operation, "s" | "sa" | "ia") { to } else { from };
    // Each position of the source has a place of its own, so that nothing depends on an order.
    let which: Vec<usize> =
        (0..picked).map(|at| (if per_element { at / right * 5 + at % right } else { at * 5 }) % limit).collect();
    let numbers: Vec<f64> = which.iter().map(|index| *index as f64).collect();
    let head = |counts: [usize; 5]| counts.iter().map(|count| sizes(&[*count])).collect::<Vec<Arg>>();
    let (values, before) = (kind.numbers(left * from * right, 19), kind.numbers(left * to * right, 20));
    let (mut args, mut expected, count);
    match operation {
        "is" | "gather" => {
            count = left * to * right;
            args = head([count, left, from, right, to]);
            if operation == "is" {
                args.extend([Arg::Bytes(vec![1]), sizes(&[left, from, right]), sizes(&[from * right, right, 1])]);
            }
            let of = |l: usize, at: usize, r: usize| which[if per_element { place(l, at, r, to) } else { at }];
            expected = all(to).map(|(l, at, r)| values[place(l, of(l, at, r), r, from)]).collect();
            args.extend([input(kind, &values), input(ids, &numbers), output(kind, count)]);
        }
        "s" | "sa" | "ia" => {
            count = left * right;
            args = head([count, left, from, right, to]);
            if operation == "ia" {
                args.push(sizes(&[from]));
            }
            expected = before.clone();
            for (l, at, r) in all(from) {
                let index = which[if per_element { place(l, at, r, from) } else { at }];
                let value = values[place(l, at, r, from)];
                let slot = &mut expected[place(l, index, r, to)];
                *slot = if operation == "s" { value } else { kind.round(*slot + value) };
            }
            args.extend([input(kind, &values), input(ids, &numbers), Arg::Out(kind, before)]);
        }
        _ => return None,
    }
    Some(threads(count, args, exact(kind, expected)))
}

/// Random numbers have no reference: mean, deviation and bounds are looked at.
pub fn random(name: &str) -> Option<Case> {
    let (rest, kind) = name.strip_prefix("rand_")?.split_once('_')?;
    let (kind, uniform) = (Kind::named(kind)?, rest == "uniform");
    let (count, first, second) = (8192, 1.0, 3.0);
    let (mean, deviation) = if uniform { (2.0, 2.0 / 12.0_f64.sqrt()) } else { (first, second) };
    let check = Box::new(move |outputs: &[Vec<f64>]| {
        let (x, n) = (&outputs[0], count as f64);
        let found = x.iter().sum::<f64>() / n;
        let spread = (x.iter().map(|x| (x - found) * (x - found)).sum::<f64>() / n).sqrt();
        let outside = uniform && x.iter().any(|x| !(first..=second).contains(x));
        if outside || !((found - mean).abs() < 0.1 * deviation && (spread / deviation - 1.0).abs() < 0.1) {
            return Err(format!("mean {found} and deviation {spread}, not {mean} and {deviation}; outside: {outside}"));
        }
        Ok(())
    });
    let seed = input(Kind::U32, &[1234.0, 5678.0]);
    let args = vec![sizes(&[count]), float(first), float(second), seed, output(kind, count)];
    Some(threads(count / 2, args, check))
}

/// Sorts of one block: `carg_block_sort_float32_uint32_bn128_tn8`, of rows in order or (`nc`) of any layout.
pub fn block_sort(name: &str) -> Option<Case> {
    let in_order = || name.strip_prefix('c').map(|rest| (false, rest));
    let (strided, rest) = name.strip_prefix("nc").map(|rest| (true, rest)).or_else(in_order)?;
    let (indices, rest) = rest.split_once("block_sort_").map(|(before, rest)| (before.starts_with("arg"), rest))?;
    let mut words = rest.split('_');
    let kind = Kind::named(words.next()?)?;
    let width: usize = words.nth(1)?.strip_prefix("bn")?.parse().ok()?;
    let columns = 100;
    // No two of a row are alike.
    let values: Vec<f64> = (0..ROWS * columns).map(|at| (at / columns + at % columns * 37 % 101) as f64).collect();
    let mut expected = Vec::new();
    for row in values.chunks(columns) {
        let mut order: Vec<usize> = (0..columns).collect();
        order.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
        expected.extend(order.iter().map(|at| if indices { *at as f64 } else { row[*at] }));
    }
    let of = if indices { Kind::U32 } else { kind };
    let mut args = vec![input(kind, &values), output(of, ROWS * columns), ints(&[columns]), ints(&[1]), ints(&[1])];
    if strided {
        args.extend([ints(&[1]), ints(&[ROWS]), sizes(&[columns]), sizes(&[columns])]);
    } else {
        args.extend([ints(&[columns]), ints(&[columns])]);
    }
    Some(groups([1, ROWS, 1], [width, 1, 1], args, exact(of, expected)))
}
