//! Norms of order p along an axis or of all elements, with gradients.

use super::compose::Compose;
use super::reduction_gradient::{axes, kept};
use super::values::floats;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("p_norm", FLOATS, p_norm);
    table.add("p_norm_grad", FLOATS, p_norm_grad);
    table.add("clip_by_norm", FLOATS, clip_by_norm);
    table.add("dgc_clip_by_norm", &[DType::F32], dgc_clip_by_norm);
    table.add("norm", FLOATS, norm);
    table.add("norm_grad", FLOATS, norm_grad);
}

/// `x / sqrt(sum(x^2) + epsilon)` along an axis, and that root.
fn norm(
    context: &Context,
    x: Tensor,
    axis: i32,
    epsilon: f32,
    _is_test: bool,
    out: Output,
    norm_out: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let squares = c.scale(&c.reduce(Reduction::SumOfSquares, &x, &[axis.into()])?, 1.0, epsilon.into())?;
    let length = c.map(Elementwise::Unary(Unary::Sqrt), &[&squares], &[])?;
    if let Some(norm_out) = &norm_out {
        c.store_value(norm_out, dtype, &length)?;
    }
    c.store(&out, dtype, Elementwise::Binary(Binary::Divide), &[&x, &length], &[])
}

/// `(dy - y sum(dy y)) / norm`
fn norm_grad(
    context: &Context,
    x: Tensor,
    length: Tensor,
    upstream: Tensor,
    axis: i32,
    _epsilon: f32,
    _is_test: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, length, upstream) = (c.input(&x)?, c.input(&length)?, c.input(&upstream)?);
    let along = axes(x.rank(), &[axis.into()], false);
    let length = kept(&c, &length, &x.shape, &along)?;
    let y = c.map(Elementwise::Binary(Binary::Divide), &[&x, &length], &[])?;
    let share = c.reduce(Reduction::Sum, &c.multiply(&upstream, &y)?, &[axis.into()])?;
    let rest = c.subtract(&upstream, &c.multiply(&y, &share)?)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Divide), &[&rest, &length], &[])
}

/// The tensor made shorter where its norm is above the bound.
/// From a step on; before it the tensor stays as it is.
fn dgc_clip_by_norm(context: &Context, x: Tensor, step: Tensor, bound: f32, begin: f32, out: Output) -> Result<()> {
    let step = floats(context, &step)?.first().copied().unwrap_or(0.0);
    if begin < 0.0 || step.trunc() < f64::from(begin).trunc() {
        return Compose::new(context).store_value(&out, x.dtype()?, &x.view()?);
    }
    clip_by_norm(context, x, bound, out)
}

fn clip_by_norm(context: &Context, x: Tensor, bound: f32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let axes: Vec<i64> = (0..x.rank() as i64).collect();
    let norm = c.shaped(&c.reduce(Reduction::Norm, &x, &axes)?, &[1])?;
    let limit = c.temporary(x.dtype, &[1])?;
    // A bound and a norm of 0 have no quotient.
    c.fill(&limit, f64::from(bound).max(1e-30))?;
    let longest = c.map(Elementwise::Binary(Binary::Maximum), &[&norm, &limit], &[])?;
    let share = c.map(Elementwise::Binary(Binary::Divide), &[&limit, &longest], &[])?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Multiply), &[&x, &share], &[])
}

fn power(c: &Compose, x: &View, exponent: f64) -> Result<View> {
    c.map(Elementwise::Unary(Unary::PowScalar), &[x], &[exponent])
}

/// `sum(|x|^p)^(1/p)`; the largest or smallest magnitude for an infinite p, the number of elements that are not 0 for p = 0.
fn p_norm(
    context: &Context,
    x: Tensor,
    order: f32,
    axis: i32,
    _epsilon: f32,
    _keep: bool,
    all: bool,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let along: Vec<i64> = axes(x.rank(), &[axis.into()], all).iter().map(|&axis| axis as i64).collect();
    c.store_value(&out, dtype, &length(&c, &x, &along, order.into())?)
}

/// The norm along axes, which stay with size 1.
pub(super) fn length(c: &Compose, x: &View, along: &[i64], order: f64) -> Result<View> {
    if x.is_empty() {
        // Whatever the order, the norm of nothing is 0.
        c.reduce(Reduction::Sum, x, along)
    } else if order == 0.0 {
        let zero = c.scale(x, 0.0, 0.0)?;
        let counts = c.map(Elementwise::Binary(Binary::NotEqual), &[x, &zero], &[])?;
        c.reduce(Reduction::Sum, &c.cast(&counts, x.dtype)?, along)
    } else if order.is_infinite() {
        let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[x], &[])?;
        let reduction = if order > 0.0 { Reduction::Maximum } else { Reduction::Minimum };
        c.reduce(reduction, &magnitude, along)
    } else if order == 2.0 {
        c.reduce(Reduction::Norm, x, along)
    } else if order == 1.0 {
        c.reduce(Reduction::SumOfAbsolutes, x, along)
    } else {
        let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[x], &[])?;
        power(c, &c.reduce(Reduction::Sum, &power(c, &magnitude, order)?, along)?, 1.0 / order)
    }
}

/// `sign(x) (|x| / norm)^(p - 1) dy`; where the norm is 0 the gradient is 0.
fn p_norm_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    order: f32,
    axis: i32,
    epsilon: f32,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, out, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let along = axes(x.rank(), &[axis.into()], all);
    let (out, upstream) = (kept(&c, &out, &x.shape, &along)?, kept(&c, &upstream, &x.shape, &along)?);
    c.store_value(&dx, dtype, &slope(&c, [&x, &out, &upstream], order.into(), epsilon.into())?)
}

/// The gradient of [`length`], from the elements, their norm and its gradient.
pub(super) fn slope(c: &Compose, [x, length, upstream]: [&View; 3], order: f64, epsilon: f64) -> Result<View> {
    let sign = c.map(Elementwise::Unary(Unary::Sign), &[x], &[])?;
    let signed = c.multiply(&sign, upstream)?;
    if order == 0.0 {
        // A count has no slope, at infinity and NaN either.
        return c.constant(x.dtype, &x.shape, 0.0);
    }
    if order == 1.0 {
        return Ok(signed);
    }
    let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[x], &[])?;
    if order.is_infinite() {
        return c.map(Elementwise::Gradient(Gradient::WhereEqual), &[&magnitude, length, &signed], &[]);
    }
    let share = c.map(Elementwise::Binary(Binary::Divide), &[&magnitude, &c.scale(length, 1.0, epsilon)?], &[])?;
    let share = if order == 2.0 { share } else { power(c, &share, order - 1.0)? };
    c.multiply(&share, &signed)
}
