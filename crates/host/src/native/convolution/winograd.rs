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

mod filters;
mod tiles;

pub(super) use self::filters::pack;

use self::tiles::{bring_in, bring_out};
use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{WIDEST, at_level};
use crate::native::microkernel::{Block, Channels, LeftAt, RowsAt, SideBySide, kernels};
use crate::native::panels::Panels;
use crate::native::{Shared, scratch};
use crate::threads::{self, parallel_for};

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
/// Filters of one channel whose transforms the caches hold.
const CACHED: usize = 96 << 10;
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
    let ([height, width], [down, along]) = (shape.output(), shape.tiles());
    let (narrow, pixels) = (shape.channels.min(shape.filters), shape.batch * height * width);
    let tiles = shape.batch * down * along;
    let columns = tiles.next_multiple_of(kernels().width / 2);
    let enough = if shape.channels * shape.filters <= CACHED { 190 } else { 250 };
    let is_wide = narrow >= 12 && pixels * narrow >= 20_000;
    match transformed {
        // The filters' transform must be worth its work, and the tiles fill the columns of the micro-kernel with few left over.
        Transformed::Once => is_wide && pixels >= enough && 4 * tiles >= 3 * columns,
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
    let tiles = shape.tiles();
    let (total, width) = (shape.batch * tiles[0] * tiles[1], kernels().width);
    // Whole blocks of the micro-kernel, few enough to stay in the cache and to feed every thread.
    let fitting = BLOCK / (POSITIONS * (shape.channels + shape.filters));
    let each = total.div_ceil(4 * threads::count());
    let block = (fitting.min(each) / width).clamp(1, 8) * width;
    let job = Job { shape, tiles, block, input, packed, output: Shared::new(output), epilogue };
    let blocks = (0..total.div_ceil(block)).map(|i| Tiles { first: i * block, count: block.min(total - i * block) });
    if blocks.len() < threads::count() {
        return blocks.for_each(|tiles| job.shared_out(tiles));
    }
    let (ns, blocks) = (job.ns(POSITIONS), &blocks);
    parallel_for(blocks.len(), ns, |from, to| {
        scratch::with(job.transformed() + job.sums(), |memory: &mut [f32]| {
            let (transformed, sums) = memory.split_at_mut(job.transformed());
            let (transformed, sums) = (transformed.as_mut_ptr(), sums.as_mut_ptr());
            for tiles in blocks.clone().skip(from).take(to - from) {
                // SAFETY: the buffers have the sizes that the steps expect; this task alone writes these tiles.
                unsafe {
                    job.bring_in(tiles, (0, shape.channels), transformed);
                    job.multiply(tiles, (0, job.products()), transformed, sums);
                    job.bring_out(tiles, (0, shape.filters), sums);
                }
            }
        });
    });
}

impl Convolution {
    /// Tiles of an image, down and along.
    fn tiles(&self) -> [usize; 2] {
        let [height, width] = self.output();
        [height.div_ceil(TALL), width.div_ceil(WIDE)]
    }
}

struct Job<'a> {
    shape: &'a Convolution,
    tiles: [usize; 2],
    /// Tiles of a block: whole columns of the micro-kernel.
    block: usize,
    input: &'a [f32],
    packed: &'a [f32],
    output: Shared<f32>,
    epilogue: &'a Epilogue<'a>,
}

/// Tiles of a block, counted through all images.
#[derive(Clone, Copy)]
struct Tiles {
    first: usize,
    count: usize,
}

