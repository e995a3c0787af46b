//! Group norm and instance norm (one channel a group), with gradients. They are computed with channels as the second dimension.

use super::compose::Compose;
use super::movement::gave_memory_alone;
use super::normalisation::is_channels_last;
use super::normalisation_gradient::{Normal, inverse_deviation, weights};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::batch_norm::BatchNormGradient;
use openmps_graph::operators::elementwise::{Elementwise, Unary};
use openmps_graph::operators::expand::Expand;
use openmps_graph::operators::layer_norm::LayerNorm;
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("group_norm", FLOATS, group_norm);
    table.add("group_norm_grad", FLOATS, group_norm_grad);
    table.add("instance_norm", FLOATS, instance_norm);
    table.add("instance_norm_grad", FLOATS, instance_norm_grad);
}

/// An image seen as `groups` rows for each of `batch`, or as channels.
struct Groups {
    batch: usize,
    channels: usize,
    groups: usize,
    pixels: usize,
}

impl Groups {
    fn new(x: &View, groups: usize) -> Result<Groups> {
        let (batch, channels) = (x.shape[0], x.shape[1]);
        if groups == 0 || channels % groups != 0 {
            let expected = format!("a divisor of the {channels} channels");
            return Err(Error::Attribute { attribute: "groups", got: groups.to_string(), expected });
        }
        Ok(Groups { batch, channels, groups, pixels: x.shape[2..].iter().product() })
    }

    fn rows(&self) -> [usize; 2] {
        [self.batch * self.groups, self.channels / self.groups * self.pixels]
    }

    fn by_channel(&self) -> [usize; 3] {
        [self.batch, self.channels, self.pixels]
    }

    /// A number a channel, as it broadcasts against [`Groups::by_channel`].
    fn weight(&self, c: &Compose, weight: Option<&Tensor>, dtype: DType) -> Result<Option<View>> {
        let shaped = |weight: &Tensor| c.shaped(&c.cast(&weight.view()?, dtype)?, &[1, self.channels, 1]);
        weight.map(shaped).transpose()
    }

    /// Each row brought to mean 0 and variance 1, and its mean and variance.
    fn normalised(&self, c: &Compose, x: &View, epsilon: f64) -> Result<[View; 3]> {
        let [rows, columns] = self.rows();
        let y = c.temporary(x.dtype, &[rows, columns])?;
        let [mean, variance] = [c.temporary(x.dtype, &[rows])?, c.temporary(x.dtype, &[rows])?];
        let operator = LayerNorm { begin: 1, epsilon, scale: false, bias: false, centred: true, statistics: true };
        let outputs = [y, mean, variance];
        c.launch(&operator, &[c.shaped(x, &[rows, columns])?], &outputs)?;
        Ok(outputs)
    }

    /// `normalised * scale + bias`
    fn weighed(&self, c: &Compose, normalised: &View, [scale, bias]: [Option<&Tensor>; 2]) -> Result<View> {
        let mut y = c.shaped(normalised, &self.by_channel())?;
        if let Some(scale) = self.weight(c, scale, y.dtype)? {
            y = c.multiply(&y, &scale)?;
        }
        if let Some(bias) = self.weight(c, bias, y.dtype)? {
            y = c.add(&y, &bias)?;
        }
        Ok(y)
    }

    fn gradient(
        &self,
        c: &Compose,
        x: &View,
        upstream: &View,
        [mean, inverse]: [View; 2],
        scale: Option<&Tensor>,
        [dx, dscale, dbias]: [Option<Output>; 3],
        dtypes: [DType; 2],
        channels: Channels,
    ) -> Result<()> {
        let own_scale = self.weight(c, scale, x.dtype)?;
        let upstream = c.shaped(upstream, &self.by_channel())?;
        let weighed = own_scale.as_ref().map_or(Ok(upstream.clone()), |scale| c.multiply(&upstream, scale))?;
        let normal = Normal {
            x: c.shaped(x, &self.rows())?,
            upstream: c.shaped(&weighed, &self.rows())?,
            mean,
            inverse,
            averaged: vec![1],
        };
        let normalised = normal.normalised(c)?;
        let by_channel = c.shaped(&normalised, &self.by_channel())?;
        let own = |output: Option<Output>| output.map(|output| (output, dtypes[1]));
        weights(c, &upstream, &by_channel, own(dscale), own(dbias), &[0, 2])?;
        let Some(dx) = dx else { return Ok(()) };
        let value = normal.gradient(c, &normalised, None)?;
        c.store_as(&dx, dtypes[0], &c.shaped(&value, &x.shape)?, |dx| channels.first(dx))
    }
}

/// Where an image's channels are.
#[derive(Clone, Copy, PartialEq)]
enum Channels {
    First,
    Last,
}

impl Channels {
    fn of(layout: &str) -> Channels {
        if is_channels_last(layout) { Channels::Last } else { Channels::First }
    }

    /// The image's elements with channels as the second dimension.
    fn first(self, image: &View) -> View {
        match self {
            Channels::First => image.clone(),
            Channels::Last => {
                let last = image.rank() - 1;
                image.permuted(&[0, last].into_iter().chain(1..last).collect::<Vec<_>>())
            }
        }
    }

    /// As [`Channels::first`], dense and in the type of the computation.
    fn input(self, c: &Compose, image: &Tensor) -> Result<View> {
        let image = c.input(image)?;
        match self {
            Channels::First => Ok(image),
            Channels::Last => c.map(COPY, &[&self.first(&image)], &[]),
        }
    }
}

