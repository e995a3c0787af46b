//! Softmax, layer norm and batch norm.

use crate::error::Result;
use crate::kernels::compose::Compose;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::operators::{batch_norm::BatchNorm, layer_norm::LayerNorm, softmax::Softmax};
use openmps_graph::{Operator, View};
use openmps_tile::dtype::FLOATS;
use openmps_tile::{DType, Number};

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

/// A tensor of one number a channel, as it broadcasts against x: `[C, 1, 1]` before the other dimensions of NCHW.
fn per_channel(view: &View, rank: usize, channels_last: bool) -> Result<View> {
    let after = if channels_last { 0 } else { rank.saturating_sub(2) };
    let mut dims = vec![view.len()];
    dims.resize(1 + after, 1);
    Ok(View::dense(view.address, view.dtype, &dims)?)
}

/// A temporary of one number a channel.
fn temporary(context: &Context, dtype: DType, channels: usize) -> Result<(openmps_runtime::Buffer, View)> {
    let buffer = context.queue().allocate((channels * dtype.size()).max(1))?;
    let view = View::dense(buffer.address(), dtype, &[channels])?;
    Ok((buffer, view))
}

/// `y = x * factor[c] + offset[c]` with `factor = scale / sqrt(variance + epsilon)`, `offset = bias - mean * factor`.
fn normalise(
    context: &Context,
    x: &View,
    [mean, variance, scale, bias]: [&View; 4],
    epsilon: f32,
    channels_last: bool,
    out: &View,
) -> Result<()> {
    let queue = context.queue();
    let (_factor_memory, factor) = temporary(context, mean.dtype, mean.len())?;
    let (_offset_memory, offset) = temporary(context, mean.dtype, mean.len())?;
    let shift = [Number::Float(1.0), Number::Float(epsilon.into())];
    run(Elementwise::Unary(Unary::Scale), queue, &[variance], &shift, &factor)?;
    run(Elementwise::Unary(Unary::Rsqrt), queue, &[&factor], &[], &factor)?;
    run(Elementwise::Binary(Binary::Multiply), queue, &[&factor, scale], &[], &factor)?;
    run(Elementwise::Binary(Binary::Multiply), queue, &[&factor, mean], &[], &offset)?;
    run(Elementwise::Binary(Binary::Subtract), queue, &[bias, &offset], &[], &offset)?;
    let cast = |view: &View| -> Result<(Option<openmps_runtime::Buffer>, View)> {
        if x.dtype == view.dtype {
            return Ok((None, view.clone()));
        }
        let memory = queue.allocate(view.len() * x.dtype.size())?;
        let to = View::dense(memory.address(), x.dtype, &view.shape)?;
        run(Elementwise::Unary(Unary::Cast), queue, &[view], &[], &to)?;
        Ok((Some(memory), to))
    };
    let ((_m, factor), (_n, offset)) = (cast(&factor)?, cast(&offset)?);
    let factor = per_channel(&factor, x.rank(), channels_last)?;
    let offset = per_channel(&offset, x.rank(), channels_last)?;
    run(Elementwise::Binary(Binary::Multiply), queue, &[x, &factor], &[], out)?;
    run(Elementwise::Binary(Binary::Add), queue, &[out, &offset], &[], out)?;
    Ok(())
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
    let single = |x: &Tensor, of: &View| c.cast(&x.view()?, of.dtype.compute());
    let statistics = [&single(&mean, &x)?, &single(&variance, &x)?, &single(&scale, &x)?, &single(&bias, &x)?];
    normalise(context, &x, statistics, epsilon, is_channels_last(&data_layout), &out)
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
        let constant = |value: f64| -> Result<View> {
            let to = c.temporary(statistics, &[channels])?;
            c.fill(&to, value)?;
            Ok(to)
        };
        let scale = scale.map_or_else(|| constant(1.0), Ok)?;
        let bias = bias.map_or_else(|| constant(0.0), Ok)?;
        return normalise(context, &x, [&running_mean, &running_variance, &scale, &bias], epsilon, channels_last, &out);
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
        axis: if channels_last { -1 } else { 1 },
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
    let share = c.scale(batch, 1.0 - f64::from(momentum), 0.0)?;
    let kept = c.scale(running, momentum.into(), 0.0)?;
    c.store(output, dtype, Elementwise::Binary(Binary::Add), &[&kept, &share], &[])
}

/// Paddle saves the inverse deviation under the variance's name.
fn save_inverse(c: &Compose, output: &Output, dtype: DType, variance: &View, epsilon: f32) -> Result<()> {
    let shifted = c.scale(variance, 1.0, epsilon.into())?;
    c.store(output, dtype, Elementwise::Unary(Unary::Rsqrt), &[&shifted], &[])
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
