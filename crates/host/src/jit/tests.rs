//! Compiled loops against the same operations on single numbers, at each level that the CPU has.

use super::*;
use crate::Level;
use crate::vector::math;
use openmps_tile::{Combine, Compare};

const COUNTS: [usize; 12] = [0, 1, 7, 8, 15, 16, 17, 31, 64, 65, 127, 200];

fn levels() -> impl Iterator<Item = Level> {
    [Level::Avx2, Level::Avx512].into_iter().filter(|&level| level <= crate::level())
}

/// Numbers, both zeros, infinities and NaN among them.
fn numbers(seed: f32) -> Vec<f32> {
    let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, -1.0, 200.0, -200.0, 1e-40];
    let number = |i: usize| match i % 5 {
        0 => special[(i as f32 * seed) as usize % special.len()],
        _ => (i as f32 * seed).sin() * 4.0,
    };
    (0..200).map(number).collect()
}

/// Whether a loop of two rows and a number does to each element what the function does.
fn check(name: &str, build: impl Fn(&mut Body, [Value; 3]) -> Value, of: impl Fn(f32, f32, f32) -> f32) {
    let (x, y, mut slots) = (numbers(0.3), numbers(0.7), [0_u64, 0xffff_ffff_0000_0000 | u64::from(1.5_f32.to_bits())]);
    for level in levels() {
        let mut body = Body::new(level);
        let rows = [Element::Single; 3].map(|element| body.row(element));
        let operands = [body.load(rows[0]), body.load(rows[1]), body.slot(1)];
        let result = build(&mut body, operands);
        body.store(rows[2], result, Place::Memory);
        let compiled = Compiled::new(&body).expect("compiled");
        for count in COUNTS {
            let mut out = vec![7.5_f32; 201];
            let places = [x.as_ptr().cast_mut().cast(), y.as_ptr().cast_mut().cast(), out.as_mut_ptr().cast()];
            // SAFETY: the CPU has the level, and each row at least so many elements.
            unsafe { compiled.run(&places, slots.as_mut_ptr(), count, false) };
            for (i, &found) in out.iter().enumerate() {
                let expected = if i < count { of(x[i], y[i], 1.5) } else { 7.5 };
                let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(
                    is_same,
                    "{name} of {} and {}: {found}, not {expected} ({level:?}, {count})",
                    x[i % 200],
                    y[i % 200]
                );
            }
        }
    }
}

#[test]
fn each_operation_is_done_to_every_element() {
    check("sum", |b, [x, y, _]| b.two(Two::Add, x, y), |x, y, _| x + y);
    check("difference", |b, [x, _, z]| b.two(Two::Subtract, z, x), |x, _, z| z - x);
    check("product", |b, [x, y, _]| b.two(Two::Multiply, x, y), |x, y, _| x * y);
    check("quotient", |b, [x, y, _]| b.two(Two::Divide, x, y), |x, y, _| x / y);
    check("lower", |b, [x, y, _]| b.two(Two::Lower, x, y), |x, y, _| if x < y { x } else { y });
    check("upper", |b, [x, y, _]| b.two(Two::Upper, x, y), |x, y, _| if x > y { x } else { y });
    check("root", |b, [x, ..]| b.sqrt(x), |x, _, _| x.sqrt());
    check("negated", |b, [x, ..]| b.negate(x), |x, _, _| -x);
    check("absolute", |b, [x, ..]| b.absolute(x), |x, _, _| x.abs());
    check("exponential", |b, [x, ..]| b.exp(x), |x, _, _| math::exp(x));
    check("power of two", |b, [x, ..]| b.exp2(x), |x, _, _| math::exp2(x));
    let comparisons: [(Compare, fn(&f32, &f32) -> bool); 6] = [
        (Compare::Less, f32::lt),
        (Compare::LessEqual, f32::le),
        (Compare::Greater, f32::gt),
        (Compare::GreaterEqual, f32::ge),
        (Compare::Equal, f32::eq),
        (Compare::NotEqual, f32::ne),
    ];
    for (comparison, holds) in comparisons {
        let build = |b: &mut Body, [x, y, z]: [Value; 3]| {
            let truth = b.compare(comparison, x, y).expect("a comparison of numbers");
            b.choose(truth, x, z)
        };
        check(&format!("{comparison:?}"), build, |x, y, z| if holds(&x, &y) { x } else { z });
    }
}

