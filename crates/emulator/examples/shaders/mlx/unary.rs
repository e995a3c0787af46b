//! Functions of one element, in five forms each.

use super::types::{self, BOOL, COMPLEX, Complex, FLOATS, Type, WHOLE};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, Check, input, ints, near, output, sizes};
use crate::elementwise::erf;
use openmps_emulator::Grid;

pub const DIMS: [usize; 3] = [2, 7, 11];
pub const COUNT: usize = 154;

/// What numbers a function is given.
#[derive(Clone, Copy)]
enum Domain {
    All,
    /// Between -1 and 1.
    One,
    /// Above zero.
    Positive,
    /// From one on.
    FromOne,
}

type Real = fn(f64) -> f64;

const NUMBERS: [(&str, Domain, Real); 24] = [
    ("ArcCos", Domain::One, f64::acos),
    ("ArcCosh", Domain::FromOne, f64::acosh),
    ("ArcSin", Domain::One, f64::asin),
    ("ArcSinh", Domain::All, f64::asinh),
    ("ArcTan", Domain::All, f64::atan),
    ("ArcTanh", Domain::One, f64::atanh),
    ("Cos", Domain::All, f64::cos),
    ("Cosh", Domain::All, f64::cosh),
    ("Exp", Domain::All, f64::exp),
    ("Expm1", Domain::All, f64::exp_m1),
    ("Log", Domain::Positive, f64::ln),
    ("Log2", Domain::Positive, f64::log2),
    ("Log10", Domain::Positive, f64::log10),
    ("Log1p", Domain::Positive, f64::ln_1p),
    ("Sigmoid", Domain::All, |x| 1.0 / (1.0 + (-x).exp())),
    ("Erf", Domain::All, erf),
    ("ErfInv", Domain::One, erf_inverse),
    ("Sin", Domain::All, f64::sin),
    ("Sinh", Domain::All, f64::sinh),
    ("Sqrt", Domain::Positive, f64::sqrt),
    ("Rsqrt", Domain::Positive, |x| 1.0 / x.sqrt()),
    ("Tan", Domain::One, f64::tan),
    ("Tanh", Domain::All, f64::tanh),
    ("Round", Domain::All, f64::round_ties_even),
];

/// Functions of every type; of bool the results are as the language converts them.
const EVERY: [(&str, Real); 6] = [
    ("Abs", f64::abs),
    ("Ceil", f64::ceil),
    ("Floor", f64::floor),
    ("Negative", |x| -x),
    ("Sign", |x| if x == 0.0 { 0.0 } else { x.signum() }),
    ("Square", |x| x * x),
];

const COMPLEXES: [(&str, fn(Complex) -> Complex); 22] = [
    ("Abs", |a| [a[0].hypot(a[1]), 0.0]),
    ("ArcCos", arc_cos),
    ("ArcSin", arc_sin),
    ("ArcTan", arc_tan),
    ("Conjugate", |a| [a[0], -a[1]]),
    ("Cos", |a| [a[0].cos() * a[1].cosh(), -a[0].sin() * a[1].sinh()]),
    ("Cosh", |a| [a[0].cosh() * a[1].cos(), a[0].sinh() * a[1].sin()]),
    ("Exp", types::exp),
    ("Log", types::ln),
    ("Log1p", |a| types::ln([a[0] + 1.0, a[1]])),
    ("Log2", |a| types::ln(a).map(|x| x / std::f64::consts::LN_2)),
    ("Log10", |a| types::ln(a).map(|x| x / std::f64::consts::LN_10)),
    ("Negative", |a| [-a[0], -a[1]]),
    ("Sign", |a| a.map(|x| x / a[0].hypot(a[1]))),
    ("Sin", sine),
    ("Sinh", |a| [a[0].sinh() * a[1].cos(), a[0].cosh() * a[1].sin()]),
    ("Square", |a| types::mul(a, a)),
    ("Sqrt", types::sqrt),
    ("Rsqrt", |a| types::div([1.0, 0.0], types::sqrt(a))),
    ("Tan", |a| types::div(sine(a), [a[0].cos() * a[1].cosh(), -a[0].sin() * a[1].sinh()])),
    ("Tanh", |a| {
        types::div(
            [a[0].sinh() * a[1].cos(), a[0].cosh() * a[1].sin()],
            [a[0].cosh() * a[1].cos(), a[0].sinh() * a[1].sin()],
        )
    }),
    ("Round", |a| a.map(f64::round_ties_even)),
];

