//! ggml's kernels over arrays of four dimensions: with elements one by one, and such that move them.

use crate::case::{Arg, Case, exact, float, groups, input, ints, near, output, sizes, threads};
use crate::kind::Kind;

/// Sizes of an array, the first the fastest.
pub type Dims = [usize; 4];

pub fn count(dims: Dims) -> usize {
    dims.iter().product()
}

/// How many bytes apart elements are in each direction, of an array without gaps.
pub fn strides([a, b, c, _]: Dims, size: usize) -> Dims {
    [size, a * size, a * b * size, a * b * c * size]
}

/// Every place of an array in the order of its elements.
pub fn places([a, b, c, d]: Dims) -> impl Iterator<Item = Dims> {
    (0..a * b * c * d).map(move |at| [at % a, at / a % b, at / (a * b) % c, at / (a * b * c)])
}

fn index([a, b, c, _]: Dims, [x, y, z, w]: Dims) -> usize {
    ((w * c + z) * b + y) * a + x
}

pub fn each(values: &[usize]) -> Vec<Arg> {
    values.iter().map(|value| sizes(&[*value])).collect()
}

/// Sizes and strides, as one argument each.
pub fn layout(dims: Dims, size: usize) -> Vec<Arg> {
    [each(&dims), each(&strides(dims, size))].into_iter().flatten().collect()
}

/// One threadgroup for each row.
pub fn per_row([_, b, c, d]: Dims, width: usize, args: Vec<Arg>, check: crate::case::Check) -> Case {
    groups([b, c, d], [width, 1, 1], args, check)
}

pub fn array(name: &str) -> Option<Case> {
    let name = name.strip_prefix("kernel_")?;
    if let Some(operation) = name.strip_suffix("_row") {
        return row_by_row(operation);
    }
    if let Some(kind) = name.strip_prefix("repeat_") {
        return Some(repeated(Kind::named(kind)?));
    }
    if let Some((from, to)) = name.strip_prefix("cpy_").and_then(|kinds| kinds.split_once('_')) {
        return Some(copied(Kind::named(from)?, Kind::named(to)?));
    }
    if let Some(kind) = name.strip_prefix("im2col_ext_") {
        return Some(patches(Kind::named(kind)?, true));
    }
    if let Some(kind) = name.strip_prefix("im2col_") {
        return Some(patches(Kind::named(kind)?, false));
    }
    match name {
        "add" | "sub" | "mul" | "div" => broadcast(name),
        "upscale_f32" => Some(upscaled()),
        "pad_f32" => Some(padded()),
        "concat" => Some(joined()),
        "diag_mask_inf" => Some(masked(false)),
        "diag_mask_inf_8" => Some(masked(true)),
        "arange_f32" => Some(arange()),
        "timestep_embedding_f32" => Some(timesteps()),
        "pool_2d_max_f32" => Some(pooled(true)),
        "pool_2d_avg_f32" => Some(pooled(false)),
        _ => one_by_one(name),
    }
}

fn two(operation: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match operation {
        "add" => |a, b| a + b,
        "sub" => |a, b| a - b,
        "mul" => |a, b| a * b,
        "div" => |a, b| a / b,
        _ => return None,
    })
}

fn broadcast(operation: &str) -> Option<Case> {
    let (f, dims, other) = (two(operation)?, [37, 3, 2, 2], [37, 1, 2, 1]);
    let (a, b) = (Kind::F32.numbers(count(dims), 51), Kind::F32.numbers(count(other), 52));
    let value = |(a, [x, _, z, _]): (&f64, Dims)| f(*a, b[index(other, [x, 0, z, 0])]);
    let expected: Vec<f64> = a.iter().zip(places(dims)).map(value).collect();
    let mut args = vec![input(Kind::F32, &a), input(Kind::F32, &b), output(Kind::F32, count(dims))];
    args.extend([dims, other, dims].into_iter().flat_map(|dims| layout(dims, 4)));
    args.push(sizes(&[0]));
    Some(per_row(dims, 32, args, near(Kind::F32, expected, 4.0, 4.0)))
}

/// A row with each row of a matrix, four elements at a time.
fn row_by_row(operation: &str) -> Option<Case> {
    let (f, rows, columns) = (two(operation)?, 5, 28);
    let (a, b) = (Kind::F32.numbers(rows * columns, 53), Kind::F32.numbers(columns, 54));
    let expected = a.iter().enumerate().map(|(at, a)| f(*a, b[at % columns])).collect();
    let mut args = vec![input(Kind::F32, &a), input(Kind::F32, &b), output(Kind::F32, rows * columns)];
    args.resize_with(28, || Arg::None);
    args.push(sizes(&[columns / 4]));
    Some(threads(rows * columns / 4, args, near(Kind::F32, expected, 4.0, 4.0)))
}

fn repeated(kind: Kind) -> Case {
    let (dims, out) = ([5, 3, 1, 2], [15, 6, 2, 2]);
    let values = kind.numbers(count(dims), 55);
    let from = |place: Dims| index(dims, std::array::from_fn(|at| place[at] % dims[at]));
    let expected = places(out).map(|place| values[from(place)]).collect();
    let mut args = vec![input(kind, &values), output(kind, count(out))];
    args.extend([dims, out].into_iter().flat_map(|dims| layout(dims, kind.size())));
    per_row(out, 8, args, exact(kind, expected))
}

