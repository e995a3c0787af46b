//! The gradient of a convolution's weight: for each row of the filters one product over all output pixels of all images.
//!
//! The input is copied once, padded, up to a block's width of channels side by side. For an output pixel, a row of a filter then reads one run
//! of neighbours (kernel width x channels) that starts where a table says, and nothing is gathered for each tap. The left matrix is the output's
//! gradient in panels.

use super::depthwise_gradient;
use super::rows;
use super::shape::Convolution;
use super::side_by_side::Pixels;
use crate::Error;
use crate::native::microkernel::{Block, Channels, LeftAt, RowsAt, kernels};
use crate::native::panels::Panels;
use crate::native::transpose::transpose;
use crate::native::{Shared, scratch};
use crate::threads::{self, parallel_for};

/// Numbers of the input that are copied at a time, so that large images do not double the memory of a training step.
const COPIED: usize = 4 << 20;
/// Terms of a sum in one go: so many rows of a block's width stay in the first-level cache while all panels of a task go by.
const TERMS: usize = 192;
/// Panels of a task at most, whose sums stay in the second-level cache.
const TASK_PANELS: usize = 8;

/// The gradient of a convolution's weight: `gradient` (filters, channels / groups, kernel) of `input` and the output's gradient
/// `upstream` (batch, filters, of.output()), dense float32. The same numbers come out whatever the number of threads.
pub fn backward_filter(of: &Convolution, input: &[f32], upstream: &[f32], gradient: &mut [f32]) -> Result<(), Error> {
    of.check([input.len(), gradient.len(), upstream.len()])?;
    if gradient.is_empty() || upstream.is_empty() {
        gradient.fill(0.0);
    } else if rows::suits(of) {
        rows::weight_gradient(of, input, upstream, gradient);
    } else if of.is_depthwise() {
        depthwise_gradient::run(of, input, upstream, gradient);
    } else {
        run(of, input, upstream, gradient);
    }
    Ok(())
}

fn run(of: &Convolution, input: &[f32], upstream: &[f32], gradient: &mut [f32]) {
    let gradient = Shared::new(gradient);
    for (i, chunk) in chunks(of).into_iter().enumerate() {
        let work = Work::new(of, chunk);
        scratch::with(work.copied() + kernels().width, |copy: &mut [f32]| {
            scratch::with(of.groups * work.panels.packed_len(work.depth()), |packed: &mut [f32]| {
                work.copy(input, copy);
                copy[work.copied()..].fill(0.0);
                work.pack(upstream, packed);
                work.multiply(copy, packed, gradient, i > 0);
            });
        });
    }
}

/// Some images, and some rows of their outputs.
#[derive(Clone, Copy)]
struct Chunk {
    image: usize,
    images: usize,
    row: usize,
    rows: usize,
}

/// The work in parts whose copies are bounded: several images each, or a band of one.
fn chunks(of: &Convolution) -> Vec<Chunk> {
    let [height, width] = of.output();
    let line = of.channels * of.padded(1, width);
    let whole = line * of.padded(0, height);
    if whole <= COPIED {
        let images = COPIED / whole;
        let part = |image: usize| Chunk { image, images: images.min(of.batch - image), row: 0, rows: height };
        return (0..of.batch).step_by(images).map(part).collect();
    }
    let rows = ((COPIED / line).saturating_sub(of.reach(0)) / of.stride[0] + 1).min(height);
    let bands = (0..of.batch).flat_map(|image| (0..height).step_by(rows).map(move |row| (image, row)));
    bands.map(|(image, row)| Chunk { image, images: 1, row, rows: rows.min(height - row) }).collect()
}

/// Up to a block's width of one group's channels, side by side in the copy.
#[derive(Clone, Copy)]
struct Slice {
    /// The first one, of all channels.
    channel: usize,
    count: usize,
}

struct Work<'a> {
    of: &'a Convolution,
    chunk: Chunk,
    /// Height and width of an image's copy.
    padded: [usize; 2],
    /// How a group's filters are cut.
    panels: Panels,
    slices: Vec<Slice>,
}

