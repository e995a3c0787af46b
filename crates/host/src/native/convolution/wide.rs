//! Convolutions of float64: the same maps written as sums of shifted rows.

use super::shape::Convolution;
use crate::Error;
use crate::native::Shared;
use crate::threads::parallel_for;

/// One row of the input against one row of the output, for one tap.
struct Pair {
    input: usize,
    weight: usize,
    output: usize,
    columns: usize,
}

impl Convolution {
    /// Every pair of rows that a tap connects, for output rows of one filter of one image.
    fn pairs(&self, image: usize, filter: usize, mut each: impl FnMut(Pair)) {
        let [height, width] = self.output();
        let (own, filters) = (self.channels / self.groups, self.filters / self.groups);
        let [input_height, input_width] = self.input;
        for channel in 0..own {
            let plane = image * self.channels + filter / filters * own + channel;
            for i in 0..self.kernel[0] {
                for j in 0..self.kernel[1] {
                    let shift = j * self.dilation[1];
                    let begin = self.padding[2].saturating_sub(shift).div_ceil(self.stride[1]);
                    let end = (input_width + self.padding[2]).saturating_sub(shift).div_ceil(self.stride[1]).min(width);
                    for y in 0..height {
                        let v = (y * self.stride[0] + i * self.dilation[0]).wrapping_sub(self.padding[0]);
                        if v < input_height && begin < end {
                            each(Pair {
                                input: (plane * input_height + v) * input_width + begin * self.stride[1] + shift
                                    - self.padding[2],
                                weight: ((filter * own + channel) * self.kernel[0] + i) * self.kernel[1] + j,
                                output: ((image * self.filters + filter) * height + y) * width + begin,
                                columns: end - begin,
                            });
                        }
                    }
                }
            }
        }
    }
}

/// [`super::forward`] for float64, without an epilogue.
pub fn forward_f64(of: &Convolution, input: &[f64], weight: &[f64], output: &mut [f64]) -> Result<(), Error> {
    of.check([input.len(), weight.len(), output.len()])?;
    let [height, width] = of.output();
    let output = Shared::new(output);
    let tasks = of.batch * of.filters;
    parallel_for(tasks, of.products() / tasks.max(1), |from, to| {
        for task in from..to {
            // SAFETY: this task alone writes this plane.
            let plane = unsafe { output.part(task * height * width, height * width) };
            plane.fill(0.0);
            of.pairs(task / of.filters, task % of.filters, |pair| {
                let to = &mut plane[pair.output - task * height * width..][..pair.columns];
                let factor = weight[pair.weight];
                let from = input[pair.input..].iter().step_by(of.stride[1]);
                to.iter_mut().zip(from).for_each(|(to, value)| *to += factor * value);
            });
        }
    });
    Ok(())
}

/// [`super::transposed`] for float64, without an epilogue: `input` has the shape of `of`'s output.
pub fn transposed_f64(of: &Convolution, input: &[f64], weight: &[f64], output: &mut [f64]) -> Result<(), Error> {
    of.check([output.len(), weight.len(), input.len()])?;
    let image = of.channels * of.input[0] * of.input[1];
    let output = Shared::new(output);
    parallel_for(of.batch, of.products() / of.batch.max(1), |from, to| {
        for task in from..to {
            // SAFETY: this task alone writes this image.
            let all = unsafe { output.part(task * image, image) };
            all.fill(0.0);
            for filter in 0..of.filters {
                of.pairs(task, filter, |pair| {
                    let factor = weight[pair.weight];
                    let to = all[pair.input - task * image..].iter_mut().step_by(of.stride[1]);
                    let from = &input[pair.output..][..pair.columns];
                    to.zip(from).for_each(|(to, value)| *to += factor * value);
                });
            }
        }
    });
    Ok(())
}

/// [`super::backward_filter`] for float64.
pub fn backward_filter_f64(
    of: &Convolution,
    input: &[f64],
    upstream: &[f64],
    gradient: &mut [f64],
) -> Result<(), Error> {
    of.check([input.len(), gradient.len(), upstream.len()])?;
    let taps = of.channels / of.groups * of.kernel[0] * of.kernel[1];
    let gradient = Shared::new(gradient);
    parallel_for(of.filters, of.products() / of.filters.max(1), |from, to| {
        for filter in from..to {
            // SAFETY: this task alone writes this filter.
            let own = unsafe { gradient.part(filter * taps, taps) };
            own.fill(0.0);
            for image in 0..of.batch {
                of.pairs(image, filter, |pair| {
                    let row = input[pair.input..].iter().step_by(of.stride[1]);
                    let up = &upstream[pair.output..][..pair.columns];
                    own[pair.weight - filter * taps] += up.iter().zip(row).map(|(a, b)| a * b).sum::<f64>();
                });
            }
        }
    });
    Ok(())
}
