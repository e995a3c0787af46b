//! Batch norm by the statistics of all ranks of a job, and its gradient: each rank's own sums, brought together in the order of the ranks.

use super::compose::Compose;
use super::normalisation::{batch_norm, empty_reserve, is_channels_last, run_along};
use super::normalisation_gradient::{batch_norm_grad, inverse_deviation, normalised, weights};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_collective::{Communicator, ElementType};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sync_batch_norm", FLOATS, sync_batch_norm);
    table.add("sync_batch_norm_grad", FLOATS, sync_batch_norm_grad);
}

/// Two numbers of each channel on every rank, `[ranks, channels]`, and each rank's share of all elements, `[ranks, 1]`.
struct Ranks {
    numbers: [View; 2],
    share: View,
}

impl Ranks {
    /// Tells all ranks this one's numbers, and of how many elements of a channel they are.
    fn gather(
        context: &Context,
        c: &Compose,
        communicator: &Communicator,
        numbers: [&View; 2],
        elements: usize,
    ) -> Result<Ranks> {
        let (dtype, channels, ranks) = (numbers[0].dtype, numbers[0].len(), communicator.ranks());
        let width = 2 * channels + 1;
        let (own, all) = (c.temporary(dtype, &[width])?, c.temporary(dtype, &[ranks, width])?);
        for (index, numbers) in numbers.into_iter().enumerate() {
            let to = View::dense(own.address + index * channels * dtype.size(), dtype, &numbers.shape)?;
            run(Elementwise::Unary(Unary::Cast), context.queue(), &[numbers], &[], &to)?;
        }
        c.fill(&View::dense(own.address + 2 * channels * dtype.size(), dtype, &[1])?, elements as f64)?;
        let element = if dtype == DType::F64 { ElementType::F64 } else { ElementType::F32 };
        context.communicate("sync_batch_norm", || {
            // SAFETY: both temporaries have these sizes, live until the formula's end, and are nobody else's.
            unsafe { communicator.all_gather_raw(own.address as *const u8, all.address as *mut u8, width, element) }
        })?;
        let columns = |begin: usize, count: usize| -> Result<View> {
            let mut view = View::dense(all.address + begin * dtype.size(), dtype, &[ranks, count])?;
            view.strides[0] = width as isize;
            Ok(view)
        };
        let counts = columns(2 * channels, 1)?;
        let total = c.reduce(Reduction::Sum, &c.scale(&counts, 1.0, 0.0)?, &[0])?;
        let share = c.map(Elementwise::Binary(Binary::Divide), &[&counts, &total], &[])?;
        Ok(Ranks { numbers: [columns(0, channels)?, columns(channels, channels)?], share })
    }

    /// The average over all elements of what is an average on each rank.
    fn average(&self, c: &Compose, of_ranks: &View) -> Result<View> {
        c.reduce(Reduction::Sum, &c.multiply(of_ranks, &self.share)?, &[0])
    }
}

/// What the kernels have in common: where the channels are, and over what their statistics are taken.
struct Channels {
    /// The dimensions of one number a channel, as it broadcasts against x.
    dims: Vec<usize>,
    averaged: Vec<i64>,
    /// How many elements a channel has on this rank.
    elements: usize,
}

impl Channels {
    fn of(x: &View, layout: &str) -> Channels {
        let axis = if is_channels_last(layout) { x.rank() - 1 } else { 1 };
        let mut dims = vec![1; x.rank()];
        dims[axis] = x.shape[axis];
        let averaged = (0..x.rank()).filter(|&other| other != axis).map(|other| other as i64).collect();
        Channels { dims, averaged, elements: x.len() / x.shape[axis].max(1) }
    }

    /// The average of each channel on this rank; zero where it has no elements, whose share of all is none.
    fn average(&self, c: &Compose, x: &View) -> Result<View> {
        match self.elements {
            0 => c.constant(x.dtype, &self.dims, 0.0),
            _ => c.reduce(Reduction::Mean, x, &self.averaged),
        }
    }
}

