//! Softmax, layer norm and batch norm.

use crate::error::Result;
use crate::kernels::compose::Compose;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Chain, Elementwise, Fused, Operand, Stage, Unary, run};
use openmps_graph::operators::{
    batch_norm::{BatchNorm, BatchNormGiven},
    layer_norm::LayerNorm,
    softmax::Softmax,
};
use openmps_graph::{Operator, View};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("softmax", FLOATS, softmax).strided();
    table.add("log_softmax", FLOATS, log_softmax).strided();
    table.add("layer_norm", FLOATS, layer_norm).strided();
    table.add("batch_norm_infer", FLOATS, batch_norm_infer);
    table.add("batch_norm", FLOATS, batch_norm);
}

fn softmax(context: &Context, x: Tensor, axis: i32, out: Output) -> Result<()> {
    rows(context, Softmax { axis: axis.into(), logarithm: false }, &x, &out)
}

fn log_softmax(context: &Context, x: Tensor, axis: i32, out: Output) -> Result<()> {
    rows(context, Softmax { axis: axis.into(), logarithm: true }, &x, &out)
}

fn rows(context: &Context, operator: Softmax, x: &Tensor, out: &Output) -> Result<()> {
    let (x, out) = (x.view()?, context.allocate(out, x.dtype()?)?);
    Ok(operator.run(context.queue(), &[x], &[out])?)
}

fn layer_norm(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    epsilon: f32,
    begin_norm_axis: i32,
    out: Output,
    mean: Option<Output>,
    variance: Option<Output>,
) -> Result<()> {
    let statistics = mean.is_some() && variance.is_some();
    let operator = LayerNorm {
        begin: begin_norm_axis.into(),
        epsilon: epsilon.into(),
        scale: scale.is_some(),
        bias: bias.is_some(),
        centred: true,
        statistics,
    };
    let x = x.view()?;
    let mut outputs = vec![context.allocate(&out, x.dtype)?];
    for output in [&mean, &variance].into_iter().flatten().filter(|_| statistics) {
        let view = context.allocate(output, x.dtype.compute())?;
        outputs.push(View::dense(view.address, view.dtype, &[view.len()])?);
    }
    let mut inputs = vec![x];
    for weight in [scale, bias].into_iter().flatten() {
        inputs.push(weight.view()?);
    }
    Ok(operator.run(context.queue(), &inputs, &outputs)?)
}

/// A temporary of one number a channel.
fn temporary(context: &Context, dtype: DType, channels: usize) -> Result<(openmps_runtime::Buffer, View)> {
    let buffer = context.queue().allocate((channels * dtype.size()).max(1))?;
    let view = View::dense(buffer.address(), dtype, &[channels])?;
    Ok((buffer, view))
}

/// x with the statistics that are given.
fn normalise(
    context: &Context,
    x: &View,
    [mean, variance]: [View; 2],
    [scale, bias]: [Option<View>; 2],
    epsilon: f32,
    channels_last: bool,
    out: View,
) -> Result<()> {
    let operator = BatchNormGiven {
        axis: channel_axis(channels_last),
        epsilon: epsilon.into(),
        scale: scale.is_some(),
        bias: bias.is_some(),
    };
    let inputs: Vec<View> = [x.clone(), mean, variance].into_iter().chain(scale).chain(bias).collect();
    Ok(operator.run(context.queue(), &inputs, &[out])?)
}

fn channel_axis(channels_last: bool) -> i64 {
    if channels_last { -1 } else { 1 }
}

/// The layout's name ends in C where channels are the last dimension.
pub(super) fn is_channels_last(layout: &str) -> bool {
    layout.len() > 2 && layout.ends_with('C')
}

fn batch_norm_infer(
    context: &Context,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor,
    bias: Tensor,
    _momentum: f32,
    epsilon: f32,
    data_layout: String,
    y: Output,
    _mean_out: Output,
    _variance_out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let out = context.allocate(&y, x.dtype)?;
    let single = |of: &Tensor| c.cast(&of.view()?, x.dtype.compute());
    let (statistics, weights) = ([single(&mean)?, single(&variance)?], [Some(single(&scale)?), Some(single(&bias)?)]);
    normalise(context, &x, statistics, weights, epsilon, is_channels_last(&data_layout), out)
}