/// From an array whose first two dimensions are exchanged in memory.
fn copied(from: Kind, to: Kind) -> Case {
    let (dims, turned) = ([7, 3, 2, 2], [3, 7, 2, 2]);
    let values = from.numbers(count(dims), 56);
    let expected = places(dims).map(|[x, y, z, w]| values[index(turned, [y, x, z, w])]).collect();
    let [x, y, z, w] = strides(turned, from.size());
    let mut args = vec![input(from, &values), output(to, count(dims))];
    args.extend(each(&dims).into_iter().chain(each(&[y, x, z, w])).chain(layout(dims, to.size())));
    per_row(dims, 4, args, exact(to, expected))
}

fn upscaled() -> Case {
    let (dims, out) = ([5, 3, 2, 1], [8, 7, 2, 2]);
    let values = Kind::F32.numbers(count(dims), 57);
    let from = |place: Dims| index(dims, std::array::from_fn(|at| place[at] * dims[at] / out[at]));
    let expected = places(out).map(|place| values[from(place)]).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, count(out))];
    args.extend([dims, out].into_iter().flat_map(|dims| layout(dims, 4)));
    args.extend((0..4).map(|at| float(out[at] as f64 / dims[at] as f64)));
    per_row(out, 4, args, exact(Kind::F32, expected))
}

fn padded() -> Case {
    let (dims, out) = ([5, 3, 2, 1], [8, 4, 3, 2]);
    let values = Kind::F32.numbers(count(dims), 58);
    let inside = |place: Dims| (0..4).all(|at| place[at] < dims[at]);
    let expected = places(out).map(|place| if inside(place) { values[index(dims, place)] } else { 0.0 }).collect();
    let mut args = vec![input(Kind::F32, &values), Arg::Out(Kind::F32, vec![7.0; count(out)])];
    args.extend([dims, out].into_iter().flat_map(|dims| layout(dims, 4)));
    per_row(out, 3, args, exact(Kind::F32, expected))
}

fn joined() -> Case {
    let (dims, other, out) = ([5, 3, 2, 2], [5, 4, 2, 2], [5, 7, 2, 2]);
    let (a, b) = (Kind::F32.numbers(count(dims), 59), Kind::F32.numbers(count(other), 60));
    let value = |[x, y, z, w]: Dims| {
        if y < dims[1] { a[index(dims, [x, y, z, w])] } else { b[index(other, [x, y - dims[1], z, w])] }
    };
    let expected = places(out).map(value).collect();
    let mut args = vec![input(Kind::F32, &a), input(Kind::F32, &b), output(Kind::F32, count(out))];
    args.extend([dims, other, out].into_iter().flat_map(|dims| layout(dims, 4)));
    args.push(ints(&[1]));
    per_row(out, 4, args, exact(Kind::F32, expected))
}

/// Minus infinity above a diagonal; by eights, eight elements of a row at a time.
fn masked(eights: bool) -> Case {
    let (dims, past) = ([16, 7, 2, 1], 3);
    let values = Kind::F32.numbers(count(dims), 61);
    let value = |([x, y, ..], value): (Dims, &f64)| if x > past + y { f64::NEG_INFINITY } else { *value };
    let expected = places(dims).zip(&values).map(value).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, count(dims))];
    args.extend([sizes(&[dims[0]]), sizes(&[dims[1]]), ints(&[past])]);
    let check = exact(Kind::F32, expected);
    if eights { threads(count(dims) / 8, args, check) } else { groups([16, 7, 2], [1, 1, 1], args, check) }
}

fn arange() -> Case {
    let (length, start, step) = (45, 1.5, 0.375);
    let expected = (0..length).map(|at| start + step * at as f64).collect();
    let args = vec![output(Kind::F32, length), sizes(&[length]), float(start), float(step)];
    groups([1, 1, 1], [32, 1, 1], args, exact(Kind::F32, expected))
}

/// Cosines and sines of times in falling frequencies, with a zero at the end of an odd row.
fn timesteps() -> Case {
    let (dim, row, period) = (9, 10, 1000.0_f64);
    let (times, side) = (Kind::F32.numbers(3, 62), dim / 2);
    let angle = |time: f64, at: usize| time * (-period.ln() * (at % side) as f64 / side as f64).exp();
    let value = |time: f64, at: usize| if at < side { angle(time, at).cos() } else { angle(time, at).sin() };
    let one = |time: &f64| {
        let time = *time;
        (0..row).map(move |at| if at < 2 * side { value(time, at) } else { 0.0 }).collect::<Vec<f64>>()
    };
    let expected = times.iter().flat_map(one).collect();
    let args =
        vec![input(Kind::F32, &times), output(Kind::F32, 3 * row), sizes(&[4 * row]), ints(&[dim]), ints(&[1000])];
    groups([3, 1, 1], [3, 1, 1], args, near(Kind::F32, expected, 8.0, 1.0))
}

