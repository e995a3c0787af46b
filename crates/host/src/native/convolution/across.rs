//! Depthwise convolutions with a register of channels at a time: the channels of a pixel are brought side by side, so that planes of any width fill the
//! register, steps of two need no sorting, and no tap is broadcast. Bringing a number there and back costs less than a stencil loses on rows that are
//! no multiple of a register.

use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level, lanes, turn_rows_of_4};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Pixels of a band's copy and of its sums, so that they stay in the second-level cache: 128 KiB of registers of eight.
const BAND: usize = 4 << 10;
/// Outputs of a tile, neighbours in a row. Rows of 7, 14, 28 and 56 have no rest in tiles of the narrower kind.
const NARROW: usize = 7;
const WIDE: usize = 8;
/// Pixels that are brought side by side, or apart, at once.
const SQUARE: usize = 4;

/// Planes that may lie a multiple of a page apart: as many lines of one place in a page the first-level cache holds.
const WAYS: usize = 8;
/// Numbers of a page.
const PAGE: usize = 1024;

/// Whether [`run`] takes this depthwise convolution. It is faster than a stencil then.
pub(super) fn suits(shape: &Convolution) -> bool {
    shape.filters == shape.channels
        && shape.channels >= lanes()
        && matches!(shape.kernel[1], 3 | 5 | 7)
        && matches!(shape.stride[1], 1 | 2)
        && shape.dilation[1] == 1
        && (lanes() <= WAYS || !(shape.input[0] * shape.input[1]).is_multiple_of(PAGE))
}

/// The convolution, some rows of the planes of some channels at a time. `spacing` is as in [`super::depthwise::run`].
pub(super) fn run(
    shape: &Convolution,
    spacing: [usize; 2],
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) {
    let job = Job::new(shape, spacing, input, weight, Shared::new(output), epilogue);
    let [height, width] = job.size;
    let (blocks, bands) = (shape.channels.div_ceil(lanes()), height.div_ceil(job.rows));
    let taps = shape.kernel[0] * shape.kernel[1];
    let ns = (width * (taps / 4 + 2) + job.columns) * job.rows + taps * 4 + 100;
    parallel_for(shape.batch * blocks * bands, ns, |from, to| {
        scratch::with(job.memory(), |memory: &mut [f32]| {
            for task in from..to {
                let (image, band, block) = (task / blocks / bands, task / blocks % bands, task % blocks);
                let rows = (band * job.rows, job.rows.min(height - band * job.rows));
                // SAFETY: these rows of the block's planes, but for those of the block before, are this task's alone.
                unsafe { Band::new(&job, image, block, rows).run(memory) };
            }
        });
    });
}

struct Job<'a> {
    shape: &'a Convolution,
    spacing: [usize; 2],
    /// The pixels that a plane of the input has.
    pixels: [usize; 2],
    input: &'a [f32],
    weight: &'a [f32],
    output: Shared<f32>,
    epilogue: &'a Epilogue<'a>,
    /// Height and width of the output.
    size: [usize; 2],
    /// Outputs of a tile.
    tile: usize,
    /// Columns of the copy: what a row of tiles reads.
    columns: usize,
    /// Rows of a band.
    rows: usize,
}

impl<'a> Job<'a> {
    fn new(
        shape: &'a Convolution,
        spacing: [usize; 2],
        input: &'a [f32],
        weight: &'a [f32],
        output: Shared<f32>,
        epilogue: &'a Epilogue<'a>,
    ) -> Job<'a> {
        let size @ [height, width] = shape.output();
        let tile = if width.next_multiple_of(NARROW) < width.next_multiple_of(WIDE) { NARROW } else { WIDE };
        let columns = shape.padded(1, width.next_multiple_of(tile));
        let pixels = [0, 1].map(|axis| (shape.input[axis] - 1) / spacing[axis] + 1);
        let of_each_row = columns * shape.stride[0].div_ceil(spacing[0]) + width;
        let of_a_filter = columns * shape.reach(0).div_ceil(spacing[0]).min(pixels[0]);
        let most = BAND.saturating_sub(of_a_filter) / of_each_row;
        let most = most.min(shape.rows_of_a_thread());
        // As many equal bands as it takes.
        let rows = height.div_ceil(height.div_ceil(most.clamp(1, height)));
        Job { shape, spacing, pixels, input, weight, output, epilogue, size, tile, columns, rows }
    }

    fn taps(&self) -> usize {
        self.shape.kernel[0] * self.shape.kernel[1]
    }

    /// Pixels of the copy of a band's input: of the rows that are there.
    fn copied(&self) -> usize {
        self.shape.padded(0, self.rows).div_ceil(self.spacing[0]).min(self.pixels[0]) * self.columns
    }

    /// Pixels of a band's sums, with what a row's last tile writes behind them.
    fn summed(&self) -> usize {
        self.rows * self.size[1] + WIDE
    }

    /// Numbers of the taps, the copy, the sums and the residual.
    fn memory(&self) -> usize {
        let residual = if self.epilogue.residual.is_some() { self.summed() } else { 0 };
        (self.taps() + self.copied() + self.summed() + residual) * lanes()
    }
}

