//! Convolutions in which every filter sees one channel: a tap at a time over each plane, where neither [`super::stencil`] knows the filters nor
//! [`super::across`] has channels enough for a register.
//!
//! The rows of a band of a plane are copied with zeros to their left and right, their columns sorted by the remainder modulo the step. Rows above and
//! below the plane are not there, and cost nothing: of a filter of five rows on a plane of two, two are computed.

use super::deinterleave::Deinterleaver;
use super::finish::finish_row;
use super::shape::Convolution;
use super::window::{SLACK, every, phases};
use super::{across, stencil};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, WIDEST, at_level};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Numbers in a band's copy of the plane, so that it stays in the first-level cache while all taps read it.
const BAND: usize = 5 << 10;
/// Rows of a band at most.
const MOST_ROWS: usize = 64;
/// In place of a row of the plane: none.
const NONE: usize = usize::MAX;

/// `spacing` is the distance of the input's pixels from each other in `shape.input`, with zeros between them; other than 1 with steps of 1 only.
pub(crate) fn run(
    shape: &Convolution,
    spacing: [usize; 2],
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) {
    let across = across::suits(shape);
    if stencil::suits(shape, spacing) && (!across || stencil::is_faster(shape)) {
        return stencil::run(shape, input, weight, output, epilogue);
    }
    if across {
        return across::run(shape, spacing, input, weight, output, epilogue);
    }
    let [out_height, out_width] = shape.output();
    let taps = shape.kernel[0] * shape.kernel[1];
    let per_channel = shape.filters / shape.channels;
    let layout = Layout::new(shape, spacing);
    let rows = layout.rows_of_a_band(shape);
    let copied = rows * shape.stride[0] + shape.reach(0);
    let plane = layout.pixels[0] * layout.pixels[1];
    let output = Shared::new(output);
    let ns = (out_height * out_width * taps / 16 + plane / 8) * per_channel + 50;
    parallel_for(shape.batch * shape.channels, ns, |from, to| {
        scratch::with(copied * layout.line + SLACK, |copy: &mut [f32]| {
            for task in from..to {
                let (image, channel) = (task / shape.channels, task % shape.channels);
                let plane = &input[task * plane..][..plane];
                for first in (0..out_height).step_by(rows) {
                    let rows = rows.min(out_height - first);
                    let sources = &layout.sources[first * shape.stride[0]..][..shape.padded(0, rows)];
                    let begin = layout.copy(shape, plane, sources, copy);
                    for filter in channel * per_channel..(channel + 1) * per_channel {
                        let at = ((image * shape.filters + filter) * out_height + first) * out_width;
                        let weight = &weight[filter * taps..][..taps];
                        let (copy, size) = (&*copy, (rows, out_width));
                        let band = Band {
                            shape,
                            layout: &layout,
                            copy,
                            sources,
                            begin,
                            weight,
                            size,
                            output,
                            at,
                            epilogue,
                            filter,
                        };
                        // SAFETY: rows of the copy, and its slack, hold what the taps of any pixel read; this task alone writes the plane.
                        unsafe { at_level!(any(band: Band)) };
                    }
                }
            }
        });
    });
}

/// How bands of a plane are copied.
struct Layout {
    /// The pixels that the plane has, and their distance in its padded size.
    pixels: [usize; 2],
    spacing: [usize; 2],
    /// By row of the padded plane: which row of the plane it is, or [`NONE`].
    sources: Vec<usize>,
    /// Remainders of columns modulo the step that a tap has, each with a part of a line.
    phases: Vec<usize>,
    /// Numbers of such a part, and of a line.
    pitch: usize,
    line: usize,
    /// By column of a filter: where a line has what it reads for the first output.
    columns: Vec<usize>,
}

