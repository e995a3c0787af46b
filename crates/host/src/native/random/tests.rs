//! Moments, bounds, independence of threads, and Philox's published test vectors.

use super::*;

const SOURCE: Source = Source { seed: 42, offset: 7 };
const LEN: usize = 400_003;

fn make<T: Element>(work: impl FnOnce(usize, usize)) -> Vec<T> {
    let mut out = vec![T::ZERO; LEN];
    work(out.as_mut_ptr() as usize, LEN);
    out
}

/// Mean, variance, skewness and kurtosis.
fn moments<T: Element>(values: &[T]) -> [f64; 4] {
    let mean = values.iter().map(|v| v.to_f64()).sum::<f64>() / values.len() as f64;
    let central = |k: i32| values.iter().map(|v| (v.to_f64() - mean).powi(k)).sum::<f64>() / values.len() as f64;
    let variance = central(2);
    [mean, variance, central(3) / variance.powf(1.5), central(4) / (variance * variance)]
}

fn close(got: [f64; 4], expected: [f64; 4], tolerance: f64) {
    for (got, expected) in got.into_iter().zip(expected) {
        assert!((got - expected).abs() < tolerance, "{got} is not {expected}");
    }
}

#[test]
fn philox_test_vectors() {
    // Random123's known answers for philox4x32-10; the counter's upper half is our offset.
    let zero = Source { seed: 0, offset: 0 }.block(0);
    assert_eq!(zero.map(|word| word[0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    let pi = Source { seed: 0x299f31d0_a4093822, offset: 0x03707344_13198a2e };
    let counter = 0x85a308d3_243f6a88_u64;
    let block = pi.block(counter / WIDTH as u64);
    assert_eq!(block.map(|word| word[8]), [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
}

#[test]
fn uniform_moments_and_bounds() {
    fn check<T: Element>(tolerance: f64) {
        // SAFETY: `make` passes a vector of `T`.
        let values = make::<T>(|out, len| unsafe { uniform::<T>(out, len, SOURCE, -1.0, 3.0) });
        close(moments(&values), [1.0, 16.0 / 12.0, 0.0, 1.8], tolerance);
        assert!(values.iter().all(|v| (-1.0..3.0).contains(&v.to_f64())));
    }
    check::<f32>(0.01);
    check::<f64>(0.01);
    check::<half::f16>(0.02);
    check::<half::bf16>(0.03);
}

#[test]
fn uniform_numbers_are_as_many_as_the_type_has_and_below_the_bound() {
    fn check<T: Element>(low: f64, high: f64, fewest: usize) {
        // SAFETY: `make` passes a vector of `T`.
        let values = make::<T>(|out, len| unsafe { uniform::<T>(out, len, SOURCE, low, high) });
        let different: std::collections::HashSet<u64> = values.iter().map(|v| v.to_f64().to_bits()).collect();
        assert!(different.len() >= fewest, "{} different numbers", different.len());
        assert!(values.iter().all(|v| (low..high).contains(&v.to_f64())), "{low} to {high}");
    }
    check::<half::f16>(0.0, 1.0, 4_000);
    check::<half::bf16>(0.0, 1.0, 800);
    // The type has 17 numbers there, and the last one is the bound.
    check::<half::f16>(99.0, 100.0, 16);
    check::<f32>(1e6, 1e6 + 0.25, 4);
}

#[test]
fn normal_moments_and_tails() {
    fn check<T: Element>() {
        // SAFETY: `make` passes a vector of `T`.
        let values = make::<T>(|out, len| unsafe { normal::<T>(out, len, SOURCE, 0.5, 2.0) });
        close(moments(&values), [0.5, 4.0, 0.0, 3.0], 0.05);
        let beyond = values.iter().filter(|v| (v.to_f64() - 0.5).abs() > 6.0).count() as f64 / LEN as f64;
        assert!((beyond - 0.0027).abs() < 0.0005, "{beyond} beyond three deviations");
    }
    check::<f32>();
    check::<f64>();
    check::<half::f16>();
    check::<half::bf16>();
}

#[test]
fn the_polynomials_are_accurate() {
    for i in 1..10_000 {
        let x = i as f32 / 10_000.0;
        assert!((logarithm(x) as f64 - (x as f64).ln()).abs() < 2e-6);
        let (sine, cosine) = quarter_turn(x);
        let angle = x as f64 * std::f64::consts::FRAC_PI_2;
        assert!((sine as f64 - angle.sin()).abs() < 4e-6 && (cosine as f64 - angle.cos()).abs() < 1e-6, "{x}");
    }
}

#[test]
fn integers_cover_their_range_evenly() {
    // SAFETY: `make` passes a vector of `i64`.
    let values = make::<i64>(|out, len| unsafe { integers::<i64>(out, len, SOURCE, -3, 7) });
    for wanted in -3..7 {
        let share = values.iter().filter(|&&v| v == wanted).count() as f64 / LEN as f64;
        assert!((share - 0.1).abs() < 0.003);
    }
    assert!(values.iter().all(|v| (-3..7).contains(v)));
}

#[test]
fn other_laws() {
    // SAFETY: `make` passes vectors of the types named.
    unsafe {
        let mask = make::<u8>(|out, len| keep_mask(out, len, SOURCE, 0.3));
        assert!((moments(&mask)[0] - 0.7).abs() < 0.005);
        assert!(make::<u8>(|out, len| keep_mask(out, len, SOURCE, 1.0)).iter().all(|&keep| keep == 0));
        assert!(make::<u8>(|out, len| keep_mask(out, len, SOURCE, 0.0)).iter().all(|&keep| keep == 1));
        let waits = make::<f32>(|out, len| exponential::<f32>(out, len, SOURCE, 2.0));
        close(moments(&waits), [0.5, 0.25, 2.0, 9.0], 0.5);
        let cut = make::<f32>(|out, len| truncated_normal::<f32>(out, len, SOURCE, (1.0, 2.0), (-3.0, 5.0)));
        assert!(cut.iter().all(|&v| (-3.0..=5.0).contains(&v)));
        assert!((moments(&cut)[1] - 4.0 * 0.773_741).abs() < 0.03);
        // Bounds are numbers, not deviations: these are a hundred of them away, and cut nothing.
        let whole = make::<f32>(|out, len| truncated_normal::<f32>(out, len, SOURCE, (0.0, 0.02), (-2.0, 2.0)));
        close(moments(&whole), [0.0, 0.0004, 0.0, 3.0], 0.1);
        let constant = make::<f32>(|out, len| truncated_normal::<f32>(out, len, SOURCE, (0.5, 0.0), (-2.0, 2.0)));
        assert!(constant.iter().all(|&v| v == 0.5));
        let chances = vec![0.25_f32; LEN];
        let coins = make::<f32>(|out, len| bernoulli::<f32>(out, chances.as_ptr() as usize, len, SOURCE).unwrap());
        assert!((moments(&coins)[0] - 0.25).abs() < 0.005);
    }
}

#[test]
fn permutations_are_complete_and_differ() {
    // SAFETY: `make` passes a vector of `i64`.
    let first = make::<i64>(|out, len| unsafe { permutation::<i64>(out, len, SOURCE) });
    let other = Source { offset: 8, ..SOURCE };
    // SAFETY: as above.
    let second = make::<i64>(|out, len| unsafe { permutation::<i64>(out, len, other) });
    assert_ne!(first, second);
    let mut sorted = first;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..LEN as i64));
}

#[test]
fn a_prefix_does_not_depend_on_the_length() {
    // Short tensors stay on one thread, long ones do not; both start with the same numbers.
    // SAFETY: `make` passes a vector of `f32`.
    let long = make::<f32>(|out, len| unsafe { normal::<f32>(out, len, SOURCE, 0.0, 1.0) });
    for len in [1, 63, 64, 65, 1000] {
        let mut short = vec![0.0_f32; len];
        // SAFETY: the vector has this length.
        unsafe { normal::<f32>(short.as_mut_ptr() as usize, len, SOURCE, 0.0, 1.0) };
        assert_eq!(short, long[..len]);
    }
}
