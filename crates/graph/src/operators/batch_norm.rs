//! Batch norm with the batch's own statistics, and its gradient; and with given ones. On the CPU a native kernel, elsewhere a formula of reductions.

mod given;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::formula::Formula;
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, call, check, expect_dtype, expect_inputs, expect_shape, takes_singles};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Elementwise, Unary};
use crate::operators::reduce::Reduction;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{Shape, View};
use openmps_host::native::batch_norm as native;
use openmps_tile::{DType, dtype};

pub use given::{BatchNormGiven, ENTRY as GIVEN};

/// Each channel brought to mean 0 and variance 1 over everything that is not the channel, times a scale, plus a bias.
///
/// Inputs: x, then scale and bias where they are given, one number a channel. Outputs: y, then the channels' means and variances in the
/// compute type.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// The dimension of the channels; negative ones count from the end.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether a scale is given.
    pub scale: bool,
    /// Whether a bias is given.
    pub bias: bool,
}

/// The gradient of [`BatchNorm`].
///
/// Inputs: x, the result's gradient, the channels' means and the inverses of their deviations, then the scale where one is given. Outputs: the
/// gradient of x, then those of scale and bias in the compute type.
#[derive(Clone, Debug)]
pub struct BatchNormGradient {
    /// The dimension of the channels; negative ones count from the end.
    pub axis: i64,
    /// Whether a scale is given.
    pub scale: bool,
}

/// What the operands have in common: channels along one axis.
struct Channels {
    axis: usize,
    shape: Shape,
}

impl Channels {
    /// Checks the axis, and that each of `weights` has one float for each channel.
    fn of(operator: &'static str, x: &Meta, axis: i64, weights: &[Meta]) -> Result<Channels> {
        expect_dtype(operator, "x", x.dtype, dtype::FLOATS)?;
        let axis = axis_of(operator, axis, x.shape.len())?;
        for weight in weights {
            expect_dtype(operator, "a channel's numbers", weight.dtype, dtype::FLOATS)?;
            expect_shape(operator, "a channel's numbers", &weight.shape, &[x.shape[axis]])?;
        }
        Ok(Channels { axis, shape: x.shape.clone() })
    }

    fn of_view(operator: &'static str, x: &View, axis: i64) -> Result<Channels> {
        Channels::of(operator, &Meta { dtype: x.dtype, shape: x.shape.clone() }, axis, &[])
    }

    fn count(&self) -> usize {
        self.shape[self.axis]
    }

    /// Numbers of the channels.
    fn meta(&self, dtype: DType) -> Meta {
        Meta { dtype, shape: [self.count()].into_iter().collect() }
    }

    fn others(&self) -> Vec<i64> {
        (0..self.shape.len()).filter(|&axis| axis != self.axis).map(|axis| axis as i64).collect()
    }

    /// A channel's numbers as they broadcast against x.
    fn along(&self, formula: &Formula, view: &View, dtype: DType) -> Result<View> {
        let view = formula.cast(view, dtype)?;
        let stride = view.strides[0];
        let mut along = View::dense(view.address, view.dtype, &vec![1; self.shape.len()])?;
        (along.shape[self.axis], along.strides[self.axis]) = (self.count(), stride);
        Ok(along)
    }

