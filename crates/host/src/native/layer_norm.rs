//! Layer norm and RMS norm of rows of float32: three passes over a row, which a cache holds from the first one on.

use super::lanes::{Lanes, at_level, sum_over};
use super::moments;
use crate::threads::parallel_for;

/// One call: each row brought to mean 0 and variance 1 (where not centred: to mean square 1), times a scale, plus a bias.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Rows.
    pub count: usize,
    /// Elements of a row, one after the other.
    pub length: usize,
    /// Elements from one row of x to the next.
    pub stride: isize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether the mean is subtracted.
    pub centred: bool,
}

/// The addresses of a call's operands; all but x are dense.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// The first row.
    pub x: usize,
    /// A factor for each element of a row.
    pub scale: Option<usize>,
    /// An addend for each element of a row.
    pub bias: Option<usize>,
    /// The result, which may be x itself where that is dense.
    pub out: usize,
    /// A mean and a variance for each row.
    pub statistics: Option<[usize; 2]>,
}

/// Computes every row.
///
/// # Safety
/// The operands have the rows and elements that the sizes name, readable and writable, and overlap nothing but as said there.
pub unsafe fn layer_norm(sizes: &LayerNorm, operands: &Operands) {
    let nanoseconds = sizes.length / 4;
    parallel_for(sizes.count, nanoseconds, |begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(rows(sizes: &LayerNorm, operands: &Operands, begin: usize, end: usize)) }
    });
}

/// # Safety
/// As [`layer_norm`], for lanes that the CPU has.
#[inline(always)]
unsafe fn rows<V: Lanes>(sizes: &LayerNorm, operands: &Operands, begin: usize, end: usize) {
    let (length, over) = (sizes.length, 1.0 / sizes.length as f32);
    let [scale, bias] = [operands.scale, operands.bias].map(|weight| weight.map(|address| address as *const f32));
    let statistics = operands.statistics.map(|both| both.map(|address| address as *mut f32));
    for row in begin..end {
        let x = (operands.x as *const f32).wrapping_offset(row as isize * sizes.stride);
        // SAFETY: the row is one of x, of the result and of the statistics.
        unsafe {
            let [mean, variance] = match sizes.centred {
                true => centred::<V>(x, length, over),
                false => [0.0, squares::<V>(x, length, 0.0) * over],
            };
            let inverse = 1.0 / (variance + sizes.epsilon).sqrt();
            let out = (operands.out as *mut f32).add(row * length);
            match (scale, bias) {
                (Some(scale), Some(bias)) => write::<V, true, true>(x, out, length, (mean, inverse), scale, bias),
                (Some(scale), None) => write::<V, true, false>(x, out, length, (mean, inverse), scale, scale),
                (None, Some(bias)) => write::<V, false, true>(x, out, length, (mean, inverse), bias, bias),
                (None, None) => write::<V, false, false>(x, out, length, (mean, inverse), x, x),
            }
            if let Some([means, variances]) = statistics {
                (*means.add(row), *variances.add(row)) = (mean, variance);
            }
        }
    }
}

/// A row's mean and variance; `over` is 1 over its length.
///
/// # Safety
/// `length` elements, and lanes that the CPU has.
#[inline(always)]
unsafe fn centred<V: Lanes>(x: *const f32, length: usize, over: f32) -> [f32; 2] {
    // SAFETY: passed on to the caller.
    unsafe {
        let sum = sum_over::<V>(length, |at, sum| sum.add(V::load(x.add(at))), |at| *x.add(at));
        let first = sum * over;
        let square = squares::<V>(x, length, first) * over;
        let distance = || {
            let from = V::splat(first);
            let add = |at, sum: V| sum.add(V::load(x.add(at)).sub(from));
            let sum = sum_over::<V>(length, add, |at| *x.add(at) - first);
            f64::from(sum * over)
        };
        moments::centred(first, square, distance)
    }
}

/// The sum of a row's squared distances from a number.
///
/// # Safety
/// As [`centred`].
#[inline(always)]
unsafe fn squares<V: Lanes>(x: *const f32, length: usize, from: f32) -> f32 {
    // SAFETY: passed on to the caller.
    unsafe {
        let all = V::splat(from);
        let add = |at, sum| {
            let distance = V::load(x.add(at)).sub(all);
            distance.fma(distance, sum)
        };
        sum_over::<V>(length, add, |at| (*x.add(at) - from) * (*x.add(at) - from))
    }
}

