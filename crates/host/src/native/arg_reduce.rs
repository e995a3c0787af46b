//! The position of the largest or smallest element of each line; the first one wins, NaN never does.

use super::lines::Lines;
use super::memory::{Element, slice};
use crate::threads;

/// Lanes that are compared side by side.
const LANES: usize = 32;

/// For each line the index of its largest (or smallest) element; `write(line, index)` receives the results.
///
/// # Safety
/// `x` must hold the lines as dense elements of `T`; lines must not be empty, nor of more than 2^32 elements.
pub unsafe fn arg_reduce<T: Element>(x: usize, lines: Lines, largest: bool, write: impl Fn(usize, usize) + Sync) {
    if largest {
        // SAFETY: promised by the caller.
        unsafe { with::<T>(x, lines, |new, best| new > best, write) }
    } else {
        // SAFETY: promised by the caller.
        unsafe { with::<T>(x, lines, |new, best| new < best, write) }
    }
}

#[inline(always)]
unsafe fn with<T: Element>(
    x: usize,
    Lines { outer, size, inner }: Lines,
    beats: impl Fn(T, T) -> bool + Sync + Copy,
    write: impl Fn(usize, usize) + Sync,
) {
    if inner == 1 {
        return threads::parallel_for(outer, size / 4, |begin, end| {
            for line in begin..end {
                // SAFETY: the line lies inside the tensor.
                write(line, first_best(unsafe { slice::<T>(x + line * size * size_of::<T>(), size) }, beats));
            }
        });
    }
    let blocks = inner.div_ceil(LANES);
    threads::parallel_for(outer * blocks, size * LANES / 4, |begin, end| {
        for block in begin..end {
            let (o, first) = (block / blocks, block % blocks * LANES);
            let width = LANES.min(inner - first);
            // SAFETY: the row lies inside the tensor.
            let row = |i: usize| unsafe { slice::<T>(x + ((o * size + i) * inner + first) * size_of::<T>(), width) };
            let (mut best, mut at) = ([row(0)[0]; LANES], [0u32; LANES]);
            best[..width].copy_from_slice(row(0));
            for i in 1..size {
                take_better(&mut best[..width], &mut at[..width], (row(i), i as u32), beats);
            }
            for (column, &index) in at[..width].iter().enumerate() {
                write(o * inner + first + column, index as usize);
            }
        }
    });
}

/// Takes the values of a row that are better, or the first that are numbers, and where they are: both by selection, so that the loop is vectors'.
#[inline(always)]
fn take_better<T: Element>(best: &mut [T], at: &mut [u32], (row, i): (&[T], u32), beats: impl Fn(T, T) -> bool) {
    for ((best, at), &value) in best.iter_mut().zip(at).zip(row) {
        let is_better = beats(value, *best) | (best.is_nan() & !value.is_nan());
        (*best, *at) = if is_better { (value, i) } else { (*best, *at) };
    }
}

/// The best value is found lane by lane first, then its first position: both loops vectorise.
#[inline(always)]
fn first_best<T: Element>(line: &[T], beats: impl Fn(T, T) -> bool) -> usize {
    let Some(&start) = line.iter().find(|value| !value.is_nan()) else { return 0 };
    let mut lanes = [start; LANES];
    let chunks = line.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (best, &value) in lanes.iter_mut().zip(chunk) {
            *best = if beats(value, *best) { value } else { *best };
        }
    }
    let best = lanes.iter().chain(rest).fold(start, |best, &value| if beats(value, best) { value } else { best });
    line.iter().position(|&value| value == best).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn run<T: Element>(x: &[T], lines: Lines, largest: bool) -> Vec<usize> {
        let out = Mutex::new(vec![usize::MAX; lines.outer * lines.inner]);
        // SAFETY: `x` holds the lines.
        unsafe { arg_reduce::<T>(x.as_ptr() as usize, lines, largest, |i, k| out.lock().unwrap()[i] = k) };
        out.into_inner().unwrap()
    }

    #[test]
    fn first_of_equals_and_never_nan() {
        for (outer, size, inner) in [(1, 1, 1), (3, 100, 1), (2, 9, 40), (1, 70, 3)] {
            let value = |i: usize| if i.is_multiple_of(13) { f32::NAN } else { (i * 37 % 19) as f32 };
            let x: Vec<f32> = (0..outer * size * inner).map(value).collect();
            let lines = Lines { outer, size, inner };
            for largest in [true, false] {
                for (line, got) in run(&x, lines, largest).into_iter().enumerate() {
                    let at = |i: usize| x[(line / inner * size + i) * inner + line % inner];
                    let numbers = (0..size).filter(|&i| !at(i).is_nan());
                    let sign = if largest { -1.0 } else { 1.0 };
                    let expected = numbers.min_by(|&a, &b| (sign * at(a)).total_cmp(&(sign * at(b)))).unwrap_or(0);
                    assert_eq!(got, expected);
                }
            }
        }
    }
}