/// Some rows of the output of a register of channels of an image.
struct Band<'a> {
    job: &'a Job<'a>,
    /// The first channel, its plane of all images', and how many channels of the register belong to another task.
    channel: usize,
    plane: usize,
    others: usize,
    /// The first row of the output, and how many there are.
    first: usize,
    count: usize,
    /// The rows of the input that are read: from the first to before the second. Those above and below the plane are not there, and cost nothing.
    read: [usize; 2],
}

impl<'a> Band<'a> {
    fn new(job: &'a Job<'a>, image: usize, block: usize, (first, count): (usize, usize)) -> Band<'a> {
        let shape = job.shape;
        // The last block begins where a whole register of channels ends.
        let channel = (block * lanes()).min(shape.channels - lanes());
        let row = |padded: usize| padded.saturating_sub(shape.padding[0]).div_ceil(job.spacing[0]);
        let begin = first * shape.stride[0];
        let read = [row(begin), row(begin + shape.padded(0, count)).min(job.pixels[0])];
        let plane = image * shape.channels + channel;
        Band { job, channel, plane, others: block * lanes() - channel, first, count, read }
    }

    /// The index of the band's first output.
    fn at(&self) -> usize {
        let [height, width] = self.job.size;
        (self.plane * height + self.first) * width
    }

    /// Computes the band. Its three steps are functions of their own: in one there are not registers enough.
    ///
    /// # Safety
    /// These rows of the planes are the caller's alone, but for those of `others`, which are not written.
    unsafe fn run(&self, memory: &mut [f32]) {
        let (job, band, lanes) = (self.job, self, lanes());
        let (taps, rest) = memory.split_at_mut(job.taps() * lanes);
        let (copy, rest) = rest.split_at_mut(job.copied() * lanes);
        let (sums, residual) = rest.split_at_mut(job.summed() * lanes);
        let mut sides = Sides { taps, copy, residual };
        let sides = &mut sides;
        // SAFETY: the parts of the memory are as large as the job says; the rest is the caller's promise.
        unsafe {
            at_level!(bring_in(band: &Band, sides: &mut Sides));
            {
                let sums = &mut *sums;
                at_level!(multiply(band: &Band, sides: &Sides, sums: &mut [f32]));
            }
            let sums = &sums[..self.count * job.size[1] * lanes];
            at_level!(take_out(band: &Band, sums: &[f32]));
        }
    }
}

/// What lies side by side: the taps, the rows that are read, and the residual.
struct Sides<'a> {
    taps: &'a mut [f32],
    copy: &'a mut [f32],
    residual: &'a mut [f32],
}

/// Brings taps, rows and residual side by side.
///
/// # Safety
/// The CPU has the instructions, and the sides are as large as the job says.
#[inline(always)]
unsafe fn bring_in<V: Lanes>(band: &Band, sides: &mut Sides) {
    let (job, [height, width]) = (band.job, band.job.size);
    let weight = &job.weight[band.channel * job.taps()..];
    // SAFETY: the band has a register of planes, with these rows, and of filters.
    unsafe {
        pixels_in::<V>(weight, job.taps(), job.taps(), sides.taps, 1);
        let lines = sides.copy.chunks_exact_mut(job.columns * V::N);
        for (row, line) in (band.read[0]..band.read[1]).zip(lines) {
            row_in::<V>(job, band.plane, row, line);
        }
        if let Some(residual) = job.epilogue.residual {
            pixels_in::<V>(&residual[band.at()..], height * width, band.count * width, sides.residual, 1);
        }
    }
}

