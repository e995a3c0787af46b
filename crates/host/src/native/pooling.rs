//! Two-dimensional pooling of planes: largest element (with its place, if wanted) or average.

mod global;
mod gradient;

pub use global::global_average;
pub use gradient::pool_backward;

use super::{Shared, scratch};
use crate::Error;
use crate::threads::parallel_for;
use crate::vector::leveled;
use half::{bf16, f16};

/// What a window is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolingKind {
    /// The largest element; NaN if there is one.
    Max,
    /// The sum divided by the number of elements inside the input.
    Average,
    /// The sum divided by the number of elements of the window inside the padded input.
    AverageWithPadding,
}

/// The windows of one axis: output i reduces the elements from `begin` to `end`, of `size` with padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolingWindow {
    /// The first element.
    pub begin: usize,
    /// One past the last element.
    pub end: usize,
    /// How many elements there are when padding counts.
    pub size: usize,
}

/// The windows of an axis with a kernel: `kernel` elements every `stride`, the input padded by `padding` on both ends.
pub fn strided_windows(
    input: usize,
    output: usize,
    kernel: usize,
    stride: usize,
    padding: [usize; 2],
) -> Vec<PoolingWindow> {
    (0..output)
        .map(|i| {
            let last = (i * stride + kernel).min(input + padding[0] + padding[1]);
            let begin = (i * stride).saturating_sub(padding[0]).min(input);
            let end = last.saturating_sub(padding[0]).clamp(begin, input);
            PoolingWindow { begin, end, size: last.saturating_sub(i * stride) }
        })
        .collect()
}

/// The windows that cut an axis into `output` parts of nearly equal size, which may overlap by one element.
pub fn adaptive_windows(input: usize, output: usize) -> Vec<PoolingWindow> {
    (0..output)
        .map(|i| {
            let (begin, end) = (i * input / output, ((i + 1) * input).div_ceil(output));
            PoolingWindow { begin, end, size: end - begin }
        })
        .collect()
}

/// An element type that can be pooled; sums are made in `Sum`.
pub trait Pooled: Copy + Send + Sync {
    /// The type of sums.
    type Sum: super::scratch::Plain
        + Copy
        + PartialOrd
        + std::ops::AddAssign
        + std::ops::Div<Output = Self::Sum>
        + From<u16>;
    /// The smallest finite number, the result of an empty window.
    const LOWEST: Self::Sum;
    /// The element as a sum.
    fn widen(self) -> Self::Sum;
    /// A sum rounded to an element.
    fn narrow(sum: Self::Sum) -> Self;
    /// A number of elements as a sum.
    fn count(count: usize) -> Self::Sum;
}

macro_rules! pooled {
    ($($type:ty, $sum:ty, $lowest:expr, $widen:expr, $narrow:expr;)*) => {$(
        impl Pooled for $type {
            type Sum = $sum;
            const LOWEST: $sum = $lowest;
            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(sum: $sum) -> Self {
                $narrow(sum)
            }
            #[inline(always)]
            fn count(count: usize) -> $sum {
                count as $sum
            }
        }
    )*};
}

pooled! {
    f32, f32, f32::MIN, |x| x, |x| x;
    f64, f64, f64::MIN, |x| x, |x| x;
    f16, f32, -65504.0, f16::to_f32, f16::from_f32;
    bf16, f32, -3.389_531_4e38, bf16::to_f32, bf16::from_f32;
}

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
    let lens = (planes * height * width, planes * rows.len() * columns.len());
    let inside = rows.iter().all(|w| w.end <= height) && columns.iter().all(|w| w.end <= width);
    if (input.len(), output.len()) != lens || places.as_ref().is_some_and(|p| p.len() != lens.1) || !inside {
        let lens = (input.len(), output.len(), lens);
        return Err(Error::Invalid(format!(
            "pooling: input and output have {lens:?} elements or windows leave the input"
        )));
    }
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
        scratch::with(width + job.regular.range.len(), |memory: &mut [T::Sum]| {
            scratch::with(if job.places.is_some() { width } else { 0 }, |places: &mut [i32]| {
                // SAFETY: this task alone writes these planes, which are in the input and the outputs.
                unsafe { run(&job, (from, to), memory, places) };
            });
        });
    });
    Ok(())
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

/// Pools planes `from` to `to`, with memory for a line of the input and one of results, and for the places of a line.
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
        if let Some(places) = places {
            // SAFETY: as above.
            let places = unsafe { places.part(index * outputs, outputs) };
            largest((plane, width), rows, (columns, regular), (out, places), (line, line_places, results));
            continue;
        }
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(columns.len().max(1))) {
            reduce_rows(kind, plane, width, row, line);
            regular.reduce::<T>(kind, line, results);
            for (x, (column, out)) in columns.iter().zip(out).enumerate() {
                *out = T::narrow(match results.get(x.wrapping_sub(regular.range.start)) {
                    Some(&result) => averaged::<T>(kind, row, column, result),
                    None => finish::<T>(kind, row, column, &line[column.begin..column.end]),
                });
            }
        }
    }
}

