//! Running extrema with their places, and running logarithms of summed powers, along an axis; and places in sorted lines.

use super::lines::Lines;
use super::memory::{Element, slice};
use crate::threads::parallel_for;

/// The largest, or smallest, of the elements up to each element, and where it stood: the last one of equals. A NaN stays.
///
/// # Safety
/// `x` and `values` hold the lines as dense elements of `T`, `places` as many of `i64`; the outputs overlap nothing.
pub unsafe fn extreme<T: Element>(largest: bool, x: usize, values: usize, places: usize, lines: Lines) {
    let Lines { outer, size, inner } = lines;
    parallel_for(outer * inner, 2 * size, |begin, end| {
        // SAFETY: promised by the caller.
        let x = unsafe { slice::<T>(x, outer * size * inner) };
        for line in begin..end {
            let first = line / inner * size * inner + line % inner;
            let Some(&(mut best)) = x.get(first) else { continue };
            let mut place = 0;
            for i in 0..size {
                let at = first + i * inner;
                let next = x[at];
                let wins = if largest { next >= best } else { next <= best };
                // Chosen, not jumped to: of numbers in no order nobody foresees it.
                let is_best = next.is_nan() | (wins & !best.is_nan());
                (best, place) = if is_best { (next, i as i64) } else { (best, place) };
                // SAFETY: inside the outputs; no other thread has this line.
                unsafe {
                    *(values as *mut T).add(at) = best;
                    *(places as *mut i64).add(at) = place;
                }
            }
        }
    });
}

/// `log(sum(e^x))` of the elements up to each element; `exclusive` leaves itself out, `reverse` starts at the end.
///
/// # Safety
/// `x` and `out` hold the lines as dense elements of `T`, and do not overlap.
pub unsafe fn log_sum<T: Element>(x: usize, out: usize, lines: Lines, exclusive: bool, reverse: bool) {
    let Lines { outer, size, inner } = lines;
    parallel_for(outer * inner, 20 * size, |begin, end| {
        // SAFETY: promised by the caller.
        let x = unsafe { slice::<T>(x, outer * size * inner) };
        for line in begin..end {
            let at = |i: usize| (line / inner * size + i) * inner + line % inner;
            let mut sum = f64::NEG_INFINITY;
            for step in 0..size {
                let i = at(if reverse { size - 1 - step } else { step });
                let next = log_add(sum, x[i].to_f64());
                // SAFETY: inside the output; no other thread has this line.
                unsafe { *(out as *mut T).add(i) = T::from_f64(if exclusive { sum } else { next }) };
                sum = next;
            }
        }
    });
}

/// `log(e^x + e^y)` without powers that overflow.
pub fn log_add(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    let (low, high) = (x.min(y), x.max(y));
    // Two infinities have no difference.
    if low == high { low + std::f64::consts::LN_2 } else { high + (low - high).exp().ln_1p() }
}

/// Where each value would be put into its sorted line: before equal elements, or `right` behind them. NaN is above every number.
///
/// # Safety
/// `sorted` holds `lines` lines of `size` elements of `T`, or one for all values; `values` holds `count` for each line, and `out` as
/// many of `i64`.
pub unsafe fn search<T: Element>(
    (sorted, size, is_shared): (usize, usize, bool),
    values: usize,
    out: usize,
    (lines, count): (usize, usize),
    right: bool,
) {
    parallel_for(lines * count, 40, |begin, end| {
        // SAFETY: promised by the caller.
        let (sorted, values) = unsafe {
            (slice::<T>(sorted, if is_shared { size } else { lines * size }), slice::<T>(values, lines * count))
        };
        for (i, &value) in values.iter().enumerate().take(end).skip(begin) {
            let line = if is_shared { sorted } else { &sorted[i / count * size..][..size] };
            let before = |element: &T| {
                if right {
                    *element <= value || value.is_nan()
                } else {
                    *element < value || value.is_nan() && !element.is_nan()
                }
            };
            // SAFETY: inside the output; no other thread has this element.
            unsafe { *(out as *mut i64).add(i) = line.partition_point(before) as i64 };
        }
    });
}
