//! Convolutions in which every filter sees one channel: a stencil over each plane, where [`super::across`] has not channels enough for a register, or
//! filters that it does not know.
//!
//! The rows of a band of a plane are copied with zeros to their left and right, their columns sorted by the remainder modulo the step. Rows above and
//! below the plane are not there, and cost nothing: of a filter of five rows on a plane of two, two are computed.

use super::across;
use super::shape::Convolution;
use super::window::{SLACK, every, pairs, phases};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, WIDEST, at_level};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Numbers in a band's copy of the plane, so that it stays in the first-level cache while all taps read it.
const BAND: usize = 5 << 10;
/// Rows of a tile at most.
const ROWS: usize = 4;
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
    if across::suits(shape) {
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
                        let down = (shape.kernel, shape.dilation, shape.stride[0]);
                        // SAFETY: rows of the copy, and its slack, hold what the taps of any pixel read; this task alone writes the plane.
                        unsafe {
                            match down {
                                ([3, 3], [1, 1], 1) => at_level!(three(band: Band)),
                                ([3, 3], [1, 1], 2) => at_level!(three_by_two(band: Band)),
                                ([5, 5], [1, 1], 1) => at_level!(five(band: Band)),
                                ([5, 5], [1, 1], 2) => at_level!(five_by_two(band: Band)),
                                _ => at_level!(any(band: Band)),
                            }
                        }
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
        (lines / shape.stride[0]).next_multiple_of(ROWS).clamp(ROWS, 64)
    }

    /// Copies the rows of the plane that `sources` names; the first of them.
    fn copy(&self, shape: &Convolution, plane: &[f32], sources: &[usize], copy: &mut [f32]) -> usize {
        let (width, left, stride) = (self.pixels[1], shape.padding[2], shape.stride[1]);
        let mut rows = sources.iter().copied().filter(|&source| source != NONE).peekable();
        let begin = rows.peek().copied().unwrap_or(0);
        for (row, line) in rows.zip(copy.chunks_exact_mut(self.line)) {
            let source = &plane[row * width..][..width];
            if self.spacing[1] != 1 {
                line.fill(0.0);
                let places = line.iter_mut().skip(left).step_by(self.spacing[1]);
                places.zip(source).for_each(|(to, value)| *to = *value);
            } else if stride == 2 && self.phases.len() == 2 {
                let (even, odd) = line.split_at_mut(self.pitch);
                pairs(source, even, odd, left);
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

macro_rules! stencils {
    ($($name:ident: $taps:literal by $step:literal)*) => {$(
        #[inline(always)]
        unsafe fn $name<V: Lanes>(band: Band) {
            // SAFETY: the caller's promise.
            unsafe { square::<V, $taps, $step>(&band) }
        }
    )*};
}

stencils!(three: 3 by 1  three_by_two: 3 by 2  five: 5 by 1  five_by_two: 5 by 2);

/// Filters of K x K neighbours, every S rows.
#[inline(always)]
unsafe fn square<V: Lanes, const K: usize, const S: usize>(band: &Band) {
    let (rows, columns) = band.size;
    for row in (0..rows).step_by(ROWS) {
        // SAFETY: the caller's promise; a row of tiles ends with the band.
        unsafe {
            match rows - row {
                1 => tiles::<V, K, S, 1>(band, row, columns),
                2 => tiles::<V, K, S, 2>(band, row, columns),
                3 => tiles::<V, K, S, 3>(band, row, columns),
                _ => tiles::<V, K, S, ROWS>(band, row, columns),
            }
        }
    }
}

/// A row of tiles of R rows: of two vectors each, and of one at the end.
#[inline(always)]
unsafe fn tiles<V: Lanes, const K: usize, const S: usize, const R: usize>(band: &Band, row: usize, columns: usize) {
    let mut column = 0;
    // SAFETY: columns past the end are computed from the copy's slack and not stored.
    unsafe {
        while column + V::N < columns {
            let sums = tile::<V, K, S, R, 2>(band, row, column);
            store(band, sums, row, column);
            column += 2 * V::N;
        }
        if column < columns {
            let sums = tile::<V, K, S, R, 1>(band, row, column);
            store(band, sums, row, column);
        }
    }
}

/// Each number of the copy is loaded once for all the rows that it is a term of.
#[inline(always)]
unsafe fn tile<V: Lanes, const K: usize, const S: usize, const R: usize, const W: usize>(
    band: &Band,
    row: usize,
    column: usize,
) -> [[V; W]; R] {
    // SAFETY: the caller vouches for what the taps read around the tile.
    unsafe {
        let mut sums = [[V::splat(0.0); W]; R];
        let sources = band.sources.as_ptr().add(row * S);
        for j in 0..K {
            let from = band.copy.as_ptr().add(*band.layout.columns.get_unchecked(j) + column);
            let mut taps = [V::splat(0.0); K];
            for i in 0..K {
                taps[i] = V::splat(*band.weight.get_unchecked(i * K + j));
            }
            for y in 0..(R - 1) * S + K {
                let source = *sources.add(y);
                if source == NONE {
                    continue;
                }
                let line = from.add((source - band.begin) * band.layout.line);
                for x in 0..W {
                    let value = V::load(line.add(x * V::N));
                    for o in 0..R {
                        if y >= o * S && y - o * S < K {
                            sums[o][x] = value.fma(taps[y - o * S], sums[o][x]);
                        }
                    }
                }
            }
        }
        sums
    }
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
                let mut sums = [[V::splat(0.0); 2]];
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
                            sums[0][x] = V::load(from.add(x * V::N)).fma(tap, sums[0][x]);
                        }
                    }
                }
                store(&band, sums, row, column);
            }
        }
    }
}

