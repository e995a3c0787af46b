//! Losses of probabilities: cross entropy with margins between angles, and the cross entropy of older programs, which takes probabilities.

use super::compose::Compose;
use super::values::{SINGLE, expect_len, integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::softmax::Softmax;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);
const TAKE: TakeAlongAxis = TakeAlongAxis { axis: 1, negative: Negative::Refused };
const PUT: PutAlongAxis = PutAlongAxis { axis: 1, reduce: Reduce::Assign, include_self: true };

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("margin_cross_entropy", FLOATS, margin_cross_entropy);
    table.add("margin_cross_entropy_grad", FLOATS, margin_cross_entropy_grad);
    table.add("cross_entropy", SINGLE, cross_entropy);
    table.add("cross_entropy_grad", SINGLE, cross_entropy_grad);
    table.add("cross_entropy2", SINGLE, cross_entropy2);
    table.add("cross_entropy_grad2", SINGLE, cross_entropy2_grad);
}

/// Labels of rows of classes: an index for each row, and whether it counts.
struct Labels {
    index: View,
    counts: View,
}

impl Labels {
    /// `ignored` is a label that does not count; every other must be a class.
    fn new(
        context: &Context,
        c: &Compose,
        label: &Tensor,
        rows: usize,
        classes: usize,
        ignored: Option<i64>,
        dtype: DType,
    ) -> Result<Labels> {
        expect_len("label", label, rows)?;
        let labels = integers(context, label)?;
        let counts = |label: &i64| Some(*label) != ignored;
        if let Some(label) = labels.iter().find(|label| counts(label) && !(0..classes as i64).contains(*label)) {
            return Err(refuse("label", label, &format!("classes 0 to {}", classes.saturating_sub(1))));
        }
        let column = |elements: Vec<u8>, dtype: DType| c.upload(dtype, &[rows, 1], &elements);
        let index = labels.iter().flat_map(|label| if counts(label) { *label } else { 0 }.to_ne_bytes()).collect();
        let counted = labels.iter().flat_map(|label| f64::from(u8::from(counts(label))).to_ne_bytes()).collect();
        Ok(Labels { index: column(index, DType::I64)?, counts: c.cast(&column(counted, DType::F64)?, dtype)? })
    }
}

/// All but the last dimension as rows.
fn rows(c: &Compose, x: &View) -> Result<View> {
    let classes = x.shape.last().copied().unwrap_or(1);
    c.shaped(x, &[x.len() / classes.max(1), classes])
}

/// The angles' margins: of a cosine at the label `cos(first * angle + second) - third`, and then all times a scale.
struct Margins {
    first: f64,
    second: f64,
    third: f64,
    scale: f64,
}

impl Margins {
    fn cosine(&self, c: &Compose, angle: &View) -> Result<View> {
        c.map(Elementwise::Unary(Unary::Cos), &[&c.scale(angle, self.first, self.second)?], &[])
    }

    /// The scaled cosines, with a margin at each label.
    fn logits(&self, c: &Compose, x: &View, labels: &Labels) -> Result<View> {
        let own = c.apply(&TAKE, &[x.clone(), labels.index.clone()])?;
        let own = self.cosine(c, &c.map(Elementwise::Unary(Unary::Acos), &[&own], &[])?)?;
        let own = c.scale(&own, 1.0, -self.third)?;
        let with = c.apply(&PUT, &[x.clone(), labels.index.clone(), own])?;
        c.scale(&with, self.scale, 0.0)
    }

    /// How much the cosine at a label moves its logit.
    fn slope(&self, c: &Compose, own: &View) -> Result<View> {
        if self.first == 1.0 && self.second == 0.0 {
            return c.scale(own, 0.0, 1.0);
        }
        let angle = c.map(Elementwise::Unary(Unary::Acos), &[own], &[])?;
        let sine = c.map(Elementwise::Unary(Unary::Sin), &[&c.scale(&angle, self.first, self.second)?], &[])?;
        let height = c.map(Elementwise::Unary(Unary::Sqrt), &[&c.scale(&c.multiply(own, own)?, -1.0, 1.0)?], &[])?;
        c.map(DIVIDE, &[&c.scale(&sine, self.first, 0.0)?, &height], &[])
    }
}

fn alone(ranks: i32) -> Result<()> {
    if ranks <= 1 { Ok(()) } else { Err(refuse("nranks", ranks, "1: the classes are not shared among devices")) }
}

fn margin_cross_entropy(
    context: &Context,
    logits: Tensor,
    label: Tensor,
    _return_softmax: bool,
    _ring: i32,
    _rank: i32,
    ranks: i32,
    first: f32,
    second: f32,
    third: f32,
    scale: f32,
    softmax: Output,
    loss: Output,
) -> Result<()> {
    alone(ranks)?;
    let (c, dtype) = (Compose::new(context), logits.dtype()?);
    let x = rows(&c, &c.input(&logits)?)?;
    let labels = Labels::new(context, &c, &label, x.shape[0], x.shape[1], None, x.dtype)?;
    let margins = Margins { first: first.into(), second: second.into(), third: third.into(), scale: scale.into() };
    let scaled = margins.logits(&c, &x, &labels)?;
    let logarithm = c.apply(&Softmax { axis: 1, logarithm: true }, &[scaled])?;
    let own = c.apply(&TAKE, &[logarithm.clone(), labels.index])?;
    c.store_value(&softmax, dtype, &c.map(Elementwise::Unary(Unary::Exp), &[&logarithm], &[])?)?;
    c.store_value(&loss, dtype, &c.scale(&own, -1.0, 0.0)?)
}

