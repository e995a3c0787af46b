//! 3x3 convolutions of stride 1 by Winograd's F(4x4, 3x3): 36 products for 16 outputs instead of 144.
//!
//! A block of tiles goes through three steps whose intermediate results stay in the second-level cache: the tiles of all
//! channels are transformed, each of the 36 positions is a matrix product over channels, and the sums are transformed back.
//!
//! The transforms evaluate polynomials at 0, ±1/√2, ±√2 and infinity. With the usual points 0, ±1, ±2 and infinity they would have
//! numbers from 1/24 to 8, and the result five times the error.

use super::finish::finish_row;
use super::shape::Convolution;
use crate::library::epilogue::{Epilogue, Single};
use crate::library::lanes::{Arithmetic, Lanes, at_level};
use crate::library::microkernel::{Block, Panels, ROWS, RowsAt, kernels};
use crate::library::{Shared, scratch};
use crate::threads::parallel_for;

const POSITIONS: usize = 36;
/// The points nearer to 0 than 1, and those further away.
const NEAR: f32 = std::f32::consts::FRAC_1_SQRT_2;
const FAR: f32 = std::f32::consts::SQRT_2;
/// Numbers of a block's transformed tiles.
const BLOCK: usize = 112 << 10;
/// Lanes that a step may write or read past a block's last tile.
const SLACK: usize = 32;
/// Channels that are summed up before they are added to the others: short sums have small errors.
const CHANNELS: usize = 32;

/// Whether this convolution is one that Winograd's algorithm makes faster.
pub(crate) fn suits(shape: &Convolution) -> bool {
    let [height, width] = shape.output();
    shape.kernel == [3, 3]
        && shape.stride == [1, 1]
        && shape.dilation == [1, 1]
        && shape.groups == 1
        && shape.channels >= 12
        && shape.filters >= 8
        && height >= 4
        && width >= 6
        // The transformed filters must be worth their work.
        && shape.batch * height * width >= 400
}