fn pooled(most: bool) -> Case {
    let (planes, high, wide) = (3, 6, 7);
    let ([k0, k1], [s0, s1], [p0, p1]) = ([3, 2], [2, 1], [1, 0]);
    let (rows, columns) = ((high + 2 * p1 - k1) / s1 + 1, (wide + 2 * p0 - k0) / s0 + 1);
    let values = Kind::F32.numbers(planes * high * wide, 63);
    let value = |[x, y, plane, _]: Dims| {
        let inside = |at: usize, limit: usize, padding: usize| at.checked_sub(padding).filter(|at| *at < limit);
        let one = |at: usize| inside(y * s1 + at / k0, high, p1).zip(inside(x * s0 + at % k0, wide, p0));
        let window = (0..k0 * k1).filter_map(one).map(|(row, column)| values[(plane * high + row) * wide + column]);
        if most { window.fold(f64::MIN, f64::max) } else { window.sum::<f64>() / (k0 * k1) as f64 }
    };
    let expected: Vec<f64> = places([columns, rows, planes, 1]).map(value).collect();
    let total = expected.len();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, total)];
    args.extend([k0, k1, s0, s1, p0, p1].map(|value| ints(&[value])));
    args.extend(each(&[high, wide, rows, columns, total]));
    threads(total + 3, args, near(Kind::F32, expected, 4.0, 2.0))
}

/// Windows of images; the second kernel takes images in bundles of a threadgroup.
fn patches(kind: Kind, bundled: bool) -> Case {
    let (batch, channels, high, wide) = (3, 2, 6, 5);
    let ([kw, kh], [s0, s1], [p0, p1], [d0, d1]) = ([3, 2], [2, 1], [1, 2], [1, 2]);
    let side = |size: usize, k: usize, s: usize, p: usize, d: usize| (size + 2 * p - d * (k - 1) - 1) / s + 1;
    let (rows, columns) = (side(high, kh, s1, p1, d1), side(wide, kw, s0, p0, d0));
    let values = Kind::F32.numbers(batch * channels * high * wide, 64);
    let window = channels * kh * kw;
    let value = |[at, x, y, image]: Dims| {
        let (channel, down, right) = (at / (kh * kw), at / kw % kh, at % kw);
        let row = (y * s1 + down * d1).checked_sub(p1).filter(|row| *row < high);
        let column = (x * s0 + right * d0).checked_sub(p0).filter(|column| *column < wide);
        let from = |(row, column): (usize, usize)| values[((image * channels + channel) * high + row) * wide + column];
        row.zip(column).map_or(0.0, from)
    };
    let expected: Vec<f64> = places([window, columns, rows, batch]).map(value).collect();
    let mut args = vec![input(Kind::F32, &values), output(kind, expected.len())];
    args.extend([channels * high * wide, high * wide, wide, high, window].map(|value| ints(&[value])));
    args.extend([s0, s1, p0, p1, d0, d1].map(|value| ints(&[value])));
    if bundled {
        args.extend([batch, kh, kw].map(|value| ints(&[value])));
        let bundle = 2;
        let grid = [batch.div_ceil(bundle) * window, rows, columns];
        return groups(grid, [bundle, 1, 1], args, exact(kind, expected));
    }
    groups([channels, rows, columns], [batch, kh, kw], args, exact(kind, expected))
}

/// What a kernel does with each element, and the numbers that it is told.
fn function(name: &str) -> Option<(fn(f64) -> f64, &'static [f64])> {
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh());
    Some(match name {
        "scale" => (|x| 0.75 * x, &[0.75]),
        "clamp" => (|x| x.clamp(-0.5, 1.25), &[-0.5, 1.25]),
        "leaky_relu_f32" => (|x| if x > 0.0 { x } else { 0.125 * x }, &[0.125]),
        "relu" => (|x| x.max(0.0), &[]),
        "sigmoid" => (|x| 1.0 / (1.0 + (-x).exp()), &[]),
        "tanh" => (f64::tanh, &[]),
        "gelu" => (gelu, &[]),
        "gelu_quick" => (|x| x / (1.0 + (-1.702 * x).exp()), &[]),
        "silu" => (|x| x / (1.0 + (-x).exp()), &[]),
        "sqr" => (|x| x * x, &[]),
        "sqrt" => (f64::sqrt, &[]),
        "sin" => (f64::sin, &[]),
        "cos" => (f64::cos, &[]),
        _ => return None,
    })
}

fn one_by_one(name: &str) -> Option<Case> {
    let (plain, width) = name.strip_suffix("_4").map_or((name, 1), |plain| (plain, 4));
    let (f, told) = function(plain)?;
    let length = 148;
    let mut values = Kind::F32.numbers(length, 65);
    if plain == "sqrt" {
        values.iter_mut().for_each(|x| *x = x.abs());
    }
    let expected = values.iter().map(|x| f(*x)).collect();
    let mut args = vec![input(Kind::F32, &values), output(Kind::F32, length)];
    args.extend(told.iter().map(|value| float(*value)));
    Some(threads(length / width, args, near(Kind::F32, expected, 4.0, 1.0)))
}