fn sync_batch_norm(
    context: &Context,
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    scale: Tensor,
    bias: Tensor,
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
    let frozen = use_global_stats || (is_test && !trainable_statistics);
    let Some(communicator) = context.communicator().filter(|_| !frozen) else {
        return batch_norm(
            context,
            x,
            mean,
            variance,
            Some(scale),
            Some(bias),
            is_test,
            momentum,
            epsilon,
            data_layout,
            use_global_stats,
            trainable_statistics,
            y,
            mean_out,
            variance_out,
            saved_mean,
            saved_variance,
            reserve_space,
        );
    };
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let (channels, compute) = (Channels::of(&x, &data_layout), x.dtype);
    empty_reserve(context, reserve_space.as_ref(), dtype)?;
    let square = |x: &View| c.map(Elementwise::Unary(Unary::Square), &[x], &[]);
    let own_mean = channels.average(&c, &x)?;
    let own_variance = channels.average(&c, &square(&c.subtract(&x, &own_mean)?)?)?;
    let ranks = Ranks::gather(context, &c, &communicator, [&own_mean, &own_variance], channels.elements)?;
    let [means, variances] = &ranks.numbers;
    let batch_mean = ranks.average(&c, means)?;
    // The variance over all is that within the ranks and that between them: no difference of large numbers.
    let between = square(&c.subtract(means, &batch_mean)?)?;
    let batch_variance = ranks.average(&c, &c.add(variances, &between)?)?;
    let along = |view: &View| c.shaped(view, &channels.dims);
    let inverse = inverse_deviation(&c, &batch_variance, epsilon)?;
    let normal = normalised(&c, &x, [&along(&batch_mean)?, &along(&inverse)?])?;
    let scaled = c.multiply(&normal, &along(&c.input(&scale)?)?)?;
    c.store_value(&y, dtype, &c.add(&scaled, &along(&c.input(&bias)?)?)?)?;
    let count = [channels.dims.iter().product()];
    let flat = |view: &View| c.shaped(view, &count);
    for (output, running, batch) in [(mean_out, mean, &batch_mean), (variance_out, variance, &batch_variance)] {
        run_along(&c, output.as_ref(), running.dtype()?, &c.input(&running)?, &flat(batch)?, momentum)?;
    }
    // Paddle saves the inverse deviation under the variance's name.
    for (output, value) in [(saved_mean, &batch_mean), (saved_variance, &inverse)] {
        output.map_or(Ok(()), |output| c.store_value(&output, compute, &flat(value)?))?;
    }
    Ok(())
}

/// `scale (dy - mean(dy) - n mean(dy n)) / deviation` with averages over all ranks; the gradients of scale and bias are this rank's own sums,
/// which data parallel training brings together with those of all other weights.
fn sync_batch_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    saved_mean: Tensor,
    saved_inverse: Tensor,
    reserve_space: Option<Tensor>,
    upstream: Tensor,
    momentum: f32,
    epsilon: f32,
    data_layout: String,
    is_test: bool,
    use_global_stats: bool,
    trainable_statistics: bool,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let Some(communicator) = context.communicator().filter(|_| !(is_test || use_global_stats)) else {
        return batch_norm_grad(
            context,
            x,
            Some(scale),
            Some(bias),
            None,
            None,
            saved_mean,
            saved_inverse,
            reserve_space,
            upstream,
            momentum,
            epsilon,
            data_layout,
            is_test,
            use_global_stats,
            trainable_statistics,
            dx,
            dscale,
            dbias,
        );
    };
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let channels = Channels::of(&x, &data_layout);
    let along = |view: &View| c.shaped(view, &channels.dims);
    let inverse = along(&saved_inverse.view()?)?;
    let normal = normalised(&c, &x, [&along(&saved_mean.view()?)?, &inverse])?;
    let single = |output: Option<Output>| output.map(|output| (output, x.dtype));
    weights(&c, &upstream, &normal, single(dscale), single(dbias), &channels.averaged)?;
    let own = [channels.average(&c, &upstream)?, channels.average(&c, &c.multiply(&upstream, &normal)?)?];
    let ranks = Ranks::gather(context, &c, &communicator, [&own[0], &own[1]], channels.elements)?;
    let Some(dx) = dx else { return Ok(()) };
    let average = along(&ranks.average(&c, &ranks.numbers[0])?)?;
    let slope = along(&ranks.average(&c, &ranks.numbers[1])?)?;
    let across = c.subtract(&c.subtract(&upstream, &average)?, &c.multiply(&normal, &slope)?)?;
    let factor = c.multiply(&inverse, &along(&c.input(&scale)?)?)?;
    c.store_value(&dx, dtype, &c.multiply(&across, &factor)?)
}
