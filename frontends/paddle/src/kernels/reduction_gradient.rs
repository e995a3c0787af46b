//! Gradients of reductions: the upstream gradient repeated along the axes that went, and weighed.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scan::{Kind, Scan};
use openmps_graph::view::Shape;
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;
use std::slice;

/// Integers as well: Paddle differentiates sums of them inside larger graphs.
const SUMMED: &[DType] = &[DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sum_grad", SUMMED, sum_grad);
    table.add("mean_grad", FLOATS, mean_grad);
    table.add("mean_all_grad", FLOATS, mean_all_grad);
    table.add("max_grad", FLOATS, extremum_grad);
    table.add("min_grad", FLOATS, extremum_grad);
    table.add("amax_grad", FLOATS, absolute_extremum_grad);
    table.add("amin_grad", FLOATS, absolute_extremum_grad);
    table.add("prod_grad", FLOATS, prod_grad);
    table.add("logsumexp", FLOATS, logsumexp);
    table.add("logsumexp_grad", FLOATS, logsumexp_grad);
    table.add("frobenius_norm_grad", FLOATS, frobenius_norm_grad);
    table.add("squared_l2_norm_grad", FLOATS, squared_l2_norm_grad);
}

/// The axes that a reduction of these attributes removes; no axes means all.
pub(super) fn axes(rank: usize, dims: &[i64], all: bool) -> Vec<usize> {
    if all || dims.is_empty() || rank == 0 {
        return (0..rank).collect();
    }
    dims.iter().map(|&axis| axis.rem_euclid(rank as i64) as usize).collect()
}

/// A reduced tensor with its lost axes back, as dimensions of size 1.
pub(super) fn kept(c: &Compose, reduced: &View, x: &Shape, axes: &[usize]) -> Result<View> {
    let dims: Vec<usize> =
        x.iter().enumerate().map(|(axis, &size)| if axes.contains(&axis) { 1 } else { size }).collect();
    c.shaped(reduced, &dims)
}

fn sum_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, shape, upstream) = (Compose::new(context), x.shape(), upstream.view()?);
    let upstream = kept(&c, &upstream, &shape, &axes(shape.len(), &dims, all))?;
    c.store_value(&dx, x.dtype()?, &upstream)
}

fn mean_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    spread_mean(context, &x, &upstream, &axes(x.shape().len(), &dims, all), &dx)
}

fn mean_all_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    spread_mean(context, &x, &upstream, &axes(x.shape().len(), &[], true), &dx)
}

fn spread_mean(context: &Context, x: &Tensor, upstream: &Tensor, axes: &[usize], dx: &Output) -> Result<()> {
    let (c, shape) = (Compose::new(context), x.shape());
    let count: usize = axes.iter().map(|&axis| shape[axis]).product();
    let upstream = kept(&c, &c.input(upstream)?, &shape, axes)?;
    let share = c.scale(&upstream, 1.0 / count as f64, 0.0)?;
    c.store_value(dx, x.dtype()?, &share)
}

/// The elements that are the largest (or smallest) share the gradient evenly.
fn extremum_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    extremum(context, [&x, &out, &upstream], &dims, all, &dx)
}

/// As [`extremum_grad`], for the signatures of `amax` and `amin`.
fn absolute_extremum_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: Vec<i64>,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    extremum(context, [&x, &out, &upstream], &dims, all, &dx)
}

fn extremum(context: &Context, [x, out, upstream]: [&Tensor; 3], dims: &[i64], all: bool, dx: &Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, out, upstream) = (c.input(x)?, c.input(out)?, c.input(upstream)?);
    let axes = axes(x.rank(), dims, all);
    let (out, upstream) = (kept(&c, &out, &x.shape, &axes)?, kept(&c, &upstream, &x.shape, &axes)?);
    let equal = c.cast(&c.map(Elementwise::Binary(Binary::Equal), &[&x, &out], &[])?, x.dtype)?;
    let axes: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    let count = c.reduce(Reduction::Sum, &equal, &axes)?;
    let upstream = c.map(Elementwise::Binary(Binary::Divide), &[&upstream, &count], &[])?;
    // A row whose extremum is NaN equals it nowhere, and has NaN as its gradient.
    c.store(dx, dtype, Elementwise::Binary(Binary::Multiply), &[&equal, &upstream], &[])
}

