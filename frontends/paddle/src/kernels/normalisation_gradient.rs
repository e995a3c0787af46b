//! Gradients of softmax, layer norm and batch norm.

use super::compose::Compose;
use super::normalisation::is_channels_last;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::batch_norm::BatchNormGradient;
use openmps_graph::operators::elementwise::{Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::softmax::SoftmaxGradient;
use openmps_graph::{Operator, View};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("softmax_grad", FLOATS, softmax_grad);
    table.add("log_softmax_grad", FLOATS, log_softmax_grad);
    table.add("layer_norm_grad", FLOATS, layer_norm_grad);
    table.add("batch_norm_grad", FLOATS, batch_norm_grad);
}

pub(super) fn softmax_grad(context: &Context, y: Tensor, upstream: Tensor, axis: i32, dx: Output) -> Result<()> {
    rows(context, SoftmaxGradient { axis: axis.into(), logarithm: false }, &y, &upstream, &dx)
}

fn log_softmax_grad(context: &Context, y: Tensor, upstream: Tensor, axis: i32, dx: Output) -> Result<()> {
    rows(context, SoftmaxGradient { axis: axis.into(), logarithm: true }, &y, &upstream, &dx)
}

fn rows(context: &Context, operator: SoftmaxGradient, y: &Tensor, upstream: &Tensor, dx: &Output) -> Result<()> {
    let (c, y) = (Compose::new(context), y.view()?);
    let (upstream, dx) = (c.cast(&upstream.view()?, y.dtype)?, context.allocate(dx, y.dtype)?);
    c.launch(&operator, &[y, upstream], &[dx])
}

fn layer_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    mean: Tensor,
    variance: Tensor,
    upstream: Tensor,
    epsilon: f32,
    begin_norm_axis: i32,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    // Weights of half tensors may be float32; their gradients have the weights' type.
    let weight_dtype = scale.as_ref().or(bias.as_ref()).map_or(Ok(dtype), Tensor::dtype)?;
    let (rows, columns) = x.shape.split_at(begin_norm_axis as usize);
    let (rows, columns) = (rows.iter().product(), columns.iter().product());
    let normal = Normal {
        x: c.shaped(&x, &[rows, columns])?,
        upstream: c.shaped(&upstream, &[rows, columns])?,
        mean: c.shaped(&c.input(&mean)?, &[rows, 1])?,
        inverse: inverse_deviation(&c, &c.shaped(&c.input(&variance)?, &[rows, 1])?, epsilon)?,
        averaged: vec![1],
    };
    let centred = normal.normalised(&c)?;
    let scale = scale.as_ref().map(|scale| c.shaped(&c.cast(&scale.view()?, x.dtype)?, &[1, columns])).transpose()?;
    let own = |output: Option<Output>| output.map(|output| (output, weight_dtype));
    weights(&c, &normal.upstream, &centred, own(dscale), own(dbias), &[0])?;
    let Some(dx) = dx else { return Ok(()) };
    let value = normal.gradient(&c, &centred, scale.as_ref())?;
    c.store_value(&dx, dtype, &value)
}

/// Rows (or channels) that were normalised by their mean and deviation.
pub(super) struct Normal {
    pub x: View,
    pub upstream: View,
    /// This and the inverse deviation broadcast against x.
    pub mean: View,
    pub inverse: View,
    /// The axes over which mean and deviation were taken.
    pub averaged: Vec<i64>,
}

impl Normal {
    /// `(x - mean) / deviation`
    pub fn normalised(&self, c: &Compose) -> Result<View> {
        normalised(c, &self.x, [&self.mean, &self.inverse])
    }

    /// `(g - mean(g) - n mean(g n)) / deviation` with `g = dy scale` and `n` the normalised x.
    pub fn gradient(&self, c: &Compose, normalised: &View, scale: Option<&View>) -> Result<View> {
        let g = scale.map_or_else(|| Ok(self.upstream.clone()), |scale| c.multiply(&self.upstream, scale))?;
        let average = c.reduce(Reduction::Mean, &g, &self.averaged)?;
        let along = c.reduce(Reduction::Mean, &c.multiply(&g, normalised)?, &self.averaged)?;
        let across = c.subtract(&c.subtract(&g, &average)?, &c.multiply(normalised, &along)?)?;
        c.multiply(&across, &self.inverse)
    }
}

pub(super) fn normalised(c: &Compose, x: &View, [mean, inverse]: [&View; 2]) -> Result<View> {
    c.multiply(&c.subtract(x, mean)?, inverse)
}

pub(super) fn inverse_deviation(c: &Compose, variance: &View, epsilon: f32) -> Result<View> {
    c.map(Elementwise::Unary(Unary::Rsqrt), &[&c.scale(variance, 1.0, epsilon.into())?], &[])
}

