//! 3x3 convolutions of stride 1 by Winograd's F(2x4, 3x3): 24 products for 8 outputs instead of 72.
//!
//! A block of tiles goes through three steps whose intermediate results stay in the second-level cache: the tiles of all
//! channels are transformed, each of the 24 positions is a matrix product over channels, and the sums are transformed back.
//!
//! The transforms evaluate polynomials down columns at 0, ±1 and infinity, along rows at 0, ±1/√2, ±√2 and infinity. A tile's form is a choice
//! between products and error; of 128 channels of normal numbers, the largest difference from float64 relative to the largest output, where
//! direct sums in parts of 16 channels (as in oneDNN) have 2.9e-7:
//!
//! | tile | products for an output | error |
//! |---|---|---|
//! | 4 x 4, points 0, ±1, ±2 and infinity | 2.25 | 36e-7 |
//! | 4 x 4, points 0, ±1, 1/2, -2 and infinity | 2.25 | 11e-7 |
//! | 4 x 4, points 0, ±1/√2, ±√2 and infinity (no others have less) | 2.25 | 9e-7 |
//! | 3 x 4, rows at ±3/8, ±5/4 and infinity | 2.5 | 5.5e-7 |
//! | **2 x 4** | 3 | 4.1e-7 |
//! | 3 x 3, both at ±3/8, ±5/4 and infinity | 2.8 | 3.6e-7 |
//! | 2 x 2 | 4 | 2.2e-7 |
//!
//! 2 x 4 is the fastest within twice the error of direct sums: 3 x 3 has as many products once images are cut into tiles, and vectors are sorted
//! by four, not by three. It takes 0.9 to 1.25 times the time of 4 x 4.

use super::finish::finish_row;
use super::shape::Convolution;
use crate::native::epilogue::{Epilogue, Single};
use crate::native::lanes::{Arithmetic, Lanes, WIDEST, at_level};
use crate::native::microkernel::{Block, Channels, LeftAt, RowsAt, SideBySide, kernels};
use crate::native::panels::Panels;
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Outputs of a tile: its height and its width.
const TALL: usize = 2;
const WIDE: usize = 4;
/// Inputs of a tile: the outputs and two more.
const DOWN: usize = TALL + 2;
const ALONG: usize = WIDE + 2;
const POSITIONS: usize = DOWN * ALONG;
/// The points nearer to 0 than 1, and those further away.
const NEAR: f32 = std::f32::consts::FRAC_1_SQRT_2;
const FAR: f32 = std::f32::consts::SQRT_2;
/// Numbers of a block's transformed tiles.
const BLOCK: usize = 112 << 10;
/// Lanes that a step may write or read past a block's last tile.
const SLACK: usize = 32;
/// Channels that are summed up before they are added to the others: the transforms make more of a sum's error than direct sums do.
const CHANNELS: usize = 16;

/// How often filters that were transformed are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transformed {
    /// For one call.
    Once,
    /// For many calls.
    Kept,
}

/// Whether this convolution is one that Winograd's algorithm makes faster.
pub(super) fn suits(shape: &Convolution, transformed: Transformed) -> bool {
    if shape.kernel != [3, 3] || shape.stride != [1, 1] || shape.dilation != [1, 1] || shape.groups != 1 {
        return false;
    }
    let [height, width] = shape.output();
    let (narrow, pixels) = (shape.channels.min(shape.filters), shape.batch * height * width);
    let tiles = shape.batch * height.div_ceil(TALL) * width.div_ceil(WIDE);
    let columns = tiles.next_multiple_of(kernels().width);
    let is_wide = narrow >= 12 && pixels * narrow >= 20_000;
    match transformed {
        // The filters' transform must be worth its work, and the tiles fill the columns of the micro-kernel with few left over.
        Transformed::Once => is_wide && pixels >= 190 && 4 * tiles >= 3 * columns,
        // Left over may be half of the columns: there are a third of the products.
        Transformed::Kept => (is_wide || narrow >= 24) && 15 * columns <= 32 * tiles,
    }
}

/// Numbers of the transformed filters.
pub(super) fn packed_len(shape: &Convolution) -> usize {
    POSITIONS * one_position(Panels::new(shape.filters), shape.channels)
}

