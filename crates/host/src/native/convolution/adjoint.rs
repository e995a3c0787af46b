//! Transposed convolutions that are convolutions themselves: of the weight turned around, its filters and channels exchanged.

use super::gathered::FEWEST_PIXELS;
use super::shape::Convolution;
use super::{depthwise, summed};
use crate::native::epilogue::Epilogue;
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Pixels of the result for each of the input at most: around fewer pixels than that most of what the filters see are zeros.
const MOST_ZEROS: usize = 4;

/// What a transposed convolution is as a convolution.
pub(super) struct Adjoint {
    /// With steps of 1, on the input with zeros between its pixels.
    shape: Convolution,
    /// From one pixel of the input to the next among the zeros.
    spacing: [usize; 2],
}

impl Adjoint {
    /// The convolution that gives the transposed one of `of`, where computing it so is the faster way: with steps of 1 and few zeros around, or where a filter sees
    /// one channel and the zeros between the pixels cost little.
    pub(super) fn of(of: &Convolution) -> Option<Adjoint> {
        let output = of.output();
        let depthwise = of.is_depthwise() && of.filters == of.channels;
        let [pixels, further] = [output, of.input].map(|[height, width]| height.saturating_mul(width));
        let steps = of.stride == [1, 1] && pixels >= FEWEST_PIXELS && further <= MOST_ZEROS * pixels;
        if output.contains(&0) || of.channels == 0 || of.filters == 0 || !(depthwise || steps) {
            return None;
        }
        let mut shape = Convolution { channels: of.filters, filters: of.channels, stride: [1, 1], ..*of };
        for axis in 0..2 {
            let reach = of.dilation[axis] * (of.kernel[axis] - 1);
            shape.input[axis] = (output[axis] - 1) * of.stride[axis] + 1;
            shape.padding[2 * axis] = reach.checked_sub(of.padding[2 * axis])?;
            let with_zeros = shape.input[axis] + shape.padding[2 * axis];
            shape.padding[2 * axis + 1] = (of.input[axis] + reach).checked_sub(with_zeros)?;
        }
        Some(Adjoint { shape, spacing: of.stride })
    }

    pub(super) fn run(&self, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
        scratch::with(weight.len(), |turned: &mut [f32]| {
            self.turn(weight, turned);
            if self.shape.is_depthwise() && self.shape.filters == self.shape.channels {
                depthwise::run(&self.shape, self.spacing, input, turned, output, epilogue);
            } else {
                summed(&self.shape, input, turned, output, epilogue);
            }
        });
    }

    /// Turns the filters around, and lays them out by this convolution's filters.
    fn turn(&self, weight: &[f32], turned: &mut [f32]) {
        let of = &self.shape;
        let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
        let taps = of.kernel[0] * of.kernel[1];
        let turned = Shared::new(turned);
        parallel_for(of.filters, channels * taps, |from, to| {
            for filter in from..to {
                // SAFETY: this task alone writes this filter.
                let to = unsafe { turned.part(filter * channels * taps, channels * taps) };
                let (group, own) = (filter / filters, filter % filters);
                for (channel, to) in to.chunks_exact_mut(taps).enumerate() {
                    let from = &weight[((group * channels + channel) * filters + own) * taps..][..taps];
                    to.iter_mut().zip(from.iter().rev()).for_each(|(to, value)| *to = *value);
                }
            }
        });
    }
}