/// Gradients of scale and bias: sums over everything that is not theirs.
pub(super) fn weights(
    c: &Compose,
    upstream: &View,
    normalised: &View,
    dscale: Option<(Output, DType)>,
    dbias: Option<(Output, DType)>,
    axes: &[i64],
) -> Result<()> {
    if let Some((dscale, dtype)) = dscale {
        let sum = c.reduce(Reduction::Sum, &c.multiply(upstream, normalised)?, axes)?;
        c.store_value(&dscale, dtype, &sum)?;
    }
    if let Some((dbias, dtype)) = dbias {
        let sum = c.reduce(Reduction::Sum, upstream, axes)?;
        c.store_value(&dbias, dtype, &sum)?;
    }
    Ok(())
}

/// The gradient where the forward pass kept one element a channel as it was.
fn passed_on(
    context: &Context,
    c: &Compose,
    dtype: DType,
    upstream: &View,
    dx: Option<Output>,
    weights: [(Option<Output>, DType); 2],
) -> Result<()> {
    for (output, own) in weights {
        output.map_or(Ok(()), |output| c.fill(&context.allocate(&output, own)?, 0.0))?;
    }
    dx.map_or(Ok(()), |dx| c.store_value(&dx, dtype, upstream))
}

pub(super) fn batch_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    mean: Option<Tensor>,
    variance: Option<Tensor>,
    saved_mean: Tensor,
    saved_inverse: Tensor,
    _reserve_space: Option<Tensor>,
    upstream: Tensor,
    _momentum: f32,
    epsilon: f32,
    data_layout: String,
    is_test: bool,
    use_global_stats: bool,
    _trainable_statistics: bool,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (x.view()?, upstream.view()?);
    let channel = if is_channels_last(&data_layout) { x.rank() - 1 } else { 1 };
    let mut dims = vec![1; x.rank()];
    dims[channel] = x.shape[channel];
    let per_channel = |view: &View| c.shaped(view, &dims);
    let frozen = is_test || use_global_stats;
    // The gradient of a weight has its type, which is float32 beside a half's, but for networks that were cast as a whole.
    let own = |weight: &Option<Tensor>| weight.as_ref().map_or(Ok(dtype.compute()), Tensor::dtype);
    let types = [own(&scale)?, own(&bias)?];
    if !frozen && x.len() == x.shape[channel] {
        return passed_on(context, &c, dtype, &upstream, dx, [(dscale, types[0]), (dbias, types[1])]);
    }
    if !frozen {
        let outputs = [dscale, dbias];
        let single = |at: usize| match &outputs[at] {
            Some(output) if types[at] == dtype.compute() => context.allocate(output, types[at]),
            _ => c.temporary(dtype.compute(), &[dims[channel]]),
        };
        let weights = [single(0)?, single(1)?];
        let dx = dx.map_or_else(|| c.temporary(dtype, &x.shape), |dx| context.allocate(&dx, dtype))?;
        let operator = BatchNormGradient { axis: channel as i64, scale: scale.is_some() };
        let mut inputs = vec![x, upstream, saved_mean.view()?, saved_inverse.view()?];
        inputs.extend(scale.map(|scale| c.cast(&scale.view()?, dtype.compute())).transpose()?);
        operator.run(context.queue(), &inputs, &[dx, weights[0].clone(), weights[1].clone()])?;
        for ((output, value), own) in outputs.iter().zip(&weights).zip(types) {
            let Some(output) = output.as_ref().filter(|_| own != value.dtype) else { continue };
            c.store_value(output, own, value)?;
        }
        return Ok(());
    }
    let (mean, inverse) = match (mean, variance) {
        (Some(mean), Some(variance)) => {
            let single = |x: &Tensor| per_channel(&c.cast(&x.view()?, dtype.compute())?);
            (single(&mean)?, inverse_deviation(&c, &single(&variance)?, epsilon)?)
        }
        _ => (per_channel(&saved_mean.view()?)?, per_channel(&saved_inverse.view()?)?),
    };
    let (x, upstream) = (c.cast(&x, dtype.compute())?, c.cast(&upstream, dtype.compute())?);
    let averaged: Vec<i64> = (0..x.rank()).filter(|&axis| axis != channel).map(|axis| axis as i64).collect();
    let normalised = normalised(&c, &x, [&mean, &inverse])?;
    let single = |output: Option<Output>, own: DType| output.map(|output| (output, own));
    weights(&c, &upstream, &normalised, single(dscale, types[0]), single(dbias, types[1]), &averaged)?;
    let Some(dx) = dx else { return Ok(()) };
    // The statistics are constants: only the factor is left.
    let g = c.multiply(&upstream, &inverse)?;
    let value = match scale {
        Some(scale) => c.multiply(&g, &per_channel(&c.cast(&scale.view()?, g.dtype)?)?)?,
        None => g,
    };
    c.store_value(&dx, dtype, &value)
}
