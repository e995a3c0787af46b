//! Softmax of rows of float32: the largest element, the exponentials and their sum, the results; the first-level cache holds the row from the first
//! pass on.

mod gradient;
mod short;

pub use gradient::{SoftmaxGradient, softmax_gradient};

use super::lanes::{Lanes, SUMS, at_level};
use crate::threads::parallel_for;

/// The sizes of one call.
#[derive(Clone, Copy, Debug)]
pub struct Softmax {
    /// Rows.
    pub count: usize,
    /// Elements of a row, one after the other.
    pub length: usize,
    /// Elements from one row of x to the next; the result is dense.
    pub stride: isize,
    /// Whether the logarithm is computed.
    pub logarithm: bool,
}

/// `e^x / sum(e^x)` of every row at the address `x`, or its logarithm, to the address `out`.
///
/// # Safety
/// Both have the rows and elements that the sizes name, of float32; the result overlaps nothing, but may be x itself where that is dense.
pub unsafe fn softmax(sizes: &Softmax, x: usize, out: usize) {
    parallel_for(sizes.count, sizes.length, |begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(rows(sizes: &Softmax, x: usize, out: usize, begin: usize, end: usize)) }
    });
}

/// # Safety
/// As [`softmax`], for lanes that the CPU has.
#[inline(always)]
unsafe fn rows<V: Lanes>(sizes: &Softmax, x: usize, out: usize, begin: usize, end: usize) {
    if short::are_short::<V>(sizes.length) {
        // SAFETY: passed on to the caller.
        return unsafe { short::rows::<V>(sizes, x, out, begin, end) };
    }
    for row in begin..end {
        let from = (x as *const f32).wrapping_offset(row as isize * sizes.stride);
        let to = (out as *mut f32).wrapping_add(row * sizes.length);
        // SAFETY: rows of x and of the result.
        unsafe {
            let largest = maximum::<V>(from, sizes.length);
            let sum = exponentials::<V>(from, to, sizes.length, largest, !sizes.logarithm);
            if sizes.logarithm {
                shifted::<V>(from, to, sizes.length, largest, sum.ln());
            } else {
                scaled::<V>(to, sizes.length, 1.0 / sum);
            }
        }
    }
}

/// The largest element; NaN counts as nothing, since the sum of exponentials will tell.
///
/// # Safety
/// `length` elements, and lanes that the CPU has.
#[inline(always)]
unsafe fn maximum<V: Lanes>(x: *const f32, length: usize) -> f32 {
    // SAFETY: every access lies in the row.
    unsafe {
        let mut most = [V::splat(f32::NEG_INFINITY); SUMS];
        let mut at = 0;
        while at + V::N <= length {
            let group = ((length - at) / V::N).min(SUMS);
            for (i, most) in most.iter_mut().enumerate().take(group) {
                *most = most.max(V::load(x.add(at + i * V::N)));
            }
            at += group * V::N;
        }
        let [a, b, c, d] = most;
        let lanes = a.max(b).max(c.max(d)).lanes();
        let rest = (at..length).map(|i| *x.add(i));
        lanes[..V::N].iter().copied().chain(rest).fold(f32::NEG_INFINITY, f32::max)
    }
}

/// The sum of `e^(x - largest)`; the exponentials are stored where that is asked for.
///
/// # Safety
/// `length` elements of both, and lanes that the CPU has.
#[inline(always)]
unsafe fn exponentials<V: Lanes>(x: *const f32, to: *mut f32, length: usize, largest: f32, stores: bool) -> f32 {
    // SAFETY: every access lies in a row.
    unsafe {
        let top = V::splat(largest);
        let mut sums = [V::splat(0.0); 2];
        let mut at = 0;
        while at + V::N <= length {
            let group = ((length - at) / V::N).min(2);
            for (i, sum) in sums.iter_mut().enumerate().take(group) {
                let power = power(V::load(x.add(at + i * V::N)).sub(top));
                if stores {
                    power.store(to.add(at + i * V::N));
                }
                *sum = sum.add(power);
            }
            at += group * V::N;
        }
        let mut total: f32 = sums[0].add(sums[1]).lanes()[..V::N].iter().sum();
        for i in at..length {
            let power = power(V::splat(*x.add(i)).sub(top)).lanes()[0];
            if stores {
                *to.add(i) = power;
            }
            total += power;
        }
        total
    }
}

