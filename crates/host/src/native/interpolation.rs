//! Resizing planes: nearest element, or the weighted mean of the four around a point.

use super::lanes::{Lanes, at_level};
use super::pooling::Pooled;
use super::{Shared, elements, scratch};
use crate::Error;
use crate::threads::parallel_for;
use std::any::TypeId;

/// Where an output row or column reads: `(1 - weight) * input[low] + weight * input[high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// The element at or before the point.
    pub low: usize,
    /// The element after it.
    pub high: usize,
    /// The share of `high`.
    pub weight: f32,
}

/// Copies for every plane of `input` (planes, height, width) the elements at `rows` x `columns`.
pub fn nearest<T: Copy + Send + Sync + 'static>(
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[usize],
    columns: &[usize],
    input: &[T],
    output: &mut [T],
) -> Result<(), Error> {
    let size = rows.len() * columns.len();
    let lens = [[planes, height, width], [planes, rows.len(), columns.len()]];
    check(lens, [input.len(), output.len()])?;
    if rows.iter().any(|&y| y >= height) || columns.iter().any(|&x| x >= width) {
        return Err(Error::Invalid(format!("nearest: a place lies outside {height} x {width}")));
    }
    // Every column once, twice, four times...: the usual case, which needs no table.
    let times = columns.len().checked_div(width).unwrap_or(0);
    let repeated =
        times >= 1 && columns.len() == times * width && columns.iter().enumerate().all(|(i, &x)| x == i / times);
    let output = Shared::new(output);
    parallel_for(planes, size / 4 + 20, |from, to| {
        for plane in from..to {
            let source = &input[plane * height * width..][..height * width];
            // SAFETY: this task alone writes this plane.
            let out = unsafe { output.part(plane * size, size) };
            for (i, &y) in rows.iter().enumerate() {
                let (before, line) = out.split_at_mut(i * columns.len());
                let line = &mut line[..columns.len()];
                if i > 0 && rows[i - 1] == y {
                    line.copy_from_slice(&before[(i - 1) * columns.len()..]);
                    continue;
                }
                let row = &source[y * width..][..width];
                match (repeated, times) {
                    (true, 1) => line.copy_from_slice(row),
                    (true, 2) if TypeId::of::<T>() == TypeId::of::<u32>() => {
                        let (from, to) = (row.as_ptr().cast::<f32>(), line.as_mut_ptr().cast::<f32>());
                        // SAFETY: the row has `width` integers, aligned as floats are, the line twice as many; they are only moved.
                        unsafe { at_level!(double(from: *const f32, to: *mut f32, width: usize)) }
                    }
                    (true, _) => line.chunks_exact_mut(times).zip(row).for_each(|(to, &value)| to.fill(value)),
                    _ => line.iter_mut().zip(columns).for_each(|(to, &x)| *to = row[x]),
                }
            }
        }
    });
    Ok(())
}

/// Whether an input and an output of so many elements have these sizes: planes, height and width.
fn check(sizes: [[usize; 3]; 2], got: [usize; 2]) -> Result<(), Error> {
    if sizes.map(|sizes| elements(&sizes)) == got {
        return Ok(());
    }
    Err(Error::Invalid(format!("interpolation: input and output have {got:?} elements, their sizes are {sizes:?}")))
}

#[inline(always)]
unsafe fn double<V: Lanes>(from: *const f32, to: *mut f32, count: usize) {
    let mut x = 0;
    // SAFETY: the caller vouches for `count` elements and for twice as many.
    unsafe {
        while x + V::N <= count {
            let value = V::load(from.add(x));
            V::store_by_2([value, value], to.add(2 * x));
            x += V::N;
        }
        while x < count {
            *to.add(2 * x) = *from.add(x);
            *to.add(2 * x + 1) = *from.add(x);
            x += 1;
        }
    }
}

