//! Kernels that compute element by element: unary, binary, affine, cast, ternary, fill.

use crate::case::{Arg, Case, exact, float, input, near, output, sizes, threads};
use crate::kind::Kind;

/// A matrix whose columns lie one after the other, as dimensions, strides and the place of each element.
const DIMS: [usize; 2] = [7, 11];
const STRIDES: [usize; 2] = [1, 7];
const COUNT: usize = DIMS[0] * DIMS[1];

fn place(index: usize) -> usize {
    index / DIMS[1] * STRIDES[0] + index % DIMS[1] * STRIDES[1]
}

fn strided(values: &[f64], is_strided: bool) -> Vec<f64> {
    (0..COUNT).map(|index| values[if is_strided { place(index) } else { index }]).collect()
}

/// Number of elements, and the layout where there is one.
fn layout(is_strided: bool) -> Vec<Arg> {
    let mut args = vec![sizes(&[COUNT])];
    if is_strided {
        args.extend([sizes(&[2]), sizes(&DIMS), sizes(&STRIDES)]);
    }
    args
}

/// `name`, `name_strided`.
fn split(name: &str) -> (&str, bool) {
    name.strip_suffix("_strided").map_or((name, false), |name| (name, true))
}

/// Abramowitz and Stegun 7.1.5, exact enough for float64 at these arguments.
pub fn erf(x: f64) -> f64 {
    let term = |n: i32, last: f64| -last * x * x / f64::from(n);
    let (mut power, mut sum) = (x, x);
    for n in 1..60 {
        power = term(n, power);
        sum += power / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn tanh_gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
}

fn function(name: &str) -> Option<fn(f64) -> f64> {
    Some(match name {
        "gelu_erf" => |x| x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0,
        "sqrt" => f64::sqrt,
        "sqr" => |x| x * x,
        "neg" => |x| -x,
        "recip" => |x| 1.0 / x,
        "copy" => |x| x,
        "silu" => |x| x / (1.0 + (-x).exp()),
        "gelu" => tanh_gelu,
        "relu" => |x| x.max(0.0),
        "cos" => f64::cos,
        "sin" => f64::sin,
        "exp" => f64::exp,
        "log" => f64::ln,
        "abs" => f64::abs,
        "ceil" => f64::ceil,
        "floor" => f64::floor,
        "round" => f64::round,
        "erf" => erf,
        "sign" => |x| if x == 0.0 { 0.0 } else { x.signum() },
        "sigmoid" => |x| 1.0 / (1.0 + (-x).exp()),
        "tanh" => f64::tanh,
        _ => return None,
    })
}

pub fn unary(name: &str) -> Option<Case> {
    let (plain, is_strided) = split(name);
    let (operation, kind) = plain.rsplit_once('_')?;
    let kind = Kind::named(kind)?;
    match operation {
        "copy2d" => return Some(copy2d(kind)),
        "const_set" => return Some(const_set(kind, is_strided)),
        _ => {}
    }
    let f = function(operation)?;
    let mut values = kind.numbers(COUNT, 1);
    if matches!(operation, "sqrt" | "log" | "recip") {
        values.iter_mut().for_each(|x| *x = kind.round(x.abs() + 0.25));
    }
    let expected = strided(&values, is_strided).into_iter().map(f).collect();
    let mut args = layout(is_strided);
    args.extend([input(kind, &values), output(kind, COUNT)]);
    Some(threads(COUNT, args, near(kind, expected, 8.0, 1.0)))
}

fn copy2d(kind: Kind) -> Case {
    let (rows, columns, from, to) = (5, 9, 12, 10);
    let values = kind.numbers(rows * from, 2);
    let mut expected = vec![0.0; rows * to];
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        expected[row * to + column] = values[row * from + column];
    }
    let mut args: Vec<Arg> = [rows, columns, from, to].iter().map(|size| sizes(&[*size])).collect();
    args.extend([input(kind, &values), output(kind, rows * to)]);
    let grid = openmps_emulator::Grid::Threads([rows as u32, columns as u32, 1]);
    Case { grid, group: [8, 8, 1], ..threads(1, args, exact(kind, expected)) }
}

fn const_set(kind: Kind, is_strided: bool) -> Case {
    let mut args = layout(is_strided);
    args.extend([input(kind, &[7.0]), output(kind, COUNT)]);
    threads(COUNT, args, exact(kind, vec![7.0; COUNT]))
}

fn operation(name: &str, kind: Kind) -> Option<(fn(f64, f64) -> f64, bool)> {
    let whole = !kind.is_float();
    Some(match name {
        "badd" => (|a, b| a + b, false),
        "bsub" => (|a, b| a - b, false),
        "bmul" => (|a, b| a * b, false),
        "bdiv" if whole => (|a, b| (a / b).floor(), false),
        "bdiv" => (|a, b| a / b, false),
        "bminimum" => (f64::min, false),
        "bmaximum" => (f64::max, false),
        "eq" => (|a, b| f64::from(a == b), true),
        "ne" => (|a, b| f64::from(a != b), true),
        "le" => (|a, b| f64::from(a <= b), true),
        "lt" => (|a, b| f64::from(a < b), true),
        "ge" => (|a, b| f64::from(a >= b), true),
        "gt" => (|a, b| f64::from(a > b), true),
        _ => return None,
    })
}

