use super::single;
use crate::vector::{binary, unary};
use openmps_tile::{Binary, Scalar, Unary};

/// How far apart two numbers are, in units in the last place of the second.
fn units(got: f64, exact: f64) -> f64 {
    if got == exact || got.is_nan() && exact.is_nan() {
        return 0.0;
    }
    let size = exact.abs().max(f64::MIN_POSITIVE);
    let unit = f64::from_bits(size.to_bits() + 1) - size;
    (got - exact).abs() / unit
}

fn units_of_single(got: f32, exact: f64) -> f64 {
    let expected = exact as f32;
    if got == expected || got.is_nan() && expected.is_nan() {
        return 0.0;
    }
    let size = expected.abs().max(f32::MIN_POSITIVE);
    let unit = f32::from_bits(size.to_bits() + 1) - size;
    (f64::from(got) - exact).abs() / f64::from(unit)
}

/// Numbers of both signs over many orders of magnitude, dense about 1, with every special one.
fn samples(largest: f64) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut all = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for _ in 0..60_000 {
        all.push((next() - 0.5) * 4.0);
        all.push((next() - 0.5) * 2.0 * largest);
        all.push(10_f64.powf((next() - 0.5) * 600.0).min(largest) * if next() < 0.5 { -1.0 } else { 1.0 });
    }
    all
}

/// By the level's instance, as programs call it.
fn applied<T: Copy + Default>(operation: Unary, scalar: Scalar, x: &[T]) -> Vec<T> {
    let mut y = vec![T::default(); x.len()];
    let function = unary::unary(operation, scalar).unwrap();
    // SAFETY: as many elements on both sides, of the type that the function is of.
    unsafe { function(y.as_mut_ptr().cast(), x.as_ptr().cast(), x.len()) };
    y
}

#[test]
fn double_precision_is_within_a_few_units_of_the_library() {
    type Exact = fn(f64) -> f64;
    let cases: [(Unary, Exact, f64, f64); 9] = [
        (Unary::Exp, f64::exp, 800.0, 2.0),
        (Unary::Exp2, f64::exp2, 1100.0, 2.0),
        (Unary::Expm1, f64::exp_m1, 800.0, 2.0),
        (Unary::Log, f64::ln, 1e300, 2.0),
        (Unary::Log2, f64::log2, 1e300, 2.0),
        (Unary::Log1p, f64::ln_1p, 1e300, 2.0),
        (Unary::Sin, f64::sin, 1e6, 2.0),
        (Unary::Cos, f64::cos, 1e6, 2.0),
        (Unary::Tanh, f64::tanh, 30.0, 3.0),
    ];
    for (operation, exact, largest, bound) in cases {
        let x = samples(largest);
        for (x, y) in x.iter().zip(applied(operation, Scalar::F64, &x)) {
            let expected = exact(*x);
            assert!(units(y, expected) <= bound, "{operation:?} of {x:e}: {y:e}, not {expected:e}");
            assert!(y.is_nan() || y.is_sign_negative() == expected.is_sign_negative(), "{operation:?} of {x:e}");
        }
    }
}

#[test]
fn single_precision_through_double_is_rounded_right() {
    type Exact = fn(f64) -> f64;
    let cases: [(Unary, Exact, f64); 6] = [
        (Unary::Tan, f64::tan, 1e6),
        (Unary::Asin, f64::asin, 1.0),
        (Unary::Acos, f64::acos, 1.0),
        (Unary::Atan, f64::atan, 1e30),
        (Unary::Sinh, f64::sinh, 95.0),
        (Unary::Cosh, f64::cosh, 95.0),
    ];
    for (operation, exact, largest) in cases {
        let x: Vec<f32> = samples(largest).iter().map(|&x| x as f32).collect();
        for (x, y) in x.iter().zip(applied(operation, Scalar::F32, &x)) {
            let expected = exact(f64::from(*x));
            assert!(units_of_single(y, expected) <= 0.52, "{operation:?} of {x:e}: {y:e}, not {expected:e}");
            assert!(y.is_sign_negative() == expected.is_sign_negative() || y.is_nan(), "{operation:?} of {x:e}");
        }
    }
}

/// C's table of special cases, by what the library says of every pair of them.
#[test]
fn powers_and_angles_of_pairs_are_the_librarys() {
    let edges = [0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0, 1e10, 1e38, 3e-39, 16_777_217.0, f32::INFINITY];
    let mut numbers: Vec<f32> = edges.iter().flat_map(|&x| [x, -x]).chain([f32::NAN]).collect();
    numbers.extend(samples(40.0).iter().skip(13).take(3000).map(|&x| x as f32));
    for &x in &numbers {
        for &y in &numbers[..edges.len() * 2 + 1 + 150] {
            let (a, b) = (f64::from(x), f64::from(y));
            for (name, got, expected) in
                [("pow", single::pow(x, y), a.powf(b)), ("atan2", single::atan2(x, y), a.atan2(b))]
            {
                assert!(units_of_single(got, expected) <= 0.52, "{name} of {x:e} and {y:e}: {got:e}, not {expected:e}");
                assert!(
                    got.is_nan() || got.is_sign_negative() == expected.is_sign_negative(),
                    "{name} of {x:e} and {y:e}"
                );
            }
        }
    }
    // The level's own instance, on more than a chunk.
    let (x, y): (Vec<f32>, Vec<f32>) =
        (numbers.iter().map(|x| x.abs()).collect(), numbers.iter().rev().copied().collect());
    let mut powers = vec![0_f32; x.len()];
    let function = binary::binary(Binary::Power, Scalar::F32).unwrap();
    // SAFETY: as many elements at each address.
    unsafe { function(powers.as_mut_ptr().cast(), x.as_ptr().cast(), false, y.as_ptr().cast(), false, x.len()) };
    for (power, (x, y)) in powers.iter().zip(x.iter().zip(&y)) {
        assert!(units_of_single(*power, f64::from(*x).powf(f64::from(*y))) <= 0.52, "{x:e} to {y:e}");
    }
}
