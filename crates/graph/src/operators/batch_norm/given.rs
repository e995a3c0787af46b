//! Batch norm with given statistics, as networks have it that have been trained.

use super::{Channels, SAMPLES, native};
use crate::entry::{Case, Entry, Input, Values};
use crate::error::Result;
use crate::formula::Formula;
use crate::gradient::{Backward, Gradients, Recorder};
use crate::layout::{call, check, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Binary, Chain, Elementwise, Fused, Operand, Stage, Unary};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::{DType, dtype};

/// Each channel less a mean, over the deviation of a variance, times a scale, plus a bias.
///
/// Inputs: x, the means and the variances, then scale and bias where they are given, one number a channel. Output: y.
#[derive(Clone, Debug)]
pub struct BatchNormGiven {
    /// The dimension of the channels; negative ones count from the end.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether a scale is given.
    pub scale: bool,
    /// Whether a bias is given.
    pub bias: bool,
}

impl BatchNormGiven {
    /// Where the scale and the bias are among the inputs.
    fn weights(&self) -> [Option<usize>; 2] {
        [self.scale.then_some(3), self.bias.then_some(3 + usize::from(self.scale))]
    }

    /// `scale / sqrt(variance + epsilon)` of the variances and the scale.
    fn factor(&self, compute: DType) -> Chain {
        let (input, earlier) = (Operand::Input, Operand::Stage);
        let mut stages = vec![
            Stage::cast(input(0), compute),
            Stage::new(Elementwise::Unary(Unary::Scale), &[earlier(0)], &[1.0, self.epsilon]),
            Stage::new(Elementwise::Unary(Unary::Rsqrt), &[earlier(1)], &[]),
        ];
        if self.scale {
            stages.push(Stage::cast(input(1), compute));
            stages.push(Stage::new(Elementwise::Binary(Binary::Multiply), &[earlier(2), earlier(3)], &[]));
        }
        Chain::new(stages)
    }

    /// `(x - mean) * factor + bias` of x, means, factors and biases: computed in one type, and rounded to x's once.
    fn result(&self, dtype: DType) -> Chain {
        let (input, earlier, compute) = (Operand::Input, Operand::Stage, dtype.compute());
        let mut stages = vec![
            Stage::cast(input(0), compute),
            Stage::cast(input(1), compute),
            Stage::new(Elementwise::Binary(Binary::Subtract), &[earlier(0), earlier(1)], &[]),
            Stage::new(Elementwise::Binary(Binary::Multiply), &[earlier(2), input(2)], &[]),
        ];
        if self.bias {
            stages.push(Stage::cast(input(3), compute));
            stages.push(Stage::new(Elementwise::Binary(Binary::Add), &[earlier(3), earlier(4)], &[]));
        }
        stages.push(Stage::cast(earlier(stages.len() - 1), dtype));
        Chain::new(stages)
    }
}