impl Job<'_> {
    /// A block's three steps, each shared out over the threads: there are fewer blocks than those.
    fn shared_out(&self, tiles: Tiles) {
        let shape = self.shape;
        scratch::with(self.transformed() + self.sums(), |memory: &mut [f32]| {
            let (transformed, sums) = memory.split_at_mut(self.transformed());
            let (transformed, sums) = (Shared::new(transformed), Shared::new(sums));
            let (transform, multiply) = (tiles.count * POSITIONS / 8, self.ns(1) / Panels::new(shape.filters).count);
            // SAFETY: the buffers have the sizes that the steps expect; each task has channels, products or filters of its own.
            unsafe {
                parallel_for(shape.channels, transform, |from, to| self.bring_in(tiles, (from, to), transformed.at(0)));
                parallel_for(self.products(), multiply, |from, to| {
                    self.multiply(tiles, (from, to), transformed.at(0), sums.at(0));
                });
                parallel_for(shape.filters, transform, |from, to| self.bring_out(tiles, (from, to), sums.at(0)));
            }
        });
    }

    /// Nanoseconds of so many positions of a block, about.
    fn ns(&self, positions: usize) -> usize {
        self.block * self.shape.channels * (self.shape.filters + 12) * positions / 40
    }

    /// Numbers from one row of a matrix to the next: vectors may go beyond the last tile.
    fn pitch(&self) -> usize {
        self.block + WIDEST
    }

    /// Numbers of one of the matrices with `rows` rows; the addend keeps them from falling a page apart.
    fn position(&self, rows: usize) -> usize {
        rows * self.pitch() + SLACK + 16
    }

    /// Numbers of a block's transformed tiles, and of its sums.
    fn transformed(&self) -> usize {
        self.position(self.shape.channels) * POSITIONS + SLACK
    }

    fn sums(&self) -> usize {
        self.position(self.shape.filters) * POSITIONS + SLACK
    }

    /// Numbers of one row of vertically transformed input.
    fn row(&self) -> usize {
        WIDE * self.tiles[1] + 96
    }

    /// Numbers of one row of outputs.
    fn line(&self) -> usize {
        WIDE * (self.tiles[1] + 16)
    }

    /// The run of tiles of one tile row that starts at `place` in a block: (image, tile row, first tile column, tiles).
    #[inline(always)]
    fn run_at(&self, tiles: Tiles, place: usize) -> (usize, usize, usize, usize) {
        let tile = tiles.first + place;
        let (row, column) = (tile / self.tiles[1], tile % self.tiles[1]);
        (row / self.tiles[0], row % self.tiles[0], column, (self.tiles[1] - column).min(tiles.count - place))
    }

    /// Transforms the tiles of these channels, and makes zeros of the columns beyond the last tile that are multiplied with it: what was left there may
    /// be denormal, which an Intel CPU multiplies a hundred times slower.
    ///
    /// # Safety
    /// `transformed` has [`Job::transformed`] numbers, of which these channels' are the caller's alone.
    unsafe fn bring_in(&self, tiles: Tiles, channels: (usize, usize), transformed: *mut f32) {
        scratch::with(DOWN * self.row(), |rows: &mut [f32]| {
            // Lanes beyond a row's last tile are transformed, too.
            rows.fill(0.0);
            let job = self;
            // SAFETY: passed on to the caller.
            unsafe {
                at_level!(bring_in(job: &Job, tiles: Tiles, channels: (usize, usize), rows: &mut [f32], transformed: *mut f32));
            }
        });
        let unused = tiles.count.next_multiple_of(kernels().width) - tiles.count;
        for row in (0..POSITIONS * (channels.1 - channels.0)).filter(|_| unused > 0) {
            let (position, channel) = (row / (channels.1 - channels.0), channels.0 + row % (channels.1 - channels.0));
            let at = position * self.position(self.shape.channels) + channel * self.pitch() + tiles.count;
            // SAFETY: a row has a whole block's columns.
            unsafe { transformed.add(at).write_bytes(0, unused) };
        }
    }

    /// Products of a block: a panel of filters in one position each.
    fn products(&self) -> usize {
        POSITIONS * Panels::new(self.shape.filters).count
    }

    /// Computes some of the products.
    ///
    /// # Safety
    /// `transformed` and `sums` have [`Job::transformed`] and [`Job::sums`] numbers; the sums of these products are the caller's alone.
    unsafe fn multiply(&self, tiles: Tiles, (from, to): (usize, usize), transformed: *const f32, sums: *mut f32) {
        let (kernels, panels, depth) = (kernels(), Panels::new(self.shape.filters), self.shape.channels);
        // What is left over behind whole tiles may be half a one.
        let width = kernels.width;
        let (whole, rest) = (tiles.count / width, (tiles.count % width).next_multiple_of(width / 2));
        for product in from..to {
            let (position, p) = (product / panels.count, product % panels.count);
            let (begin, end) = (panels.start(p), panels.start(p + 1));
            let left = self.packed[position * one_position(panels, depth) + p * depth * panels.height..].as_ptr();
            for (first, count, columns) in [(0, whole, width), (whole, usize::from(rest > 0), rest)] {
                let block = Block {
                    depth,
                    part: CHANNELS,
                    left,
                    left_at: LeftAt::Packed,
                    right: transformed.wrapping_add(position * self.position(depth) + first * width),
                    rows_at: RowsAt::Stride(self.pitch()),
                    out: sums.wrapping_add(
                        position * self.position(self.shape.filters) + begin * self.pitch() + first * width,
                    ),
                    out_stride: self.pitch(),
                    accumulate: false,
                    epilogue: None,
                    channels: Channels::Rows(0),
                    index: 0,
                    // The next panel comes from a farther cache, or from memory, while this one's first tiles are computed.
                    ahead: match first {
                        0 => (left.wrapping_add(depth * panels.height), panels.height.div_ceil(count.max(1))),
                        _ => Block::NOTHING,
                    },
                    tiles: SideBySide { count, step: width },
                };
                if count > 0 {
                    // SAFETY: a block is a multiple of the width, so that all lanes are inside the buffers.
                    unsafe { kernels.run(&block, end - begin, columns) };
                }
            }
        }
    }

    /// Transforms the sums of these filters back and writes their outputs.
    ///
    /// # Safety
    /// `sums` has [`Job::sums`] numbers; the outputs of these tiles of the filters are the caller's alone.
    unsafe fn bring_out(&self, tiles: Tiles, filters: (usize, usize), sums: *const f32) {
        scratch::with(TALL * self.line(), |line: &mut [f32]| {
            let job = self;
            // SAFETY: passed on to the caller.
            unsafe {
                at_level!(bring_out(job: &Job, tiles: Tiles, filters: (usize, usize), line: &mut [f32], sums: *const f32));
            }
        });
    }
}