fn sine(a: Complex) -> Complex {
    [a[0].sin() * a[1].cosh(), a[0].cos() * a[1].sinh()]
}

fn root_of_rest(a: Complex) -> Complex {
    types::sqrt(types::sub([1.0, 0.0], types::mul(a, a)))
}

fn arc_cos(a: Complex) -> Complex {
    let y = types::ln(types::add(a, types::mul([0.0, 1.0], root_of_rest(a))));
    [y[1], -y[0]]
}

fn arc_sin(a: Complex) -> Complex {
    let y = types::ln(types::add(types::mul([0.0, 1.0], a), root_of_rest(a)));
    [y[1], -y[0]]
}

fn arc_tan(a: Complex) -> Complex {
    let turned = types::mul([0.0, 1.0], a);
    let y = types::ln(types::div(types::add([1.0, 0.0], turned), types::sub([1.0, 0.0], turned)));
    types::mul([0.0, -0.5], y)
}

/// By Newton's steps.
fn erf_inverse(y: f64) -> f64 {
    let step = |x: f64, _| x - (erf(x) - y) / (std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp());
    (0..60).fold(0.0, step)
}

/// The eight bits with four of exponent and three of mantissa, without infinities.
fn of_byte(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
    let size = if exponent == 0 { mantissa * 2.0_f64.powi(-6) } else { (1.0 + mantissa) * 2.0_f64.powi(exponent - 7) };
    if byte & 128 == 0 { size } else { -size }
}

/// The nearest of these; the even one of two.
fn to_byte(x: f64) -> f64 {
    let distance = |byte: &u8| ((of_byte(*byte) - x.abs()).abs(), byte & 1);
    let nearest = (0..127_u8).min_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap_or(std::cmp::Ordering::Equal));
    f64::from(nearest.unwrap_or(0)) + if x < 0.0 { 128.0 } else { 0.0 }
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (op, domain, f) in NUMBERS {
        for of in FLOATS {
            forms(&mut list, op, of, of, move || (given(of, domain), Box::new(move |x| vec![f(x[0])])));
        }
    }
    for (op, f) in EVERY {
        for of in FLOATS.into_iter().chain(WHOLE).chain([BOOL]) {
            forms(&mut list, op, of, of, move || (of.numbers(COUNT, 70), Box::new(move |x| vec![f(x[0])])));
        }
    }
    for of in WHOLE {
        forms(&mut list, "BitwiseInvert", of, of, move || (of.numbers(COUNT, 71), Box::new(|x| vec![-x[0] - 1.0])));
    }
    forms(&mut list, "LogicalNot", BOOL, BOOL, || (BOOL.numbers(COUNT, 72), Box::new(|x| vec![1.0 - x[0]])));
    for (op, f) in COMPLEXES {
        let values = move || (complexes(), Box::new(move |x: &[f64]| f([x[0], x[1]]).to_vec()) as Function);
        forms(&mut list, op, COMPLEX, COMPLEX, values);
    }
    for (op, lane) in [("Real", 0), ("Imag", 1)] {
        forms(&mut list, op, COMPLEX, FLOATS[1], move || {
            (COMPLEX.numbers(COUNT, 74), Box::new(move |x| vec![x[lane]]))
        });
    }
    for of in FLOATS {
        let bytes = || (0..COUNT).map(|at| if at < 127 { at as f64 } else { at as f64 + 1.0 }).collect();
        forms(&mut list, "ToFP8", of, WHOLE[0], move || (of.numbers(COUNT, 75), Box::new(|x| vec![to_byte(x[0])])));
        forms(&mut list, "FromFP8", WHOLE[0], of, move || (bytes(), Box::new(|x| vec![of_byte(x[0] as u8)])));
    }
    list
}

/// Not near the real axis, where float leaves little of differences under a root.
fn complexes() -> Vec<f64> {
    let far = |(at, x): (usize, f64)| if at % 2 == 1 { x + 0.5_f64.copysign(x) } else { x };
    COMPLEX.numbers(COUNT, 73).into_iter().enumerate().map(far).collect()
}