fn margin_cross_entropy_grad(
    context: &Context,
    logits: Tensor,
    label: Tensor,
    softmax: Tensor,
    upstream: Tensor,
    _return_softmax: bool,
    _ring: i32,
    _rank: i32,
    ranks: i32,
    first: f32,
    second: f32,
    third: f32,
    scale: f32,
    dlogits: Output,
) -> Result<()> {
    alone(ranks)?;
    let (c, dtype) = (Compose::new(context), logits.dtype()?);
    let (x, softmax) = (rows(&c, &c.input(&logits)?)?, rows(&c, &c.input(&softmax)?)?);
    let labels = Labels::new(context, &c, &label, x.shape[0], x.shape[1], None, x.dtype)?;
    let margins = Margins { first: first.into(), second: second.into(), third: third.into(), scale: scale.into() };
    let upstream = c.shaped(&c.scale(&c.input(&upstream)?, margins.scale, 0.0)?, &[x.shape[0], 1])?;
    let others = c.multiply(&softmax, &upstream)?;
    let own = c.scale(&c.apply(&TAKE, &[softmax, labels.index.clone()])?, 1.0, -1.0)?;
    let slope = margins.slope(&c, &c.apply(&TAKE, &[x, labels.index.clone()])?)?;
    let own = c.multiply(&c.multiply(&own, &slope)?, &upstream)?;
    c.store_value(&dlogits, dtype, &c.apply(&PUT, &[others, labels.index, own])?)
}

/// The negative logarithm of a probability, at most 1e20: Paddle's stand-in for infinity.
fn surprise(c: &Compose, probability: &View) -> Result<View> {
    let logarithm = c.map(Elementwise::Unary(Unary::Log), &[probability], &[])?;
    let bounded = c.map(Elementwise::Unary(Unary::Clip), &[&logarithm], &[-1e20, 1e20])?;
    c.scale(&bounded, -1.0, 0.0)
}

fn cross_entropy(context: &Context, x: Tensor, label: Tensor, soft: bool, ignored: i32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = rows(&c, &x.view()?)?;
    if soft {
        let products = c.multiply(&surprise(&c, &x)?, &rows(&c, &label.view()?)?)?;
        return c.store_value(&out, dtype, &c.reduce(Reduction::Sum, &products, &[1])?);
    }
    let labels = Labels::new(context, &c, &label, x.shape[0], x.shape[1], Some(ignored.into()), dtype)?;
    let own = surprise(&c, &c.apply(&TAKE, &[x, labels.index])?)?;
    c.store_value(&out, dtype, &c.multiply(&own, &labels.counts)?)
}

/// Zeros, and at each label the negative upstream over its probability.
fn at_labels(c: &Compose, labels: Labels, own: &View, upstream: &View, dims: [usize; 2]) -> Result<View> {
    let upstream = c.shaped(upstream, &[dims[0], 1])?;
    let zero = c.constant(own.dtype, &[1], 0.0)?;
    let quotient = c.map(DIVIDE, &[&upstream, own], &[])?;
    let counts = c.map(Elementwise::Binary(Binary::NotEqual), &[&labels.counts, &zero], &[])?;
    let share = c.map(Elementwise::Binary(Binary::Where), &[&counts, &c.scale(&quotient, -1.0, 0.0)?, &zero], &[])?;
    c.apply(&PUT, &[c.constant(own.dtype, &dims, 0.0)?, labels.index, share])
}

fn cross_entropy_grad(
    context: &Context,
    x: Tensor,
    label: Tensor,
    upstream: Tensor,
    soft: bool,
    ignored: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (rows(&c, &x.view()?)?, upstream.view()?);
    if soft {
        let share = c.multiply(&rows(&c, &label.view()?)?, &c.shaped(&upstream, &[x.shape[0], 1])?)?;
        let quotient = c.map(DIVIDE, &[&c.scale(&share, -1.0, 0.0)?, &x], &[])?;
        return c.store_value(&dx, dtype, &quotient);
    }
    let dims = [x.shape[0], x.shape[1]];
    let labels = Labels::new(context, &c, &label, dims[0], dims[1], Some(ignored.into()), dtype)?;
    let own = c.apply(&TAKE, &[x, labels.index.clone()])?;
    c.store_value(&dx, dtype, &at_labels(&c, labels, &own, &upstream, dims)?)
}

fn cross_entropy2(
    context: &Context,
    x: Tensor,
    label: Tensor,
    ignored: i32,
    out: Output,
    _shape: Option<Output>,
    own_out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = rows(&c, &x.view()?)?;
    let labels = Labels::new(context, &c, &label, x.shape[0], x.shape[1], Some(ignored.into()), dtype)?;
    let own = c.apply(&TAKE, &[x, labels.index])?;
    c.store_value(&out, dtype, &c.multiply(&surprise(&c, &own)?, &labels.counts)?)?;
    c.store_value(&own_out, dtype, &c.multiply(&own, &labels.counts)?)
}

fn cross_entropy2_grad(
    context: &Context,
    _shape: Tensor,
    label: Tensor,
    own: Tensor,
    upstream: Tensor,
    ignored: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype, shape) = (Compose::new(context), upstream.dtype()?, dx.shape());
    let classes = shape.last().copied().unwrap_or(1);
    let dims = [shape.iter().product::<usize>() / classes.max(1), classes];
    let labels = Labels::new(context, &c, &label, dims[0], dims[1], Some(ignored.into()), dtype)?;
    let own = c.shaped(&own.view()?, &[dims[0], 1])?;
    c.store_value(&dx, dtype, &at_labels(&c, labels, &own, &upstream.view()?, dims)?)
}
