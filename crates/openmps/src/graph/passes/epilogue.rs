//! Factors, addends, residuals and activations behind a convolution or a linear layer become part of it.
//!
//! What stands before the activation and is one number for each channel goes into constant weights and the bias; a single number behind
//! the activation goes into the epilogue's last factor and addend.

use super::{Rewriter, downcast};
use crate::error::Result;
use openmps_graph::operators::convolution::{Convolution, Fused};
use openmps_graph::operators::convolution_transpose::ConvolutionTranspose;
use openmps_graph::operators::elementwise::{self, Binary, Call, Elementwise, Unary};
use openmps_graph::operators::expand::Expand;
use openmps_graph::operators::linear::Linear;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::{DType, Meta, Operator, image::ImageLayout};
use openmps_host::native::Activation;
use openmps_tile::Number;
use std::sync::Arc;

/// A step whose result others may become part of.
#[derive(Clone)]
enum Root {
    Convolution(Convolution),
    Transposed(ConvolutionTranspose),
    Linear(Linear),
}

/// What follows a root: `factor * x + addend`.
enum After {
    /// A factor, one for all or one for each channel.
    Factor(usize),
    /// An addend of the same kind.
    Addend(usize),
    /// Both, as numbers.
    Numbers(f32, f32),
    /// Another tensor of the same shape.
    Residual(usize),
    Activation(Activation),
}