pub(super) fn batch_norm(
    context: &Context,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    is_test: bool,
    momentum: f32,
    epsilon: f32,
    data_layout: String,
    use_global_stats: bool,
    trainable_statistics: bool,
    y: Output,
    mean_out: Option<Output>,
    variance_out: Option<Output>,
    saved_mean: Option<Output>,
    saved_variance: Option<Output>,
    reserve_space: Option<Output>,
) -> Result<()> {
    let (c, x, queue) = (Compose::new(context), x.view()?, context.queue());
    let channels_last = is_channels_last(&data_layout);
    // The statistics of half types are float32. A network may have been cast as a whole: what runs along keeps its own type.
    let statistics = x.dtype.compute();
    let running_types = [mean.dtype()?, variance.dtype()?];
    let single = |x: &Tensor| c.cast(&x.view()?, statistics);
    let (running_mean, running_variance) = (single(&mean)?, single(&variance)?);
    let channels = running_mean.len();
    empty_reserve(context, reserve_space.as_ref(), x.dtype)?;
    let [scale, bias] = [scale, bias].map(|weight| weight.as_ref().map(single).transpose());
    let (scale, bias) = (scale?, bias?);
    let out = context.allocate(&y, x.dtype)?;
    let frozen = use_global_stats || (is_test && !trainable_statistics);
    if frozen {
        let running = [(&mean_out, &running_mean), (&variance_out, &running_variance)];
        for ((output, value), dtype) in running.into_iter().zip(running_types) {
            output.as_ref().map_or(Ok(()), |output| c.store_value(output, dtype, value))?;
        }
        // The gradient of what is normalised over all ranks has these alone.
        if let Some(output) = &saved_mean {
            c.store_value(output, statistics, &running_mean)?;
        }
        if let Some(output) = &saved_variance {
            save_inverse(&c, output, statistics, &running_variance, epsilon)?;
        }
        let statistics = [running_mean, running_variance];
        return normalise(context, &x, statistics, [scale, bias], epsilon, channels_last, out);
    }
    if x.len() == channels || x.is_empty() {
        return keep(
            context,
            &x,
            [(&mean_out, &running_mean, running_types[0]), (&variance_out, &running_variance, running_types[1])],
            [&saved_mean, &saved_variance],
            &out,
        );
    }
    let (_mean_memory, unsaved_mean) = temporary(context, statistics, channels)?;
    let batch_mean = saved_mean.map_or(Ok(unsaved_mean), |output| context.allocate(&output, statistics))?;
    let (_variance_memory, batch_variance) = temporary(context, statistics, channels)?;
    let operator = BatchNorm {
        axis: channel_axis(channels_last),
        epsilon: epsilon.into(),
        scale: scale.is_some(),
        bias: bias.is_some(),
    };
    let mut inputs = vec![x.clone()];
    inputs.extend([scale, bias].into_iter().flatten());
    operator.run(queue, &inputs, &[out, batch_mean.clone(), batch_variance.clone()])?;
    let running = [(&mean_out, &running_mean, &batch_mean), (&variance_out, &running_variance, &batch_variance)];
    for ((output, running, batch), dtype) in running.into_iter().zip(running_types) {
        run_along(&c, output.as_ref(), dtype, running, batch, momentum)?;
    }
    saved_variance.map_or(Ok(()), |output| save_inverse(&c, &output, statistics, &batch_variance, epsilon))
}

/// The reserve, which cuDNN alone has a use for.
pub(super) fn empty_reserve(context: &Context, reserve: Option<&Output>, dtype: DType) -> Result<()> {
    if let Some(reserve) = reserve {
        reserve.set_dims(&[0]);
        context.allocate(reserve, dtype)?;
    }
    Ok(())
}

/// Statistics that run along, with those of a batch.
pub(super) fn run_along(
    c: &Compose,
    output: Option<&Output>,
    dtype: DType,
    running: &View,
    batch: &View,
    momentum: f32,
) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    let (input, earlier) = (Operand::Input, Operand::Stage);
    let share = 1.0 - f64::from(momentum);
    let stages = vec![
        Stage::new(Elementwise::Unary(Unary::Scale), &[input(0)], &[momentum.into(), 0.0]),
        Stage::new(Elementwise::Unary(Unary::Scale), &[input(1)], &[share, 0.0]),
        Stage::new(Elementwise::Binary(Binary::Add), &[earlier(0), earlier(1)], &[]),
        Stage::cast(earlier(2), dtype),
    ];
    store_chain(c, output, dtype, stages, &[running, batch])
}

/// Paddle saves the inverse deviation under the variance's name.
fn save_inverse(c: &Compose, output: &Output, dtype: DType, variance: &View, epsilon: f32) -> Result<()> {
    let stages = vec![
        Stage::new(Elementwise::Unary(Unary::Scale), &[Operand::Input(0)], &[1.0, epsilon.into()]),
        Stage::new(Elementwise::Unary(Unary::Rsqrt), &[Operand::Stage(0)], &[]),
        Stage::cast(Operand::Stage(1), dtype),
    ];
    store_chain(c, output, dtype, stages, &[variance])
}

/// What formulas make of the channels' numbers, in one kernel.
fn store_chain(c: &Compose, output: &Output, dtype: DType, stages: Vec<Stage>, inputs: &[&View]) -> Result<()> {
    let to = c.place(output, dtype)?;
    // Programs of old leave what nobody asked for without a shape.
    if to.is_empty() {
        return Ok(());
    }
    let inputs = inputs.iter().map(|input| c.shaped(input, &to.shape)).collect::<Result<Vec<_>>>()?;
    c.launch(&Fused { chain: Chain::new(stages), reduction: None }, &inputs, &[to])
}

/// What Paddle makes of one element a channel, which has no deviation, and of none: the element itself, and no change of what runs along.
fn keep(
    context: &Context,
    x: &View,
    running: [(&Option<Output>, &View, DType); 2],
    saved: [&Option<Output>; 2],
    out: &View,
) -> Result<()> {
    let cast = |from: &View, to: &View| run(Elementwise::Unary(Unary::Cast), context.queue(), &[from], &[], to);
    for (output, running, dtype) in running {
        if let Some(output) = output {
            cast(running, &context.allocate(output, dtype)?)?;
        }
    }
    for output in saved.into_iter().flatten() {
        Compose::new(context).fill(&context.allocate(output, x.dtype.compute())?, 0.0)?;
    }
    cast(x, out)?;
    Ok(())
}
