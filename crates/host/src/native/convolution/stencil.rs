//! Depthwise convolutions on planes as they lie: a register of neighbouring outputs in each of four rows, whose taps are in registers, too. Nothing is
//! copied; numbers beside a plane are zeros by the masks of the loads at its edges, rows above and below it are a row of zeros.

use super::finish::finish_row;
use super::shape::Convolution;
use crate::native::Shared;
use crate::native::epilogue::{Epilogue, Quick};
use crate::native::lanes::{Lanes, at_level, lanes};
use crate::native::scratch;
use crate::threads::parallel_for;

/// Rows of a tile.
const ROWS: usize = 4;
/// Rows that the largest filter reads for a tile in steps of two.
const MOST_LINES: usize = (ROWS - 1) * 2 + 5;
/// Registers that the largest filter reads of a row.
const MOST_LOADS: usize = 6;
/// Outputs of a row from which on the registers that it does not fill are few.
const WIDE: usize = 24;

/// Whether [`run`] takes this depthwise convolution.
pub(super) fn suits(shape: &Convolution, spacing: [usize; 2]) -> bool {
    spacing == [1, 1]
        && shape.dilation == [1, 1]
        && matches!(shape.kernel, [3, 3] | [5, 5])
        && matches!(shape.stride, [1, 1] | [2, 2])
}

/// Whether it is faster than [`super::across`] there: with 9 taps, which stay in registers, on rows of more than a register.
pub(super) fn is_faster(shape: &Convolution) -> bool {
    shape.kernel == [3, 3] && shape.output()[1] >= WIDE
}

/// The convolution, some rows of some planes at a time.
pub(super) fn run(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [height, width] = shape.output();
    let plane = shape.input[0] * shape.input[1];
    let per_channel = shape.filters / shape.channels;
    let taps = shape.kernel[0] * shape.kernel[1];
    let rows = shape.rows_of_a_thread().next_multiple_of(ROWS);
    let bands = height.div_ceil(rows);
    let chunks = chunks(shape);
    let output = Shared::new(output);
    let ns = chunks.len() * rows.div_ceil(ROWS) * taps * per_channel;
    parallel_for(shape.batch * bands * shape.channels, ns, |from, to| {
        scratch::with(shape.input[1], |zeros: &mut [f32]| {
            zeros.fill(0.0);
            for task in from..to {
                let (image, band, channel) =
                    (task / shape.channels / bands, task / shape.channels % bands, task % shape.channels);
                let input = &input[(image * shape.channels + channel) * plane..][..plane];
                for filter in channel * per_channel..(channel + 1) * per_channel {
                    let band = Band {
                        shape,
                        chunks: &chunks,
                        zeros,
                        input,
                        weight: &weight[filter * taps..][..taps],
                        rows: (band * rows, height.min((band + 1) * rows)),
                        output,
                        width,
                        at: (image * shape.filters + filter) * height * width,
                        epilogue,
                        filter,
                    };
                    // SAFETY: these rows of the filter's plane are this task's alone.
                    unsafe {
                        match (shape.kernel[0], shape.stride[0]) {
                            (3, 1) => at_level!(three(band: Band)),
                            (3, _) => at_level!(three_by_two(band: Band)),
                            (_, 1) => at_level!(five(band: Band)),
                            (..) => at_level!(five_by_two(band: Band)),
                        }
                    }
                }
            }
        });
    });
}

/// A register of outputs of a row.
struct Chunk {
    /// The first output's column, and which of the outputs there are.
    column: usize,
    outputs: u32,
    /// Whether all are there.
    whole: bool,
    /// The first column of the input that is read, which may be beside the plane.
    from: isize,
    /// Of each register that is read, which numbers are in the plane; nothing where all are.
    which: Option<[u32; MOST_LOADS]>,
}

/// The numbers of a register that lie in `0..end` where the first one has place `first`, one bit for each.
fn inside(first: isize, end: usize) -> u32 {
    (0..lanes()).filter(|&i| (0..end as isize).contains(&(first + i as isize))).fold(0, |bits, i| bits | 1 << i)
}

/// Where the registers that are read of a row begin: at each tap or, in steps of two, two at every second.
fn load(index: usize, step: usize) -> usize {
    if step == 1 { index } else { index / 2 * 2 + index % 2 * lanes() }
}

fn chunks(shape: &Convolution) -> Vec<Chunk> {
    let ([_, width], [_, input]) = (shape.output(), shape.input);
    let loads = if shape.stride[1] == 1 { shape.kernel[1] } else { shape.kernel[1].next_multiple_of(2) };
    let all = inside(0, lanes());
    let chunk = |column: usize| {
        let from = (column * shape.stride[1]) as isize - shape.padding[2] as isize;
        let mut which = [0; MOST_LOADS];
        for (index, which) in which.iter_mut().enumerate().take(loads) {
            *which = inside(from + load(index, shape.stride[1]) as isize, input);
        }
        let outputs = inside(0, width - column);
        let edge = which[..loads].iter().any(|&which| which != all);
        Chunk { column, outputs, whole: outputs == all, from, which: edge.then_some(which) }
    };
    (0..width).step_by(lanes()).map(chunk).collect()
}

/// Some rows of the output of one filter.
struct Band<'a> {
    shape: &'a Convolution,
    chunks: &'a [Chunk],
    /// A row of them.
    zeros: &'a [f32],
    /// The plane.
    input: &'a [f32],
    weight: &'a [f32],
    /// From the first to before the second.
    rows: (usize, usize),
    output: Shared<f32>,
    /// Of a row of the output.
    width: usize,
    /// The index of the plane's first output.
    at: usize,
    epilogue: &'a Epilogue<'a>,
    filter: usize,
}