pub(crate) fn run(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [out_height, out_width] = shape.output();
    let tiles = [out_height.div_ceil(4), out_width.div_ceil(4)];
    let total = tiles[0] * tiles[1];
    let kernels = kernels();
    let panels = Panels::new(shape.filters);
    let per_position = panels.packed_len(shape.channels);

    // Whole blocks of the micro-kernel, few enough to stay in the cache and to feed every thread.
    let fitting = BLOCK / (POSITIONS * (shape.channels + shape.filters));
    let shared = (shape.batch * total).div_ceil(4 * crate::threads::count());
    let block = (fitting.min(shared) / kernels.width).clamp(1, 8) * kernels.width;
    let blocks = total.div_ceil(block);

    scratch::with(POSITIONS * per_position, |packed: &mut [f32]| {
        transform_filters(shape, weight, panels, packed);
        let packed = &*packed;
        let output = Shared::new(output);
        let ns = block * shape.channels * (shape.filters + 12) * POSITIONS / 40;
        parallel_for(shape.batch * blocks, ns, |from, to| {
            let job = Job { shape, tiles, block, input, output, epilogue };
            let transformed = job.position(shape.channels) * POSITIONS + SLACK;
            let sums = job.position(shape.filters) * POSITIONS + SLACK;
            let rows = 6 * job.row();
            let line = 16 * (tiles[1] + 16);
            scratch::with(transformed + sums + rows + line, |memory: &mut [f32]| {
                let (transformed, rest) = memory.split_at_mut(transformed);
                let (sums, rest) = rest.split_at_mut(sums);
                for task in from..to {
                    let (image, first) = (task / blocks, task % blocks * block);
                    let count = block.min(total - first);
                    let (rows, line) = rest.split_at_mut(rows);
                    // SAFETY: the buffers have the sizes that the steps expect; this task alone writes these tiles.
                    unsafe {
                        let (job, own) = (&job, &mut *transformed);
                        at_level!(tiles_in(job: &Job, image: usize, first: usize, count: usize, rows: &mut [f32], own: &mut [f32]));
                        job.products(packed, panels, count, transformed, sums);
                        let own = &mut *sums;
                        at_level!(tiles_out(job: &Job, image: usize, first: usize, count: usize, line: &mut [f32], own: &mut [f32]));
                    }
                }
            });
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
    /// Elements of one of the 36 matrices with `rows` rows; the addend keeps them from falling a page apart.
    fn position(&self, rows: usize) -> usize {
        rows * self.block + SLACK + 16
    }

    /// Elements of one row of vertically transformed input.
    fn row(&self) -> usize {
        4 * self.tiles[1] + 96
    }

    /// The run of tiles of one tile row that starts at `place` in a block: (tile row, first tile column, tiles).
    #[inline(always)]
    fn run_at(&self, first: usize, count: usize, place: usize) -> (usize, usize, usize) {
        let tile = first + place;
        let (row, column) = (tile / self.tiles[1], tile % self.tiles[1]);
        (row, column, (self.tiles[1] - column).min(count - place))
    }

    /// # Safety
    /// The buffers are those of [`run`].
    unsafe fn products(&self, packed: &[f32], panels: Panels, count: usize, transformed: &[f32], sums: &mut [f32]) {
        let kernels = kernels();
        let depth = self.shape.channels;
        for position in 0..POSITIONS {
            let left = &packed[position * panels.packed_len(depth)..];
            let right = &transformed[position * self.position(depth)..];
            let out = &mut sums[position * self.position(self.shape.filters)..];
            for column in (0..count).step_by(kernels.width) {
                let parts = (0..depth).step_by(CHANNELS);
                for (p, channel) in (0..panels.count).flat_map(|p| parts.clone().map(move |channel| (p, channel))) {
                    let (begin, end) = (panels.start(p), panels.start(p + 1));
                    // SAFETY: `block` is a multiple of the width, so that all lanes are inside the buffers.
                    unsafe {
                        let block = Block {
                            depth: CHANNELS.min(depth - channel),
                            left: left.as_ptr().add((p * depth + channel) * ROWS),
                            right: right.as_ptr().add(channel * self.block + column),
                            rows_at: RowsAt::Stride(self.block),
                            out: out.as_mut_ptr().add(begin * self.block + column),
                            out_stride: self.block,
                            accumulate: channel > 0,
                            epilogue: None,
                            channel: 0,
                            index: 0,
                        };
                        kernels.run(&block, end - begin, kernels.width);
                    }
                }
            }
        }
    }
}

/// U = G g G^T for every filter and channel, straight into the panels of the 36 products.
fn transform_filters(shape: &Convolution, weight: &[f32], panels: Panels, packed: &mut [f32]) {
    let channels = shape.channels;
    let per_position = panels.packed_len(channels);
    let packed = Shared::new(packed);
    let g = |[a, b, c]: [f32; 3]| {
        let (even, odd) = ((a + 0.5 * c) / -1.5, b * (NEAR / -1.5));
        let (even2, odd2) = ((a + 2.0 * c) / 6.0, b * (FAR / 6.0));
        [a, even + odd, even - odd, even2 + odd2, even2 - odd2, c]
    };
    parallel_for(panels.count, ROWS * channels * 25, |from, to| {
        for p in from..to {
            let (begin, end) = (panels.start(p), panels.start(p + 1));
            for channel in 0..channels {
                for i in 0..end - begin {
                    let k = &weight[((begin + i) * channels + channel) * 9..][..9];
                    let columns = [0, 1, 2].map(|j| g([k[j], k[3 + j], k[6 + j]]));
                    for y in 0..6 {
                        let row = g([columns[0][y], columns[1][y], columns[2][y]]);
                        for (x, value) in row.into_iter().enumerate() {
                            let at = (y * 6 + x) * per_position + (p * channels + channel) * ROWS + i;
                            // SAFETY: element i of this panel's group, which this task alone writes.
                            unsafe { *packed.at(at) = value };
                        }
                    }
                }
            }
        }
    });
}

/// One dimension of B^T d.
#[inline(always)]
unsafe fn input_transform<V: Arithmetic>(d: [V; 6]) -> [V; 6] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (both, half, two) = (V::splat(-2.5), V::splat(-0.5), V::splat(-2.0));
        let even = d[2].fma(two, d[4]);
        let odd = d[1].fma(two, d[3]).mul(V::splat(NEAR));
        let even2 = d[2].fma(half, d[4]);
        let odd2 = d[1].fma(half, d[3]).mul(V::splat(FAR));
        [
            d[2].fma(both, d[4]).add(d[0]),
            even.add(odd),
            even.sub(odd),
            even2.add(odd2),
            even2.sub(odd2),
            d[3].fma(both, d[5]).add(d[1]),
        ]
    }
}

/// One dimension of A^T m.
#[inline(always)]
unsafe fn output_transform<V: Lanes>(m: [V; 6]) -> [V; 4] {
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
unsafe fn tiles_in<V: Lanes>(
    job: &Job,
    image: usize,
    first: usize,
    count: usize,
    rows: &mut [f32],
    transformed: &mut [f32],
) {
    let shape = job.shape;
    let [height, width] = shape.input;
    let (top, left) = (shape.padding[0], shape.padding[2]);
    let position = job.position(shape.channels);
    let length = job.row();
    let rows = rows.as_mut_ptr();
    for channel in 0..shape.channels {
        let plane = job.input[(image * shape.channels + channel) * height * width..][..height * width].as_ptr();
        let mut place = 0;
        while place < count {
            let (tile_row, tile_column, run) = job.run_at(first, count, place);
            // Columns of the padded input that these tiles see, and the part of them that exists.
            let start = 4 * tile_column;
            let needed = 4 * run + 2;
            let begin = left.saturating_sub(start).min(needed);
            let end = (width + left).saturating_sub(start).clamp(begin, needed);
            // SAFETY: `begin..end` of the needed columns lie in the input; each row of `rows` has room for what vectors write
            // past the needed columns; what they read past the existing ones lies in `rows`.
            unsafe {
                let mut sources = [std::ptr::null(); 6];
                for (i, source) in sources.iter_mut().enumerate() {
                    let y = (4 * tile_row + i).wrapping_sub(top);
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
                for i in 0..6 {
                    let row = rows.add(i * length).cast_const();
                    let mut tile = 0;
                    while tile < run {
                        let [d0, d1, d2, d3] = V::load_by_4(row.add(4 * tile));
                        let [d4, d5, _, _] = V::load_by_4(row.add(4 * tile + 4));
                        let t = input_transform([d0, d1, d2, d3, d4, d5]);
                        for j in 0..6 {
                            // Lanes past the run are overwritten by the next run or channel, or lie in the slack.
                            t[j].store(out.add((i * 6 + j) * position + tile));
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
unsafe fn vertical<V: Arithmetic>(sources: &[*const f32; 6], x: usize, rows: *mut f32, length: usize) {
    // SAFETY: the caller vouches for N numbers of each source row and of each of the six rows.
    unsafe {
        let mut d = [V::splat(0.0); 6];
        for i in 0..6 {
            if !sources[i].is_null() {
                d[i] = V::load(sources[i].wrapping_add(x));
            }
        }
        let t = input_transform(d);
        for i in 0..6 {
            t[i].store(rows.add(i * length + x));
        }
    }
}

/// Transforms a block's sums back and writes the outputs.
#[inline(always)]
unsafe fn tiles_out<V: Lanes>(job: &Job, image: usize, first: usize, count: usize, line: &mut [f32], sums: &mut [f32]) {
    let shape = job.shape;
    let [height, width] = shape.output();
    let position = job.position(shape.filters);
    let length = line.len() / 4;
    for filter in 0..shape.filters {
        let mut place = 0;
        while place < count {
            let (tile_row, tile_column, run) = job.run_at(first, count, place);
            let from = sums[filter * job.block + place..].as_ptr();
            let mut tile = 0;
            while tile < run {
                // SAFETY: lanes past the run read the next row's sums or the slack, and land behind the line's used part.
                unsafe {
                    let mut half = [[V::splat(0.0); 6]; 4];
                    for j in 0..6 {
                        let mut m = [V::splat(0.0); 6];
                        for i in 0..6 {
                            m[i] = V::load(from.add((i * 6 + j) * position + tile));
                        }
                        let column = output_transform(m);
                        for y in 0..4 {
                            half[y][j] = column[y];
                        }
                    }
                    for y in 0..4 {
                        V::store_by_4(output_transform(half[y]), line.as_mut_ptr().add(y * length + 4 * tile));
                    }
                }
                tile += V::N;
            }
            let column = 4 * tile_column;
            let columns = (4 * run).min(width - column);
            for y in 0..4.min(height - 4 * tile_row) {
                let at = ((image * shape.filters + filter) * height + 4 * tile_row + y) * width + column;
                // SAFETY: this task alone writes these tiles' outputs.
                let to = unsafe { job.output.part(at, columns) };
                finish_row(&line[y * length..][..columns], to, job.epilogue, filter, at);
            }
            place += run;
        }
    }
}
