//! Losses: cross entropy with softmax, binary cross entropy, negative log-likelihood, Huber.

use super::compose::Compose;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::gather::TakeAlongAxis;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::softmax::Softmax;
use openmps_tile::dtype::FLOATS;
use openmps_tile::{DType, Number};

const ADD: Elementwise = Elementwise::Binary(Binary::Add);
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cross_entropy_with_softmax", FLOATS, cross_entropy_with_softmax);
    table.add("cross_entropy_with_softmax_grad", FLOATS, cross_entropy_with_softmax_grad);
    table.add("sigmoid_cross_entropy_with_logits", FLOATS, sigmoid_cross_entropy);
    table.add("sigmoid_cross_entropy_with_logits_grad", FLOATS, sigmoid_cross_entropy_grad);
    table.add("bce_loss", FLOATS, bce_loss);
    table.add("bce_loss_grad", FLOATS, bce_loss_grad);
    table.add("huber_loss", FLOATS, huber_loss);
    table.add("huber_loss_grad", FLOATS, huber_loss_grad);
}

/// Class indices as the losses read them: valid ones, and which of them count.
struct Labels {
    /// Indices along the class axis; 0 where the label is ignored.
    index: View,
    /// 1 where the label counts, 0 where it is ignored.
    counts: View,
}

impl Labels {
    /// Labels of shape x with 1 at `axis`.
    fn new(c: &Compose, label: &Tensor, x: &View, axis: usize, ignored: i32, dtype: DType) -> Result<Labels> {
        let mut dims = x.shape.clone();
        dims[axis] = 1;
        let label = label.view()?;
        if !matches!(label.dtype, DType::I32 | DType::I64) {
            let got = format!("labels of {}", label.dtype);
            let expected = "int32 or int64, or soft_label=True".to_owned();
            return Err(Error::Attribute { attribute: "label", got, expected });
        }
        let label = c.shaped(&label, &dims)?;
        let ignored = [Number::Integer(0), Number::Integer(ignored.into())];
        let ignored = c.map_numbers(Elementwise::Unary(Unary::Scale), &[&label], &ignored)?;
        let counts = c.map(Elementwise::Binary(Binary::NotEqual), &[&label, &ignored], &[])?;
        let index = c.map(Elementwise::Binary(Binary::Multiply), &[&label, &c.cast(&counts, label.dtype)?], &[])?;
        Ok(Labels { index, counts: c.cast(&counts, dtype)? })
    }
}

fn axis_of(axis: i32, rank: usize) -> Result<usize> {
    let place = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    usize::try_from(place).ok().filter(|&place| place < rank).ok_or_else(|| Error::Attribute {
        attribute: "axis",
        got: axis.to_string(),
        expected: format!("an axis of a tensor of {rank} dimensions"),
    })
}

/// `-log(softmax(x))` at the label, or its mean weighed by soft labels.
#[allow(clippy::too_many_arguments)]
fn cross_entropy_with_softmax(
    context: &Context,
    logits: Tensor,
    label: Tensor,
    soft_label: bool,
    use_softmax: bool,
    _numeric_stable_mode: bool,
    ignore_index: i32,
    axis: i32,
    softmax: Output,
    loss: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), logits.dtype()?);
    let x = c.input(&logits)?;
    let axis = axis_of(axis, x.rank())?;
    let logarithm = if use_softmax {
        let operator = Softmax { axis: axis as i64, logarithm: true };
        c.apply(&operator, std::slice::from_ref(&x))?
    } else {
        c.map(Elementwise::Unary(Unary::Log), &[&x], &[])?
    };
    let value = if soft_label {
        let products = c.multiply(&c.cast(&label.view()?, x.dtype)?, &logarithm)?;
        c.reduce(Reduction::Sum, &products, &[axis as i64])?
    } else {
        let labels = Labels::new(&c, &label, &x, axis, ignore_index, x.dtype)?;
        let picked = c.apply(&TakeAlongAxis { axis: axis as i64 }, &[logarithm.clone(), labels.index])?;
        c.multiply(&picked, &labels.counts)?
    };
    c.store(&loss, dtype, Elementwise::Unary(Unary::Negate), &[&value], &[])?;
    if use_softmax {
        return c.store(&softmax, dtype, Elementwise::Unary(Unary::Exp), &[&logarithm], &[]);
    }
    c.store_value(&softmax, dtype, &x)
}

/// `(softmax - label) dloss`; without softmax `-label / probability dloss`.
#[allow(clippy::too_many_arguments)]
fn cross_entropy_with_softmax_grad(
    context: &Context,
    label: Tensor,
    softmax: Tensor,
    upstream: Tensor,
    soft_label: bool,
    use_softmax: bool,
    _numeric_stable_mode: bool,
    ignore_index: i32,
    axis: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), softmax.dtype()?);
    let (softmax, upstream) = (c.input(&softmax)?, c.input(&upstream)?);
    let axis = axis_of(axis, softmax.rank())?;
    let mut dims = softmax.shape.clone();
    dims[axis] = 1;
    let upstream = c.shaped(&upstream, &dims)?;
    if soft_label {
        let label = c.cast(&label.view()?, softmax.dtype)?;
        let difference = if use_softmax {
            c.subtract(&softmax, &label)?
        } else {
            c.scale(&c.map(DIVIDE, &[&label, &softmax], &[])?, -1.0, 0.0)?
        };
        return c.store(&dx, dtype, MULTIPLY, &[&difference, &upstream], &[]);
    }
    let labels = Labels::new(&c, &label, &softmax, axis, ignore_index, softmax.dtype)?;
    let counted = c.multiply(&upstream, &labels.counts)?;
    let (base, mut subtracted) = if use_softmax {
        (c.multiply(&softmax, &counted)?, counted)
    } else {
        (c.map(Elementwise::Binary(Binary::Subtract), &[&softmax, &softmax], &[])?, counted)
    };
    if !use_softmax {
        let picked = c.apply(&TakeAlongAxis { axis: axis as i64 }, &[softmax.clone(), labels.index.clone()])?;
        subtracted = c.map(DIVIDE, &[&subtracted, &picked], &[])?;
    }
    let put = PutAlongAxis { axis: axis as i64, reduce: Reduce::Add, include_self: true };
    let value = c.apply(&put, &[base, labels.index, c.scale(&subtracted, -1.0, 0.0)?])?;
    c.store_value(&dx, dtype, &value)
}

/// `max(x, 0) - x label + log(1 + e^-|x|)`, with the label's part weighed by `pos_weight`.
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
    // softplus(-x) label weight + softplus(x) (1 - label), in terms of log(sigmoid), which does not overflow.
    let log_sigmoid = |x: &View| c.map(Elementwise::Activation(Activation::LogSigmoid), &[x], &[]);
    let mut yes = c.multiply(&label, &log_sigmoid(&x)?)?;
    if let Some(weight) = weight {
        yes = c.multiply(&yes, &c.input(&weight)?)?;
    }
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

#[allow(clippy::too_many_arguments)]
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
    let mut yes = c.multiply(&label, &sigmoid(&c.scale(&x, -1.0, 0.0)?)?)?;
    if let Some(weight) = weight {
        yes = c.multiply(&yes, &c.input(&weight)?)?;
    }
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