/// Mixes for every plane of `input` (planes, height, width) the four elements around each point of `rows` x `columns`.
pub fn bilinear<T>(
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[Tap],
    columns: &[Tap],
    input: &[T],
    output: &mut [T],
) -> Result<(), Error>
where
    T: Pooled,
    T::Sum:
        From<f32> + std::ops::Mul<Output = T::Sum> + std::ops::Add<Output = T::Sum> + std::ops::Sub<Output = T::Sum>,
{
    let size = rows.len() * columns.len();
    let lens = [[planes, height, width], [planes, rows.len(), columns.len()]];
    check(lens, [input.len(), output.len()])?;
    if rows.iter().any(|t| t.low.max(t.high) >= height) || columns.iter().any(|t| t.low.max(t.high) >= width) {
        return Err(Error::Invalid(format!("bilinear: a place lies outside {height} x {width}")));
    }
    let output = Shared::new(output);
    parallel_for(planes, size + 20, |from, to| {
        scratch::with(width, |line: &mut [T::Sum]| {
            for plane in from..to {
                let source = &input[plane * height * width..][..height * width];
                // SAFETY: this task alone writes this plane.
                let out = unsafe { output.part(plane * size, size) };
                for (row, out) in rows.iter().zip(out.chunks_exact_mut(columns.len().max(1))) {
                    let (low, high) = (&source[row.low * width..][..width], &source[row.high * width..][..width]);
                    let b = T::Sum::from(row.weight);
                    let a = T::Sum::from(1.0_f32) - b;
                    for ((mixed, low), high) in line.iter_mut().zip(low).zip(high) {
                        *mixed = low.widen() * a + high.widen() * b;
                    }
                    for (column, out) in columns.iter().zip(out) {
                        let b = T::Sum::from(column.weight);
                        let a = T::Sum::from(1.0_f32) - b;
                        *out = T::narrow(line[column.low] * a + line[column.high] * b);
                    }
                }
            }
        });
    });
    Ok(())
}

/// The gradient of a resized plane by its input: each element of `upstream` goes to the four elements that it was mixed of.
pub fn gradient<T>(
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[Tap],
    columns: &[Tap],
    upstream: &[T],
    output: &mut [T],
) -> Result<(), Error>
where
    T: Pooled,
    T::Sum:
        From<f32> + std::ops::Mul<Output = T::Sum> + std::ops::Add<Output = T::Sum> + std::ops::Sub<Output = T::Sum>,
{
    let lens = [[planes, rows.len(), columns.len()], [planes, height, width]];
    check(lens, [upstream.len(), output.len()])?;
    let (size, plane_size) = (elements(&lens[0][1..]), elements(&lens[1][1..]));
    if rows.iter().any(|t| t.low.max(t.high) >= height) || columns.iter().any(|t| t.low.max(t.high) >= width) {
        return Err(Error::Invalid(format!("interpolation: a place lies outside {height} x {width}")));
    }
    let (output, length) = (Shared::new(output), columns.len());
    parallel_for(planes, 2 * size + 20, |from, to| {
        scratch::with(plane_size + height * length, |memory: &mut [T::Sum]| {
            let (sums, lines) = memory.split_at_mut(plane_size);
            for plane in from..to {
                let upstream = &upstream[plane * size..][..size];
                add_rows(rows, upstream, length, lines);
                sums.fill(T::Sum::from(0.0_f32));
                for (line, sums) in lines.chunks_exact(length.max(1)).zip(sums.chunks_exact_mut(width.max(1))) {
                    for (column, &value) in columns.iter().zip(line) {
                        shares(column).for_each(|(x, share)| sums[x] += value * share);
                    }
                }
                // SAFETY: this task alone writes this plane.
                let out = unsafe { output.part(plane * plane_size, plane_size) };
                out.iter_mut().zip(&*sums).for_each(|(out, &sum)| *out = T::narrow(sum));
            }
        });
    });
    Ok(())
}

/// The gradient of lines that are mixed of `lines`, whose sums it becomes.
fn add_rows<T>(rows: &[Tap], upstream: &[T], length: usize, lines: &mut [T::Sum])
where
    T: Pooled,
    T::Sum: From<f32> + std::ops::Mul<Output = T::Sum> + std::ops::Sub<Output = T::Sum>,
{
    lines.fill(T::Sum::from(0.0_f32));
    for (row, upstream) in rows.iter().zip(upstream.chunks_exact(length.max(1))) {
        for (y, share) in shares::<T::Sum>(row) {
            let line = &mut lines[y * length..][..length];
            line.iter_mut().zip(upstream).for_each(|(sum, &value)| *sum += value.widen() * share);
        }
    }
}

/// The elements that one was mixed of, and their shares: one element, where both are the same.
fn shares<S>(tap: &Tap) -> impl Iterator<Item = (usize, S)>
where
    S: Copy + From<f32> + std::ops::Sub<Output = S>,
{
    let (one, high) = (S::from(1.0_f32), S::from(tap.weight));
    let shares = if tap.low == tap.high { [(tap.low, one); 2] } else { [(tap.low, one - high), (tap.high, high)] };
    shares.into_iter().take(if tap.low == tap.high { 1 } else { 2 })
}
