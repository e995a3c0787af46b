//! Copies of a band of the input in which every tap of every filter reads consecutive numbers.
//!
//! Rows and columns are sorted by their remainder modulo the stride ("phases") and padded with zeros. The output pixel
//! q = row * pitch + column of the band then reads, for tap (i, j), the number at `offset(i, j) + q`: one vector load covers
//! neighbouring outputs whatever the stride, and runs on from one row to the next.

use super::shape::Convolution;
use crate::native::lanes::{Lanes, WIDEST, at_level};

/// The layout of such copies for bands of up to `rows` output rows.
pub(crate) struct Window {
    /// Elements from one output row to the next, in the copy and in results that use its numbering.
    pub pitch: usize,
    /// Elements of one channel's copy.
    pub channel: usize,
    rows: usize,
    row_phases: Vec<usize>,
    column_phases: Vec<usize>,
}

/// Numbers behind the last channel that kernels may read (and discard).
pub(crate) const SLACK: usize = 64;

/// The remainders modulo the step that a filter's taps have.
pub(super) fn phases(kernel: usize, dilation: usize, stride: usize) -> Vec<usize> {
    (0..stride).filter(|&phase| (0..kernel).any(|tap| tap * dilation % stride == phase)).collect()
}

impl Window {
    /// The layout for bands of `rows` output rows whose pitch is a multiple of `align`.
    pub(crate) fn new(shape: &Convolution, rows: usize, align: usize) -> Window {
        let reach = |axis: usize| (shape.kernel[axis] - 1) * shape.dilation[axis] / shape.stride[axis];
        let row_phases = phases(shape.kernel[0], shape.dilation[0], shape.stride[0]);
        let column_phases = phases(shape.kernel[1], shape.dilation[1], shape.stride[1]);
        let pitch = (shape.output()[1] + reach(1)).next_multiple_of(align);
        let rows = rows + reach(0);
        let mut channel = row_phases.len() * column_phases.len() * rows * pitch;
        // Channels a page apart would evict each other from the first-level cache.
        if channel.is_multiple_of(256) {
            channel += 16;
        }
        Window { pitch, channel, rows, row_phases, column_phases }
    }

    /// Where the copy of channel 0 keeps what tap (i, j) reads for the band's first output.
    pub(crate) fn offset(&self, shape: &Convolution, i: usize, j: usize) -> usize {
        let (row, column) = (i * shape.dilation[0], j * shape.dilation[1]);
        let index = |phases: &[usize], phase: usize| phases.iter().position(|&p| p == phase).unwrap_or(0);
        let plane = index(&self.row_phases, row % shape.stride[0]) * self.column_phases.len()
            + index(&self.column_phases, column % shape.stride[1]);
        (plane * self.rows + row / shape.stride[0]) * self.pitch + column / shape.stride[1]
    }

    /// Zeros in what no channel's copy fills and kernels read all the same: what was left there may be denormal, which an Intel CPU multiplies a hundred
    /// times slower.
    pub(crate) fn clear_unused(&self, channels: usize, copy: &mut [f32]) {
        let filled = self.row_phases.len() * self.column_phases.len() * self.rows * self.pitch;
        let (copies, behind) = copy.split_at_mut(channels * self.channel);
        copies.chunks_exact_mut(self.channel).for_each(|copy| copy[filled..].fill(0.0));
        behind.fill(0.0);
    }

    /// Copies one channel's plane for the band that starts with output row `first`.
    pub(crate) fn fill(&self, shape: &Convolution, plane: &[f32], first: usize, copy: &mut [f32]) {
        let [height, width] = shape.input;
        let mut lines = copy.chunks_exact_mut(self.pitch);
        for &row_phase in &self.row_phases {
            for (i, &column_phase) in self.column_phases.iter().enumerate() {
                for row in 0..self.rows {
                    let Some(line) = lines.next() else { return };
                    let y = ((first + row) * shape.stride[0] + row_phase).wrapping_sub(shape.padding[0]);
                    if y >= height {
                        line.fill(0.0);
                        continue;
                    }
                    if shape.stride[1] == 2 && self.column_phases.len() == 2 {
                        continue;
                    }
                    let source = &plane[y * width..][..width];
                    every(source, line, shape.stride[1], column_phase, shape.padding[2]);
                    let _ = i;
                }
            }
        }
        if shape.stride[1] == 2 && self.column_phases.len() == 2 {
            self.fill_pairs(shape, plane, first, copy);
        }
    }

