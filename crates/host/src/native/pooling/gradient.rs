//! Gradients of pooling.

use super::along_rows;
use super::element::Pooled;
use super::places::largest;
use super::windows::{PoolingKind, PoolingWindow, Regular, divisor};
use crate::Error;
use crate::native::{Shared, elements, scratch};
use crate::threads::parallel_for;
use crate::vector::leveled;

/// The gradient of [`pool`](super::pool) with respect to its input: the first of a window's largest elements receives the window's gradient, or all
/// elements equal shares of it.
#[allow(clippy::too_many_arguments)]
pub fn pool_backward<T: Pooled>(
    kind: PoolingKind,
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[PoolingWindow],
    columns: &[PoolingWindow],
    input: &[T],
    upstream: &[T],
    gradient: &mut [T],
) -> Result<(), Error> {
    let [outputs, inputs] =
        [[planes, rows.len(), columns.len()], [planes, height, width]].map(|sizes| elements(&sizes));
    let inside = rows.iter().all(|w| w.lies_in(height)) && columns.iter().all(|w| w.lies_in(width));
    let lens = [upstream.len(), input.len(), gradient.len()];
    if lens != [outputs, inputs, inputs] || !inside {
        return Err(Error::Invalid(format!(
            "pooling gradient: upstream, input and gradient have {lens:?} elements of {:?}, or windows leave the input",
            [outputs, inputs, inputs]
        )));
    }
    let ([height, width], [rows, columns]) = along_rows([height, width], [rows, columns]);
    let (regular, gradient) = (Regular::of(columns), Shared::new(gradient));
    let job = Job { kind, size: [height, width], windows: [rows, columns], regular, input, upstream, gradient };
    let (run, size) = (leveled_run::<T>(), rows.len() * columns.len());
    parallel_for(planes, height * width + 4 * size, |from, to| {
        scratch::with((height + 1) * width + columns.len(), |memory: &mut [T::Sum]| {
            let places = if kind == PoolingKind::Max { width + columns.len() } else { 0 };
            scratch::with(places, |places: &mut [i32]| {
                // SAFETY: this task alone writes these planes, of which the lengths above are.
                unsafe { run(&job, (from, to), memory, places) };
            });
        });
    });
    Ok(())
}

/// The gradient of pooling by the place of each window's largest element in its plane, as [`pool`](super::pool) gives them. What has a place in no plane, as
/// windows without elements have, receives nothing.
pub fn pool_backward_at<T: Pooled>(
    planes: usize,
    upstream: &[T],
    places: &[i32],
    gradient: &mut [T],
) -> Result<(), Error> {
    let lens = [upstream.len(), places.len(), gradient.len()];
    let is_cut = |len: usize| len == 0 || planes > 0 && len.is_multiple_of(planes);
    if lens[0] != lens[1] || !lens.into_iter().all(is_cut) {
        return Err(Error::Invalid(format!(
            "pooling gradient: upstream, places and gradient have {lens:?} elements, expected as many of the first two, of {planes} planes"
        )));
    }
    let [outputs, _, plane] = lens.map(|len| len / planes.max(1));
    let gradient = Shared::new(gradient);
    parallel_for(planes, plane + 4 * outputs, |from, to| {
        scratch::with(plane, |sums: &mut [T::Sum]| {
            for index in from..to {
                sums.fill(T::Sum::from(0));
                let of_plane = index * outputs..(index + 1) * outputs;
                add_at(&upstream[of_plane.clone()], &places[of_plane], sums);
                // SAFETY: this task alone writes these planes, which the lengths above hold.
                let out = unsafe { gradient.part(index * plane, plane) };
                out.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::narrow(sum));
            }
        });
    });
    Ok(())
}

/// Adds each element to the sum at its place, if it has one.
#[inline(always)]
fn add_at<T: Pooled>(upstream: &[T], places: &[i32], sums: &mut [T::Sum]) {
    for (&place, up) in places.iter().zip(upstream) {
        if let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) {
            *sum += up.widen();
        }
    }
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
    upstream: &'a [T],
    gradient: Shared<T>,
}