/// The windows in the middle of an axis that are equally long and equally far apart: all but those at the padding.
struct Regular {
    /// Which windows.
    range: std::ops::Range<usize>,
    begin: usize,
    stride: usize,
    length: usize,
}

impl Regular {
    /// Longer windows are summed up by several sums each.
    const LONGEST: usize = 8;

    fn of(windows: &[PoolingWindow]) -> Regular {
        let len = |window: &PoolingWindow| window.end - window.begin;
        let length = windows.iter().map(len).max().unwrap_or(0);
        let none = Regular { range: 0..0, begin: 0, stride: 1, length: 0 };
        let Some(first) = windows.iter().position(|window| len(window) == length) else { return none };
        let Some(next) = windows.get(first + 1) else { return none };
        let (begin, stride) = (windows[first].begin, next.begin.saturating_sub(windows[first].begin));
        let is_next =
            |(k, window): &(usize, &PoolingWindow)| len(window) == length && window.begin == begin + k * stride;
        let count = windows[first..].iter().enumerate().take_while(is_next).count();
        if stride == 0 || !(1..=Regular::LONGEST).contains(&length) {
            return none;
        }
        Regular { range: first..first + count, begin, stride, length }
    }

    /// Reduces these windows of a line side by side, tap by tap.
    #[inline(always)]
    fn reduce<T: Pooled>(&self, kind: PoolingKind, line: &[T::Sum], results: &mut [T::Sum]) {
        for tap in 0..self.length {
            let line = &line[(self.begin + tap).min(line.len())..];
            if self.stride == 1 {
                gather::<T>(kind, tap == 0, line.iter(), results);
            } else {
                gather::<T>(kind, tap == 0, line.iter().step_by(self.stride), results);
            }
        }
    }