/// How an operand is read: in order, by its strides, or its first element always.
#[derive(Clone, Copy)]
enum Read {
    Order,
    Strides,
    First,
}

pub fn binary(name: &str) -> Option<Case> {
    use Read::{First, Order, Strides};
    let mut words = name.split('_');
    let (operator, kind) = (words.next()?, Kind::named(words.next()?)?);
    let reads = match words.next() {
        None => None,
        Some("strided") => Some([Strides, Strides]),
        Some("lstrided") => Some([Strides, Order]),
        Some("rstrided") => Some([Order, Strides]),
        Some("scalar") => Some([First, First]),
        Some("cs") => Some([Order, First]),
        Some("sc") => Some([First, Order]),
        Some("rss") => Some([First, Strides]),
        Some("lss") => Some([Strides, First]),
        _ => return None,
    };
    let (f, is_test) = operation(operator, kind)?;
    let (mut left, right) = (kind.numbers(COUNT, 3), kind.numbers(COUNT, 4));
    if !kind.is_float() && operator == "bsub" {
        left.iter_mut().for_each(|x| *x += 15.0);
    } else {
        left[10] = right[10];
    }
    let at = |values: &[f64], read: Read, index: usize| match read {
        Order => values[index],
        Strides => values[place(index)],
        First => values[0],
    };
    let [l, r] = reads.unwrap_or([Order, Order]);
    let expected = (0..COUNT).map(|index| f(at(&left, l, index), at(&right, r, index))).collect();
    let of = if is_test { Kind::U8 } else { kind };
    let mut args = vec![sizes(&[COUNT])];
    if reads.is_some() {
        args.extend([sizes(&[2]), sizes(&DIMS), sizes(&STRIDES), sizes(&STRIDES)]);
    }
    args.extend([input(kind, &left), input(kind, &right), output(of, COUNT)]);
    Some(threads(COUNT, args, near(of, expected, 1.0, 0.0)))
}

pub fn affine(name: &str) -> Option<Case> {
    let (plain, is_strided) = split(name);
    let (operator, kind) = plain.split_once('_')?;
    let kind = Kind::named(kind)?;
    let mut values = kind.numbers(COUNT, 5);
    let (numbers, f): (&[f64], fn(f64) -> f64) = match operator {
        "affine" => (&[2.0, 3.0], |x| x * 2.0 + 3.0),
        "powf" => (&[1.5], |x| x.powf(1.5)),
        "elu" => (&[0.5], |x| if x > 0.0 { x } else { 0.5 * (x.exp() - 1.0) }),
        _ => return None,
    };
    if operator == "powf" {
        values.iter_mut().for_each(|x| *x = x.abs());
    }
    let mut args = layout(is_strided);
    args.extend(numbers.iter().map(|number| float(*number)));
    args.extend([input(kind, &values), output(kind, COUNT)]);
    let expected = strided(&values, is_strided).into_iter().map(f).collect();
    Some(threads(COUNT, args, near(kind, expected, 4.0, 1.0)))
}

pub fn cast(name: &str) -> Option<Case> {
    let (plain, is_strided) = split(name);
    let mut words = plain.split('_').skip(1);
    let (from, to) = (Kind::named(words.next()?)?, Kind::named(words.next()?)?);
    let values: Vec<f64> = (0..COUNT).map(|x| from.round(x as f64 * 1.37 + 0.3)).collect();
    let mut args = layout(is_strided);
    args.extend([input(from, &values), output(to, COUNT)]);
    Some(threads(COUNT, args, exact(to, strided(&values, is_strided))))
}

pub fn ternary(name: &str, contiguous: bool) -> Option<Case> {
    let mut words = name.split('_').skip(1);
    let (ids, kind) = (Kind::named(words.next()?)?, Kind::named(words.next()?)?);
    let which: Vec<f64> = (0..COUNT).map(|x| f64::from(x % 3 == 0)).collect();
    let (yes, no) = (kind.numbers(COUNT, 6), kind.numbers(COUNT, 7));
    let mut args = vec![sizes(&[COUNT]), sizes(&[2]), sizes(&DIMS)];
    args.extend((0..3).map(|_| sizes(&STRIDES)));
    args.extend([input(ids, &which), input(kind, &yes), input(kind, &no), output(kind, COUNT)]);
    let pick = |at: usize| if which[at] != 0.0 { yes[at] } else { no[at] };
    let expected = (0..COUNT).map(|index| pick(if contiguous { index } else { place(index) })).collect();
    Some(threads(COUNT, args, exact(kind, expected)))
}

pub fn fill(name: &str) -> Option<Case> {
    let kind = Kind::named(name.strip_prefix("fill_")?)?;
    let value = Arg::Bytes(kind.encode(&[5.0]));
    Some(threads(COUNT + 9, vec![output(kind, COUNT), value, sizes(&[COUNT])], exact(kind, vec![5.0; COUNT])))
}
