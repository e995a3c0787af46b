//! Statistics: variances, sums without NaN, distances, norms that are bounded.

use super::compose::Compose;
use super::norm::{length, slope};
use super::reduction_gradient::{axes, kept};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::{FLOATS, NUMBERS};

const SINGLE: &[DType] = &[DType::F32, DType::F64];
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("var", FLOATS, variance);
    table.add("variance", SINGLE, plain_variance);
    table.add("std", FLOATS, deviation);
    table.add("var_grad", FLOATS, variance_grad);
    table.add("std_grad", FLOATS, deviation_grad);
    table.add("nansum", NUMBERS, sum_of_numbers).output_as_inferred(0);
    table.add("nansum_grad", FLOATS, sum_of_numbers_grad);
    table.add("l1_norm", FLOATS, absolutes);
    table.add("l1_norm_grad", FLOATS, absolutes_grad);
    table.add("dist", FLOATS, distance);
    table.add("dist_grad", FLOATS, distance_grad);
    table.add("renorm", FLOATS, renorm);
    table.add("renorm_grad", FLOATS, renorm_grad);
    // With weights the kernel is chosen by their type.
}

fn signed(axes: &[usize]) -> Vec<i64> {
    axes.iter().map(|&axis| axis as i64).collect()
}

/// The distances from the mean along axes, and the variance: the sum of their squares over their number less a correction.
struct Spread<'c> {
    c: Compose<'c>,
    dtype: DType,
    axes: Vec<usize>,
    distance: View,
    count: f64,
}

impl<'c> Spread<'c> {
    fn new(context: &'c Context, x: &Tensor, dims: &[i64], correction: f64) -> Result<Spread<'c>> {
        let (c, dtype) = (Compose::new(context), x.dtype()?);
        let x = c.input(x)?;
        let axes = axes(x.rank(), dims, false);
        let mean = c.reduce(Reduction::Mean, &x, &signed(&axes))?;
        let distance = c.subtract(&x, &mean)?;
        let count = axes.iter().map(|&axis| x.shape[axis]).product::<usize>() as f64;
        Ok(Spread { distance, c, dtype, axes, count: (count - correction).max(0.0) })
    }

    fn variance(&self) -> Result<View> {
        let sum = self.c.reduce(Reduction::SumOfSquares, &self.distance, &signed(&self.axes))?;
        self.c.scale(&sum, 1.0 / self.count, 0.0)
    }

    /// `2 (x - mean) / count`, times what comes in.
    fn gradient(&self, upstream: &View, dx: &Output) -> Result<()> {
        let share = self.c.scale(upstream, 2.0 / self.count, 0.0)?;
        self.c.store(dx, self.dtype, Elementwise::Binary(Binary::Multiply), &[&self.distance, &share], &[])
    }
}

fn variance(
    context: &Context,
    x: Tensor,
    dims: Vec<i64>,
    _keep: bool,
    _unbiased: bool,
    correction: f64,
    out: Output,
) -> Result<()> {
    let spread = Spread::new(context, &x, &dims, correction)?;
    spread.c.store_value(&out, spread.dtype, &spread.variance()?)
}

/// The older form: over the number of elements, without a correction.
fn plain_variance(context: &Context, x: Tensor, dims: Vec<i64>, _keep: bool, out: Output) -> Result<()> {
    let spread = Spread::new(context, &x, &dims, 0.0)?;
    let variance = spread.variance()?;
    spread.c.store_value(&out, spread.dtype, &variance)
}

fn deviation(
    context: &Context,
    x: Tensor,
    dims: Vec<i64>,
    _keep: bool,
    _unbiased: bool,
    correction: f64,
    out: Output,
) -> Result<()> {
    let spread = Spread::new(context, &x, &dims, correction)?;
    let root = spread.c.map(Elementwise::Unary(Unary::Sqrt), &[&spread.variance()?], &[])?;
    spread.c.store_value(&out, spread.dtype, &root)
}

fn variance_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dims: Vec<i64>,
    _keep: bool,
    _unbiased: bool,
    correction: f64,
    dx: Output,
) -> Result<()> {
    let spread = Spread::new(context, &x, &dims, correction)?;
    let upstream = kept(&spread.c, &spread.c.input(&upstream)?, &x.shape(), &spread.axes)?;
    spread.gradient(&upstream, &dx)
}

fn deviation_grad(
    context: &Context,
    x: Tensor,
    out: Tensor,
    upstream: Tensor,
    dims: Vec<i64>,
    _keep: bool,
    _unbiased: bool,
    correction: f64,
    dx: Output,
) -> Result<()> {
    let spread = Spread::new(context, &x, &dims, correction)?;
    let c = &spread.c;
    let half = c.map(Elementwise::Gradient(Gradient::Sqrt), &[&c.input(&out)?, &c.input(&upstream)?], &[])?;
    spread.gradient(&kept(c, &half, &x.shape(), &spread.axes)?, &dx)
}