macro_rules! stencils {
    ($($name:ident: $taps:literal by $step:literal)*) => {$(
        #[inline(always)]
        unsafe fn $name<V: Lanes>(band: Band) {
            // SAFETY: the caller's promise.
            unsafe { band.run::<V, $taps, $step>() }
        }
    )*};
}

stencils!(three: 3 by 1  three_by_two: 3 by 2  five: 5 by 1  five_by_two: 5 by 2);

impl Band<'_> {
    /// # Safety
    /// The CPU has the instructions; the rows are the caller's alone.
    #[inline(always)]
    unsafe fn run<V: Lanes, const K: usize, const S: usize>(&self) {
        let quick = self.epilogue.quick().filter(|quick| quick.residual.is_none());
        let width = self.width;
        let first = self.at + self.rows.0 * width;
        let (begin, end) = self.rows;
        // SAFETY: the caller's promise.
        unsafe {
            match quick {
                Some(quick) => self.sums::<V, K, S>(quick, self.output.at(first)),
                None => scratch::with((end - begin) * width, |sums: &mut [f32]| {
                    self.sums::<V, K, S>(Quick::NONE, sums.as_mut_ptr());
                    let to = self.output.part(first, sums.len());
                    finish_row(sums, to, self.epilogue, self.filter, first);
                }),
            }
        }
    }

    /// Writes the sums of the rows through what can be done in registers to `to` and behind.
    ///
    /// # Safety
    /// As [`Band::run`]; there is room for the rows.
    #[inline(always)]
    unsafe fn sums<V: Lanes, const K: usize, const S: usize>(&self, quick: Quick<'_>, to: *mut f32) {
        let mut taps = [[0.0; K]; K];
        for (taps, weight) in taps.iter_mut().zip(self.weight.chunks_exact(K)) {
            taps.copy_from_slice(weight);
        }
        let ((begin, end), width) = (self.rows, self.width);
        // SAFETY: the caller's promise; what a chunk reads without a mask lies in the plane's rows.
        unsafe {
            let bias = V::splat(quick.bias.map_or(0.0, |bias| bias[self.filter]));
            for row in (begin..end).step_by(ROWS) {
                let lines = self.lines(row);
                let rows = ROWS.min(end - row);
                let to = to.add((row - begin) * width);
                for chunk in self.chunks {
                    let sums = match &chunk.which {
                        None => tile::<V, K, S, false>(&lines, chunk.from, &[0; MOST_LOADS], &taps, bias),
                        Some(which) => tile::<V, K, S, true>(&lines, chunk.from, which, &taps, bias),
                    };
                    let sums = quick.apply(sums.map(|sum| [sum]), 0, 0);
                    let to = to.add(chunk.column);
                    if chunk.whole && rows == ROWS {
                        for o in 0..ROWS {
                            sums[o][0].store(to.add(o * width));
                        }
                    } else {
                        for o in 0..ROWS {
                            if o < rows {
                                sums[o][0].store_some(to.add(o * width), chunk.outputs);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The rows of the input that the outputs of a tile read, from the first one's first tap on.
    #[inline(always)]
    fn lines(&self, row: usize) -> [*const f32; MOST_LINES] {
        let [height, width] = self.shape.input;
        let mut lines = [self.zeros.as_ptr(); MOST_LINES];
        for (y, line) in lines.iter_mut().enumerate() {
            let row = (row * self.shape.stride[0] + y).wrapping_sub(self.shape.padding[0]);
            if row < height {
                *line = self.input[row * width..].as_ptr();
            }
        }
        lines
    }
}

/// The sums of a tile: each number of the input is loaded once for all rows that it is a term of. At an EDGE of the plane `which` says what is loaded.
///
/// # Safety
/// The CPU has the instructions; what the loads do not leave out is readable in each line.
#[inline(always)]
unsafe fn tile<V: Lanes, const K: usize, const S: usize, const EDGE: bool>(
    lines: &[*const f32; MOST_LINES],
    from: isize,
    which: &[u32; MOST_LOADS],
    taps: &[[f32; K]; K],
    bias: V,
) -> [V; ROWS] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [bias; ROWS];
        // Written out, since no sum may have a number that is known at run time only.
        macro_rules! lines {
            ($($y:literal)*) => {$(
                if $y < (ROWS - 1) * S + K {
                    let line = lines[$y].wrapping_offset(from);
                    for j in (0..K).step_by(S) {
                        let values = loaded::<V, S, EDGE>(line, j, which);
                        for k in 0..S.min(K - j) {
                            for o in 0..ROWS {
                                if $y >= o * S && $y - o * S < K {
                                    sums[o] = values[k].fma(V::splat(taps[$y - o * S][j + k]), sums[o]);
                                }
                            }
                        }
                    }
                }
            )*};
        }
        const { assert!(MOST_LINES == 11, "the lines below") };
        lines!(0 1 2 3 4 5 6 7 8 9 10);
        sums
    }
}

/// What tap `j` of a row reads for a register of outputs and, in steps of two, the tap behind it.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn loaded<V: Lanes, const S: usize, const EDGE: bool>(
    line: *const f32,
    j: usize,
    which: &[u32; MOST_LOADS],
) -> [V; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let first = register::<V, EDGE>(line.wrapping_add(j), which[j]);
        if S == 1 {
            return [first, first];
        }
        first.unzip(register::<V, EDGE>(line.wrapping_add(j + V::N), which[j + 1]))
    }
}

/// A register of a row, at an edge as far as it is there. No closure: that would not have the instructions of the function around it.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn register<V: Lanes, const EDGE: bool>(from: *const f32, which: u32) -> V {
    // SAFETY: the caller's promise.
    unsafe { if EDGE { V::load_some(from, which) } else { V::load(from) } }
}