impl Rewriter<'_> {
    /// A product with a constant matrix is a linear layer, which has an epilogue.
    pub(super) fn linear(
        &mut self,
        operator: &Arc<dyn Operator>,
        inputs: &[usize],
        uses: usize,
    ) -> Result<Option<usize>> {
        let Some(&Matmul { transpose_left: false, transpose_right }) = downcast::<Matmul>(operator) else {
            return Ok(None);
        };
        let fits = self.is_constant(inputs[1]) && self.shape(inputs[1]).len() == 2 && !self.shape(inputs[0]).is_empty();
        if !fits || self.values[inputs[0]].meta.dtype != DType::F32 {
            return Ok(None);
        }
        let linear = Linear { transpose_weight: transpose_right, ..Linear::default() };
        Ok(Some(self.append(Arc::new(linear), inputs.to_vec(), &[uses])?[0]))
    }

    /// Gives an operator's work to the step that feeds it, where that can do it.
    pub(super) fn absorbed(
        &mut self,
        operator: &Arc<dyn Operator>,
        inputs: &[usize],
        uses: usize,
    ) -> Result<Option<usize>> {
        for at in 0..inputs.len().min(2) {
            let Some((step, root)) = self.root(inputs[at]) else { continue };
            let Some(after) = self.after(operator, inputs, at, root.channel_axis(self.shape(inputs[at]).len())) else {
                continue;
            };
            if let Some(output) = self.absorb(step, root, after, uses)? {
                return Ok(Some(output));
            }
        }
        Ok(None)
    }

    /// The step that makes a value, where it is one that takes others in.
    fn root(&self, value: usize) -> Option<(usize, Root)> {
        if self.values[value].meta.dtype != DType::F32 {
            return None;
        }
        let convolution =
            || self.producer::<Convolution>(value).map(|(step, of)| (step, Root::Convolution(of.clone())));
        let transposed =
            || self.producer::<ConvolutionTranspose>(value).map(|(step, of)| (step, Root::Transposed(of.clone())));
        let linear = || self.producer::<Linear>(value).map(|(step, of)| (step, Root::Linear(*of)));
        convolution().or_else(transposed).or_else(linear)
    }

    /// What an operator does to its input `at`, which a root makes whose channels are along `axis`.
    fn after(&self, operator: &Arc<dyn Operator>, inputs: &[usize], at: usize, axis: usize) -> Option<After> {
        let call = downcast::<Call>(operator)?;
        match call.operator {
            Elementwise::Unary(Unary::Scale) => {
                let [scale, bias] = [0, 1].map(|i| number(call.scalars[i]));
                Some(After::Numbers(scale, bias))
            }
            Elementwise::Binary(binary) => {
                let other = inputs[1 - at];
                if inputs[0] == inputs[1] {
                    return None;
                }
                let constant = self.is_constant(other) && self.is_per_channel(other, inputs[at], axis);
                match binary {
                    Binary::Multiply if constant => Some(After::Factor(other)),
                    Binary::Add if constant => Some(After::Addend(other)),
                    Binary::Add if self.values[other].meta == self.values[inputs[at]].meta => {
                        Some(After::Residual(other))
                    }
                    _ => None,
                }
            }
            Elementwise::Activation(activation) => Some(After::Activation(in_epilogue(activation, &call.scalars)?)),
            _ => None,
        }
    }

    /// Whether a value is one number, or one for each place along an axis of the other.
    fn is_per_channel(&self, value: usize, of: usize, axis: usize) -> bool {
        let (own, full) = (self.shape(value), self.shape(of));
        let Some(skipped) = full.len().checked_sub(own.len()) else { return false };
        let fits = |(i, &size): (usize, &usize)| size == 1 || (i + skipped == axis && size == full[axis]);
        self.values[value].meta.dtype == DType::F32 && own.iter().enumerate().all(fits)
    }

    fn absorb(&mut self, step: usize, mut root: Root, after: After, uses: usize) -> Result<Option<usize>> {
        let inputs = self.steps[step].as_ref().map_or_else(Vec::new, |step| step.inputs.clone());
        let Some(mut parts) = Parts::of(&root, &inputs) else { return Ok(None) };
        let taken = match after {
            After::Numbers(factor, addend) => self.absorb_numbers(&root, &mut parts, factor, addend)?,
            After::Factor(by) => match self.number(by)? {
                Some(number) => self.absorb_numbers(&root, &mut parts, number, 0.0)?,
                None => self.absorb_factor(&root, &mut parts, by)?,
            },
            After::Addend(by) => match self.number(by)? {
                Some(number) => self.absorb_numbers(&root, &mut parts, 1.0, number)?,
                None => self.absorb_addend(&mut parts, by)?,
            },
            After::Residual(other) => {
                let free = parts.residual.is_none() && parts.is_linear() && !matches!(root, Root::Transposed(_));
                free.then(|| parts.residual = Some(other)).is_some()
            }
            After::Activation(activation) => {
                let fits = parts.is_linear() && root.has(activation);
                fits.then(|| parts.activation = activation).is_some()
            }
        };
        if !taken {
            return Ok(None);
        }
        self.remove(step);
        let inputs = parts.inputs();
        root.set(&parts);
        Ok(Some(self.append(root.operator(), inputs, &[uses])?[0]))
    }

    /// `x * factor + addend` with numbers.
    fn absorb_numbers(&mut self, root: &Root, parts: &mut Parts, factor: f32, addend: f32) -> Result<bool> {
        if parts.is_linear() && parts.residual.is_none() && self.is_constant(parts.weight) {
            if factor != 1.0 {
                let scale = scale(factor, 0.0);
                parts.weight = self.compute(scale.clone(), &[parts.weight])?;
                parts.bias = parts.bias.map(|bias| self.compute(scale, &[bias])).transpose()?;
            }
            if addend != 0.0 {
                let bias = match parts.bias {
                    Some(bias) => bias,
                    None => self.zeros(root.channels(self.shape(parts.weight)))?,
                };
                parts.bias = Some(self.compute(scale(1.0, addend), &[bias])?);
            }
            return Ok(true);
        }
        if matches!(root, Root::Linear(_)) {
            return Ok(false);
        }
        let (before, more) = parts.after.unwrap_or((1.0, 0.0));
        parts.after = Some((before * factor, more * factor + addend));
        Ok(true)
    }

    /// A factor for each channel goes into the weight and the bias.
    fn absorb_factor(&mut self, root: &Root, parts: &mut Parts, by: usize) -> Result<bool> {
        if !parts.is_linear() || parts.residual.is_some() || !self.is_constant(parts.weight) {
            return Ok(false);
        }
        let weight = self.shape(parts.weight).to_vec();
        let Some(axis) = root.weight_axis(&weight) else { return Ok(false) };
        let mut along = vec![1; weight.len()];
        along[axis] = weight[axis];
        let multiply = Call::new(Elementwise::Binary(Binary::Multiply));
        let factors = self.reshape_constant(by, &along)?;
        parts.weight = self.compute(multiply.clone(), &[parts.weight, factors])?;
        if let Some(bias) = parts.bias {
            let factors = self.reshape_constant(by, &[weight[axis]])?;
            parts.bias = Some(self.compute(multiply, &[bias, factors])?);
        }
        Ok(true)
    }

    /// An addend for each channel goes into the bias.
    fn absorb_addend(&mut self, parts: &mut Parts, by: usize) -> Result<bool> {
        if !parts.is_linear() {
            return Ok(false);
        }
        let addend = self.reshape_constant(by, &[self.shape(by).iter().product()])?;
        parts.bias = Some(match parts.bias {
            Some(bias) if self.is_constant(bias) => {
                self.compute(Call::new(Elementwise::Binary(Binary::Add)), &[bias, addend])?
            }
            Some(_) => return Ok(false),
            None => addend,
        });
        Ok(true)
    }

    fn reshape_constant(&mut self, value: usize, shape: &[usize]) -> Result<usize> {
        let meta = Meta { dtype: self.values[value].meta.dtype, shape: openmps_graph::view::shape_of(shape)? };
        self.uses[value] += 1;
        Ok(self.reshaped(value, meta, 1))
    }

    fn zeros(&mut self, channels: usize) -> Result<usize> {
        let meta = Meta { dtype: DType::F32, shape: openmps_graph::view::shape_of(&[1])? };
        let bytes = Arc::from(0.0_f32.to_ne_bytes().as_slice());
        let zero = self.push(crate::graph::Value { meta, source: crate::graph::Source::Constant(bytes) }, 0);
        self.compute(Expand { dims: vec![channels as i64] }, &[zero])
    }
}

