//! 1x1 convolutions: for each image a product of the weight with the channels, which already lie as a matrix's rows.

use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{at_level, dot_lanes};
use crate::native::microkernel::{Channels, Terms, kernels};
use crate::native::product::{self, Goal, Operand, Product};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Below this many pixels a column of dot products wastes less than a block with mostly empty lanes.
const DOT_BELOW_PIXELS: usize = 4;

/// Whether [`run`] takes this 1x1 convolution.
pub(super) fn is_product(shape: &Convolution) -> bool {
    shape.input[0] * shape.input[1] >= DOT_BELOW_PIXELS
}

/// Numbers of the filters packed as the left operand, group by group.
pub(super) fn packed_len(shape: &Convolution) -> usize {
    shape.groups * product::left_len(shape.filters / shape.groups, shape.channels / shape.groups)
}

/// Packs the filters.
pub(super) fn pack(shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
    let (depth, filters) = (shape.channels / shape.groups, shape.filters / shape.groups);
    let per_group = packed.len() / shape.groups;
    for group in 0..shape.groups {
        let (from, to) = (&weight[group * filters * depth..], &mut packed[group * per_group..][..per_group]);
        // SAFETY: `from` begins with `filters` rows of `depth` numbers.
        unsafe {
            product::pack_left(
                kernels(),
                (filters, depth),
                Operand::Strided(from.as_ptr(), [depth as isize, 1]),
                1.0,
                to,
            )
        };
    }
}

/// The convolution with packed filters.
pub(super) fn run(shape: &Convolution, input: &[f32], packed: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let pixels = shape.input[0] * shape.input[1];
    let (depth, filters) = (shape.channels / shape.groups, shape.filters / shape.groups);
    let per_group = packed.len() / shape.groups;
    let output = Shared::new(output);
    let image = |task: usize| {
        let (batch, group) = (task / shape.groups, task % shape.groups);
        let plane = |channels: usize, own: usize| (batch * channels + group * own) * pixels;
        let index = plane(shape.filters, filters);
        Product {
            rows: filters,
            depth,
            columns: pixels,
            terms: Terms::Singles,
            left: Operand::Packed(&packed[group * per_group..][..per_group]),
            right: Operand::Strided(input[plane(shape.channels, depth)..].as_ptr(), [pixels as isize, 1]),
            factor: 1.0,
            goal: Goal::Memory { first: output.at(index), stride: pixels, accumulate: false },
            epilogue: (!epilogue.is_identity()).then_some(epilogue),
            channels: Channels::Rows(group * filters),
            index,
        }
    };
    // SAFETY: each product reads the planes of its group's channels and alone writes those of its filters.
    unsafe { product::run_all(shape.batch * shape.groups, image) };
}

/// Images of a pixel or three: each output is a dot product of a filter with the channels.
pub(super) fn dots(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let pixels = shape.input[0] * shape.input[1];
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
    unsafe { at_level!(dot_lanes(a: *const f32, b: *const f32, len: usize) -> f32) }
}