impl Work<'_> {
    fn new(of: &Convolution, chunk: Chunk) -> Work<'_> {
        let (own, width) = (of.channels / of.groups, kernels().width);
        let group = |group: usize| {
            let slice = move |first: usize| Slice { channel: group * own + first, count: width.min(own - first) };
            (0..own).step_by(width).map(slice)
        };
        Work {
            of,
            chunk,
            padded: [of.padded(0, chunk.rows), of.padded(1, of.output()[1])],
            panels: Panels::new(of.filters / of.groups),
            slices: (0..of.groups).flat_map(group).collect(),
        }
    }

    /// Output pixels, the terms of each sum.
    fn depth(&self) -> usize {
        self.chunk.images * self.chunk.rows * self.of.output()[1]
    }

    /// Pixels of the copy.
    fn pixels(&self) -> usize {
        self.chunk.images * self.padded[0] * self.padded[1]
    }

    /// Numbers of the copy.
    fn copied(&self) -> usize {
        self.of.channels * self.pixels()
    }

    /// Copies the input: slice by slice, image by image, row by row, pixel by pixel.
    fn copy(&self, input: &[f32], copy: &mut [f32]) {
        let (of, [rows, columns]) = (self.of, self.padded);
        let lines = self.chunk.images * rows;
        let copy = Shared::new(copy);
        parallel_for(self.slices.len() * lines, columns * kernels().width / 3, |from, to| {
            for task in from..to {
                let (slice, line) = (self.slices[task / lines], task % lines);
                let (image, row) = (self.chunk.image + line / rows, line % rows);
                let at = slice.channel * self.pixels() + line * columns * slice.count;
                // SAFETY: this task alone writes this line of the slice.
                let to = unsafe { copy.part(at, columns * slice.count) };
                let pixels = Pixels { image, channel: slice.channel, count: slice.count, lanes: slice.count };
                pixels.padded_row(of, input, self.chunk.row * of.stride[0] + row, to);
            }
        });
    }

    /// Packs the output's gradient: group by group, panel by panel, pixel by pixel.
    fn pack(&self, upstream: &[f32], packed: &mut [f32]) {
        let (of, panels, depth) = (self.of, self.panels, self.depth());
        let ([height, width], filters) = (of.output(), of.filters / of.groups);
        let (pixels, terms) = (height * width, self.chunk.rows * width);
        let packed = Shared::new(packed);
        parallel_for(of.groups * panels.count * self.chunk.images, terms * panels.height, |from, to| {
            for task in from..to {
                let (panel, image) = (task / self.chunk.images, task % self.chunk.images);
                // SAFETY: this task alone writes this image's terms of the panel.
                let to = unsafe { packed.part((panel * depth + image * terms) * panels.height, terms * panels.height) };
                let (group, panel) = (panel / panels.count, panel % panels.count);
                let first = (self.chunk.image + image) * of.filters + group * filters;
                let from = upstream[first * pixels + self.chunk.row * width..].as_ptr();
                // SAFETY: the image's planes of this group's filters lie `pixels` apart, and the band in each of them.
                unsafe { panels.pack((panel, panel + 1), from, (pixels as isize, 1), terms, 1.0, to) };
            }
        });
    }

    /// Where each output pixel's taps begin in a slice of so many channels.
    fn table(&self, count: usize) -> Vec<usize> {
        let ([rows, columns], [down, right]) = (self.padded, self.of.stride);
        let lines = (0..self.chunk.images).flat_map(|i| (0..self.chunk.rows).map(move |y| i * rows + y * down));
        let width = self.of.output()[1];
        lines.flat_map(|line| (0..width).map(move |x| (line * columns + x * right) * count)).collect()
    }

    fn multiply(&self, copy: &[f32], packed: &[f32], gradient: Shared<f32>, accumulate: bool) {
        let (of, panels, depth) = (self.of, self.panels, self.depth());
        let (own, filters, width) = (of.channels / of.groups, of.filters / of.groups, kernels().width);
        let taps = of.kernel[0] * of.kernel[1];
        let (whole, rest) = (self.table(own.min(width)), self.table(own % width));
        let all = self.slices.len() * panels.count;
        let most = (all / (4 * threads::count())).clamp(1, TASK_PANELS);
        let cuts = panels.count.div_ceil(most);
        let ns = most * panels.height * depth * taps * own.min(width) / 30 + 100;
        parallel_for(self.slices.len() * cuts, ns, |from, to| {
            let line = taps * width;
            scratch::with((TASK_PANELS * panels.height + 1) * line, |memory: &mut [f32]| {
                let (sums, line) = memory.split_at_mut(TASK_PANELS * panels.height * line);
                for task in from..to {
                    let (slice, cut) = (self.slices[task / cuts], task % cuts);
                    let (first, last) = (cut * panels.count / cuts, (cut + 1) * panels.count / cuts);
                    let group = slice.channel / own;
                    let left = &packed[(group * panels.count + first) * depth * panels.height..];
                    let right = &copy[slice.channel * self.pixels()..];
                    let table = if slice.count == own.min(width) { &whole } else { &rest };
                    self.product(slice, (first, last), left, right, table, sums);
                    let start = panels.start(first);
                    for row in start..panels.start(last) {
                        let from = &sums[(row - start) * taps * slice.count..][..taps * slice.count];
                        let mut sorted = from;
                        if taps > 1 {
                            let line = &mut line[..taps * slice.count];
                            // SAFETY: both hold a number for each tap and channel.
                            unsafe {
                                let to = (line.as_mut_ptr() as isize, 4 * taps as isize);
                                let from = (from.as_ptr() as isize, 4 * slice.count as isize);
                                transpose(4, false, (taps, slice.count), to, from);
                            }
                            sorted = line;
                        }
                        let at = ((group * filters + row) * own + slice.channel % own) * taps;
                        // SAFETY: this task alone has these channels of this filter.
                        let to = unsafe { gradient.part(at, sorted.len()) };
                        if accumulate {
                            to.iter_mut().zip(sorted).for_each(|(to, more)| *to += *more);
                        } else {
                            to.copy_from_slice(sorted);
                        }
                    }
                }
            });
        });
    }

    /// Sums up some panels of filters with a slice of channels: rows of (kernel row, kernel column, channel).
    fn product(
        &self,
        slice: Slice,
        (first, last): (usize, usize),
        left: &[f32],
        right: &[f32],
        table: &[usize],
        sums: &mut [f32],
    ) {
        let (of, depth, kernels) = (self.of, self.depth(), kernels());
        let taps = of.kernel[0] * of.kernel[1];
        // Taps whose channels lie side by side, and the number of such runs in a row.
        let (together, runs) = if of.dilation[1] == 1 { (of.kernel[1], 1) } else { (1, of.kernel[1]) };
        let run = together * slice.count;
        let terms = depth.div_ceil(depth.div_ceil(TERMS));
        for from in (0..depth).step_by(terms) {
            for tap in 0..of.kernel[0] * runs {
                let (i, j) = (tap / runs, tap % runs);
                let offset = (i * of.dilation[0] * self.padded[1] + j * of.dilation[1]) * slice.count;
                for column in (0..run).step_by(kernels.width) {
                    for panel in first..last {
                        let row = self.panels.start(panel) - self.panels.start(first);
                        let rows = self.panels.start(panel + 1) - self.panels.start(panel);
                        let at = row * taps * slice.count + tap * run + column;
                        let block = Block {
                            depth: terms.min(depth - from),
                            part: Block::PART,
                            left: left[((panel - first) * depth + from) * self.panels.height..].as_ptr(),
                            left_at: LeftAt::Packed,
                            right: right[offset + column..].as_ptr(),
                            rows_at: RowsAt::Table(table[from..].as_ptr()),
                            out: sums[at..].as_mut_ptr(),
                            out_stride: taps * slice.count,
                            accumulate: from > 0,
                            epilogue: None,
                            channels: Channels::Rows(0),
                            index: 0,
                            ahead: Block::NOTHING,
                            tiles: Block::ALONE,
                        };
                        // SAFETY: the panel holds the terms; a tap's offset and a pixel's lead to a pixel of the slice, and what lies
                        // behind the last one is a block's width more; the sums have a place for each tap and channel of the rows.
                        unsafe { kernels.run(&block, rows, kernels.width.min(run - column)) };
                    }
                }
            }
        }
    }
}
