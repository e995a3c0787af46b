//! The gradient of softmax over rows of float32: a sum over each row, then the results; the first-level cache holds both rows from the sum on.

use super::power;
use crate::native::lanes::{Lanes, WIDEST, at_level, sum_over};
use crate::threads::parallel_for;

/// The sizes of one call.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxGradient {
    /// Rows.
    pub count: usize,
    /// Elements of a row, one after the other.
    pub length: usize,
    /// Elements from one row to the next, of the softmax and of the gradient that comes in; the result is dense.
    pub strides: [isize; 2],
    /// Whether it is the gradient of the logarithm.
    pub logarithm: bool,
}

/// `y (dy - sum(y dy))` of every row, or `dy - e^y sum(dy)`.
///
/// # Safety
/// There are the rows and elements that the sizes name, of float32, at both addresses; the result overlaps neither, or is one of them where that is dense.
pub unsafe fn softmax_gradient(sizes: &SoftmaxGradient, [y, dy]: [usize; 2], out: usize) {
    parallel_for(sizes.count, sizes.length, |begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(rows(sizes: &SoftmaxGradient, y: usize, dy: usize, out: usize, begin: usize, end: usize)) }
    });
}

/// # Safety
/// As [`softmax_gradient`], for lanes that the CPU has.
#[inline(always)]
unsafe fn rows<V: Lanes>(sizes: &SoftmaxGradient, y: usize, dy: usize, out: usize, begin: usize, end: usize) {
    let length = sizes.length;
    for row in begin..end {
        let y = (y as *const f32).wrapping_offset(row as isize * sizes.strides[0]);
        let dy = (dy as *const f32).wrapping_offset(row as isize * sizes.strides[1]);
        let to = (out as *mut f32).wrapping_add(row * length);
        // SAFETY: rows of both tensors and of the result.
        unsafe {
            if sizes.logarithm {
                let sum = sum_over::<V>(length, |at, sum| sum.add(V::load(dy.add(at))), |at| *dy.add(at));
                of_logarithm::<V>(y, dy, to, length, sum);
            } else {
                let add = |at, sum| V::load(y.add(at)).fma(V::load(dy.add(at)), sum);
                let sum = sum_over::<V>(length, add, |at| *y.add(at) * *dy.add(at));
                of_softmax::<V>(y, dy, to, length, sum);
            }
        }
    }
}

/// # Safety
/// `length` elements of all three, and lanes that the CPU has.
#[inline(always)]
unsafe fn of_softmax<V: Lanes>(y: *const f32, dy: *const f32, to: *mut f32, length: usize, sum: f32) {
    // SAFETY: every access lies in a row.
    unsafe {
        let sums = V::splat(sum);
        let mut at = 0;
        while at + V::N <= length {
            V::load(dy.add(at)).sub(sums).mul(V::load(y.add(at))).store(to.add(at));
            at += V::N;
        }
        while at < length {
            *to.add(at) = (*dy.add(at) - sum) * *y.add(at);
            at += 1;
        }
    }
}

/// # Safety
/// `length` elements of all three, and lanes that the CPU has.
#[inline(always)]
unsafe fn of_logarithm<V: Lanes>(y: *const f32, dy: *const f32, to: *mut f32, length: usize, sum: f32) {
    // SAFETY: every access lies in a row, or in the registers' worth of elements that the last ones are computed in.
    unsafe {
        let sums = V::splat(-sum);
        let mut at = 0;
        while at + V::N <= length {
            power(V::load(y.add(at))).fma(sums, V::load(dy.add(at))).store(to.add(at));
            at += V::N;
        }
        if at < length {
            let mut rest = [0.0; WIDEST];
            std::ptr::copy_nonoverlapping(y.add(at), rest.as_mut_ptr(), length - at);
            let powers = power(V::load(rest.as_ptr())).lanes();
            for (i, power) in powers.iter().enumerate().take(length - at) {
                *to.add(at + i) = *dy.add(at + i) - power * sum;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length() {
        for (length, logarithm) in (1..70).chain([1000, 9001]).flat_map(|n| [(n, true), (n, false)]) {
            let (count, strides) = (3, [length + 2, length + 5]);
            let values = |stride: usize, scale: f32| -> Vec<f32> {
                (0..count * stride).map(|i| (i as f32 * 0.7).sin() * scale - scale).collect()
            };
            let (y, dy) = (values(strides[0], 3.0), values(strides[1], 1.0));
            let mut out = vec![f32::NAN; count * length];
            let sizes = SoftmaxGradient { count, length, strides: strides.map(|stride| stride as isize), logarithm };
            let addresses = [y.as_ptr() as usize, dy.as_ptr() as usize];
            // SAFETY: the vectors have the sizes named.
            unsafe { softmax_gradient(&sizes, addresses, out.as_mut_ptr() as usize) };
            for row in 0..count {
                let own = |values: &[f32], stride: usize| -> Vec<f64> {
                    values[row * stride..][..length].iter().map(|&value| value.into()).collect()
                };
                let (y, dy) = (own(&y, strides[0]), own(&dy, strides[1]));
                let sum: f64 = y.iter().zip(&dy).map(|(y, dy)| if logarithm { *dy } else { y * dy }).sum();
                for (i, &found) in out[row * length..][..length].iter().enumerate() {
                    let expected = if logarithm { dy[i] - y[i].exp() * sum } else { y[i] * (dy[i] - sum) };
                    let near = (f64::from(found) - expected).abs() <= 4e-6 * (1.0 + sum.abs()) * (1.0 + y[i].abs());
                    assert!(near, "{length}, {logarithm}: {found}, {expected}");
                }
            }
        }
    }

    /// What had no probability has no gradient, and NaN stays.
    #[test]
    fn nothing_and_no_number() {
        let y = [0.0, 1.0, f32::NAN, 0.25];
        for (logarithm, y, expected) in [(false, &y[..2], [0.0, 0.0]), (true, &[f32::NEG_INFINITY, 0.0], [1.0, -1.0])] {
            let (dy, mut out) = ([1.0f32, 1.0], [7.0f32; 2]);
            let sizes = SoftmaxGradient { count: 1, length: 2, strides: [2, 2], logarithm };
            let addresses = [y.as_ptr() as usize, dy.as_ptr() as usize];
            // SAFETY: two elements each.
            unsafe { softmax_gradient(&sizes, addresses, out.as_mut_ptr() as usize) };
            assert!((out[0] - expected[0]).abs() < 1e-30 && out[1] == expected[1], "{out:?} {expected:?}");
        }
        let (dy, mut out) = ([1.0f32; 2], [7.0f32; 2]);
        let sizes = SoftmaxGradient { count: 1, length: 2, strides: [2, 2], logarithm: false };
        let addresses = [y[2..].as_ptr() as usize, dy.as_ptr() as usize];
        // SAFETY: two elements each.
        unsafe { softmax_gradient(&sizes, addresses, out.as_mut_ptr() as usize) };
        assert!(out.iter().all(|x| x.is_nan()), "{out:?}");
    }
}
