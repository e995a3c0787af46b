//! Two-dimensional pooling of planes: largest element (with its place, if wanted) or average.

mod element;
mod global;
mod gradient;
mod places;
mod windows;

pub use element::Pooled;
pub use global::global_average;
pub use gradient::pool_backward;
pub use windows::{PoolingKind, PoolingWindow, adaptive_windows, strided_windows};

use super::{Shared, elements, scratch};
use crate::Error;
use crate::threads::parallel_for;
use crate::vector::leveled;
use element::larger;
use places::{ABREAST, largest};
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
        for tap in 0..self.length {
            let (line, is_first) = (&line[(self.begin + tap).min(line.len())..], tap == 0);
            match self.stride {
                1 => gather::<T>(kind, is_first, line.iter(), results),
                2 => {
                    // By pairs, whose first elements are taken side by side; the last window may have half of one.
                    let (pairs, rest) = line.as_chunks::<2>();
                    let (paired, last) = results.split_at_mut(pairs.len().min(results.len()));
                    gather::<T>(kind, is_first, pairs.iter().map(|[value, _]| value), paired);
                    gather::<T>(kind, is_first, rest.iter(), last);
                }
                stride => gather::<T>(kind, is_first, line.iter().step_by(stride), results),
            }
        }
        if let (true, Some(column)) = (kind != PoolingKind::Max, columns.get(self.range.start)) {
            let count = T::count(divisor(kind, row, column).max(1));
            results.iter_mut().for_each(|sum| *sum = *sum / count);
        }
    }
}

/// Adds a tap of each window to its result.
#[inline(always)]
fn gather<'a, T: Pooled>(
    kind: PoolingKind,
    is_first: bool,
    values: impl Iterator<Item = &'a T::Sum>,
    results: &mut [T::Sum],
) where
    T::Sum: 'a,
{
    let pairs = results.iter_mut().zip(values);
    match kind {
        _ if is_first => pairs.for_each(|(result, &value)| *result = value),
        PoolingKind::Max => pairs.for_each(|(most, &value)| *most = larger::<T>(*most, value)),
        PoolingKind::Average | PoolingKind::AverageWithPadding => pairs.for_each(|(sum, &value)| *sum += value),
    }
}

/// Reduces the rows of a window to one, column by column.
#[inline(always)]
fn reduce_rows<T: Pooled>(kind: PoolingKind, plane: &[T], width: usize, row: &PoolingWindow, line: &mut [T::Sum]) {
    line.fill(if kind == PoolingKind::Max { T::LOWEST } else { T::Sum::from(0) });
    for source in plane[row.begin * width..row.end * width].chunks_exact(width.max(1)) {
        if kind == PoolingKind::Max {
            line.iter_mut().zip(source).for_each(|(most, value)| *most = larger::<T>(*most, value.widen()));
        } else {
            line.iter_mut().zip(source).for_each(|(sum, value)| *sum += value.widen());
        }
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