impl Layout {
    fn new(shape: &Convolution, spacing: [usize; 2]) -> Layout {
        let [height, width] = shape.output();
        let pixels = [0, 1].map(|axis| (shape.input[axis] - 1) / spacing[axis] + 1);
        let source = |row: usize| {
            let row = row.wrapping_sub(shape.padding[0]);
            if row < shape.input[0] && row.is_multiple_of(spacing[0]) { row / spacing[0] } else { NONE }
        };
        let (stride, dilation) = (shape.stride[1], shape.dilation[1]);
        let phases = phases(shape.kernel[1], dilation, stride);
        let pitch = (width + (shape.kernel[1] - 1) * dilation / stride).next_multiple_of(8);
        let column = |tap: usize| {
            let (phase, at) = (tap * dilation % stride, tap * dilation / stride);
            phases.iter().position(|&p| p == phase).unwrap_or(0) * pitch + at
        };
        let columns = (0..shape.kernel[1]).map(column).collect();
        let (sources, line) = ((0..shape.padded(0, height)).map(source).collect(), phases.len() * pitch);
        Layout { pixels, spacing, sources, phases, pitch, line, columns }
    }

    fn rows_of_a_band(&self, shape: &Convolution) -> usize {
        let lines = (BAND / self.line).saturating_sub(shape.reach(0) - 1);
        (lines / shape.stride[0]).clamp(1, MOST_ROWS)
    }

    /// Copies the rows of the plane that `sources` names; the first of them.
    fn copy(&self, shape: &Convolution, plane: &[f32], sources: &[usize], copy: &mut [f32]) -> usize {
        let (width, left, stride) = (self.pixels[1], shape.padding[2], shape.stride[1]);
        let mut deinterleaver = Deinterleaver::new(stride, &self.phases, left);
        let mut rows = sources.iter().copied().filter(|&source| source != NONE).peekable();
        let begin = rows.peek().copied().unwrap_or(0);
        for (row, line) in rows.zip(copy.chunks_exact_mut(self.line)) {
            let source = &plane[row * width..][..width];
            if self.spacing[1] != 1 {
                line.fill(0.0);
                let places = line.iter_mut().skip(left).step_by(self.spacing[1]);
                places.zip(source).for_each(|(to, value)| *to = *value);
            } else if let Some(deinterleaver) = &mut deinterleaver {
                let (even, odd) = line.split_at_mut(self.pitch);
                deinterleaver.split(source, even, odd, self.pitch);
            } else {
                for (&phase, part) in self.phases.iter().zip(line.chunks_exact_mut(self.pitch)) {
                    every(source, part, stride, phase, left);
                }
            }
        }
        begin
    }
}

/// Neighbouring rows of the output, and what they are made of.
struct Band<'a> {
    shape: &'a Convolution,
    layout: &'a Layout,
    copy: &'a [f32],
    /// Rows of the plane by row of the padded plane, from what the first tap of the band's first row reads on; `begin` is the copy's first line.
    sources: &'a [usize],
    begin: usize,
    weight: &'a [f32],
    /// Rows and columns.
    size: (usize, usize),
    output: Shared<f32>,
    /// The index of the first output.
    at: usize,
    epilogue: &'a Epilogue<'a>,
    filter: usize,
}

/// Filters of any size, one row of the output at a time.
#[inline(always)]
unsafe fn any<V: Lanes>(band: Band) {
    let (rows, columns) = band.size;
    let [down, along] = band.shape.kernel;
    for row in 0..rows {
        for column in (0..columns).step_by(2 * V::N) {
            // SAFETY: the caller vouches for what the taps read; columns past the end are not stored.
            unsafe {
                let mut sums = [V::splat(0.0); 2];
                for i in 0..down {
                    let source = band.sources[row * band.shape.stride[0] + i * band.shape.dilation[0]];
                    if source == NONE {
                        continue;
                    }
                    let line = band.copy.as_ptr().add((source - band.begin) * band.layout.line + column);
                    for j in 0..along {
                        let tap = V::splat(*band.weight.get_unchecked(i * along + j));
                        let from = line.add(*band.layout.columns.get_unchecked(j));
                        for x in 0..2 {
                            sums[x] = V::load(from.add(x * V::N)).fma(tap, sums[x]);
                        }
                    }
                }
                let mut lanes = [0.0f32; 2 * WIDEST];
                for x in 0..2 {
                    sums[x].store(lanes.as_mut_ptr().add(x * V::N));
                }
                let (count, at) = ((2 * V::N).min(columns - column), band.at + row * columns + column);
                finish_row(&lanes, band.output.part(at, count), band.epilogue, band.filter, at);
            }
        }
    }
}