    /// Both column phases of stride 2 in one pass over the input.
    fn fill_pairs(&self, shape: &Convolution, plane: &[f32], first: usize, copy: &mut [f32]) {
        let [height, width] = shape.input;
        let size = self.rows * self.pitch;
        for (i, &row_phase) in self.row_phases.iter().enumerate() {
            let (even, odd) = copy[2 * i * size..][..2 * size].split_at_mut(size);
            for row in 0..self.rows {
                let y = ((first + row) * shape.stride[0] + row_phase).wrapping_sub(shape.padding[0]);
                if y < height {
                    let source = &plane[y * width..][..width];
                    let line = row * self.pitch..(row + 1) * self.pitch;
                    pairs(source, &mut even[line.clone()], &mut odd[line], shape.padding[2]);
                }
            }
        }
    }
}

/// `line[x] = source[x * stride + phase - padding]`, zero outside the source.
pub(super) fn every(source: &[f32], line: &mut [f32], stride: usize, phase: usize, padding: usize) {
    // The first x whose source index is not negative, and the first whose index is past the end.
    let begin = padding.saturating_sub(phase).div_ceil(stride).min(line.len());
    let end = (source.len() + padding).saturating_sub(phase).div_ceil(stride).clamp(begin, line.len());
    line[..begin].fill(0.0);
    line[end..].fill(0.0);
    if begin == end {
        return;
    }
    let from = begin * stride + phase - padding;
    if stride == 1 {
        line[begin..end].copy_from_slice(&source[from..from + end - begin]);
    } else {
        for (to, value) in line[begin..end].iter_mut().zip(source[from..].iter().step_by(stride)) {
            *to = *value;
        }
    }
}

/// Both phases of [`every`] for stride 2.
pub(super) fn pairs(source: &[f32], even: &mut [f32], odd: &mut [f32], padding: usize) {
    // Up to `begin`, and from `end` on, a pair has an element outside the source.
    if source.len() + padding <= SHORT && even.len() <= SHORT / 2 - WIDEST {
        return short_pairs(source, even, odd, padding);
    }
    let begin = padding.div_ceil(2).min(even.len());
    let end = ((source.len() + padding) / 2).clamp(begin, even.len());
    for (phase, line) in [&mut *even, &mut *odd].into_iter().enumerate() {
        let value = |x: usize| source.get((2 * x + phase).wrapping_sub(padding)).copied().unwrap_or(0.0);
        (0..begin).chain(end..line.len()).for_each(|x| line[x] = value(x));
    }
    if begin < end {
        let from = source[2 * begin - padding..].as_ptr();
        let (even, odd, count) = (even[begin..].as_mut_ptr(), odd[begin..].as_mut_ptr(), end - begin);
        // SAFETY: pairs begin..end lie in the source and in both lines.
        unsafe { at_level!(split(from: *const f32, even: *mut f32, odd: *mut f32, count: usize)) }
    }
}

/// Numbers of a row, with the zeros around it, that are sorted by whole vectors: there is little else in short ones.
const SHORT: usize = 192;

/// [`pairs`] of a short row, which is copied between zeros first.
fn short_pairs(source: &[f32], even: &mut [f32], odd: &mut [f32], padding: usize) {
    let mut row = [0.0f32; SHORT];
    row[padding..][..source.len()].copy_from_slice(source);
    let (from, count) = (row.as_ptr(), even.len().min(odd.len()));
    let (even, odd) = (even.as_mut_ptr(), odd.as_mut_ptr());
    // SAFETY: both lines have `count` numbers, and the row a vector more than as many pairs: the caller has seen to that.
    unsafe { at_level!(split_whole(from: *const f32, even: *mut f32, odd: *mut f32, count: usize)) }
}

/// [`split`] of a row that may be read a vector past its last pair.
#[inline(always)]
unsafe fn split_whole<V: Lanes>(from: *const f32, even: *mut f32, odd: *mut f32, count: usize) {
    let whole = count / V::N * V::N;
    // SAFETY: the caller's promise.
    unsafe {
        split::<V>(from, even, odd, whole);
        if whole < count {
            for (part, line) in V::load_by_2(from.add(2 * whole)).into_iter().zip([even, odd]) {
                let lanes = part.lanes();
                lanes.as_ptr().copy_to_nonoverlapping(line.add(whole), count - whole);
            }
        }
    }
}

#[inline(always)]
unsafe fn split<V: Lanes>(from: *const f32, even: *mut f32, odd: *mut f32, count: usize) {
    let mut x = 0;
    // SAFETY: the caller vouches for `count` pairs and for as many elements of both lines.
    unsafe {
        while x + V::N <= count {
            let [a, b] = V::load_by_2(from.add(2 * x));
            a.store(even.add(x));
            b.store(odd.add(x));
            x += V::N;
        }
        while x < count {
            *even.add(x) = *from.add(2 * x);
            *odd.add(x) = *from.add(2 * x + 1);
            x += 1;
        }
    }
}