const COPY: Elementwise = Elementwise::Unary(Unary::Cast);

/// The type of the weights' gradients: that of the weights.
fn weight_dtype(weights: [&Option<Tensor>; 2], dtype: DType) -> Result<DType> {
    weights.into_iter().flatten().next().map_or(Ok(dtype), Tensor::dtype)
}

fn group_norm(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    epsilon: f64,
    groups: i32,
    data_layout: String,
    y: Output,
    mean: Option<Output>,
    variance: Option<Output>,
) -> Result<()> {
    let channels = Channels::of(&data_layout);
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = channels.input(&c, &x)?;
    let groups = Groups::new(&x, groups.max(0) as usize)?;
    let [normalised, mean_value, variance_value] = groups.normalised(&c, &x, epsilon)?;
    let value = groups.weighed(&c, &normalised, [scale.as_ref(), bias.as_ref()])?;
    c.store_as(&y, dtype, &c.shaped(&value, &x.shape)?, |y| channels.first(y))?;
    for (output, value) in [(mean, mean_value), (variance, variance_value)] {
        if let Some(output) = output {
            c.store_value(&output, x.dtype, &value)?;
        }
    }
    Ok(())
}

fn group_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    _y: Tensor,
    mean: Tensor,
    variance: Tensor,
    upstream: Tensor,
    epsilon: f64,
    groups: i32,
    data_layout: String,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let channels = Channels::of(&data_layout);
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (channels.input(&c, &x)?, channels.input(&c, &upstream)?);
    let groups = Groups::new(&x, groups.max(0) as usize)?;
    let rows = [groups.rows()[0], 1];
    let mean = c.shaped(&c.cast(&mean.view()?, x.dtype)?, &rows)?;
    let variance = c.shaped(&c.cast(&variance.view()?, x.dtype)?, &rows)?;
    let inverse = inverse_deviation(&c, &variance, epsilon as f32)?;
    let dtypes = [dtype, weight_dtype([&scale, &bias], dtype)?];
    groups.gradient(&c, &x, &upstream, [mean, inverse], scale.as_ref(), [dx, dscale, dbias], dtypes, channels)
}

fn instance_norm(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    epsilon: f32,
    y: Output,
    saved_mean: Option<Output>,
    saved_inverse: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    if gave_memory_alone(context, &y, dtype)? {
        for output in [saved_mean, saved_inverse].iter().flatten() {
            c.fill(&c.place(output, x.dtype)?, 0.0)?;
        }
        return Ok(());
    }
    let groups = Groups::new(&x, x.shape[1])?;
    let [normalised, mean, variance] = groups.normalised(&c, &x, epsilon.into())?;
    let inverse = inverse_deviation(&c, &variance, epsilon)?;
    let value = groups.weighed(&c, &normalised, [scale.as_ref(), bias.as_ref()])?;
    c.store_value(&y, dtype, &value)?;
    // Paddle saves the inverse deviation as the variance.
    for (output, value) in [(saved_mean, &mean), (saved_inverse, &inverse)] {
        if let Some(output) = output {
            c.store_value(&output, x.dtype, value)?;
        }
    }
    Ok(())
}

fn instance_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    bias: Option<Tensor>,
    saved_mean: Tensor,
    saved_inverse: Tensor,
    upstream: Tensor,
    _epsilon: f32,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let dtypes = [dtype, weight_dtype([&scale, &bias], dtype)?];
    if x.is_empty() {
        for (output, dtype) in [(dx, dtypes[0]), (dscale, dtypes[1]), (dbias, dtypes[1])] {
            output.map_or(Ok(()), |output| c.fill(&c.place(&output, dtype)?, 0.0))?;
        }
        return Ok(());
    }
    // Each image's channels are what a batch's are to batch norm, whose gradients of the weights are then of one image.
    let groups = Groups::new(&x, x.shape[1])?;
    let [rows, columns] = groups.rows();
    let whole = [1, rows, columns];
    let mut inputs = vec![c.shaped(&x, &whole)?, c.shaped(&upstream, &whole)?];
    for statistic in [&saved_mean, &saved_inverse] {
        inputs.push(c.shaped(&c.cast(&statistic.view()?, x.dtype)?, &[rows])?);
    }
    if let Some(scale) = groups.weight(&c, scale.as_ref(), x.dtype)? {
        let repeated = c.apply(&Expand { dims: vec![groups.batch as i64, groups.channels as i64, 1] }, &[scale])?;
        inputs.push(c.shaped(&repeated, &[rows])?);
    }
    let operator = BatchNormGradient { axis: 1, scale: scale.is_some() };
    let value = match &dx {
        Some(dx) if dtypes[0] == x.dtype => c.shaped(&c.place(dx, x.dtype)?, &whole)?,
        _ => c.temporary(x.dtype, &whole)?,
    };
    let outputs = [value, c.temporary(x.dtype, &[rows])?, c.temporary(x.dtype, &[rows])?];
    c.launch(&operator, &inputs, &outputs)?;
    let [value, of_scale, of_bias] = outputs;
    for (output, of_images) in [(dscale, of_scale), (dbias, of_bias)] {
        let Some(output) = output else { continue };
        let of_images = c.shaped(&of_images, &[groups.batch, groups.channels])?;
        c.store_value(&output, dtypes[1], &c.reduce(Reduction::Sum, &of_images, &[0])?)?;
    }
    match dx.filter(|_| dtypes[0] != x.dtype) {
        Some(dx) => c.store_value(&dx, dtypes[0], &c.shaped(&value, &x.shape)?),
        None => Ok(()),
    }
}
