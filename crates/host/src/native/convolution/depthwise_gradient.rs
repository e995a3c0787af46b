//! The gradient of the weight where every filter sees one channel: a register of channels at a time, so that images of any size fill it.

use super::shape::Convolution;
use super::side_by_side::{Pixels, side_by_side};
use crate::native::lanes::{Lanes, WIDEST, at_level};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Parts of the batch at most that are summed up apart, for the threads. Not their number, so that the result does not depend on it.
const PARTS: usize = 8;

/// Terms that are summed up in a register before they join the rest, in whole rows of pixels: one sum of all 163,840 terms of a map of 320 x 512 had
/// three times the rounding error of Paddle's CPU.
const TERMS: usize = 128;

pub(super) fn run(of: &Convolution, input: &[f32], upstream: &[f32], gradient: &mut [f32]) {
    let job = Job::new(of, input, upstream);
    let filters = of.filters / of.channels;
    let taps = of.kernel[0] * of.kernel[1];
    let blocks = of.channels.div_ceil(WIDEST);
    let parts = of.batch.min(PARTS);
    // The sums of a part of the batch for a block of channels: filters, taps, channels.
    let size = filters * taps * WIDEST;
    scratch::with(parts * blocks * size, |sums: &mut [f32]| {
        let shared = Shared::new(sums);
        let pixels = job.output[0] * job.output[1];
        let ns = of.batch.div_ceil(parts) * WIDEST * (pixels * filters * taps / 16 + of.input[0] * of.input[1]) + 100;
        parallel_for(parts * blocks, ns, |from, to| {
            scratch::with(job.copied() + pixels * WIDEST, |memory: &mut [f32]| {
                for task in from..to {
                    let (part, block) = (task / blocks, task % blocks);
                    let images = (part * of.batch / parts, (part + 1) * of.batch / parts);
                    // SAFETY: this task alone has these sums.
                    let sums = unsafe { shared.part(task * size, size) };
                    sums.fill(0.0);
                    let job = &job;
                    // SAFETY: the memory is as large as the job says.
                    unsafe {
                        at_level!(add(job: &Job, block: usize, images: (usize, usize), memory: &mut [f32], sums: &mut [f32]))
                    };
                }
            });
        });
        let sums = &*sums;
        for (at, to) in gradient.iter_mut().enumerate() {
            let (filter, tap) = (at / taps, at % taps);
            let (channel, filter) = (filter / filters, filter % filters);
            let from = channel / WIDEST * size + (filter * taps + tap) * WIDEST + channel % WIDEST;
            *to = (0..parts).map(|part| sums[part * blocks * size + from]).sum();
        }
    });
}

struct Job<'a> {
    of: &'a Convolution,
    input: &'a [f32],
    upstream: &'a [f32],
    output: [usize; 2],
    /// Height and width of the padded copy.
    padded: [usize; 2],
}

impl<'a> Job<'a> {
    fn new(of: &'a Convolution, input: &'a [f32], upstream: &'a [f32]) -> Job<'a> {
        let output = of.output();
        Job { of, input, upstream, output, padded: [0, 1].map(|axis| of.padded(axis, output[axis])) }
    }

    /// Numbers of the padded copy of a block of channels.
    fn copied(&self) -> usize {
        self.padded[0] * self.padded[1] * WIDEST
    }

    /// Copies `count` channels of an image, side by side, with the zeros around them.
    fn copy(&self, image: usize, channel: usize, count: usize, copy: &mut [f32]) {
        let pixels = Pixels { image, channel, count, lanes: WIDEST };
        for (row, line) in copy.chunks_exact_mut(self.padded[1] * WIDEST).enumerate() {
            pixels.padded_row(self.of, self.input, row, line);
        }
    }
}

/// Adds the terms of some images to a block's sums.
#[inline(always)]
unsafe fn add<V: Lanes>(job: &Job, block: usize, images: (usize, usize), memory: &mut [f32], sums: &mut [f32]) {
    let of = job.of;
    let (filters, taps) = (of.filters / of.channels, of.kernel[0] * of.kernel[1]);
    let channel = block * WIDEST;
    let count = WIDEST.min(of.channels - channel);
    let pixels = job.output[0] * job.output[1];
    let (copy, upstream) = memory.split_at_mut(job.copied());
    for image in images.0..images.1 {
        job.copy(image, channel, count, copy);
        for filter in 0..filters {
            let first = image * of.filters + channel * filters + filter;
            side_by_side(
                &job.upstream[first * pixels..],
                filters * pixels,
                (count, WIDEST),
                &mut upstream[..pixels * WIDEST],
            );
            let sums = &mut sums[filter * taps * WIDEST..][..taps * WIDEST];
            for lane in (0..count).step_by(V::N) {
                for row in (0..of.kernel[0]).step_by(2) {
                    // SAFETY: the memory is as large as the job says.
                    unsafe {
                        match (of.kernel[1], of.kernel[0] - row) {
                            (3, 1) => row_of::<V, 1, 3>(job, (row, 0), lane, copy, upstream, sums),
                            (3, _) => row_of::<V, 2, 3>(job, (row, 0), lane, copy, upstream, sums),
                            (5, 1) => row_of::<V, 1, 5>(job, (row, 0), lane, copy, upstream, sums),
                            (5, _) => row_of::<V, 2, 5>(job, (row, 0), lane, copy, upstream, sums),
                            (columns, 1) => (0..columns)
                                .for_each(|column| row_of::<V, 1, 1>(job, (row, column), lane, copy, upstream, sums)),
                            (columns, _) => (0..columns)
                                .for_each(|column| row_of::<V, 2, 1>(job, (row, column), lane, copy, upstream, sums)),
                        }
                    }
                }
            }
        }
    }
}

/// R rows and K columns of taps from (i, j) on, over all pixels.
#[inline(always)]
unsafe fn row_of<V: Lanes, const R: usize, const K: usize>(
    job: &Job,
    (i, j): (usize, usize),
    lane: usize,
    copy: &[f32],
    upstream: &[f32],
    sums: &mut [f32],
) {
    let of = job.of;
    let ([height, width], pitch) = (job.output, job.padded[1] * WIDEST);
    let (down, right) = (of.dilation[0] * pitch, of.dilation[1] * WIDEST);
    let rows = TERMS.div_ceil(width.max(1));
    // SAFETY: every tap of every output pixel lies in the copy; the sums have a register for each tap.
    unsafe {
        for top in (0..height).step_by(rows) {
            let mut registers = [[V::splat(0.0); K]; R];
            for y in top..height.min(top + rows) {
                let mut up = upstream.as_ptr().add(y * width * WIDEST + lane);
                let mut from = copy.as_ptr().add(y * of.stride[0] * pitch + i * down + j * right + lane);
                for _ in 0..width {
                    let factor = V::load(up);
                    for r in 0..R {
                        for k in 0..K {
                            registers[r][k] = V::load(from.add(r * down + k * right)).fma(factor, registers[r][k]);
                        }
                    }
                    up = up.add(WIDEST);
                    from = from.wrapping_add(of.stride[1] * WIDEST);
                }
            }
            for r in 0..R {
                for k in 0..K {
                    let to = sums.as_mut_ptr().add(((i + r) * of.kernel[1] + j + k) * WIDEST + lane);
                    V::load(to).add(registers[r][k]).store(to);
                }
            }
        }
    }
}
