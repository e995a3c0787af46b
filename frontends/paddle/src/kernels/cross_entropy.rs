//! Losses of class labels: cross entropy with softmax, and negative log-likelihood.

use super::compose::Compose;
use crate::abi::exception::Code;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::operators::softmax::Softmax;
use openmps_tile::dtype::FLOATS;
use openmps_tile::{DType, Number};

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// What looks labels up along an axis.
fn class(axis: usize) -> TakeAlongAxis {
    TakeAlongAxis { axis: axis as i64, negative: Negative::Refused }
}

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cross_entropy_with_softmax", FLOATS, cross_entropy_with_softmax);
    table.add("cross_entropy_with_softmax_grad", FLOATS, cross_entropy_with_softmax_grad);
    table.add("c_softmax_with_cross_entropy_grad", FLOATS, gradient_of_a_part);
    table.add("nll_loss", FLOATS, nll_loss);
    table.add("nll_loss_grad", FLOATS, nll_loss_grad);
}

/// Class indices as the losses read them: valid ones, and which of them count.
struct Labels {
    /// Indices along the class axis; 0 where the label is ignored.
    index: View,
    /// Whether the label counts.
    is_counted: View,
    /// 1 where the label counts, 0 where it is ignored.
    counts: View,
}

impl Labels {
    /// Labels of shape x with 1 at `axis`.
    fn new(c: &Compose, label: &Tensor, x: &View, axis: usize, ignored: i64, dtype: DType) -> Result<Labels> {
        let mut dims = x.shape.clone();
        dims[axis] = 1;
        let mut label = label.view()?;
        if label.dtype.is_float() || label.dtype == DType::Bool {
            let got = format!("labels of {}", label.dtype);
            let expected = "integers, or soft_label=True".to_owned();
            return Err(Error::Attribute { attribute: "label", got, expected });
        }
        // What looks classes up reads integers of 32 and 64 bits.
        if label.dtype.size() < DType::I32.size() {
            label = c.cast(&label, DType::I32)?;
        }
        let label = c.shaped(&label, &dims)?;
        let ignored = [Number::Integer(0), Number::Integer(ignored)];
        let ignored = c.map_numbers(Elementwise::Unary(Unary::Scale), &[&label], &ignored)?;
        let is_counted = c.map(Elementwise::Binary(Binary::NotEqual), &[&label, &ignored], &[])?;
        let index = c.map(MULTIPLY, &[&label, &c.cast(&is_counted, label.dtype)?], &[])?;
        Ok(Labels { index, counts: c.cast(&is_counted, dtype)?, is_counted })
    }

    /// A value of each label, 0 where it is ignored: there it may be infinite, or no number.
    fn counted(&self, c: &Compose, value: &View) -> Result<View> {
        c.map(Elementwise::Gradient(Gradient::Chosen), &[&self.is_counted, value], &[])
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
        let labels = Labels::new(&c, &label, &x, axis, ignore_index.into(), x.dtype)?;
        let picked = c.apply(&class(axis), &[logarithm.clone(), labels.index.clone()]);
        labels.counted(&c, &picked.map_err(|error| error.with_index_as("label", Code::OutOfRange))?)?
    };
    c.store(&loss, dtype, Elementwise::Unary(Unary::Negate), &[&value], &[])?;
    if use_softmax {
        return c.store(&softmax, dtype, Elementwise::Unary(Unary::Exp), &[&logarithm], &[]);
    }
    c.store_value(&softmax, dtype, &x)
}

/// `(softmax - label) dloss`; without softmax `-label / probability dloss`.
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
    let labels = Labels::new(&c, &label, &softmax, axis, ignore_index.into(), softmax.dtype)?;
    let (base, subtracted) = if use_softmax {
        let counted = labels.counted(&c, &upstream)?;
        (c.multiply(&softmax, &counted)?, counted)
    } else {
        let picked = c.apply(&class(axis), &[softmax.clone(), labels.index.clone()]);
        let picked = picked.map_err(|error| error.with_index_as("label", Code::OutOfRange))?;
        let share = c.map(DIVIDE, &[&upstream, &picked], &[])?;
        (c.constant(softmax.dtype, &softmax.shape, 0.0)?, labels.counted(&c, &share)?)
    };
    let put = PutAlongAxis { axis: axis as i64, reduce: Reduce::Add, include_self: true };
    let value = c.apply(&put, &[base, labels.index, c.scale(&subtracted, -1.0, 0.0)?])?;
    c.store_value(&dx, dtype, &value)
}

/// A label that is no class, as nll_loss tells it.
fn label_value(error: Error) -> Error {
    error.with_index_as("label", Code::InvalidArgument)
}

/// What a mean is divided by: the weights, or 1 where no label counts.
fn divisor(c: &Compose, total: &View) -> Result<View> {
    let none = c.map(Elementwise::Binary(Binary::Equal), &[total, &c.scale(total, 0.0, 0.0)?], &[])?;
    c.map(Elementwise::Binary(Binary::Add), &[total, &c.cast(&none, total.dtype)?], &[])
}