/// A row of the input, of a register of planes from `plane` on, with the zeros before, between and behind its pixels.
///
/// # Safety
/// There is a register of planes.
#[inline(always)]
unsafe fn row_in<V: Lanes>(job: &Job, plane: usize, row: usize, line: &mut [f32]) {
    let ([height, width], spacing, left) = (job.pixels, job.spacing[1], job.shape.padding[2]);
    let from = &job.input[(plane * height + row) * width..];
    let columns = line.len() / V::N;
    // The pixels that are read.
    let count = columns.saturating_sub(left).div_ceil(spacing).min(width);
    let end = if count == 0 { 0 } else { left + (count - 1) * spacing + 1 };
    if spacing == 1 {
        line[..left.min(columns) * V::N].fill(0.0);
        line[end * V::N..].fill(0.0);
    } else {
        line.fill(0.0);
    }
    if count > 0 {
        // SAFETY: the caller's promise; the pixels end in the line.
        unsafe { pixels_in::<V>(from, height * width, count, &mut line[left * V::N..], spacing) };
    }
}

/// Brings `count` pixels of a register of planes, which are `plane` apart, side by side: every `spacing` registers of `to`.
///
/// # Safety
/// There is a register of planes, each with the pixels; `to` has room for them.
#[inline(always)]
unsafe fn pixels_in<V: Lanes>(from: &[f32], plane: usize, count: usize, to: &mut [f32], spacing: usize) {
    if count < SQUARE {
        for (pixel, to) in to.chunks_mut(spacing * V::N).take(count).enumerate() {
            (0..V::N).for_each(|i| to[i] = from[i * plane + pixel]);
        }
        return;
    }
    let (from, to, step) = (from.as_ptr(), to.as_mut_ptr(), spacing * V::N);
    for (at, size) in squares(V::N, count) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.add(at), to.add(at * step));
            if size == V::N {
                V::turn_square(from, plane, to, step)
            } else {
                turn_rows_of_4::<V>(from, plane, to, step)
            }
        }
    }
}

/// The squares that at least [`SQUARE`] pixels are cut into, as large as a register or, of fewer pixels, smaller: the first pixel and the size. The last
/// one goes over some pixels again where there is a rest.
#[inline(always)]
fn squares(register: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    let size = if count >= register { register } else { SQUARE };
    (0..count.div_ceil(size)).map(move |i| ((i * size).min(count - size), size))
}

/// Multiplies rows by taps, and does what follows.
///
/// # Safety
/// The CPU has the instructions; the sides hold what the band reads, and the sums have room for the band and a tile.
#[inline(always)]
unsafe fn multiply<V: Lanes>(band: &Band, sides: &Sides, sums: &mut [f32]) {
    let shape = band.job.shape;
    for row in 0..band.count {
        let (row, at) = (band.first + row, row * band.job.size[1]);
        let sums = sums.as_mut_ptr();
        // SAFETY: the caller's promise; what a row's last tile writes past its end, the next row overwrites.
        unsafe {
            match (shape.kernel[1], shape.stride[1], band.job.tile) {
                (3, 1, NARROW) => row_of::<V, 3, 1, NARROW>(band, sides, row, at, sums),
                (3, 1, _) => row_of::<V, 3, 1, WIDE>(band, sides, row, at, sums),
                (3, _, NARROW) => row_of::<V, 3, 2, NARROW>(band, sides, row, at, sums),
                (3, _, _) => row_of::<V, 3, 2, WIDE>(band, sides, row, at, sums),
                (5, 1, NARROW) => row_of::<V, 5, 1, NARROW>(band, sides, row, at, sums),
                (5, 1, _) => row_of::<V, 5, 1, WIDE>(band, sides, row, at, sums),
                (5, _, NARROW) => row_of::<V, 5, 2, NARROW>(band, sides, row, at, sums),
                (5, _, _) => row_of::<V, 5, 2, WIDE>(band, sides, row, at, sums),
                (_, 1, NARROW) => row_of::<V, 7, 1, NARROW>(band, sides, row, at, sums),
                (_, 1, _) => row_of::<V, 7, 1, WIDE>(band, sides, row, at, sums),
                (_, _, NARROW) => row_of::<V, 7, 2, NARROW>(band, sides, row, at, sums),
                (..) => row_of::<V, 7, 2, WIDE>(band, sides, row, at, sums),
            }
        }
    }
}

