//! Two-dimensional pooling of planes: largest element (with its place, if wanted) or average.

mod element;
mod global;
mod gradient;
mod places;
mod windows;

pub use element::Pooled;
pub use global::global_average;
pub use gradient::{pool_backward, pool_backward_at};
pub use windows::{PoolingKind, PoolingWindow, adaptive_windows, strided_windows};

use super::{Shared, elements, scratch};
use crate::Error;
use crate::threads::parallel_for;
use crate::vector::leveled;
use element::larger;
use places::{ABREAST, abreast, largest, one_by_one};
use windows::{Regular, divisor};

/// Reduces every plane of `input` (planes, height, width) to `output` (planes, rows.len(), columns.len()). `places` receives, for
/// the largest elements, their index in the plane.
#[allow(clippy::too_many_arguments)]
pub fn pool<T: Pooled>(
    kind: PoolingKind,
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[PoolingWindow],
    columns: &[PoolingWindow],
    input: &[T],
    output: &mut [T],
    places: Option<&mut [i32]>,
) -> Result<(), Error> {
    let lens = (elements(&[planes, height, width]), elements(&[planes, rows.len(), columns.len()]));
    let inside = rows.iter().all(|w| w.lies_in(height)) && columns.iter().all(|w| w.lies_in(width));
    if (input.len(), output.len()) != lens || places.as_ref().is_some_and(|p| p.len() != lens.1) || !inside {
        let lens = (input.len(), output.len(), lens);
        return Err(Error::Invalid(format!(
            "pooling: input and output have {lens:?} elements or windows leave the input"
        )));
    }
    let ([height, width], [rows, columns]) = along_rows([height, width], [rows, columns]);
    let job = Job {
        kind,
        size: [height, width],
        windows: [rows, columns],
        regular: Regular::of(columns),
        input,
        output: Shared::new(output),
        places: places.map(Shared::new),
    };
    let work: usize = rows.iter().map(|w| w.end - w.begin).sum::<usize>() * width;
    let run = leveled_run::<T>();
    parallel_for(planes, work / 4 + rows.len() * columns.len() * 2 + 20, |from, to| {
        // Taken here: a closure would not be compiled for the level.
        scratch::with(width + columns.len(), |memory: &mut [T::Sum]| {
            scratch::with(if job.places.is_some() { width } else { 0 }, |places: &mut [i32]| {
                // SAFETY: this task alone writes these planes, which are in the input and the outputs.
                unsafe { run(&job, (from, to), memory, places) };
            });
        });
    });
    Ok(())
}

/// A plane that is one column, and its windows, as one row, which lies in memory as it does: neighbours are compared and summed side by side.
fn along_rows(
    [height, width]: [usize; 2],
    [rows, columns]: [&[PoolingWindow]; 2],
) -> ([usize; 2], [&[PoolingWindow]; 2]) {
    if width == 1 && columns.len() == 1 {
        return ([1, height], [columns, rows]);
    }
    ([height, width], [rows, columns])
}

/// What the planes of one call share.
struct Job<'a, T: Pooled> {
    kind: PoolingKind,
    /// Height and width of a plane.
    size: [usize; 2],
    /// Of rows and of columns.
    windows: [&'a [PoolingWindow]; 2],
    regular: Regular,
    input: &'a [T],
    output: Shared<T>,
    places: Option<Shared<i32>>,
}