#[test]
fn a_product_and_a_sum_are_rounded_once_whatever_is_read_again() {
    check("x y + z", |b, [x, y, z]| b.multiply_add(x, y, z), |x, y, z| x.mul_add(y, z));
    check("z x + y", |b, [x, y, z]| b.multiply_add(z, x, y), |x, y, z| z.mul_add(x, y));
    check("x x + x", |b, [x, ..]| b.multiply_add(x, x, x), |x, _, _| x.mul_add(x, x));
    let twice = |b: &mut Body, [x, y, z]: [Value; 3]| {
        let first = b.multiply_add(x, y, y);
        let second = b.multiply_add(first, x, first);
        let third = b.multiply_add(z, z, y);
        let sum = b.two(Two::Add, second, third);
        b.two(Two::Multiply, sum, x)
    };
    check("read again", twice, |x, y, z| {
        let first = x.mul_add(y, y);
        (first.mul_add(x, first) + z.mul_add(z, y)) * x
    });
}

#[test]
fn more_values_than_registers_are_refused_and_more_constants_are_read_each_time() {
    let many = |b: &mut Body, [x, y, _]: [Value; 3]| {
        (0..60).fold(x, |sum, i| {
            let (factor, addend) = (b.number(i as f32 * 0.125), b.number(100.0 - i as f32));
            let product = b.multiply_add(sum, factor, addend);
            b.two(Two::Subtract, product, y)
        })
    };
    check("many constants", many, |x, y, _| {
        (0..60).fold(x, |sum, i| sum.mul_add(i as f32 * 0.125, 100.0 - i as f32) - y)
    });
    let mut body = Body::new(Level::Avx2);
    let rows = [Element::Single; 2].map(|element| body.row(element));
    let x = body.load(rows[0]);
    let mut alive = vec![x];
    for i in 0..40 {
        let number = body.number(i as f32);
        alive.push(body.two(Two::Add, x, number));
    }
    let sum = alive.clone().into_iter().rev().fold(x, |sum, value| body.two(Two::Multiply, sum, value));
    body.store(rows[1], sum, Place::Memory);
    assert!(Compiled::new(&body).is_none());
}

#[test]
fn totals_have_every_element_once() {
    let combines: [(Combine, fn(f32, f32) -> f32); 6] = [
        (Combine::Sum, |x, y| x + y),
        (Combine::Product, |x, y| x * y),
        (Combine::Minimum, |x, y| if x < y || x.is_nan() { x } else { y }),
        (Combine::Maximum, |x, y| if x > y || x.is_nan() { x } else { y }),
        (Combine::MinimumNumber, f32::min),
        (Combine::MaximumNumber, f32::max),
    ];
    let whole: Vec<f32> = (0..200).map(|i| (i % 7 + 1) as f32 * if i % 50 == 0 { 2.0 } else { 1.0 }).collect();
    let gaps: Vec<f32> = whole.iter().enumerate().map(|(i, &x)| if i % 3 == 0 { f32::NAN } else { x }).collect();
    let ones: Vec<f32> = (0..200).map(|i| if i % 60 == 7 { 2.0 } else { 1.0 }).collect();
    for ((level, (combine, of)), x) in levels()
        .flat_map(|level| combines.map(|pair| (level, pair)))
        .flat_map(|case| [&whole, &gaps, &ones].map(|x| (case, x)))
    {
        if combine == Combine::Product && std::ptr::eq(x, &whole) {
            continue;
        }
        let mut body = Body::new(level);
        let row = body.row(Element::Single);
        let value = body.load(row);
        body.total(combine, value, 1);
        body.total(Combine::Sum, value, 2);
        let compiled = Compiled::new(&body).expect("compiled");
        for count in COUNTS {
            let mut slots = [7_u64; 4];
            // SAFETY: the CPU has the level, and the row so many elements.
            unsafe { compiled.run(&[x.as_ptr().cast_mut().cast()], slots.as_mut_ptr(), count, false) };
            let found = f32::from_bits(slots[1] as u32);
            assert_eq!([slots[0], slots[3]], [7; 2]);
            let identity = match combine {
                Combine::Sum => 0.0,
                Combine::Product => 1.0,
                Combine::Minimum => f32::INFINITY,
                Combine::Maximum => f32::NEG_INFINITY,
                _ => f32::NAN,
            };
            let expected = x[..count].iter().fold(identity, |all, &element| of(all, element));
            let is_same = found == expected || found.is_nan() && expected.is_nan();
            assert!(is_same, "{combine:?} of {count}: {found}, not {expected} ({level:?})");
        }
    }
}