fn prod_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype, _) = (Compose::new(context), x.dtype()?, out);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let axes = axes(x.rank(), &dims, all);
    let mut gradient = kept(&c, &upstream, &x.shape, &axes)?;
    // Of a product along several axes: what is left after each axis, the last one first.
    let mut products = vec![x];
    for &axis in axes.iter().rev().take(axes.len().saturating_sub(1)) {
        products.push(c.reduce(Reduction::Product, &products[products.len() - 1], &[axis as i64])?);
    }
    for (&axis, factors) in axes.iter().zip(products.iter().rev()) {
        gradient = c.multiply(&gradient, &others(&c, factors, axis)?)?;
    }
    c.store_value(&dx, dtype, &gradient)
}

/// The product of all other factors along an axis: a quotient would be wrong where a factor is zero.
fn others(c: &Compose, x: &View, axis: usize) -> Result<View> {
    let scan = |reverse| Scan { kind: Kind::Product, axis: Some(axis as i64), exclusive: true, reverse };
    let (before, after) = (c.apply(&scan(false), slice::from_ref(x))?, c.apply(&scan(true), slice::from_ref(x))?);
    c.multiply(&before, &after)
}

/// `log(sum(e^x))`, shifted by the largest element so that nothing overflows.
fn logsumexp(context: &Context, x: Tensor, dims: Vec<i32>, _keep: bool, all: bool, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let axes: Vec<i64> = axes(x.rank(), &wide(&dims), all).iter().map(|&axis| axis as i64).collect();
    let largest = c.reduce(Reduction::Maximum, &x, &axes)?;
    // An infinite largest element would make NaN of the difference: such rows are not shifted.
    let finite = c.map(Elementwise::Unary(Unary::IsFinite), &[&largest], &[])?;
    let shift =
        c.multiply(&c.cast(&finite, x.dtype)?, &c.map(Elementwise::Unary(Unary::Clip), &[&largest], &BOUNDS)?)?;
    let powers = c.map(Elementwise::Unary(Unary::Exp), &[&c.subtract(&x, &shift)?], &[])?;
    let logarithm = c.map(Elementwise::Unary(Unary::Log), &[&c.reduce(Reduction::Sum, &powers, &axes)?], &[])?;
    let sum = c.map(Elementwise::Binary(Binary::Add), &[&logarithm, &shift], &[])?;
    c.store_value(&out, dtype, &sum)
}

fn wide(dims: &[i32]) -> Vec<i64> {
    dims.iter().map(|&axis| axis.into()).collect()
}

/// The finite float32 numbers.
const BOUNDS: [f64; 2] = [-3.4e38, 3.4e38];

fn logsumexp_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: Vec<i32>,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, out, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let axes = axes(x.rank(), &wide(&dims), all);
    let (out, upstream) = (kept(&c, &out, &x.shape, &axes)?, kept(&c, &upstream, &x.shape, &axes)?);
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::ExpDifference), &[&x, &out, &upstream], &[])
}

fn frobenius_norm_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, out, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let axes = axes(x.rank(), &dims, all);
    let ratio = c.map(Elementwise::Binary(Binary::Divide), &[&upstream, &out], &[])?;
    // Zeros have a norm of 0, and no slope.
    let ratio = c.map(Elementwise::Gradient(Gradient::Chosen), &[&out, &ratio], &[])?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Multiply), &[&x, &kept(&c, &ratio, &x.shape, &axes)?], &[])
}

fn squared_l2_norm_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let upstream = c.shaped(&upstream, &[])?;
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::Square), &[&x, &upstream], &[])
}
