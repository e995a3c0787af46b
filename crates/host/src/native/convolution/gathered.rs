//! Convolutions of small images: what each output pixel of all images reads is gathered to a row, and one product computes them together.

use super::finish::finish_row;
use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::matmul::{Matrices, MatrixProduct, matmul};
use crate::native::transpose::transpose;
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;
use openmps_tile::DType;

/// Smaller images than this leave most lanes of a block empty, which holds pixels of one image.
pub(super) const FEWEST_PIXELS: usize = 25;
/// Shorter rows than this are gathered longer than they are multiplied.
const SHORTEST: usize = 48;
/// Rows of one product at most.
const ROWS: usize = 512;

/// Whether [`run`] is the faster way.
pub(super) fn suits(shape: &Convolution) -> bool {
    let [height, width] = shape.output();
    shape.groups == 1 && height * width < FEWEST_PIXELS && shape.depth() >= SHORTEST && shape.filters >= SHORTEST / 4
}

pub(super) fn run(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let [height, width] = shape.output();
    let (pixels, depth) = (height * width, shape.depth());
    let most = (ROWS / pixels).clamp(1, shape.batch);
    let output = Shared::new(output);
    for first in (0..shape.batch).step_by(most) {
        let images = most.min(shape.batch - first);
        let rows = images * pixels;
        scratch::with(rows * (depth + shape.filters), |memory: &mut [f32]| {
            let (gathered, sums) = memory.split_at_mut(rows * depth);
            gather(shape, (first, images), input, gathered);
            let product = MatrixProduct {
                right: [1, depth as isize],
                out: [1, rows as isize],
                ..MatrixProduct::dense(rows, depth, shape.filters)
            };
            let at = Matrices {
                left: gathered.as_ptr() as usize,
                right: weight.as_ptr() as usize,
                out: sums.as_mut_ptr() as usize,
            };
            // SAFETY: rows, the weight (a row of `depth` numbers for each filter) and a row of sums for each filter.
            unsafe { matmul(&product, DType::F32, at, &[[0; 3]]) }.expect("a product of float32");
            let sums = &*sums;
            parallel_for(images * shape.filters, pixels + 4, |from, to| {
                for task in from..to {
                    let (image, filter) = (task / shape.filters, task % shape.filters);
                    let at = ((first + image) * shape.filters + filter) * pixels;
                    // SAFETY: this task alone writes this plane.
                    let to = unsafe { output.part(at, pixels) };
                    finish_row(&sums[filter * rows + image * pixels..][..pixels], to, epilogue, filter, at);
                }
            });
        });
    }
}

/// What each output pixel of some images reads: channel by channel, tap by tap.
fn gather(shape: &Convolution, (first, images): (usize, usize), input: &[f32], gathered: &mut [f32]) {
    let [height, width] = shape.output();
    let (plane, taps) = (shape.input[0] * shape.input[1], shape.kernel[0] * shape.kernel[1]);
    let (pixels, depth) = (height * width, shape.channels * taps);
    let gathered = Shared::new(gathered);
    if shape.is_pointwise() {
        return parallel_for(images, plane * depth / 2, |from, to| {
            for image in from..to {
                let source = &input[(first + image) * plane * depth..][..plane * depth];
                // SAFETY: this task alone writes this image's rows; both sides hold each channel of each pixel.
                unsafe {
                    let to = gathered.part(image * plane * depth, plane * depth);
                    let to = (to.as_mut_ptr() as isize, 4 * depth as isize);
                    transpose(4, false, (depth, plane), to, (source.as_ptr() as isize, 4 * plane as isize));
                }
            }
        });
    }
    parallel_for(images * pixels, depth * 2, |from, to| {
        for task in from..to {
            let (image, pixel) = (first + task / pixels, task % pixels);
            let (y, x) = (pixel / width * shape.stride[0], pixel % width * shape.stride[1]);
            // SAFETY: this task alone writes this row.
            let row = unsafe { gathered.part(task * depth, depth) };
            for tap in 0..taps {
                let v = (y + tap / shape.kernel[1] * shape.dilation[0]).wrapping_sub(shape.padding[0]);
                let u = (x + tap % shape.kernel[1] * shape.dilation[1]).wrapping_sub(shape.padding[2]);
                let to = row[tap..].iter_mut().step_by(taps);
                if v < shape.input[0] && u < shape.input[1] {
                    let from = &input[image * shape.channels * plane + v * shape.input[1] + u..];
                    to.zip(from.iter().step_by(plane)).for_each(|(to, value)| *to = *value);
                } else {
                    to.for_each(|to| *to = 0.0);
                }
            }
        }
    });
}
