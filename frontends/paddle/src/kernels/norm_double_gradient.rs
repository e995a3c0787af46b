//! The gradients of the gradients of norms over rows: of each image's channels, and of each channel.

use super::compose::Compose;
use super::normalisation::is_channels_last;
use super::values::SINGLE;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::transpose::Transpose;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("instance_norm_double_grad", SINGLE, instance_norm_double_grad);
    table.add("batch_norm_double_grad", SINGLE, batch_norm_double_grad);
}

/// Rows that are normalized, a weight for each, and the gradients that come in: of the result, and of the gradients by input, weight
/// and bias.
struct Rows<'c> {
    c: &'c Compose<'c>,
    /// The distance from the mean over the deviation.
    normal: View,
    /// One over the deviation.
    inverse: View,
    weight: View,
    upstream: View,
    by_input: View,
    by_weight: View,
    by_bias: View,
    /// Whether mean and deviation follow from the rows, and are not given.
    own: bool,
}

impl Rows<'_> {
    fn mean(&self, x: &View, y: &View) -> Result<View> {
        self.c.reduce(Reduction::Mean, &self.c.multiply(x, y)?, &[1])
    }

    /// Less its mean and its part along the normalized row: what a norm's gradient leaves of a gradient.
    fn projected(&self, x: &View) -> Result<View> {
        if !self.own {
            return Ok(x.clone());
        }
        let c = self.c;
        let along = c.multiply(&self.normal, &self.mean(x, &self.normal)?)?;
        c.subtract(&c.subtract(x, &c.reduce(Reduction::Mean, x, &[1])?)?, &along)
    }

    /// By the upstream.
    fn of_upstream(&self) -> Result<View> {
        let c = self.c;
        let direct = c.multiply(&c.multiply(&self.projected(&self.by_input)?, &self.inverse)?, &self.weight)?;
        c.add(&c.add(&direct, &c.multiply(&self.normal, &self.by_weight)?)?, &self.by_bias)
    }

    /// By each row's weight.
    fn of_weight(&self) -> Result<View> {
        let products = self.c.multiply(&self.by_input, &self.projected(&self.upstream)?)?;
        self.c.multiply(&self.c.reduce(Reduction::Sum, &products, &[1])?, &self.inverse)
    }

    /// By the input: through the normalized rows, and through the deviation.
    fn of_input(&self) -> Result<View> {
        let (c, scale) = (self.c, self.c.multiply(&self.weight, &self.inverse)?);
        let by_weight = c.multiply(&self.upstream, &self.by_weight)?;
        if !self.own {
            return c.multiply(&by_weight, &self.inverse);
        }
        let crossed = c.add(
            &c.multiply(&self.by_input, &self.mean(&self.upstream, &self.normal)?)?,
            &c.multiply(&self.upstream, &self.mean(&self.by_input, &self.normal)?)?,
        )?;
        let through = c.subtract(&by_weight, &c.multiply(&crossed, &scale)?)?;
        let through = c.multiply(&self.projected(&through)?, &self.inverse)?;
        let length = self.mean(&self.by_input, &self.projected(&self.upstream)?)?;
        let along = c.multiply(&self.normal, &c.multiply(&length, &c.multiply(&scale, &self.inverse)?)?)?;
        c.subtract(&through, &along)
    }
}

/// Rows and their distances from their means, over their deviations; and one over these.
fn normalized(c: &Compose, x: &View, epsilon: f64) -> Result<[View; 2]> {
    let distance = c.subtract(x, &c.reduce(Reduction::Mean, x, &[1])?)?;
    let variance = c.reduce(Reduction::Mean, &c.multiply(&distance, &distance)?, &[1])?;
    scaled(c, &distance, &variance, epsilon)
}

fn scaled(c: &Compose, distance: &View, variance: &View, epsilon: f64) -> Result<[View; 2]> {
    let inverse = c.map(Elementwise::Unary(Unary::Rsqrt), &[&c.scale(variance, 1.0, epsilon)?], &[])?;
    Ok([c.map(Elementwise::Binary(Binary::Multiply), &[distance, &inverse], &[])?, inverse])
}

/// A number for each channel as a column of rows: as it is, or again for each image.
fn column(
    c: &Compose,
    given: Option<&Tensor>,
    missing: f64,
    like: &View,
    rows: usize,
    channels: usize,
) -> Result<View> {
    let Some(given) = given else { return c.constant(like.dtype, &[rows, 1], missing) };
    let own = c.shaped(&given.view()?, &[1, channels, 1])?;
    let zeros = c.constant(like.dtype, &[rows / channels.max(1), channels, 1], 0.0)?;
    c.shaped(&c.add(&zeros, &own)?, &[rows, 1])
}