    /// The largest elements of these windows and their places, of those of a line, tap by tap.
    #[inline(always)]
    fn largest<T: Pooled>(&self, line: (&[T::Sum], &[i32]), best: (&mut [T::Sum], &mut [i32])) {
        let (most, places) = best;
        most.fill(T::LOWEST);
        places.fill(-1);
        for tap in (0..self.length).map(|tap| self.begin + tap) {
            let line = (&line.0[tap.min(line.0.len())..], &line.1[tap.min(line.1.len())..]);
            match self.stride {
                1 => take_each::<T, 1>(line, 1, (&mut *most, &mut *places)),
                2 => take_each::<T, 2>(line, 2, (&mut *most, &mut *places)),
                by => take_each::<T, 0>(line, by, (&mut *most, &mut *places)),
            }
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
#[allow(clippy::eq_op)]
fn larger<T: Pooled>(most: T::Sum, value: T::Sum) -> T::Sum {
    // A value that differs from itself is NaN, which stays.
    if value > most || value != value { value } else { most }
}

#[inline(always)]
fn finish<T: Pooled>(kind: PoolingKind, row: &PoolingWindow, column: &PoolingWindow, line: &[T::Sum]) -> T::Sum {
    if kind == PoolingKind::Max {
        let all = row.begin < row.end;
        return if all { line.iter().fold(T::LOWEST, |most, &value| larger::<T>(most, value)) } else { T::LOWEST };
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
    averaged::<T>(kind, row, column, sum)
}

/// What a window's largest element or sum becomes.
#[inline(always)]
fn averaged<T: Pooled>(kind: PoolingKind, row: &PoolingWindow, column: &PoolingWindow, sum: T::Sum) -> T::Sum {
    if kind == PoolingKind::Max {
        return sum;
    }
    let count = divisor(kind, row, column);
    if count == 0 { T::Sum::from(0) } else { sum / T::count(count) }
}

/// By what a window's sum is divided.
#[inline(always)]
fn divisor(kind: PoolingKind, row: &PoolingWindow, column: &PoolingWindow) -> usize {
    match kind {
        PoolingKind::AverageWithPadding => row.size * column.size,
        PoolingKind::Average | PoolingKind::Max => (row.end - row.begin) * (column.end - column.begin),
    }
}

/// Elements that are compared side by side.
const ABREAST: usize = 16;

/// The largest element of every window and its index in the plane; of equal ones the first. First down the rows, then along the line of their largest.
#[inline(always)]
fn largest<T: Pooled>(
    (plane, width): (&[T], usize),
    rows: &[PoolingWindow],
    (columns, regular): (&[PoolingWindow], &Regular),
    (out, places): (&mut [T], &mut [i32]),
    (line, line_places, results): (&mut [T::Sum], &mut [i32], &mut [T::Sum]),
) {
    let lines = out.chunks_exact_mut(columns.len().max(1)).zip(places.chunks_exact_mut(columns.len().max(1)));
    // As long as the lines of the input, which the compiler then knows.
    let (line, line_places) = (&mut line[..width], &mut line_places[..width]);
    for (row, (out, places)) in rows.iter().zip(lines) {
        line.fill(T::LOWEST);
        line_places.fill(-1);
        for i in row.begin..row.end {
            let source = &plane[i * width..][..width];
            // Planes have fewer elements than an `i32` counts to.
            let first = (i * width) as i32;
            for j in abreast(width) {
                let (mut values, mut at) = ([T::LOWEST; ABREAST], [0; ABREAST]);
                for lane in 0..ABREAST {
                    values[lane] = source[j + lane].widen();
                    at[lane] = first + (j + lane) as i32;
                }
                take_abreast::<T>(&values, &at, &mut line[j..j + ABREAST], &mut line_places[j..j + ABREAST]);
            }
            for j in one_by_one(width) {
                take_larger::<T>((source[j].widen(), first + j as i32), (&mut line[j], &mut line_places[j]));
            }
        }
        regular.largest::<T>((line, line_places), (results, &mut places[regular.range.clone()]));
        for (x, (column, out)) in columns.iter().zip(out).enumerate() {
            if let Some(&most) = results.get(x.wrapping_sub(regular.range.start)) {
                *out = T::narrow(most);
                continue;
            }
            let (mut most, mut place) = (T::LOWEST, -1);
            for j in column.begin..column.end {
                take_larger::<T>((line[j], line_places[j]), (&mut most, &mut place));
            }
            *out = T::narrow(most);
            places[x] = place;
        }
    }
}

/// [`take_larger`] of elements `by` apart in a line, each for a window of its own. `BY` is that distance, where it is known when this is compiled.
#[inline(always)]
fn take_each<T: Pooled, const BY: usize>(
    (values, from): (&[T::Sum], &[i32]),
    by: usize,
    (most, places): (&mut [T::Sum], &mut [i32]),
) {
    let by = if BY == 0 { by } else { BY };
    let count = most.len();
    let places = &mut places[..count];
    assert!(count == 0 || (count - 1) * by < values.len().min(from.len()), "a window leaves the line");
    for i in abreast(count) {
        let (mut some, mut at) = ([T::LOWEST; ABREAST], [0; ABREAST]);
        for lane in 0..ABREAST {
            // SAFETY: in the line, as asserted for the last one. A check of each would keep the loop from being vectors'.
            (some[lane], at[lane]) =
                unsafe { (*values.get_unchecked((i + lane) * by), *from.get_unchecked((i + lane) * by)) };
        }
        take_abreast::<T>(&some, &at, &mut most[i..i + ABREAST], &mut places[i..i + ABREAST]);
    }
    for i in one_by_one(count) {
        take_larger::<T>((values[i * by], from[i * by]), (&mut most[i], &mut places[i]));
    }
}

/// Where as many elements as are compared side by side begin, the last ones at the end of the line: an element that is taken twice changes nothing.
#[inline(always)]
fn abreast(len: usize) -> impl Iterator<Item = usize> {
    (0..len / ABREAST * ABREAST)
        .step_by(ABREAST)
        .chain((!len.is_multiple_of(ABREAST) && len > ABREAST).then(|| len - ABREAST))
}

/// The elements of a line that is too short for that.
#[inline(always)]
fn one_by_one(len: usize) -> std::ops::Range<usize> {
    0..if len < ABREAST { len } else { 0 }
}

/// [`take_larger`] of as many elements, each for a line's next place: first all are read, and then all written, so that they are vectors.
#[inline(always)]
fn take_abreast<T: Pooled>(values: &[T::Sum; ABREAST], at: &[i32; ABREAST], most: &mut [T::Sum], places: &mut [i32]) {
    let most: &mut [T::Sum; ABREAST] = most.try_into().expect("as many");
    let places: &mut [i32; ABREAST] = places.try_into().expect("as many");
    let (mut best, mut best_places) = (*most, *places);
    for lane in 0..ABREAST {
        (best[lane], best_places[lane]) = better::<T>((values[lane], at[lane]), (best[lane], best_places[lane]));
    }
    (*most, *places) = (best, best_places);
}

/// The element or the largest one so far, if it is larger, not a number where that is one, or equal to it and in front of it; with the place of the
/// first of all. Where there is no element its place is negative.
#[inline(always)]
fn better<T: Pooled>((value, at): (T::Sum, i32), (most, place): (T::Sum, i32)) -> (T::Sum, i32) {
    let is_like = (value == most) | (is_nan(value) & is_nan(most));
    let is_larger = (value > most) | (is_nan(value) & !is_nan(most));
    let is_better = (is_larger | (is_like & (at < place))) & (at >= 0);
    // A number below the lowest finite one is not taken, but for its place.
    (larger::<T>(most, value), if (place < 0) | is_better { at } else { place })
}

/// [`better`] in place.
#[inline(always)]
fn take_larger<T: Pooled>(element: (T::Sum, i32), (most, place): (&mut T::Sum, &mut i32)) {
    (*most, *place) = better::<T>(element, (*most, *place));
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<S: PartialOrd + Copy>(value: S) -> bool {
    value != value
}
