//! Sums along an axis: the gradient of a repetition.

use super::lines::Lines;
use super::memory::{Element, slice};
use crate::threads;

/// Columns that are summed up side by side.
const COLUMNS: usize = 32;

/// The sum of each line; `x` is dense, `out` has one element for each line.
///
/// # Safety
/// `x` must hold the lines and `out` one element for each, both of type `T`, without overlap.
pub unsafe fn axis_sum<T: Element>(x: usize, out: usize, Lines { outer, size, inner }: Lines) {
    if inner == 1 {
        return threads::parallel_for(outer, 1 + size / 8, |begin, end| {
            for line in begin..end {
                // SAFETY: inside the tensor and inside `out`; no other thread has this line.
                unsafe {
                    let row = slice::<T>(x + line * size * size_of::<T>(), size);
                    *(out as *mut T).add(line) = T::narrow(sum_of(row));
                }
            }
        });
    }
    let blocks = inner.div_ceil(COLUMNS);
    threads::parallel_for(outer * blocks, 1 + size * inner.min(COLUMNS) / 2, |begin, end| {
        for block in begin..end {
            let (line, first) = (block / blocks, block % blocks * COLUMNS);
            let width = COLUMNS.min(inner - first);
            let mut sums = [T::ZERO.widen(); COLUMNS];
            for i in 0..size {
                let offset = (line * size + i) * inner + first;
                // SAFETY: inside the tensor.
                let row = unsafe { slice::<T>(x + offset * size_of::<T>(), width) };
                for (sum, &value) in sums.iter_mut().zip(row) {
                    *sum = *sum + value.widen();
                }
            }
            for (column, &sum) in sums[..width].iter().enumerate() {
                // SAFETY: inside `out`; no other thread has these lines.
                unsafe { *(out as *mut T).add(line * inner + first + column) = T::narrow(sum) }
            }
        }
    });
}

/// The sum of elements that follow each other: many sums side by side, so that none waits for the one before it.
fn sum_of<T: Element>(row: &[T]) -> T::Compute {
    let mut sums = [T::ZERO.widen(); COLUMNS];
    for chunk in row.chunks(COLUMNS) {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum = *sum + value.widen();
        }
    }
    sums.into_iter().fold(T::ZERO.widen(), |all, sum| all + sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_plain_sum() {
        for (outer, size, inner) in [(1, 1, 1), (3, 7, 1), (5, 1000, 1), (2, 0, 1), (2, 5, 70), (1, 0, 3)] {
            let x: Vec<f32> = (0..outer * size * inner).map(|i| (i % 23) as f32).collect();
            let mut out = vec![-1.0_f32; outer * inner];
            // SAFETY: the vectors have the sizes named.
            unsafe { axis_sum::<f32>(x.as_ptr() as usize, out.as_mut_ptr() as usize, Lines { outer, size, inner }) };
            for (line, &got) in out.iter().enumerate() {
                let at = |i: usize| x[(line / inner * size + i) * inner + line % inner];
                assert_eq!(got, (0..size).map(at).sum::<f32>());
            }
        }
    }
}