/// Numbers from the panels of one position to those of the next: not a power of two of them, so that all positions of a filter fit the caches.
fn one_position(panels: Panels, channels: usize) -> usize {
    panels.packed_len(channels) + WIDEST
}

/// The convolution with filters from [`pack`].
pub(super) fn run(shape: &Convolution, input: &[f32], packed: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [out_height, out_width] = shape.output();
    let tiles = [out_height.div_ceil(TALL), out_width.div_ceil(WIDE)];
    let total = shape.batch * tiles[0] * tiles[1];
    let kernels = kernels();
    let panels = Panels::new(shape.filters);

    // Whole blocks of the micro-kernel, few enough to stay in the cache and to feed every thread.
    let fitting = BLOCK / (POSITIONS * (shape.channels + shape.filters));
    let shared = total.div_ceil(4 * crate::threads::count());
    let block = (fitting.min(shared) / kernels.width).clamp(1, 8) * kernels.width;
    let blocks = total.div_ceil(block);

    let output = Shared::new(output);
    let ns = block * shape.channels * (shape.filters + 12) * POSITIONS / 40;
    parallel_for(blocks, ns, |from, to| {
        let job = Job { shape, tiles, block, input, output, epilogue };
        let transformed = job.position(shape.channels) * POSITIONS + SLACK;
        let sums = job.position(shape.filters) * POSITIONS + SLACK;
        let rows = DOWN * job.row();
        let line = TALL * job.line();
        scratch::with(transformed + sums + rows + line, |memory: &mut [f32]| {
            let (transformed, rest) = memory.split_at_mut(transformed);
            let (sums, rest) = rest.split_at_mut(sums);
            // Lanes beyond a row's last tile are transformed, too.
            rest[..rows].fill(0.0);
            for task in from..to {
                let first = task * block;
                let count = block.min(total - first);
                let (rows, line) = rest.split_at_mut(rows);
                // SAFETY: the buffers have the sizes that the steps expect; this task alone writes these tiles.
                unsafe {
                    let (job, own) = (&job, &mut *transformed);
                    at_level!(tiles_in(job: &Job, first: usize, count: usize, rows: &mut [f32], own: &mut [f32]));
                    job.clear_unused(count, transformed);
                    job.products(packed, panels, count, transformed, sums);
                    let own = &mut *sums;
                    at_level!(tiles_out(job: &Job, first: usize, count: usize, line: &mut [f32], own: &mut [f32]));
                }
            }
        });
    });
}

struct Job<'a> {
    shape: &'a Convolution,
    tiles: [usize; 2],
    block: usize,
    input: &'a [f32],
    output: Shared<f32>,
    epilogue: &'a Epilogue<'a>,
}