type Run<T> = unsafe fn(&Job<'_, T>, (usize, usize), &mut [<T as Pooled>::Sum], &mut [i32]);

leveled! {
    fn leveled_run<T>(job: &Job<'_, T>, planes: (usize, usize), memory: &mut [T::Sum], places: &mut [i32]) -> Run<T>
    where { T: Pooled } = run
}

/// The gradients of planes `from` to `to`, with memory for a plane's sums, a line of them and one of the output, and for the places of both lines.
///
/// # Safety
/// They are planes of all tensors, and nobody else writes these gradients.
#[inline(always)]
unsafe fn run<T: Pooled>(job: &Job<'_, T>, (from, to): (usize, usize), memory: &mut [T::Sum], places: &mut [i32]) {
    let Job { kind, size: [height, width], windows: [rows, columns], regular, input, upstream, gradient } = job;
    let (plane, width, outputs) = (height * width, *width, rows.len() * columns.len());
    let (sums, memory) = memory.split_at_mut(plane);
    let (line, shares) = memory.split_at_mut(width);
    for index in from..to {
        sums.fill(T::Sum::from(0));
        let upstream = upstream[index * outputs..][..outputs].chunks_exact(columns.len().max(1));
        for (row, upstream) in rows.iter().zip(upstream) {
            if *kind == PoolingKind::Max {
                let (line_places, places) = places.split_at_mut(width);
                let input = &input[index * plane..][..plane];
                largest((input, width), row, (columns, regular), (line, line_places), (shares, places));
                add_at(upstream, places, sums);
            } else {
                line.fill(T::Sum::from(0));
                spread(*kind, row, (columns, regular), upstream, (line, shares));
                for sums in sums[row.begin * width..row.end * width].chunks_exact_mut(width.max(1)) {
                    sums.iter_mut().zip(&*line).for_each(|(sum, &share)| *sum += share);
                }
            }
        }
        // SAFETY: the caller's promise.
        let out = unsafe { gradient.part(index * plane, plane) };
        out.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::narrow(sum));
    }
}

/// Adds each window's share to its elements of a line.
#[inline(always)]
fn spread<T: Pooled>(
    kind: PoolingKind,
    row: &PoolingWindow,
    (columns, regular): (&[PoolingWindow], &Regular),
    upstream: &[T],
    (line, shares): (&mut [T::Sum], &mut [T::Sum]),
) {
    let count = |column: &PoolingWindow| T::count(divisor(kind, row, column).max(1));
    if let Some(column) = columns.get(regular.range.start) {
        let (upstream, count) = (&upstream[regular.range.clone()], count(column));
        let shares = &mut shares[regular.range.clone()];
        shares.iter_mut().zip(upstream).for_each(|(share, up)| *share = up.widen() / count);
        regular.add::<T>(shares, line);
    }
    for x in regular.others(columns.len()) {
        let (column, share) = (&columns[x], upstream[x].widen() / count(&columns[x]));
        line[column.begin..column.end].iter_mut().for_each(|sum| *sum += share);
    }
}

impl Regular {
    /// Adds the shares of these windows to a line, tap by tap.
    #[inline(always)]
    fn add<T: Pooled>(&self, shares: &[T::Sum], line: &mut [T::Sum]) {
        for tap in 0..self.length {
            let begin = (self.begin + tap).min(line.len());
            let line = &mut line[begin..];
            match self.stride {
                1 => line.iter_mut().zip(shares).for_each(|(sum, &share)| *sum += share),
                2 => {
                    let (pairs, rest) = line.as_chunks_mut::<2>();
                    let (paired, last) = shares.split_at(pairs.len().min(shares.len()));
                    pairs.iter_mut().zip(paired).for_each(|([sum, _], &share)| *sum += share);
                    rest.iter_mut().zip(last).for_each(|(sum, &share)| *sum += share);
                }
                stride => line.iter_mut().step_by(stride).zip(shares).for_each(|(sum, &share)| *sum += share),
            }
        }
    }
}