/// The inputs and the epilogue of a root, whichever it is.
struct Parts {
    x: usize,
    weight: usize,
    bias: Option<usize>,
    residual: Option<usize>,
    activation: Activation,
    after: Option<(f32, f32)>,
}

impl Parts {
    fn of(root: &Root, inputs: &[usize]) -> Option<Parts> {
        let (bias, residual, activation, after) = match root {
            Root::Convolution(Convolution { fused, .. }) | Root::Transposed(ConvolutionTranspose { fused, .. }) => {
                if fused.scale {
                    return None;
                }
                (fused.bias, fused.residual, fused.activation, fused.after)
            }
            Root::Linear(linear) => {
                let activation = linear.activation.map_or(Some(Activation::None), |it| in_epilogue(it, &[]))?;
                (linear.bias, linear.residual, activation, None)
            }
        };
        let mut rest = inputs[2..].iter().copied();
        let mut take = |there: bool| if there { rest.next() } else { None };
        let (bias, residual) = (take(bias), take(residual));
        Some(Parts { x: inputs[0], weight: inputs[1], bias, residual, activation, after })
    }

    /// Whether nothing but factors, addends and a residual follow so far.
    fn is_linear(&self) -> bool {
        self.activation == Activation::None && self.after.is_none()
    }

    fn inputs(&self) -> Vec<usize> {
        [Some(self.x), Some(self.weight), self.bias, self.residual].into_iter().flatten().collect()
    }
}

impl Root {
    /// The dimension of the result along which its channels lie.
    fn channel_axis(&self, rank: usize) -> usize {
        match self {
            Root::Convolution(Convolution { layout: ImageLayout::Nchw, .. }) => 1,
            Root::Transposed(ConvolutionTranspose { layout: ImageLayout::Nchw, .. }) => 1,
            _ => rank - 1,
        }
    }