impl Operator for BatchNormGiven {
    fn name(&self) -> &'static str {
        "batch_norm_given"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3 + self.weights().iter().flatten().count())?;
        Channels::of(self.name(), &inputs[0], self.axis, &inputs[1..])?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, channels) = (&inputs[0], Channels::of_view(self.name(), &inputs[0], self.axis)?);
        let [scale, bias] = self.weights().map(|at| at.map(|at| &inputs[at]));
        if let Some(sizes) = channels.native_sizes(queue, inputs, outputs) {
            let operands = native::Given(native::Forward {
                x: x.address,
                scale: scale.map(|scale| scale.address),
                bias: bias.map(|bias| bias.address),
                y: outputs[0].address,
                statistics: [inputs[1].address, inputs[2].address],
                epsilon: self.epsilon as f32,
            });
            return call(queue, self.name(), || {
                // SAFETY: dense float32 views of these sizes, which the queue's owner vouches for.
                unsafe { native::forward_given(&sizes, &operands) };
                Ok(())
            });
        }
        let f = Formula::new(self.name(), queue);
        let fused = |chain: Chain| Fused { chain, reduction: None };
        let of_factor: Vec<View> = std::iter::once(&inputs[2]).chain(scale).cloned().collect();
        let factor = f.apply(&fused(self.factor(x.dtype.compute())), &of_factor)?;
        let mut of_result = vec![x.clone()];
        for numbers in [&inputs[1], &factor].into_iter().chain(bias) {
            of_result.push(channels.along(&f, numbers, numbers.dtype)?);
        }
        fused(self.result(x.dtype)).run(queue, &of_result, outputs)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (inputs, meta) = (b.inputs.to_vec(), b.meta(b.inputs[0]));
        let channels = Channels::of(self.name(), &meta, self.axis, &[])?;
        let (compute, count) = (meta.dtype.compute(), channels.count());
        let mut along = vec![1; meta.shape.len()];
        along[channels.axis] = count;
        let (dy, wide) = (b.dy()?, b.cast(inputs[0], compute)?);
        let dy = b.cast(dy, compute)?;
        let numbers = inputs[1..].iter().map(|&input| b.cast(input, compute)).collect::<Result<Vec<_>>>()?;
        let [scale, _] = self.weights().map(|at| at.map(|at| numbers[at - 1]));
        let shifted = b.affine(numbers[1], 1.0, self.epsilon)?;
        let inverse = b.unary(Unary::Rsqrt, shifted)?;
        let factor = scale.map_or(Ok(inverse), |scale| b.multiply(inverse, scale))?;
        let (means, factors) = (b.reshape(numbers[0], &along)?, b.reshape(factor, &along)?);
        let distance = b.subtract(wide, means)?;
        let product = b.multiply(dy, distance)?;
        let others: Vec<usize> = (0..along.len()).filter(|&axis| axis != channels.axis).collect();
        let [sum, moment] = [b.sum(dy, &others, false)?, b.sum(product, &others, false)?];
        let dx = b.multiply(dy, factors)?;
        let dmean = b.multiply(sum, factor)?;
        let normalised = b.multiply(moment, inverse)?;
        let curvature = b.multiply(inverse, factor)?;
        let dvariance = b.multiply(normalised, curvature)?;
        let mut gradients = vec![dx, b.affine(dmean, -1.0, 0.0)?, b.affine(dvariance, -0.5, 0.0)?];
        gradients.extend(scale.map(|_| normalised));
        gradients.extend(self.bias.then_some(sum));
        let mut found = Vec::with_capacity(gradients.len());
        for (gradient, &input) in gradients.into_iter().zip(&inputs) {
            found.push(Some(b.cast(gradient, b.meta(input).dtype)?));
        }
        Ok(found)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let channels = Channels::of(self.name(), &meta, self.axis, &[]).expect("a legal call");
        let mut y = vec![0.0; x.data.len()];
        channels.each(|channel, own| {
            let weight = |at: Option<usize>, none: f64| at.map_or(none, |at| inputs[at].data[channel]);
            let [scale, bias] = self.weights();
            let factor = weight(scale, 1.0) / (inputs[2].data[channel] + self.epsilon).sqrt();
            for &at in own {
                y[at] = (x.data[at] - inputs[1].data[channel]) * factor + weight(bias, 0.0);
            }
        });
        vec![Array::new(&x.shape, y, x.dtype)]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "batch_norm_given",
    summary: "Channels less given means, over given deviations, scaled and shifted.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(dims, axis, scale, bias): (&[usize], i64, bool, bool)| {
            let channels = [dims[axis.rem_euclid(dims.len() as i64) as usize]];
            let mut inputs = vec![Input::new(dims), Input::new(&channels)];
            inputs.push(Input::of(&channels, Values::Uniform(0.5, 1.5)));
            inputs.extend(vec![Input::new(&channels); usize::from(scale) + usize::from(bias)]);
            Case::new(BatchNormGiven { axis, epsilon: 1e-3, scale, bias }, inputs)
        };
        SAMPLES.into_iter().map(case).collect()
    },
    tolerance: 64.0,
};