fn given(of: Type, domain: Domain) -> Vec<f64> {
    let place = |x: f64| match domain {
        Domain::All => x,
        Domain::One => x / 2.125,
        Domain::Positive => x.abs() + 0.25,
        Domain::FromOne => x.abs() + 1.0,
    };
    of.numbers(COUNT, 69).into_iter().map(|x| of.kind.round(place(x))).collect()
}

type Function = Box<dyn Fn(&[f64]) -> Vec<f64>>;

/// The kernels of a function: `v` and `v2` in order, `gn` by strides; `vn` only where a thread takes several elements.
fn forms(
    list: &mut Vec<Kernel>,
    op: &'static str,
    from: Type,
    to: Type,
    work: impl Fn() -> (Vec<f64>, Function) + Copy + Send + Sync + 'static,
) {
    let names = format!("{op}{}{}", from.name, to.name);
    let types = format!("{}, {}, {op}", from.text, to.text);
    let per_thread = from.per_thread();
    let in_order = move |each: usize, two: bool| {
        let (values, f) = work();
        let expected = values.chunks(from.lanes).flat_map(&f).collect();
        let mut args = vec![input(from.kind, &values), output(to.kind, COUNT * to.lanes)];
        args.push(if two { sizes(&[COUNT]) } else { ints(&[COUNT]) });
        Case {
            grid: Grid::Threads(line(each, two)),
            group: [16, 1, 1],
            args,
            memory: Vec::new(),
            check: check(op, to, expected),
        }
    };
    let strided = move |each: usize| {
        let (values, f) = work();
        let expected = places().flat_map(|at| f(&values[at * from.lanes..][..from.lanes])).collect();
        let mut args = vec![input(from.kind, &values), output(to.kind, COUNT * to.lanes)];
        args.extend([ints(&DIMS), sizes(&strides()), Arg::Buffer(3_u32.to_ne_bytes().to_vec())]);
        Case {
            grid: Grid::Threads(rows(each)),
            group: [4, 4, 2],
            args,
            memory: Vec::new(),
            check: check(op, to, expected),
        }
    };
    list.push(kernel(format!("v_{names}"), format!("unary_v<{types}, 1>"), move || in_order(1, false)));
    list.push(kernel(format!("v2_{names}"), format!("unary_v2<{types}>"), move || in_order(per_thread, true)));
    list.push(kernel(format!("gn1_{names}"), format!("unary_g<{types}, 1, int>"), move || strided(1)));
    list.push(kernel(format!("gn4large_{names}"), format!("unary_g<{types}, 4>"), move || strided(4)));
    if per_thread > 1 {
        list.push(kernel(format!("vn_{names}"), format!("unary_v<{types}>"), move || in_order(per_thread, false)));
    }
}

fn check(op: &str, of: Type, expected: Vec<f64>) -> Check {
    let roundings = match op {
        _ if !of.kind.is_float() => 0.0,
        // It takes multiples of a logarithm of two away that has 19 bits.
        "Expm1" => 64.0,
        // It is the logarithm of a difference of nearly equal numbers.
        "ArcSin" if of.is_complex() => 256.0,
        _ => 12.0,
    };
    near(of.kind, expected, roundings, 1.0)
}

/// The threads that take all elements in order, several each, in one row or two.
pub fn line(each: usize, two: bool) -> [u32; 3] {
    let threads = COUNT.div_ceil(each);
    if two { [threads.div_ceil(2) as u32, 2, 1] } else { [threads as u32, 1, 1] }
}

/// The threads of rows, several elements of the last dimension each.
pub fn rows(each: usize) -> [u32; 3] {
    [DIMS[2].div_ceil(each) as u32, DIMS[1] as u32, DIMS[0] as u32]
}

/// Of an array whose dimensions lie the other way round.
pub fn strides() -> [usize; 3] {
    [1, DIMS[0], DIMS[0] * DIMS[1]]
}

/// The place of each element by these strides.
pub fn places() -> impl Iterator<Item = usize> {
    let [a, b, c] = strides();
    (0..COUNT).map(move |at| at / (DIMS[1] * DIMS[2]) * a + at / DIMS[2] % DIMS[1] * b + at % DIMS[2] * c)
}
