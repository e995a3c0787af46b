//! 1x1 convolutions: for each image a product of the weight with the channels, which already lie as a matrix's rows.

use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel::{Block, Panels, ROWS, RowsAt, kernels, pack_right};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Channels summed in one go: a strip of the input with this depth stays in the first-level cache.
const DEPTH: usize = 512;
/// Below this many filters the input is read in place, because packing would cost more than it saves.
const PACK_FROM_FILTERS: usize = 24;
/// Below this many pixels a column of dot products wastes less than a block with mostly empty lanes.
const DOT_BELOW_PIXELS: usize = 4;

pub(crate) fn run(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let pixels = shape.input[0] * shape.input[1];
    let (depth, filters) = (shape.channels / shape.groups, shape.filters / shape.groups);
    if pixels < DOT_BELOW_PIXELS {
        return dots(shape, pixels, input, weight, output, epilogue);
    }
    let panels = Panels::new(filters);
    let per_group = panels.packed_len(depth);
    scratch::with(per_group * shape.groups, |packed: &mut [f32]| {
        let cuts = depth.div_ceil(DEPTH);
        let cut = |i: usize| i * depth / cuts;
        for group in 0..shape.groups {
            for i in 0..cuts {
                let (begin, end) = (cut(i), cut(i + 1));
                let to = &mut packed[group * per_group + begin * panels.count * ROWS..];
                let from = weight[group * filters * depth + begin..].as_ptr();
                // SAFETY: `from` is the first of `filters` rows of `depth` numbers, of which columns begin..end are read.
                unsafe { panels.pack((0, panels.count), from, (depth as isize, 1), end - begin, 1.0, to) };
            }
        }
        let output = Shared::new(output);
        let packed = &*packed;
        let kernels = kernels();
        // Wide columns read whole lines of the input; narrow ones even out the threads' shares.
        let strips = pixels.div_ceil(kernels.width);
        let tasks_of = |block: usize| shape.batch * shape.groups * strips.div_ceil(block);
        let block = [8, 4, 2].into_iter().find(|&b| tasks_of(b) >= 8 * crate::threads::count()).unwrap_or(1);
        let blocks = strips.div_ceil(block);
        let columns = block * kernels.width;
        let ns = columns * depth * filters / 40;
        parallel_for(shape.batch * shape.groups * blocks, ns, |from, to| {
            scratch::with(columns * depth.min(DEPTH), |strip: &mut [f32]| {
                for task in from..to {
                    let (image, first) = (task / blocks, task % blocks * columns);
                    let (batch, group) = (image / shape.groups, image % shape.groups);
                    let columns = columns.min(pixels - first);
                    let plane = |channels: usize, own: usize| (batch * channels + group * own) * pixels + first;
                    for i in 0..cuts {
                        let (begin, end) = (cut(i), cut(i + 1));
                        let left = &packed[group * per_group + begin * panels.count * ROWS..];
                        let right = input[plane(shape.channels, depth) + begin * pixels..].as_ptr();
                        let product = Product {
                            left,
                            right,
                            right_stride: pixels,
                            depth: end - begin,
                            columns,
                            output,
                            at: plane(shape.filters, filters),
                            out_stride: pixels,
                            accumulate: i > 0,
                            epilogue: (i + 1 == cuts && !epilogue.is_identity()).then_some(epilogue),
                            channel: group * filters,
                        };
                        // SAFETY: `right` has `depth` rows of `columns` numbers, `at` as many columns of `filters` rows, which
                        // no other task writes.
                        unsafe { product.run(panels, strip) };
                    }
                }
            });
        });
    });
}

/// A product of packed panels with rows that lie at a stride.
pub(crate) struct Product<'a> {
    pub left: &'a [f32],
    pub right: *const f32,
    pub right_stride: usize,
    pub depth: usize,
    pub columns: usize,
    pub output: Shared<f32>,
    pub at: usize,
    pub out_stride: usize,
    pub accumulate: bool,
    pub epilogue: Option<&'a Epilogue<'a>>,
    pub channel: usize,
}