    /// The dimension of the weight along which the result's channels lie.
    fn weight_axis(&self, weight: &[usize]) -> Option<usize> {
        match self {
            Root::Convolution(_) => Some(0),
            Root::Transposed(of) => (of.groups == 1).then_some(1),
            Root::Linear(of) => (weight.len() == 2).then_some(usize::from(!of.transpose_weight)),
        }
    }

    fn channels(&self, weight: &[usize]) -> usize {
        match self {
            Root::Convolution(_) => weight[0],
            Root::Transposed(of) => weight[1] * of.groups,
            Root::Linear(of) => weight[usize::from(!of.transpose_weight)],
        }
    }

    /// Whether this activation can follow.
    fn has(&self, activation: Activation) -> bool {
        !matches!(self, Root::Linear(_)) || of_linear(activation).is_some()
    }

    fn set(&mut self, parts: &Parts) {
        match self {
            Root::Convolution(Convolution { fused, .. }) | Root::Transposed(ConvolutionTranspose { fused, .. }) => {
                *fused = Fused {
                    scale: false,
                    bias: parts.bias.is_some(),
                    residual: parts.residual.is_some(),
                    activation: parts.activation,
                    after: parts.after,
                };
            }
            Root::Linear(linear) => {
                linear.bias = parts.bias.is_some();
                linear.residual = parts.residual.is_some();
                linear.activation = of_linear(parts.activation);
            }
        }
    }

    fn operator(self) -> Arc<dyn Operator> {
        match self {
            Root::Convolution(of) => Arc::new(of),
            Root::Transposed(of) => Arc::new(of),
            Root::Linear(of) => Arc::new(of),
        }
    }
}

fn scale(factor: f32, addend: f32) -> Call {
    let scalars = [factor, addend].map(|number| Number::Float(f64::from(number))).to_vec();
    Call { operator: Elementwise::Unary(Unary::Scale), scalars, output: None }
}

fn number(number: Number) -> f32 {
    match number {
        Number::Integer(value) => value as f32,
        Number::Float(value) => value as f32,
    }
}

/// An activation as an epilogue has it.
fn in_epilogue(activation: elementwise::Activation, numbers: &[Number]) -> Option<Activation> {
    use elementwise::Activation as Operator;
    let at = |i: usize| numbers.get(i).copied().map(number);
    Some(match activation {
        Operator::Relu => Activation::Relu,
        Operator::Relu6 => Activation::Relu6,
        Operator::Sigmoid => Activation::Sigmoid,
        Operator::Silu => Activation::Swish { beta: 1.0 },
        Operator::Swish => Activation::Swish { beta: at(0)? },
        Operator::Gelu => Activation::Gelu,
        Operator::GeluTanh => Activation::GeluTanh,
        Operator::HardSigmoid => Activation::HardSigmoid { slope: at(0)?, offset: at(1)? },
        Operator::HardSwish if [at(0)?, at(1)?, at(2)?] == [6.0, 6.0, 3.0] => Activation::HardSwish,
        Operator::LeakyRelu if (0.0..=1.0).contains(&at(0)?) => Activation::LeakyRelu { slope: at(0)? },
        _ => return None,
    })
}

/// An activation as a linear layer has it.
fn of_linear(activation: Activation) -> Option<elementwise::Activation> {
    use elementwise::Activation as Operator;
    Some(match activation {
        Activation::Relu => Operator::Relu,
        Activation::Relu6 => Operator::Relu6,
        Activation::Sigmoid => Operator::Sigmoid,
        Activation::Swish { beta: 1.0 } => Operator::Silu,
        Activation::Gelu => Operator::Gelu,
        Activation::GeluTanh => Operator::GeluTanh,
        _ => return None,
    })
}
