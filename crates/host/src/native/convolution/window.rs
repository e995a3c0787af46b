//! Copies of a band of the input in which every tap of every filter reads consecutive numbers.
//!
//! Rows and columns are sorted by their remainder modulo the stride ("phases") and padded with zeros. The output pixel
//! q = row * pitch + column of the band then reads, for tap (i, j), the number at `offset(i, j) + q`: one vector load covers
//! neighbouring outputs whatever the stride, and runs on from one row to the next.

use super::deinterleave::Deinterleaver;
use super::shape::Convolution;

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
        let width = shape.input[1];
        let mut deinterleaver = Deinterleaver::new(shape.stride[1], &self.column_phases, shape.padding[2]);
        // A deinterleaver fills the parts of both phases at once.
        let at_once = if deinterleaver.is_some() { 2 } else { 1 };
        let size = self.rows * self.pitch;
        let phases = &self.column_phases[..self.column_phases.len() / at_once];
        let planes = self.row_phases.iter().flat_map(|&row| phases.iter().map(move |&column| (row, column)));
        let parts = copy.chunks_exact_mut(at_once * size);
        for ((row_phase, column_phase), part) in planes.zip(parts) {
            for row in 0..self.rows {
                let y = ((first + row) * shape.stride[0] + row_phase).wrapping_sub(shape.padding[0]);
                let source = if y < shape.input[0] { &plane[y * width..][..width] } else { &[] };
                let from = row * self.pitch;
                if let Some(deinterleaver) = &mut deinterleaver {
                    let (even, odd) = part.split_at_mut(size);
                    deinterleaver.split(source, &mut even[from..], &mut odd[from..], self.pitch);
                } else {
                    let line = &mut part[from..][..self.pitch];
                    every(source, line, shape.stride[1], column_phase, shape.padding[2]);
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