impl Product<'_> {
    /// # Safety
    /// `right` has `depth` rows of `columns` readable numbers; `output` from `at` on has as many columns in each of the panels' rows,
    /// which nobody else touches. `strip` has `depth` x `columns` elements, rounded up to whole blocks.
    pub(crate) unsafe fn run(&self, panels: Panels, strip: &mut [f32]) {
        let kernels = kernels();
        let width = kernels.width;
        // Rows that are a multiple of a page apart fall into one set of the first-level cache.
        let in_place = panels.start(panels.count) < PACK_FROM_FILTERS && !self.right_stride.is_multiple_of(512);
        let whole = if in_place { self.columns / width * width } else { 0 };
        for column in (whole..self.columns).step_by(width) {
            let columns = width.min(self.columns - column);
            let to = &mut strip[column * self.depth..];
            // SAFETY: the caller's promise about `right`.
            unsafe {
                let from = self.right.add(column);
                pack_right(from, (self.right_stride as isize, 1), (self.depth, columns), width, to);
            }
        }
        for column in (0..self.columns).step_by(width) {
            let columns = width.min(self.columns - column);
            let (right, stride) = if column < whole {
                (self.right.wrapping_add(column), self.right_stride)
            } else {
                (strip[column * self.depth..].as_ptr(), width)
            };
            for p in 0..panels.count {
                let (begin, end) = (panels.start(p), panels.start(p + 1));
                let index = self.at + begin * self.out_stride + column;
                // SAFETY: the packed strip has whole blocks, rows in place have `width` columns; the output's part is ours.
                unsafe {
                    let block = Block {
                        depth: self.depth,
                        left: self.left.as_ptr().add(p * ROWS * self.depth),
                        right,
                        rows_at: RowsAt::Stride(stride),
                        out: self.output.at(index),
                        out_stride: self.out_stride,
                        accumulate: self.accumulate,
                        epilogue: self.epilogue,
                        channel: self.channel + begin,
                        index,
                    };
                    kernels.run(&block, end - begin, columns);
                }
            }
        }
    }
}

/// Images of a pixel or three: each output is a dot product of a filter with the channels.
fn dots(shape: &Convolution, pixels: usize, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let (depth, filters) = (shape.channels / shape.groups, shape.filters / shape.groups);
    let total = shape.batch * pixels;
    // One pixel's channels must lie side by side, which they do when an image is one pixel.
    scratch::with(if pixels == 1 { 0 } else { total * shape.channels }, |gathered: &mut [f32]| {
        if pixels > 1 {
            for (i, value) in gathered.iter_mut().enumerate() {
                let (image, rest) = (i / (pixels * shape.channels), i % (pixels * shape.channels));
                let (pixel, channel) = (rest / shape.channels, rest % shape.channels);
                *value = input[(image * shape.channels + channel) * pixels + pixel];
            }
        }
        let rows: &[f32] = if pixels == 1 { input } else { gathered };
        let output = Shared::new(output);
        parallel_for(shape.filters, total * depth / 20 + 1, |from, to| {
            for filter in from..to {
                let group = filter / filters;
                let taps = &weight[filter * depth..][..depth];
                for column in 0..total {
                    let values = &rows[column * shape.channels + group * depth..][..depth];
                    let at = (column / pixels * shape.filters + filter) * pixels + column % pixels;
                    let sum = dot(taps, values);
                    // SAFETY: `at` is an element of the output that only this filter's task writes.
                    unsafe { *output.at(at) = epilogue.apply_one(sum, filter, at) };
                }
            }
        });
    });
}

/// The sum of the products of two rows of equal length.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let (a, b, len) = (a.as_ptr(), b.as_ptr(), a.len());
    // SAFETY: both rows have `len` numbers.
    unsafe { at_level!(dot_body(a: *const f32, b: *const f32, len: usize) -> f32) }
}

#[inline(always)]
unsafe fn dot_body<V: Lanes>(a: *const f32, b: *const f32, len: usize) -> f32 {
    // SAFETY: indices stay below `len`.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        let mut i = 0;
        while i + 4 * V::N <= len {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(a.add(i + j * V::N)).fma(V::load(b.add(i + j * V::N)), *sum);
            }
            i += 4 * V::N;
        }
        while i + V::N <= len {
            sums[0] = V::load(a.add(i)).fma(V::load(b.add(i)), sums[0]);
            i += V::N;
        }
        let lanes = sums[0].add(sums[1]).add(sums[2].add(sums[3])).lanes();
        let mut sum: f32 = lanes[..V::N].iter().sum();
        while i < len {
            sum += *a.add(i) * *b.add(i);
            i += 1;
        }
        sum
    }
}
