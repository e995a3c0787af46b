//! Losses of numbers and probabilities: binary cross entropy, Huber, divergence, and label smoothing.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::dtype::FLOATS;

const ADD: Elementwise = Elementwise::Binary(Binary::Add);
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sigmoid_cross_entropy_with_logits", FLOATS, sigmoid_cross_entropy);
    table.add("sigmoid_cross_entropy_with_logits_grad", FLOATS, sigmoid_cross_entropy_grad);
    table.add("bce_loss", FLOATS, bce_loss);
    table.add("bce_loss_grad", FLOATS, bce_loss_grad);
    table.add("huber_loss", FLOATS, huber_loss);
    table.add("huber_loss_grad", FLOATS, huber_loss_grad);
    table.add("kldiv_loss", FLOATS, kldiv_loss);
    table.add("kldiv_loss_grad", FLOATS, kldiv_loss_grad);
    table.add("label_smooth", FLOATS, label_smooth);
    table.add("label_smooth_grad", FLOATS, label_smooth_grad);
}

/// What the label's side of the loss counts: the label, or `weight - (1 - label)`, as Paddle weighs `log(1 + e^-x)` as a whole, of which the other side
/// has `1 - label`.
fn of_label(c: &Compose, label: &View, weight: Option<Tensor>) -> Result<View> {
    let Some(weight) = weight else { return Ok(label.clone()) };
    c.add(&c.scale(&c.input(&weight)?, 1.0, -1.0)?, label)
}

/// `(1 - label) x + weight log(1 + e^-x)`, where the weight is 1 if none is given.
fn sigmoid_cross_entropy(
    context: &Context,
    x: Tensor,
    label: Tensor,
    weight: Option<Tensor>,
    normalize: bool,
    ignore_index: i32,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, label) = (c.input(&x)?, c.input(&label)?);
    // softplus(-x) of the label's side + softplus(x) (1 - label), in terms of log(sigmoid), which does not overflow.
    let log_sigmoid = |x: &View| c.map(Elementwise::Activation(Activation::LogSigmoid), &[x], &[]);
    let yes = c.multiply(&of_label(&c, &label, weight)?, &log_sigmoid(&x)?)?;
    let no = c.multiply(&c.scale(&label, -1.0, 1.0)?, &log_sigmoid(&c.scale(&x, -1.0, 0.0)?)?)?;
    let loss = c.scale(&c.map(ADD, &[&yes, &no], &[])?, -1.0, 0.0)?;
    c.store_value(&out, dtype, &only_counted(&c, &loss, &label, ignore_index, normalize)?)
}

/// 0 where the label is the ignored one; over the number of the others when normalised.
fn only_counted(c: &Compose, value: &View, label: &View, ignored: i32, normalize: bool) -> Result<View> {
    let ignored = c.scale(label, 0.0, ignored.into())?;
    let counts = c.cast(&c.map(Elementwise::Binary(Binary::NotEqual), &[label, &ignored], &[])?, value.dtype)?;
    let value = c.multiply(value, &counts)?;
    if !normalize {
        return Ok(value);
    }
    let number = c.reduce(Reduction::Sum, &counts, &[])?;
    let number = c.map(Elementwise::Unary(Unary::Clip), &[&number], &[1e-5, 3.4e38])?;
    c.map(DIVIDE, &[&value, &number], &[])
}

fn sigmoid_cross_entropy_grad(
    context: &Context,
    x: Tensor,
    label: Tensor,
    weight: Option<Tensor>,
    upstream: Tensor,
    normalize: bool,
    ignore_index: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, label, upstream) = (c.input(&x)?, c.input(&label)?, c.input(&upstream)?);
    let sigmoid = |x: &View| c.map(Elementwise::Activation(Activation::Sigmoid), &[x], &[]);
    let yes = c.multiply(&of_label(&c, &label, weight)?, &sigmoid(&c.scale(&x, -1.0, 0.0)?)?)?;
    let no = c.multiply(&c.scale(&label, -1.0, 1.0)?, &sigmoid(&x)?)?;
    let slope = c.multiply(&c.subtract(&no, &yes)?, &upstream)?;
    c.store_value(&dx, dtype, &only_counted(&c, &slope, &label, ignore_index, normalize)?)
}

/// `-(label log(x) + (1 - label) log(1 - x))`; logarithms end at -100, as Paddle's do.
fn bce_loss(context: &Context, x: Tensor, label: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, label) = (c.input(&x)?, c.input(&label)?);
    let logarithm = |x: &View| {
        let logarithm = c.map(Elementwise::Unary(Unary::Log), &[x], &[])?;
        c.map(Elementwise::Unary(Unary::Clip), &[&logarithm], &[-100.0, 100.0])
    };
    let yes = c.multiply(&label, &logarithm(&x)?)?;
    let no = c.multiply(&c.scale(&label, -1.0, 1.0)?, &logarithm(&c.scale(&x, -1.0, 1.0)?)?)?;
    let sum = c.map(ADD, &[&yes, &no], &[])?;
    c.store(&out, dtype, Elementwise::Unary(Unary::Negate), &[&sum], &[])
}

/// `(x - label) / max(x (1 - x), 1e-12) dy`
fn bce_loss_grad(context: &Context, x: Tensor, label: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, label, upstream) = (c.input(&x)?, c.input(&label)?, c.input(&upstream)?);
    let spread = c.multiply(&x, &c.scale(&x, -1.0, 1.0)?)?;
    let spread = c.map(Elementwise::Unary(Unary::Clip), &[&spread], &[1e-12, 1.0])?;
    let weighed = c.multiply(&c.subtract(&x, &label)?, &upstream)?;
    c.store(&dx, dtype, DIVIDE, &[&weighed, &spread], &[])
}