/// The results of a row: a distance from the mean, times the inverse deviation, times the scale, plus the bias.
///
/// # Safety
/// `length` elements of everything that is used, and lanes that the CPU has.
#[inline(always)]
unsafe fn write<V: Lanes, const SCALE: bool, const BIAS: bool>(
    x: *const f32,
    out: *mut f32,
    length: usize,
    (mean, inverse): (f32, f32),
    scale: *const f32,
    bias: *const f32,
) {
    // SAFETY: every access lies in a row.
    unsafe {
        let (means, inverses) = (V::splat(mean), V::splat(inverse));
        let mut at = 0;
        while at + V::N <= length {
            let mut y = V::load(x.add(at)).sub(means).mul(inverses);
            if SCALE && BIAS {
                y = y.fma(V::load(scale.add(at)), V::load(bias.add(at)));
            } else if SCALE {
                y = y.mul(V::load(scale.add(at)));
            } else if BIAS {
                y = y.add(V::load(bias.add(at)));
            }
            y.store(out.add(at));
            at += V::N;
        }
        for i in at..length {
            let y = (*x.add(i) - mean) * inverse * if SCALE { *scale.add(i) } else { 1.0 };
            *out.add(i) = y + if BIAS { *bias.add(i) } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row by the definition, in float64.
    fn expected(x: &[f32], centred: bool, epsilon: f64, scale: &[f32], bias: &[f32]) -> Vec<f64> {
        let over = 1.0 / x.len() as f64;
        let mean = if centred { x.iter().map(|&x| f64::from(x)).sum::<f64>() * over } else { 0.0 };
        let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() * over;
        let y = |i: usize| (f64::from(x[i]) - mean) / (variance + epsilon).sqrt();
        (0..x.len()).map(|i| y(i) * f64::from(scale[i]) + f64::from(bias[i])).collect()
    }

    #[test]
    fn rows_of_every_length_far_from_zero() {
        for (length, centred) in (1..70).chain([1000, 1024, 8191]).flat_map(|n| [(n, true), (n, false)]) {
            let (count, stride) = (3, length + 5);
            let wave = |step: f32, offset: f32| move |i: usize| (i as f32 * step).sin() + offset;
            let x: Vec<f32> = (0..count * stride).map(wave(0.7, 100.0)).collect();
            let scale: Vec<f32> = (0..length).map(wave(1.3, 0.0)).collect();
            let bias: Vec<f32> = (0..length).map(wave(0.3, 0.5)).collect();
            let mut out = vec![f32::NAN; count * length];
            let mut statistics = [vec![f32::NAN; count], vec![f32::NAN; count]];
            let sizes = LayerNorm { count, length, stride: stride as isize, epsilon: 1e-5, centred };
            let operands = Operands {
                x: x.as_ptr() as usize,
                scale: Some(scale.as_ptr() as usize),
                bias: Some(bias.as_ptr() as usize),
                out: out.as_mut_ptr() as usize,
                statistics: Some(statistics.each_mut().map(|all| all.as_mut_ptr() as usize)),
            };
            // SAFETY: the vectors have the sizes named.
            unsafe { layer_norm(&sizes, &operands) };
            for row in 0..count {
                let expected = expected(&x[row * stride..][..length], centred, 1e-5, &scale, &bias);
                for (found, expected) in out[row * length..][..length].iter().zip(expected) {
                    // Around 100, x itself is only known to 4e-6.
                    assert!((f64::from(*found) - expected).abs() < 2e-4, "{length}: {found}, {expected}");
                }
            }
            assert!(statistics.iter().flatten().all(|number| number.is_finite()));
        }
    }

    #[test]
    fn rows_of_equal_elements_are_zero() {
        for (length, value) in
            (1..70).chain([1000, 8191]).flat_map(|n| [0.3, -7.1, 1234.567, 1e-30].map(|value| (n, value)))
        {
            let x = vec![value; length];
            let mut out = vec![f32::NAN; length];
            let (mut mean, mut variance) = (f32::NAN, f32::NAN);
            let sizes = LayerNorm { count: 1, length, stride: length as isize, epsilon: 1e-5, centred: true };
            let operands = Operands {
                x: x.as_ptr() as usize,
                scale: None,
                bias: None,
                out: out.as_mut_ptr() as usize,
                statistics: Some([&raw mut mean as usize, &raw mut variance as usize]),
            };
            // SAFETY: the vectors have the sizes named.
            unsafe { layer_norm(&sizes, &operands) };
            assert!(out.iter().all(|&y| y == 0.0), "{length} of {value}: {out:?}");
            assert_eq!(mean, value);
            assert!(
                (0.0..1e-9 * value * value + f32::MIN_POSITIVE).contains(&variance),
                "{length} of {value}: {variance}"
            );
        }
    }

    #[test]
    fn distances_whose_squares_overflow_are_zero() {
        let x = [3e30f32, -3e30, 1e30, 0.0, 2e30];
        let mut out = [f32::NAN; 5];
        let sizes = LayerNorm { count: 1, length: 5, stride: 5, epsilon: 1e-5, centred: true };
        let (x, out_address) = (x.as_ptr() as usize, out.as_mut_ptr() as usize);
        let operands = Operands { x, scale: None, bias: None, out: out_address, statistics: None };
        // SAFETY: the arrays have the sizes named.
        unsafe { layer_norm(&sizes, &operands) };
        assert_eq!(out, [0.0; 5]);
    }

    #[test]
    fn in_place_without_weights_and_what_is_no_number_stays_in_its_row() {
        let mut x = [vec![1.0f32; 40], (0..40).map(|i| i as f32).collect()].concat();
        x[3] = f32::NAN;
        let before = x.clone();
        let address = x.as_mut_ptr() as usize;
        let sizes = LayerNorm { count: 2, length: 40, stride: 40, epsilon: 0.0, centred: true };
        let operands = Operands { x: address, scale: None, bias: None, out: address, statistics: None };
        // SAFETY: the vector has the sizes named.
        unsafe { layer_norm(&sizes, &operands) };
        assert!(x[..40].iter().all(|x| x.is_nan()));
        let expected = expected(&before[40..], true, 0.0, &[1.0; 40], &[0.0; 40]);
        assert!(x[40..].iter().zip(expected).all(|(&found, expected)| (f64::from(found) - expected).abs() < 1e-5));
    }
}