/// `e^x`. `exp` stops near the smallest normal number; less than that is nothing. NaN stays.
///
/// # Safety
/// Lanes that the CPU has. A function, not a closure: closures do not have their surroundings' instructions.
#[inline(always)]
unsafe fn power<V: Lanes>(x: V) -> V {
    // SAFETY: nothing is read or written.
    unsafe { x.exp().sub(V::splat(1.2e-38)).max(V::splat(0.0)) }
}

/// # Safety
/// `length` elements, and lanes that the CPU has.
#[inline(always)]
unsafe fn scaled<V: Lanes>(to: *mut f32, length: usize, factor: f32) {
    // SAFETY: every access lies in the row.
    unsafe {
        let factors = V::splat(factor);
        let mut at = 0;
        while at + V::N <= length {
            V::load(to.add(at)).mul(factors).store(to.add(at));
            at += V::N;
        }
        (at..length).for_each(|i| *to.add(i) *= factor);
    }
}

/// `x - largest - logarithm`, in this order: their sum would lose digits.
///
/// # Safety
/// `length` elements of both, and lanes that the CPU has.
#[inline(always)]
unsafe fn shifted<V: Lanes>(x: *const f32, to: *mut f32, length: usize, largest: f32, logarithm: f32) {
    // SAFETY: every access lies in a row.
    unsafe {
        let (top, logarithms) = (V::splat(largest), V::splat(logarithm));
        let mut at = 0;
        while at + V::N <= length {
            V::load(x.add(at)).sub(top).sub(logarithms).store(to.add(at));
            at += V::N;
        }
        (at..length).for_each(|i| *to.add(i) = *x.add(i) - largest - logarithm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row by the definition, in float64.
    fn expected(x: &[f32], logarithm: bool) -> Vec<f64> {
        let largest = x.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x.into()));
        let sum: f64 = x.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
        let of = |&x: &f32| {
            let shifted = f64::from(x) - largest;
            if logarithm { shifted - sum.ln() } else { shifted.exp() / sum }
        };
        x.iter().map(of).collect()
    }

    fn check(x: &[f32], count: usize, length: usize, stride: usize, logarithm: bool) {
        let mut out = vec![f32::NAN; count * length];
        let sizes = Softmax { count, length, stride: stride as isize, logarithm };
        // SAFETY: the vectors have the sizes named.
        unsafe { softmax(&sizes, x.as_ptr() as usize, out.as_mut_ptr() as usize) };
        for row in 0..count {
            let expected = expected(&x[row * stride..][..length], logarithm);
            for (&found, expected) in out[row * length..][..length].iter().zip(expected) {
                let same = f64::from(found) == expected || found.is_nan() && expected.is_nan();
                // Differences up to 40 are rounded by 2e-6; a sum near 1 has no more digits for its logarithm.
                let least = if logarithm { 1.0 } else { 1.2e-38 };
                let near = (f64::from(found) - expected).abs() <= 4e-6 * expected.abs().max(least);
                assert!(same || near, "{length}, {logarithm}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn rows_of_every_length() {
        for (length, logarithm) in (1..70).chain([1000, 1024, 8191]).flat_map(|n| [(n, true), (n, false)]) {
            let stride = length + 3;
            let x: Vec<f32> = (0..3 * stride).map(|i| (i as f32 * 0.7).sin() * 20.0 - 5.0).collect();
            check(&x, 3, length, stride, logarithm);
            let x: Vec<f32> = (0..37 * stride).map(|i| (i as f32 * 0.3).sin() * 9.0 + 2.0).collect();
            check(&x, 37, length, stride, logarithm);
        }
    }

    #[test]
    fn what_is_infinite_or_no_number() {
        const NONE: f32 = f32::NEG_INFINITY;
        for (at, special) in [(0, f32::NAN), (17, f32::NAN), (3, f32::INFINITY), (5, NONE), (20, -1e30), (1, 1e30)] {
            let mut x: Vec<f32> = (0..21).map(|i| i as f32).collect();
            x[at] = special;
            check(&x, 1, 21, 21, false);
            check(&x, 1, 21, 21, true);
        }
        check(&[NONE; 20], 1, 20, 20, false);
        check(&[NONE; 20], 1, 20, 20, true);
    }
}