/// `r^2 / 2` within delta, `delta (|r| - delta / 2)` beyond, for the residual `r = label - x`.
fn huber_loss(context: &Context, x: Tensor, label: Tensor, delta: f32, out: Output, residual: Output) -> Result<()> {
    let (c, dtype, delta) = (Compose::new(context), x.dtype()?, f64::from(delta));
    let distance = c.subtract(&c.input(&label)?, &c.input(&x)?)?;
    let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[&distance], &[])?;
    // min(|r|, delta) (|r| - min(|r|, delta) / 2) is both branches.
    let near = c.map(Elementwise::Unary(Unary::Clip), &[&magnitude], &[0.0, delta])?;
    let rest = c.subtract(&magnitude, &c.scale(&near, 0.5, 0.0)?)?;
    c.store(&out, dtype, MULTIPLY, &[&near, &rest], &[])?;
    c.store_value(&residual, dtype, &distance)
}

fn huber_loss_grad(
    context: &Context,
    residual: Tensor,
    upstream: Tensor,
    delta: f32,
    dx: Option<Output>,
    dlabel: Option<Output>,
) -> Result<()> {
    let (c, dtype, delta) = (Compose::new(context), residual.dtype()?, f64::from(delta));
    let (residual, upstream) = (c.input(&residual)?, c.input(&upstream)?);
    let slope = c.multiply(&c.map(Elementwise::Unary(Unary::Clip), &[&residual], &[-delta, delta])?, &upstream)?;
    if let Some(dx) = dx {
        c.store(&dx, dtype, Elementwise::Unary(Unary::Negate), &[&slope], &[])?;
    }
    if let Some(dlabel) = dlabel {
        c.store_value(&dlabel, dtype, &slope)?;
    }
    Ok(())
}

/// What a sum is divided by: the elements, the batch, or nothing.
fn divisor(reduction: &str, x: &View) -> f64 {
    match reduction {
        "mean" => x.len().max(1) as f64,
        "batchmean" => x.shape.first().copied().unwrap_or(1).max(1) as f64,
        _ => 1.0,
    }
}

/// `label (log(label) - x)`, 0 where the label is not positive; `e^label (label - x)` of labels that are logarithms.
fn kldiv_loss(
    context: &Context,
    x: Tensor,
    label: Tensor,
    reduction: String,
    log_target: bool,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, label) = (c.input(&x)?, c.input(&label)?);
    let losses = if log_target {
        let weight = c.map(Elementwise::Unary(Unary::Exp), &[&label], &[])?;
        c.multiply(&weight, &c.subtract(&label, &x)?)?
    } else {
        let logarithm = c.map(Elementwise::Unary(Unary::Log), &[&label], &[])?;
        let losses = c.multiply(&label, &c.subtract(&logarithm, &x)?)?;
        // Where the label is zero, or less, there is no loss: 0 log 0 is not a number.
        let zero = c.constant(label.dtype, &[1], 0.0)?;
        let counts = c.map(Elementwise::Binary(Binary::GreaterThan), &[&label, &zero], &[])?;
        c.map(Elementwise::Binary(Binary::Where), &[&counts, &losses, &zero], &[])?
    };
    if reduction == "none" {
        return c.store_value(&out, dtype, &losses);
    }
    let sum = c.reduce(Reduction::Sum, &losses, &[])?;
    c.store(&out, dtype, Elementwise::Unary(Unary::Scale), &[&sum], &[1.0 / divisor(&reduction, &x), 0.0])
}

fn kldiv_loss_grad(
    context: &Context,
    x: Tensor,
    label: Tensor,
    upstream: Tensor,
    reduction: String,
    log_target: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (label, upstream) = (c.input(&label)?, c.input(&upstream)?);
    let weight = if log_target {
        c.map(Elementwise::Unary(Unary::Exp), &[&label], &[])?
    } else {
        c.map(Elementwise::Activation(Activation::Relu), &[&label], &[])?
    };
    let dims = if upstream.len() == label.len() { label.shape.to_vec() } else { vec![1; label.rank()] };
    let product = c.multiply(&weight, &c.shaped(&upstream, &dims)?)?;
    c.store(&dx, dtype, Elementwise::Unary(Unary::Scale), &[&product], &[-1.0 / divisor(&reduction, &label), 0.0])
}

/// `(1 - epsilon) label + epsilon prior`; the prior is uniform over the last axis where none is given.
fn label_smooth(context: &Context, label: Tensor, prior: Option<Tensor>, epsilon: f32, out: Output) -> Result<()> {
    let (c, dtype, epsilon) = (Compose::new(context), label.dtype()?, f64::from(epsilon));
    let label = c.input(&label)?;
    let classes = label.shape.last().copied().unwrap_or(1).max(1);
    let Some(prior) = prior else {
        let numbers = [1.0 - epsilon, epsilon / classes as f64];
        return c.store(&out, dtype, Elementwise::Unary(Unary::Scale), &[&label], &numbers);
    };
    let prior = c.shaped(&c.input(&prior)?, &[classes])?;
    let (label, prior) = (c.scale(&label, 1.0 - epsilon, 0.0)?, c.scale(&prior, epsilon, 0.0)?);
    c.store(&out, dtype, ADD, &[&label, &prior], &[])
}

fn label_smooth_grad(context: &Context, upstream: Tensor, epsilon: f32, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    let upstream = c.input(&upstream)?;
    let numbers = [1.0 - f64::from(epsilon), 0.0];
    c.store(&dx, dtype, Elementwise::Unary(Unary::Scale), &[&upstream], &numbers)
}