fn instance_norm_double_grad(
    context: &Context,
    x: Tensor,
    weight: Option<Tensor>,
    _mean: Tensor,
    _deviation: Tensor,
    upstream: Tensor,
    by_input: Option<Tensor>,
    by_weight: Option<Tensor>,
    by_bias: Option<Tensor>,
    epsilon: f32,
    dx: Option<Output>,
    dweight: Option<Output>,
    dupstream: Option<Output>,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (dtype, channels) = (x.dtype, x.shape[1]);
    let rows = x.shape[0] * channels;
    let dims = [rows, x.len() / rows.max(1)];
    let flat = |x: &View| c.shaped(x, &dims);
    let [normal, inverse] = normalized(&c, &flat(&x)?, epsilon.into())?;
    let column = |given: &Option<Tensor>, missing: f64| column(&c, given.as_ref(), missing, &normal, rows, channels);
    let of = Rows {
        weight: column(&weight, 1.0)?,
        by_weight: column(&by_weight, 0.0)?,
        by_bias: column(&by_bias, 0.0)?,
        upstream: flat(&upstream.view()?)?,
        by_input: flat(&c.or_zeros(by_input.as_ref(), &x)?)?,
        c: &c,
        normal: normal.clone(),
        inverse,
        own: true,
    };
    if let Some(dupstream) = dupstream {
        c.store_value(&dupstream, dtype, &of.of_upstream()?)?;
    }
    if let Some(dweight) = dweight {
        let sums = c.shaped(&of.of_weight()?, &[rows / channels.max(1), channels])?;
        c.store_value(&dweight, dtype, &c.reduce(Reduction::Sum, &sums, &[0])?)?;
    }
    match dx {
        Some(dx) => c.store_value(&dx, dtype, &of.of_input()?),
        None => Ok(()),
    }
}

fn batch_norm_double_grad(
    context: &Context,
    x: Tensor,
    weight: Option<Tensor>,
    mean: Option<Tensor>,
    variance: Option<Tensor>,
    _saved_mean: Tensor,
    _saved_deviation: Tensor,
    upstream: Tensor,
    by_input: Option<Tensor>,
    by_weight: Option<Tensor>,
    by_bias: Option<Tensor>,
    _momentum: f32,
    epsilon: f32,
    layout: String,
    is_test: bool,
    global: bool,
    _trainable: bool,
    dx: Option<Output>,
    dweight: Option<Output>,
    dupstream: Option<Output>,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (dtype, rank) = (x.dtype, x.rank() as i64);
    let channel = if is_channels_last(&layout) || rank < 3 { rank - 1 } else { 1 };
    // Channels first, and each of them a row.
    let axes: Vec<i64> = std::iter::once(channel).chain((0..rank).filter(|&axis| axis != channel)).collect();
    let order = Transpose { axes };
    let channels = x.shape[channel as usize];
    let dims = [channels, x.len() / channels.max(1)];
    let flat = |x: &View| c.shaped(&c.apply(&order, std::slice::from_ref(x))?, &dims);
    let column = |given: &Option<Tensor>, missing: f64| column(&c, given.as_ref(), missing, &x, channels, channels);
    let own = !(is_test || global);
    let values = flat(&x)?;
    let [normal, inverse] = if own {
        normalized(&c, &values, epsilon.into())?
    } else {
        scaled(&c, &c.subtract(&values, &column(&mean, 0.0)?)?, &column(&variance, 1.0)?, epsilon.into())?
    };
    let of = Rows {
        weight: column(&weight, 1.0)?,
        by_weight: column(&by_weight, 0.0)?,
        by_bias: column(&by_bias, 0.0)?,
        upstream: flat(&upstream.view()?)?,
        by_input: flat(&c.or_zeros(by_input.as_ref(), &x)?)?,
        c: &c,
        normal,
        inverse,
        own,
    };
    let store = |out: &Output, value: &View| -> Result<()> {
        let first: Vec<usize> = order.axes.iter().map(|&axis| x.shape[axis as usize]).collect();
        let value = c.apply(&order.inverse()?, &[c.shaped(value, &first)?])?;
        c.store_value(out, dtype, &value)
    };
    if let Some(dupstream) = dupstream {
        store(&dupstream, &of.of_upstream()?)?;
    }
    if let Some(dweight) = dweight {
        c.store_value(&dweight, dtype, &of.of_weight()?)?;
    }
    match dx {
        Some(dx) => store(&dx, &of.of_input()?),
        None => Ok(()),
    }
}