type Run<T> = unsafe fn(&Job<'_, T>, (usize, usize), &mut [<T as Pooled>::Sum], &mut [i32]);

leveled! {
    fn leveled_run<T>(job: &Job<'_, T>, planes: (usize, usize), memory: &mut [T::Sum], line_places: &mut [i32]) -> Run<T>
    where { T: Pooled } = run
}

/// Pools planes `from` to `to`, with memory for a line of the input and one of the output, and for the places of a line of the input.
///
/// # Safety
/// They are planes of the input and the outputs, which nobody else writes.
#[inline(always)]
unsafe fn run<T: Pooled>(job: &Job<'_, T>, (from, to): (usize, usize), memory: &mut [T::Sum], line_places: &mut [i32]) {
    let Job { kind, size: [height, width], windows: [rows, columns], regular, input, output, places } = job;
    let (kind, height, width, outputs) = (*kind, *height, *width, rows.len() * columns.len());
    let (line, results) = memory.split_at_mut(width);
    for index in from..to {
        let plane = &input[index * height * width..][..height * width];
        // SAFETY: the caller's promise.
        let out = unsafe { output.part(index * outputs, outputs) };
        for (y, (row, out)) in rows.iter().zip(out.chunks_exact_mut(columns.len().max(1))).enumerate() {
            if let Some(places) = places {
                // SAFETY: as above.
                let places = unsafe { places.part(index * outputs + y * columns.len(), columns.len()) };
                largest((plane, width), row, (columns, regular), (line, line_places), (results, places));
            } else {
                reduce_rows(kind, plane, width, row, line);
                regular.reduce::<T>(kind, (row, columns), line, results);
                for x in regular.others(columns.len()) {
                    let column = &columns[x];
                    results[x] = finish::<T>(kind, row, column, &line[column.begin..column.end]);
                }
            }
            out.iter_mut().zip(&*results).for_each(|(to, &result)| *to = T::narrow(result));
        }
    }
}

impl Regular {
    /// Reduces these windows of a line side by side, tap by tap, to their places among the results.
    #[inline(always)]
    fn reduce<T: Pooled>(
        &self,
        kind: PoolingKind,
        (row, columns): (&PoolingWindow, &[PoolingWindow]),
        line: &[T::Sum],
        results: &mut [T::Sum],
    ) {
        let results = &mut results[self.range.clone()];
        match (kind, self.stride) {
            (PoolingKind::Max, 1) => self.combine::<T, 1>(T::LOWEST, larger::<T>, line, results),
            (PoolingKind::Max, 2) => self.combine::<T, 2>(T::LOWEST, larger::<T>, line, results),
            (PoolingKind::Max, _) => self.combine::<T, 0>(T::LOWEST, larger::<T>, line, results),
            (_, 1) => self.combine::<T, 1>(T::Sum::from(0), sum::<T>, line, results),
            (_, 2) => self.combine::<T, 2>(T::Sum::from(0), sum::<T>, line, results),
            (..) => self.combine::<T, 0>(T::Sum::from(0), sum::<T>, line, results),
        }
        if let (true, Some(column)) = (kind != PoolingKind::Max, columns.get(self.range.start)) {
            let count = T::count(divisor(kind, row, column).max(1));
            results.iter_mut().for_each(|sum| *sum = *sum / count);
        }
    }

    /// Combines the elements of each window, as many windows side by side as a few registers hold. `BY` is the stride, where it is known when this is
    /// compiled.
    #[inline(always)]
    fn combine<T: Pooled, const BY: usize>(
        &self,
        none: T::Sum,
        combine: impl Fn(T::Sum, T::Sum) -> T::Sum,
        line: &[T::Sum],
        results: &mut [T::Sum],
    ) {
        let by = if BY == 0 { self.stride } else { BY };
        self.assert_inside(results.len(), line.len());
        // SAFETY: asserted for the last element of the last window. A check of each would keep the loop from being vectors'.
        let at = |window: usize, tap: usize| unsafe { *line.get_unchecked(self.begin + window * by + tap) };
        for i in abreast(results.len()) {
            let mut block = [none; ABREAST];
            for tap in 0..self.length {
                for lane in 0..ABREAST {
                    block[lane] = combine(block[lane], at(i + lane, tap));
                }
            }
            results[i..i + ABREAST].copy_from_slice(&block);
        }
        for i in one_by_one(results.len()) {
            results[i] = (0..self.length).fold(none, |result, tap| combine(result, at(i, tap)));
        }
    }
}

#[inline(always)]
fn sum<T: Pooled>(x: T::Sum, y: T::Sum) -> T::Sum {
    let mut sum = x;
    sum += y;
    sum
}

/// Reduces the rows of a window to one, column by column.
#[inline(always)]
fn reduce_rows<T: Pooled>(kind: PoolingKind, plane: &[T], width: usize, row: &PoolingWindow, line: &mut [T::Sum]) {
    let rows = &plane[row.begin * width..row.end * width];
    if kind == PoolingKind::Max {
        combine_rows(T::LOWEST, larger::<T>, rows, width, line);
    } else {
        combine_rows(T::Sum::from(0), sum::<T>, rows, width, line);
    }
}

/// Some columns of all rows before the next columns: what they have become is in registers meanwhile. In memory the larger of two would be a store under a
/// mask, which takes AMD's CPUs a dozen cycles.
#[inline(always)]
fn combine_rows<T: Pooled>(
    none: T::Sum,
    combine: impl Fn(T::Sum, T::Sum) -> T::Sum,
    rows: &[T],
    width: usize,
    line: &mut [T::Sum],
) {
    for j in abreast(width) {
        let mut block = [none; ABREAST];
        for row in rows.chunks_exact(width) {
            for (result, value) in block.iter_mut().zip(&row[j..j + ABREAST]) {
                *result = combine(*result, value.widen());
            }
        }
        line[j..j + ABREAST].copy_from_slice(&block);
    }
    for j in one_by_one(width) {
        let column = rows.iter().skip(j).step_by(width);
        line[j] = column.fold(none, |result, value| combine(result, value.widen()));
    }
}

#[inline(always)]
fn finish<T: Pooled>(kind: PoolingKind, row: &PoolingWindow, column: &PoolingWindow, line: &[T::Sum]) -> T::Sum {
    if kind == PoolingKind::Max {
        return if row.begin < row.end { largest_of::<T>(line) } else { T::LOWEST };
    }
    // Four running sums let long windows (global pooling) overlap their additions, and round less.
    let mut sums = [T::Sum::from(0); 4];
    let chunks = line.chunks_exact(4);
    for &value in chunks.remainder() {
        sums[0] += value;
    }
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    let [mut sum, b, mut c, d] = sums;
    sum += b;
    c += d;
    sum += c;
    sum / T::count(divisor(kind, row, column).max(1))
}

/// The largest number, of several that are found side by side where there are many.
#[inline(always)]
fn largest_of<T: Pooled>(line: &[T::Sum]) -> T::Sum {
    let mut most = [T::LOWEST; ABREAST];
    let chunks = line.chunks_exact(ABREAST);
    let rest = chunks.remainder().iter();
    for chunk in chunks {
        for lane in 0..ABREAST {
            most[lane] = larger::<T>(most[lane], chunk[lane]);
        }
    }
    most.iter().chain(rest).fold(T::LOWEST, |most, &value| larger::<T>(most, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest element of a window, NaN where there is one, and the first place of it.
    fn largest_of_window(line: &[f32], window: &PoolingWindow) -> (f32, i32) {
        let mut best = (f32::MIN, -1);
        for (i, &value) in line.iter().enumerate().take(window.end).skip(window.begin) {
            if best.1 < 0 || value > best.0 || value.is_nan() && !best.0.is_nan() {
                best = (value, i as i32);
            }
        }
        best
    }

    #[test]
    fn a_column_is_a_row_and_long_windows_have_the_first_of_their_largest() {
        let numbers = |i: usize| if i % 97 == 31 { f32::NAN } else { (i * 37 % 23) as f32 - 30.0 };
        for (length, kernel, stride) in [(126, 126, 1), (126, 40, 7), (64, 16, 16), (50, 9, 3), (31, 2, 2), (1, 1, 1)] {
            let windows = strided_windows(length, (length - kernel) / stride + 1, kernel, stride, [0; 2]);
            let one = strided_windows(1, 1, 1, 1, [0; 2]);
            let (planes, outputs) = (3, windows.len());
            let input: Vec<f32> = (0..planes * length).map(numbers).collect();
            for (size, rows, columns) in [([length, 1], &windows, &one), ([1, length], &one, &windows)] {
                let (mut most, mut places) = (vec![0.0; planes * outputs], vec![0; planes * outputs]);
                let mut alone = most.clone();
                pool(PoolingKind::Max, planes, size, rows, columns, &input, &mut most, Some(&mut places)).unwrap();
                pool(PoolingKind::Max, planes, size, rows, columns, &input, &mut alone, None).unwrap();
                for at in 0..planes * outputs {
                    let plane = &input[at / outputs * length..][..length];
                    let (value, place) = largest_of_window(plane, &windows[at % outputs]);
                    let found = (most[at].to_bits(), alone[at].to_bits(), places[at]);
                    assert_eq!(found, (value.to_bits(), value.to_bits(), place), "{size:?} {kernel} {stride} {at}");
                }
            }
        }
    }
}