impl Job<'_> {
    /// Elements of one of the matrices with `rows` rows; the addend keeps them from falling a page apart.
    fn position(&self, rows: usize) -> usize {
        rows * self.block + SLACK + 16
    }

    /// Elements of one row of vertically transformed input.
    fn row(&self) -> usize {
        WIDE * self.tiles[1] + 96
    }

    /// Elements of one row of outputs.
    fn line(&self) -> usize {
        WIDE * (self.tiles[1] + 16)
    }

    /// The run of tiles of one tile row that starts at `place` in a block: (image, tile row, first tile column, tiles).
    #[inline(always)]
    fn run_at(&self, first: usize, count: usize, place: usize) -> (usize, usize, usize, usize) {
        let tile = first + place;
        let (row, column) = (tile / self.tiles[1], tile % self.tiles[1]);
        (row / self.tiles[0], row % self.tiles[0], column, (self.tiles[1] - column).min(count - place))
    }

    /// Zeros in the columns beyond the last tile that are multiplied with it: what was left there may be denormal, which an Intel CPU multiplies a
    /// hundred times slower.
    fn clear_unused(&self, count: usize, transformed: &mut [f32]) {
        let unused = count..count.next_multiple_of(kernels().width);
        if unused.is_empty() {
            return;
        }
        for position in transformed.chunks_exact_mut(self.position(self.shape.channels)) {
            position
                .chunks_exact_mut(self.block)
                .take(self.shape.channels)
                .for_each(|row| row[unused.clone()].fill(0.0));
        }
    }

    /// # Safety
    /// The buffers are those of [`run`].
    unsafe fn products(&self, packed: &[f32], panels: Panels, count: usize, transformed: &[f32], sums: &mut [f32]) {
        let kernels = kernels();
        let (depth, tiles) = (self.shape.channels, count.div_ceil(kernels.width));
        for position in 0..POSITIONS {
            let left = &packed[position * one_position(panels, depth)..];
            let right = &transformed[position * self.position(depth)..];
            let out = &mut sums[position * self.position(self.shape.filters)..];
            for p in 0..panels.count {
                let (begin, end) = (panels.start(p), panels.start(p + 1));
                let block = Block {
                    depth,
                    part: CHANNELS,
                    left: left[p * depth * panels.height..].as_ptr(),
                    left_at: LeftAt::Packed,
                    right: right.as_ptr(),
                    rows_at: RowsAt::Stride(self.block),
                    out: out[begin * self.block..].as_mut_ptr(),
                    out_stride: self.block,
                    accumulate: false,
                    epilogue: None,
                    channels: Channels::Rows(0),
                    index: 0,
                    ahead: (left[(p + 1) * depth * panels.height..].as_ptr(), panels.height.div_ceil(tiles)),
                    tiles: SideBySide { count: tiles, step: kernels.width },
                };
                // SAFETY: `block` is a multiple of the width, so that all lanes are inside the buffers.
                unsafe { kernels.run(&block, end - begin, kernels.width) };
            }
        }
    }
}

/// The transform of a filter's column: its polynomial at 0, 1, -1 and infinity.
#[inline(always)]
unsafe fn filter_down<V: Arithmetic>([a, b, c]: [V; 3]) -> [V; DOWN] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let half = V::splat(0.5);
        let (even, odd) = (a.add(c).mul(half), b.mul(half));
        [a, even.add(odd), even.sub(odd), c]
    }
}

/// The transform of a filter's row: its polynomial at 0, NEAR, -NEAR, FAR, -FAR and infinity.
#[inline(always)]
unsafe fn filter_along<V: Arithmetic>([a, b, c]: [V; 3]) -> [V; ALONG] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (near, far) = (V::splat(NEAR / 1.5), V::splat(FAR / 6.0));
        let (near_less, far_less) = (V::splat(-NEAR / 1.5), V::splat(-FAR / 6.0));
        let even = c.fma(V::splat(0.5), a).mul(V::splat(-1.0 / 1.5));
        let even2 = c.fma(V::splat(2.0), a).mul(V::splat(1.0 / 6.0));
        [a, b.fma(near_less, even), b.fma(near, even), b.fma(far, even2), b.fma(far_less, even2), c]
    }
}

/// Transforms the filters, straight into the panels of the products.
pub(super) fn pack(shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
    let (panels, packed) = (Panels::new(shape.filters), Shared::new(packed));
    let packed = &packed;
    parallel_for(panels.count, panels.height * shape.channels * 4, |from, to| {
        for p in from..to {
            // SAFETY: this task alone writes panel `p`.
            unsafe {
                at_level!(panel_in(shape: &Convolution, weight: &[f32], panels: Panels, p: usize, packed: &Shared<f32>))
            };
        }
    });
}