/// One row of outputs, T at a time, from filters of any height that have K columns, every S pixels; `at` is the first one's place in the sums.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn row_of<V: Lanes, const K: usize, const S: usize, const T: usize>(
    band: &Band,
    sides: &Sides,
    row: usize,
    at: usize,
    sums: *mut f32,
) {
    let (job, shape, pitch, spacing) = (band.job, band.job.shape, band.job.columns * V::N, band.job.spacing[0]);
    let (step, top, begin) = (shape.dilation[0], shape.padding[0], row * shape.stride[0]);
    // Rows of taps whose row of the input is there, and of these every so many, where there are pixels in it.
    let above = top.saturating_sub(begin).div_ceil(step);
    let below = (shape.input[0] + top).saturating_sub(begin).div_ceil(step).min(shape.kernel[0]);
    let first = (above..below).find(|&i| (begin + i * step - top).is_multiple_of(spacing)).unwrap_or(below);
    let every = (1..spacing).find(|&i| (i * step).is_multiple_of(spacing)).unwrap_or(spacing);
    let source = if first < below { (begin + first * step - top) / spacing - band.read[0] } else { 0 };
    let (advance, width) = (every * step / spacing * pitch, job.size[1]);
    let quick = job.epilogue.quick().filter(|quick| quick.residual.is_none());
    let then = Epilogue { residual: job.epilogue.residual.map(|_| &*sides.residual), ..*job.epilogue };
    // SAFETY: the caller's promise; scale and bias have a register of numbers from the channel on, the residual as many as the sums.
    unsafe {
        for x in (0..width).step_by(T) {
            let mut tile = [[V::splat(0.0)]; T];
            let mut line = sides.copy.as_ptr().wrapping_add(source * pitch + x * S * V::N);
            let mut i = first;
            while i < below {
                let taps = sides.taps.as_ptr().add(i * K * V::N);
                for j in 0..K {
                    let tap = V::load(taps.add(j * V::N));
                    for t in 0..T {
                        tile[t][0] = V::load(line.add((t * S + j) * V::N)).fma(tap, tile[t][0]);
                    }
                }
                line = line.wrapping_add(advance);
                i += every;
            }
            if let Some(quick) = quick {
                if let Some(bias) = quick.bias {
                    let bias = V::load(bias.as_ptr().add(band.channel));
                    for t in 0..T {
                        tile[t][0] = tile[t][0].add(bias);
                    }
                }
                tile = quick.apply(tile, 0, 0);
            }
            let to = sums.add((at + x) * V::N);
            for t in 0..T {
                tile[t][0].store(to.add(t * V::N));
            }
            if quick.is_none() {
                for t in 0..T.min(width - x) {
                    let value = V::load(to.add(t * V::N));
                    then.apply_along(value, band.channel, (at + x + t) * V::N).store(to.add(t * V::N));
                }
            }
        }
    }
}

/// Writes the sums to the planes of the band's channels, but for those of another task.
///
/// # Safety
/// The CPU has the instructions; the rows of the planes are the caller's alone.
#[inline(always)]
unsafe fn take_out<V: Lanes>(band: &Band, sums: &[f32]) {
    let (pixels, plane) = (sums.len() / V::N, band.job.size[0] * band.job.size[1]);
    let to = band.job.output.at(band.at());
    if band.others > 0 || pixels < SQUARE {
        for (pixel, sums) in sums.chunks_exact(V::N).enumerate() {
            for i in band.others..V::N {
                // SAFETY: the caller's promise.
                unsafe { *to.add(i * plane + pixel) = sums[i] };
            }
        }
        return;
    }
    let from = sums.as_ptr();
    for (at, size) in squares(V::N, pixels) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.add(at * V::N), to.add(at));
            if size == V::N {
                V::turn_square(from, V::N, to, plane);
            } else {
                let mut square = [V::splat(0.0); SQUARE];
                for i in 0..SQUARE {
                    square[i] = V::load(from.add(i * V::N));
                }
                V::store_rows_of_4(square, to, plane);
            }
        }
    }
}