/// Writes a tile through the epilogue, as far as the band has columns.
#[inline(always)]
unsafe fn store<V: Lanes, const R: usize, const W: usize>(
    band: &Band,
    mut sums: [[V; W]; R],
    row: usize,
    column: usize,
) {
    let columns = band.size.1;
    let at = band.at + row * columns + column;
    let is_whole = column + W * V::N <= columns;
    // SAFETY: the rows are the caller's, cut to the band's columns; the epilogue covers them.
    unsafe {
        if let Some(quick) = band.epilogue.quick().filter(|quick| is_whole || quick.residual.is_none()) {
            let bias = V::splat(quick.bias.map_or(0.0, |bias| bias[band.filter]));
            for sums in &mut sums {
                for x in 0..W {
                    sums[x] = sums[x].add(bias);
                }
            }
            let sums = quick.apply(sums, at, columns);
            if is_whole {
                write(band, sums, at);
            } else if column == 0 {
                write_narrow(band, sums, at);
            } else {
                (0..R).for_each(|o| write_part(band, sums[o], at + o * columns, columns - column));
            }
            return;
        }
        let mut lanes = [[0.0f32; 32]; R];
        for o in 0..R {
            for x in 0..W {
                sums[o][x].store(lanes[o].as_mut_ptr().add(x * V::N));
            }
        }
        for (o, lanes) in lanes.iter().enumerate() {
            finish(band, lanes, (W * V::N).min(columns - column), at + o * columns);
        }
    }
}

/// Writes whole vectors.
#[inline(always)]
unsafe fn write<V: Lanes, const R: usize, const W: usize>(band: &Band, rows: [[V; W]; R], at: usize) {
    for o in 0..R {
        for x in 0..W {
            // SAFETY: the caller vouches for whole vectors in each row.
            unsafe { rows[o][x].store(band.output.at(at + o * band.size.1 + x * V::N)) };
        }
    }
}

/// Writes the rows of a band that is narrower than a tile: what a row's vectors write past its end, the next row overwrites.
#[inline(always)]
unsafe fn write_narrow<V: Lanes, const R: usize, const W: usize>(band: &Band, rows: [[V; W]; R], at: usize) {
    let (height, columns) = band.size;
    let end = band.at + height * columns;
    for o in 0..R {
        let from = at + o * columns;
        // SAFETY: whole vectors end inside of the band, which is this task's; the others are cut.
        unsafe {
            if from + W * V::N <= end {
                for x in 0..W {
                    rows[o][x].store(band.output.at(from + x * V::N));
                }
            } else {
                write_part(band, rows[o], from, columns);
            }
        }
    }
}

/// Writes the first `count` numbers of a row.
#[inline(always)]
unsafe fn write_part<V: Lanes, const W: usize>(band: &Band, row: [V; W], at: usize, count: usize) {
    let mut lanes = [0.0f32; 2 * WIDEST];
    // SAFETY: two vectors fit the array; the caller vouches for `count` numbers of the output.
    unsafe {
        for x in 0..W {
            row[x].store(lanes.as_mut_ptr().add(x * V::N));
        }
        band.output.part(at, count).copy_from_slice(&lanes[..count]);
    }
}

/// Writes some sums of one row.
fn finish(band: &Band, sums: &[f32], count: usize, at: usize) {
    // SAFETY: the band's rows are this task's.
    let to = unsafe { band.output.part(at, count) };
    super::finish::finish_row(sums, to, band.epilogue, band.filter, at);
}