    /// The native kernel's sizes, where it takes the call.
    fn native_sizes(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Option<native::Channels> {
        let sizes = native::Channels {
            outer: self.shape[..self.axis].iter().product(),
            channels: self.count(),
            inner: self.shape[self.axis + 1..].iter().product(),
        };
        let some = sizes.outer * sizes.inner > 0;
        (some && takes_singles(queue, inputs, outputs)).then_some(sizes)
    }

    /// Calls `each` with every channel and the indices of its elements.
    fn each(&self, mut each: impl FnMut(usize, &[usize])) {
        let inner: usize = self.shape[self.axis + 1..].iter().product();
        let len: usize = self.shape.iter().product();
        for channel in 0..self.count() {
            let own: Vec<usize> = (0..len).filter(|at| at / inner % self.count() == channel).collect();
            each(channel, &own);
        }
    }
}

impl Operator for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1 + usize::from(self.scale) + usize::from(self.bias))?;
        let channels = Channels::of(self.name(), &inputs[0], self.axis, &inputs[1..])?;
        let statistics = channels.meta(inputs[0].dtype.compute());
        Ok(vec![inputs[0].clone(), statistics.clone(), statistics])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, channels) = (&inputs[0], Channels::of_view(self.name(), &inputs[0], self.axis)?);
        let scale = self.scale.then(|| &inputs[1]);
        let bias = self.bias.then(|| &inputs[inputs.len() - 1]);
        if let Some(sizes) = channels.native_sizes(queue, inputs, outputs) {
            let operands = native::Forward {
                x: x.address,
                scale: scale.map(|scale| scale.address),
                bias: bias.map(|bias| bias.address),
                y: outputs[0].address,
                statistics: [outputs[1].address, outputs[2].address],
                epsilon: self.epsilon as f32,
            };
            return call(queue, self.name(), || {
                // SAFETY: dense float32 views of these sizes, which the queue's owner vouches for.
                unsafe { native::forward(&sizes, &operands) };
                Ok(())
            });
        }
        let (f, compute) = (Formula::new(self.name(), queue), x.dtype.compute());
        let [mean, distance] = f.centred(x, &channels.others())?;
        let square = f.map(Elementwise::Unary(Unary::Square), &[&distance], &[])?;
        let variance = f.reduce(Reduction::Mean, &square, &channels.others())?;
        let shifted = f.map(Elementwise::Unary(Unary::Scale), &[&variance], &[1.0, self.epsilon])?;
        let mut factor = f.map(Elementwise::Unary(Unary::Rsqrt), &[&shifted], &[])?;
        if let Some(scale) = scale {
            factor = f.multiply(&factor, &channels.along(&f, scale, compute)?)?;
        }
        let mut y = f.multiply(&distance, &factor)?;
        if let Some(bias) = bias {
            y = f.add(&y, &channels.along(&f, bias, compute)?)?;
        }
        f.store(&y, &outputs[0])?;
        f.store(&mean, &outputs[1])?;
        f.store(&variance, &outputs[2])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        if b.upstream[1..].iter().any(Option::is_some) {
            return Err(Error::NoGradient { operator: "a batch's statistics" });
        }
        let (x, dy) = (b.inputs[0], b.dy()?);
        let shifted = b.affine(b.outputs[2], 1.0, self.epsilon)?;
        let inverse = b.unary(Unary::Rsqrt, shifted)?;
        let scale = self.scale.then(|| b.inputs[1]);
        let inputs: Vec<_> = [x, dy, b.outputs[1], inverse].into_iter().chain(scale).collect();
        let found = b.many(BatchNormGradient { axis: self.axis, scale: self.scale }, &inputs)?;
        let given = [self.scale, self.bias].into_iter().zip(&found[1..]).filter(|(given, _)| *given);
        let weights: Vec<_> = given.map(|(_, &gradient)| gradient).collect();
        let mut gradients = vec![Some(found[0])];
        for (gradient, &weight) in weights.into_iter().zip(&b.inputs[1..]) {
            gradients.push(Some(b.cast(gradient, b.dtype(weight))?));
        }
        Ok(gradients)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let channels = Channels::of(self.name(), &meta, self.axis, &[]).expect("a legal call");
        let (mut y, mut means, mut variances) = (vec![0.0; x.data.len()], vec![], vec![]);
        channels.each(|channel, own| {
            let over = 1.0 / own.len() as f64;
            let mean = own.iter().map(|&at| x.data[at]).sum::<f64>() * over;
            let variance = own.iter().map(|&at| (x.data[at] - mean).powi(2)).sum::<f64>() * over;
            let scale = if self.scale { inputs[1].data[channel] } else { 1.0 };
            let bias = if self.bias { inputs[inputs.len() - 1].data[channel] } else { 0.0 };
            for &at in own {
                y[at] = (x.data[at] - mean) / (variance + self.epsilon).sqrt() * scale + bias;
            }
            means.push(mean);
            variances.push(variance);
        });
        let statistic = |data: Vec<f64>| Array::new(&[channels.count()], data, x.dtype.compute());
        vec![Array::new(&x.shape, y, x.dtype), statistic(means), statistic(variances)]
    }
}