#[test]
fn half_types_are_read_and_written() {
    for element in [Element::Half, Element::Bfloat] {
        let (to_bits, from_bits): (fn(f32) -> u16, fn(u16) -> f32) = match element {
            Element::Half => (math::single_to_half, math::half_to_single),
            _ => (math::single_to_bfloat, math::bfloat_to_single),
        };
        let x: Vec<u16> = numbers(0.3).into_iter().map(to_bits).collect();
        let y = numbers(0.7);
        for level in levels() {
            let mut body = Body::new(level);
            let rows = [element, Element::Single, element].map(|element| body.row(element));
            let (bits, y_value) = (body.load(rows[0]), body.load(rows[1]));
            let number = body.widen(element, bits);
            let product = body.two(Two::Multiply, number, y_value);
            let rounded = body.round(element, product);
            body.store(rows[2], rounded, Place::Memory);
            // Without masks nothing smaller than a float can be left out.
            let Some(compiled) = Compiled::new(&body) else {
                assert_eq!(level, Level::Avx2);
                continue;
            };
            for count in COUNTS {
                let mut out = vec![7_u16; 201];
                let places = [x.as_ptr().cast_mut().cast(), y.as_ptr().cast_mut().cast(), out.as_mut_ptr().cast()];
                // SAFETY: as above.
                unsafe { compiled.run(&places, std::ptr::null_mut(), count, false) };
                for (i, &found) in out.iter().enumerate() {
                    let expected = if i < count { to_bits(from_bits(x[i]) * y[i]) } else { 7 };
                    let both = [found, expected].map(from_bits);
                    let is_same = found == expected || both[0].is_nan() && both[1].is_nan() && i < count;
                    assert!(
                        is_same,
                        "{} {}: {found:x}, not {expected:x} ({element:?}, {count})",
                        x[i % 200],
                        y[i % 200]
                    );
                }
            }
        }
    }
}

#[test]
fn rows_past_the_caches_are_those_that_go_there_as_usual() {
    #[repr(align(64))]
    struct Aligned([f32; 200]);
    let x = numbers(0.3);
    for level in levels() {
        let mut body = Body::new(level);
        let rows = [Element::Single; 2].map(|element| body.row(element));
        let value = body.load(rows[0]);
        let twice = body.two(Two::Add, value, value);
        body.store(rows[1], twice, Place::Memory);
        let compiled = Compiled::new(&body).expect("compiled");
        assert!(compiled.past_caches.is_some());
        for count in COUNTS {
            let runs = [false, true].map(|past_caches| {
                let mut out = Aligned([7.5; 200]);
                let places = [x.as_ptr().cast_mut().cast(), out.0.as_mut_ptr().cast()];
                // SAFETY: the CPU has the level, each row so many elements, and the second is aligned.
                unsafe { compiled.run(&places, std::ptr::null_mut(), count, past_caches) };
                out.0.map(f32::to_bits)
            });
            assert_eq!(runs[0], runs[1], "{level:?} {count}");
        }
    }
}