/// The weight of each label: its class's, and 0 where the label is ignored.
fn label_weights(c: &Compose, weight: Option<&Tensor>, labels: &Labels) -> Result<View> {
    let Some(weight) = weight else { return Ok(labels.counts.clone()) };
    let weight = c.cast(&weight.view()?, labels.counts.dtype)?;
    let flat = c.shaped(&labels.index, &[labels.index.len()])?;
    let picked = c.apply(&class(0), &[weight, flat]).map_err(label_value)?;
    c.multiply(&c.shaped(&picked, &labels.counts.shape)?, &labels.counts)
}

/// The gradient of one rank's part of the classes, of which each rank has as many: `(softmax - 1 where the label is) * upstream`, and 0
/// where the label is ignored. What Paddle does itself on other devices asks for the `one_hot` of labels that other ranks have.
fn gradient_of_a_part(
    context: &Context,
    softmax: Tensor,
    label: Tensor,
    upstream: Tensor,
    ignored: i64,
    rank: i32,
    _ranks: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), softmax.dtype()?);
    let softmax = c.input(&softmax)?;
    let axis = softmax.rank() - 1;
    let classes = softmax.shape[axis];
    let mut dims = softmax.shape.clone();
    dims[axis] = 1;
    let label = c.cast(&c.shaped(&label.view()?, &dims)?, DType::I64)?;
    let start = Number::Integer(i64::from(rank) * classes as i64);
    let own = Arange { start, step: Number::Integer(1), len: classes, dtype: DType::I64 };
    let is_label = c.map(Elementwise::Binary(Binary::Equal), &[&label, &c.apply(&own, &[])?], &[])?;
    let slope = c.subtract(&softmax, &c.cast(&is_label, softmax.dtype)?)?;
    let ignored =
        c.map_numbers(Elementwise::Unary(Unary::Scale), &[&label], &[Number::Integer(0), Number::Integer(ignored)])?;
    let counts = c.map(Elementwise::Binary(Binary::NotEqual), &[&label, &ignored], &[])?;
    let upstream = c.shaped(&c.input(&upstream)?, &dims)?;
    let upstream = c.map(Elementwise::Gradient(Gradient::Chosen), &[&counts, &upstream], &[])?;
    c.store(&dx, dtype, MULTIPLY, &[&slope, &upstream], &[])
}

/// `-weight x` at the label, where x holds logarithms of probabilities along axis 1.
fn nll_loss(
    context: &Context,
    x: Tensor,
    label: Tensor,
    weight: Option<Tensor>,
    ignore_index: i64,
    reduction: String,
    out: Output,
    total_weight: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let labels = Labels::new(&c, &label, &x, 1, ignore_index, x.dtype)?;
    let weights = label_weights(&c, weight.as_ref(), &labels)?;
    let picked = c.apply(&class(1), &[x.clone(), labels.index.clone()]).map_err(label_value)?;
    let losses = c.scale(&labels.counted(&c, &c.multiply(&picked, &weights)?)?, -1.0, 0.0)?;
    if reduction == "none" {
        // There is no mean that a total divides.
        let total = context.allocate(&total_weight, dtype)?;
        c.fill(&total, 0.0)?;
        return c.store_value(&out, dtype, &losses);
    }
    let total = c.reduce(Reduction::Sum, &weights, &[])?;
    c.store_value(&total_weight, dtype, &total)?;
    match &*reduction {
        "sum" => c.store_value(&out, dtype, &c.reduce(Reduction::Sum, &losses, &[])?),
        _ => c.store(&out, dtype, DIVIDE, &[&c.reduce(Reduction::Sum, &losses, &[])?, &divisor(&c, &total)?], &[]),
    }
}

fn nll_loss_grad(
    context: &Context,
    x: Tensor,
    label: Tensor,
    weight: Option<Tensor>,
    total_weight: Tensor,
    upstream: Tensor,
    ignore_index: i64,
    reduction: String,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let labels = Labels::new(&c, &label, &x, 1, ignore_index, x.dtype)?;
    let weights = label_weights(&c, weight.as_ref(), &labels)?;
    let dims = if upstream.len() == weights.len() { weights.shape.to_vec() } else { vec![1; x.rank()] };
    let mut share = c.multiply(&weights, &c.shaped(&upstream, &dims)?)?;
    if reduction == "mean" {
        let total = divisor(&c, &c.shaped(&c.input(&total_weight)?, &vec![1; x.rank()])?)?;
        share = c.map(DIVIDE, &[&share, &total], &[])?;
    }
    let is_half = x.dtype != dtype;
    let to = if is_half { c.temporary(x.dtype, &x.shape)? } else { c.place(&dx, dtype)? };
    c.fill(&to, 0.0)?;
    let inputs = [to.clone(), labels.index, c.scale(&share, -1.0, 0.0)?];
    c.launch(&PutAlongAxis::sum(1), &inputs, std::slice::from_ref(&to))?;
    if is_half { c.store_value(&dx, dtype, &to) } else { Ok(()) }
}