/// Transforms the filters of panel `p`, in the order in which they lie in it: channel by channel, side by side.
#[inline(always)]
unsafe fn panel_in<V: Lanes>(shape: &Convolution, weight: &[f32], panels: Panels, p: usize, packed: &Shared<f32>) {
    let (channels, height) = (shape.channels, panels.height);
    let (begin, end) = (panels.start(p), panels.start(p + 1));
    let len = channels * height;
    let (mut channel, mut filter) = (0, begin);
    for first in (0..len).step_by(V::N) {
        let count = V::N.min(len - first);
        let mut taps = [[0.0f32; WIDEST]; 9];
        for lane in 0..count {
            if filter < end {
                let own = &weight[(filter * channels + channel) * 9..][..9];
                taps.iter_mut().zip(own).for_each(|(to, &tap)| to[lane] = tap);
            }
            filter += 1;
            if filter == begin + height {
                (channel, filter) = (channel + 1, begin);
            }
        }
        // SAFETY: a row of taps holds a vector; the caller alone writes this panel.
        unsafe {
            let mut columns = [[V::splat(0.0); DOWN]; 3];
            for (j, column) in columns.iter_mut().enumerate() {
                let tap = |i: usize| taps[3 * i + j].as_ptr();
                *column = filter_down([V::load(tap(0)), V::load(tap(1)), V::load(tap(2))]);
            }
            for y in 0..DOWN {
                let row = filter_along([columns[0][y], columns[1][y], columns[2][y]]);
                for (x, value) in row.into_iter().enumerate() {
                    let mut lanes = [0.0f32; WIDEST];
                    value.store(lanes.as_mut_ptr());
                    let at = (y * ALONG + x) * one_position(panels, channels) + p * len + first;
                    packed.part(at, count).copy_from_slice(&lanes[..count]);
                }
            }
        }
    }
}

/// The transform of a tile's column of inputs.
#[inline(always)]
unsafe fn input_down<V: Arithmetic>(d: [V; DOWN]) -> [V; DOWN] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { [d[0].sub(d[2]), d[1].add(d[2]), d[2].sub(d[1]), d[3].sub(d[1])] }
}

/// The transform of a tile's row of inputs.
#[inline(always)]
unsafe fn input_along<V: Arithmetic>(d: [V; ALONG]) -> [V; ALONG] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (both, half, two) = (V::splat(-2.5), V::splat(-0.5), V::splat(-2.0));
        let (even, odd) = (d[2].fma(two, d[4]), d[1].fma(two, d[3]));
        let (even2, odd2) = (d[2].fma(half, d[4]), d[1].fma(half, d[3]));
        [
            d[2].fma(both, d[4]).add(d[0]),
            odd.fma(V::splat(NEAR), even),
            odd.fma(V::splat(-NEAR), even),
            odd2.fma(V::splat(FAR), even2),
            odd2.fma(V::splat(-FAR), even2),
            d[3].fma(both, d[5]).add(d[1]),
        ]
    }
}

/// A column of outputs from the sums of products.
#[inline(always)]
unsafe fn output_down<V: Lanes>(m: [V; DOWN]) -> [V; TALL] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { [m[0].add(m[1].add(m[2])), m[3].add(m[1].sub(m[2]))] }
}

/// A row of outputs from the sums of products.
#[inline(always)]
unsafe fn output_along<V: Lanes>(m: [V; ALONG]) -> [V; WIDE] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (sum, difference) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            m[0].add(sum).add(sum2),
            difference2.fma(V::splat(FAR), difference.mul(V::splat(NEAR))),
            sum2.fma(V::splat(2.0), sum.mul(V::splat(0.5))),
            difference2.fma(V::splat(2.0 * FAR), difference.fma(V::splat(0.5 * NEAR), m[5])),
        ]
    }
}