fn sum_of_numbers(
    context: &Context,
    x: Tensor,
    dims: IntArray,
    data_type: DataType,
    _keep: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let (x, own) = (c.input(&x)?, x.dtype()?);
    let dtype = data_type.or(if own == DType::I32 { DType::I64 } else { own })?;
    let missing = c.map(Elementwise::Unary(Unary::IsNan), &[&x], &[])?;
    let present = c.map(Elementwise::Gradient(Gradient::NotChosen), &[&missing, &x], &[])?;
    let sum = c.reduce(Reduction::Sum, &present, &signed(&axes(x.rank(), &dims, false)))?;
    c.store_value(&out, dtype, &sum)
}

fn sum_of_numbers_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    all: bool,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let upstream = kept(&c, &upstream, &x.shape, &axes(x.rank(), &dims, all))?;
    let missing = c.map(Elementwise::Unary(Unary::IsNan), &[&x], &[])?;
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::NotChosen), &[&missing, &upstream], &[])
}

fn absolutes(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    c.store_value(&out, dtype, &c.reduce(Reduction::SumOfAbsolutes, &c.input(&x)?, &[])?)
}

fn absolutes_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let sign = c.map(Elementwise::Unary(Unary::Sign), &[&x], &[])?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Multiply), &[&sign, &c.shaped(&upstream, &[])?], &[])
}

fn distance(context: &Context, x: Tensor, y: Tensor, order: f32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let between = c.subtract(&c.input(&x)?, &c.input(&y)?)?;
    let all: Vec<i64> = (0..between.rank() as i64).collect();
    c.store_value(&out, dtype, &length(&c, &between, &all, order.into())?)
}

fn distance_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    order: f32,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let between = c.subtract(&c.input(&x)?, &c.input(&y)?)?;
    let number = |tensor: &Tensor| c.shaped(&c.input(tensor)?, &vec![1; between.rank()]);
    let length = number(&out)?;
    let gradient = slope(&c, [&between, &length, &number(&upstream)?], order.into(), 0.0)?;
    // Where the distance is 0 there is no direction.
    let gradient = c.map(Elementwise::Gradient(Gradient::Chosen), &[&length, &gradient], &[])?;
    if let Some(dy) = dy {
        let value = c.summed_to(&c.scale(&gradient, -1.0, 0.0)?, &y.shape())?;
        c.store_value(&dy, dtype, &value)?;
    }
    match dx {
        Some(dx) => c.store_value(&dx, dtype, &c.summed_to(&gradient, &x.shape())?),
        None => Ok(()),
    }
}

/// The norms of the slices along an axis, and whether each is above the bound.
fn long_slices(c: &Compose, x: &View, order: f32, axis: i32, bound: f32) -> Result<(Vec<i64>, View, View)> {
    let along = axes(x.rank(), &[axis.into()], false);
    let others: Vec<i64> = (0..x.rank()).filter(|axis| !along.contains(axis)).map(|axis| axis as i64).collect();
    let norm = if others.is_empty() {
        c.map(Elementwise::Unary(Unary::Abs), &[x], &[])?
    } else {
        length(c, x, &others, order.into())?
    };
    let limit = c.constant(x.dtype, &[1], bound.into())?;
    let is_long = c.map(Elementwise::Binary(Binary::GreaterThan), &[&norm, &limit], &[])?;
    Ok((others, norm, is_long))
}

fn shrunk(c: &Compose, norm: &View, bound: f32) -> Result<View> {
    let inverse = c.map(Elementwise::Unary(Unary::Reciprocal), &[norm], &[])?;
    c.scale(&inverse, bound.into(), 0.0)
}

fn renorm(context: &Context, x: Tensor, order: f32, axis: i32, bound: f32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let (_, norm, is_long) = long_slices(&c, &x, order, axis, bound)?;
    let shorter = c.multiply(&x, &shrunk(&c, &norm, bound)?)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Where), &[&is_long, &shorter, &x], &[])
}

/// Of `x s` with `s = bound / norm`: `dy s - sum(dy x) s / norm` times the norm's slope.
fn renorm_grad(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    order: f32,
    axis: i32,
    bound: f32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let (others, norm, is_long) = long_slices(&c, &x, order, axis, bound)?;
    let share = shrunk(&c, &norm, bound)?;
    let mut along = c.multiply(&upstream, &x)?;
    if !others.is_empty() {
        along = c.reduce(Reduction::Sum, &along, &others)?;
    }
    let weight = c.map(DIVIDE, &[&c.multiply(&along, &share)?, &c.scale(&norm, -1.0, 0.0)?], &[])?;
    let bent = slope(&c, [&x, &norm, &weight], order.into(), 0.0)?;
    let shorter = c.add(&c.multiply(&upstream, &share)?, &bent)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Where), &[&is_long, &shorter, &upstream], &[])
}