impl Operator for BatchNormGradient {
    fn name(&self) -> &'static str {
        "batch_norm_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 4 + usize::from(self.scale))?;
        let channels = Channels::of(self.name(), &inputs[0], self.axis, &inputs[2..])?;
        expect_shape(self.name(), "the result's gradient", &inputs[1].shape, &inputs[0].shape)?;
        expect_dtype(self.name(), "the result's gradient", inputs[1].dtype, &[inputs[0].dtype])?;
        let weights = channels.meta(inputs[0].dtype.compute());
        Ok(vec![inputs[0].clone(), weights.clone(), weights])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, upstream) = (&inputs[0], &inputs[1]);
        let channels = Channels::of_view(self.name(), x, self.axis)?;
        if let Some(sizes) = channels.native_sizes(queue, inputs, outputs) {
            let operands = native::Gradient {
                x: x.address,
                upstream: upstream.address,
                statistics: [inputs[2].address, inputs[3].address],
                scale: self.scale.then(|| inputs[4].address),
                dx: outputs[0].address,
                weights: [outputs[1].address, outputs[2].address],
            };
            return call(queue, self.name(), || {
                // SAFETY: as above.
                unsafe { native::gradient(&sizes, &operands) };
                Ok(())
            });
        }
        let (f, compute) = (Formula::new(self.name(), queue), x.dtype.compute());
        let others = channels.others();
        let [mean, inverse] = [channels.along(&f, &inputs[2], compute)?, channels.along(&f, &inputs[3], compute)?];
        let up = f.cast(upstream, compute)?;
        let normalised = f.multiply(&f.subtract(&f.cast(x, compute)?, &mean)?, &inverse)?;
        let product = f.multiply(&up, &normalised)?;
        let [average, along] =
            [f.reduce(Reduction::Mean, &up, &others)?, f.reduce(Reduction::Mean, &product, &others)?];
        let across = f.subtract(&f.subtract(&up, &average)?, &f.multiply(&normalised, &along)?)?;
        let factor = match self.scale {
            true => f.multiply(&inverse, &channels.along(&f, &inputs[4], compute)?)?,
            false => inverse,
        };
        let dx = f.multiply(&across, &factor)?;
        let sums = [f.reduce(Reduction::Sum, &product, &others)?, f.reduce(Reduction::Sum, &up, &others)?];
        f.store(&dx, &outputs[0])?;
        f.store(&sums[0], &outputs[1])?;
        f.store(&sums[1], &outputs[2])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, upstream) = (&inputs[0], &inputs[1]);
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let channels = Channels::of(self.name(), &meta, self.axis, &[]).expect("a legal call");
        let (mut dx, mut dscale, mut dbias) = (vec![0.0; x.data.len()], vec![], vec![]);
        channels.each(|channel, own| {
            let (mean, inverse) = (inputs[2].data[channel], inputs[3].data[channel]);
            let normalised = |at: usize| (x.data[at] - mean) * inverse;
            let sum = own.iter().map(|&at| upstream.data[at]).sum::<f64>();
            let along = own.iter().map(|&at| upstream.data[at] * normalised(at)).sum::<f64>();
            let scale = if self.scale { inputs[4].data[channel] } else { 1.0 };
            let over = 1.0 / own.len() as f64;
            for &at in own {
                dx[at] = (upstream.data[at] - sum * over - normalised(at) * along * over) * inverse * scale;
            }
            dscale.push(along);
            dbias.push(sum);
        });
        let weight = |data: Vec<f64>| Array::new(&[channels.count()], data, x.dtype.compute());
        vec![Array::new(&x.shape, dx, x.dtype), weight(dscale), weight(dbias)]
    }
}

const SAMPLES: [(&[usize], i64, bool, bool); 5] = [
    (&[4, 3, 5, 7], 1, true, true),
    (&[9, 21], 1, true, false),
    (&[2, 5, 3, 19], -1, false, true),
    (&[3, 2, 70], 1, false, false),
    (&[8, 5, 2, 2], 1, true, true),
];

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "batch_norm",
    summary: "Channels brought to mean 0 and variance 1 by the batch's own statistics, scaled and shifted.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(dims, axis, scale, bias): (&[usize], i64, bool, bool)| {
            let channels = dims[axis.rem_euclid(dims.len() as i64) as usize];
            let weights = usize::from(scale) + usize::from(bias);
            let inputs = std::iter::once(Input::new(dims)).chain(vec![Input::new(&[channels]); weights]);
            Case::new(BatchNorm { axis, epsilon: 1e-3, scale, bias }, inputs.collect())
        };
        SAMPLES.into_iter().map(case).collect()
    },
    tolerance: 64.0,
};

/// For the list of operators.
pub static GRADIENT: Entry = Entry {
    name: "batch_norm_gradient",
    summary: "The gradients of batch norm with respect to its input, scale and bias.",
    dtypes: dtype::FLOATS,
    cases: || {
        let case = |(dims, axis, scale, _): (&[usize], i64, bool, bool)| {
            let channels = [dims[axis.rem_euclid(dims.len() as i64) as usize]];
            let inverse = Input::of(&channels, Values::Uniform(0.5, 1.5));
            let mut inputs = vec![Input::new(dims), Input::new(dims), Input::new(&channels), inverse];
            inputs.extend(scale.then(|| Input::new(&channels)));
            Case::new(BatchNormGradient { axis, scale }, inputs)
        };
        SAMPLES.into_iter().map(case).collect()
    },
    tolerance: 64.0,
};