/// Transforms a block's tiles of every channel.
#[inline(always)]
unsafe fn tiles_in<V: Lanes>(job: &Job, first: usize, count: usize, rows: &mut [f32], transformed: &mut [f32]) {
    let shape = job.shape;
    let [height, width] = shape.input;
    let (top, left) = (shape.padding[0], shape.padding[2]);
    let position = job.position(shape.channels);
    let length = job.row();
    let rows = rows.as_mut_ptr();
    for channel in 0..shape.channels {
        let mut place = 0;
        while place < count {
            let (image, tile_row, tile_column, run) = job.run_at(first, count, place);
            let plane = job.input[(image * shape.channels + channel) * height * width..][..height * width].as_ptr();
            // Columns of the padded input that these tiles see, and the part of them that exists.
            let start = WIDE * tile_column;
            let needed = WIDE * run + 2;
            let begin = left.saturating_sub(start).min(needed);
            let end = (width + left).saturating_sub(start).clamp(begin, needed);
            // SAFETY: `begin..end` of the needed columns lie in the input; each row of `rows` has room for what vectors write
            // past the needed columns; what they read past the existing ones lies in `rows`.
            unsafe {
                let mut sources = [std::ptr::null(); DOWN];
                for (i, source) in sources.iter_mut().enumerate() {
                    let y = (TALL * tile_row + i).wrapping_sub(top);
                    if y < height {
                        *source = plane.add(y * width + start).wrapping_sub(left);
                    }
                    let row = rows.add(i * length);
                    for x in 0..begin {
                        *row.add(x) = 0.0;
                    }
                    for x in end..needed {
                        *row.add(x) = 0.0;
                    }
                }
                let mut x = begin;
                while x + V::N <= end {
                    vertical::<V>(&sources, x, rows, length);
                    x += V::N;
                }
                if x < end && end - begin >= V::N {
                    // The last vector overlaps the one before it.
                    vertical::<V>(&sources, end - V::N, rows, length);
                } else {
                    while x < end {
                        vertical::<Single>(&sources, x, rows, length);
                        x += 1;
                    }
                }
                let out = transformed.as_mut_ptr().add(channel * job.block + place);
                for i in 0..DOWN {
                    let row = rows.add(i * length).cast_const();
                    let mut tile = 0;
                    while tile < run {
                        let [d0, d1, d2, d3] = V::load_by_4(row.add(WIDE * tile));
                        let [d4, d5, _, _] = V::load_by_4(row.add(WIDE * tile + WIDE));
                        let t = input_along([d0, d1, d2, d3, d4, d5]);
                        for j in 0..ALONG {
                            // Lanes past the run are overwritten by the next run or channel, or lie in the slack.
                            t[j].store(out.add((i * ALONG + j) * position + tile));
                        }
                        tile += V::N;
                    }
                }
            }
            place += run;
        }
    }
}

/// The vertical half of the transform for N columns from `x` on; a source row that does not exist is zero.
#[inline(always)]
unsafe fn vertical<V: Arithmetic>(sources: &[*const f32; DOWN], x: usize, rows: *mut f32, length: usize) {
    // SAFETY: the caller vouches for N numbers of each source row and of each row of `rows`.
    unsafe {
        let mut d = [V::splat(0.0); DOWN];
        for i in 0..DOWN {
            if !sources[i].is_null() {
                d[i] = V::load(sources[i].wrapping_add(x));
            }
        }
        let t = input_down(d);
        for i in 0..DOWN {
            t[i].store(rows.add(i * length + x));
        }
    }
}

/// Transforms a block's sums back and writes the outputs.
#[inline(always)]
unsafe fn tiles_out<V: Lanes>(job: &Job, first: usize, count: usize, line: &mut [f32], sums: &mut [f32]) {
    let shape = job.shape;
    let [height, width] = shape.output();
    let position = job.position(shape.filters);
    let length = job.line();
    for filter in 0..shape.filters {
        let mut place = 0;
        while place < count {
            let (image, tile_row, tile_column, run) = job.run_at(first, count, place);
            let from = sums[filter * job.block + place..].as_ptr();
            let mut tile = 0;
            while tile < run {
                // SAFETY: lanes past the run read the next row's sums or the slack, and land behind the line's used part.
                unsafe {
                    let mut half = [[V::splat(0.0); ALONG]; TALL];
                    for j in 0..ALONG {
                        let mut m = [V::splat(0.0); DOWN];
                        for i in 0..DOWN {
                            m[i] = V::load(from.add((i * ALONG + j) * position + tile));
                        }
                        let column = output_down(m);
                        for y in 0..TALL {
                            half[y][j] = column[y];
                        }
                    }
                    for y in 0..TALL {
                        V::store_by_4(output_along(half[y]), line.as_mut_ptr().add(y * length + WIDE * tile));
                    }
                }
                tile += V::N;
            }
            let column = WIDE * tile_column;
            let columns = (WIDE * run).min(width - column);
            for y in 0..TALL.min(height - TALL * tile_row) {
                let at = ((image * shape.filters + filter) * height + TALL * tile_row + y) * width + column;
                // SAFETY: this task alone writes these tiles' outputs.
                let to = unsafe { job.output.part(at, columns) };
                finish_row(&line[y * length..][..columns], to, job.epilogue, filter, at);
            }
            place += run;
        }
    }
}
