//! Kernels of click models and of their programs: shows and clicks, positions, shuffled batches, and the optimizers of that time.

use super::compose::Compose;
use super::elementwise::compute;
use super::indexing::embedding_grad;
use super::random::source;
use super::values::{SINGLE, dims, expect, integers, store_floats, store_integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::random::{Law, Random};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::IndexAdd;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

const MOVED: &[DType] = &[DType::I32, DType::I64, DType::F32, DType::F64];
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cvm", SINGLE, cvm);
    table.add("cvm_grad", SINGLE, cvm_grad);
    table.add("add_position_encoding", SINGLE, add_position_encoding);
    table.add("add_position_encoding_grad", SINGLE, add_position_encoding_grad);
    table.add("shuffle_batch", MOVED, shuffle_batch).output(1, DType::I64).output(2, DType::I64);
    table.add("shuffle_batch_grad", MOVED, shuffle_batch_grad);
    table.add("embedding_with_scaled_gradient_grad", FLOATS, embedding_with_scaled_gradient_grad);
    table.add("ftrl", SINGLE, ftrl);
    table.add("dpsgd", SINGLE, dpsgd);
    table.add("pow2_decay_with_linear_warmup", SINGLE, pow2_decay_with_linear_warmup).output(1, DType::I64);
}

/// Rows of a tensor as the kernels of shows and clicks have them: the first two columns are those.
fn columns(x: &View) -> Result<[usize; 2]> {
    let rows = x.shape.first().copied().unwrap_or(0);
    let width = x.shape.iter().skip(1).product();
    if width < 2 { Err(refuse("X", &x.shape, "two columns at least, shows and clicks")) } else { Ok([rows, width]) }
}

/// Columns from one on.
fn part(c: &Compose, x: &View, dims: [usize; 2], first: usize, count: usize) -> Result<View> {
    Ok(c.shaped(x, &dims)?.narrowed(1, first, 1, count))
}

/// `log(shows + 1)` and `log(clicks + 1) - log(shows + 1)`, or neither of them.
fn cvm(context: &Context, x: Tensor, _cvm: Tensor, kept: bool, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let size = columns(&x)?;
    let to = c.place(&out, x.dtype)?;
    let skipped = if kept { 0 } else { 2 };
    let to = c.shaped(&to, &[size[0], size[1] - skipped])?;
    if to.is_empty() {
        return Ok(());
    }
    copy(context, &part(&c, &x, size, 2, size[1] - 2)?, &to.narrowed(1, 2 - skipped, 1, size[1] - 2))?;
    if kept {
        let log =
            |at: usize| c.map(Elementwise::Unary(Unary::Log), &[&c.scale(&part(&c, &x, size, at, 1)?, 1.0, 1.0)?], &[]);
        let (shows, clicks) = (log(0)?, log(1)?);
        copy(context, &shows, &to.narrowed(1, 0, 1, 1))?;
        copy(context, &c.subtract(&clicks, &shows)?, &to.narrowed(1, 1, 1, 1))?;
    }
    Ok(())
}

pub(super) fn copy(context: &Context, from: &View, to: &View) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    Ok(openmps_graph::operators::elementwise::run(Elementwise::Unary(Unary::Cast), context.queue(), &[from], &[], to)?)
}

/// The gradient of the first two columns is the shows and clicks themselves.
fn cvm_grad(context: &Context, x: Tensor, cvm: Tensor, upstream: Tensor, kept: bool, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    let to = c.place(&dx, dtype)?;
    let size = columns(&to)?;
    expect("CVM", &cvm, &[size[0], 2])?;
    let _ = x;
    let to = c.shaped(&to, &size)?;
    let skipped = if kept { 0 } else { 2 };
    let upstream = part(&c, &upstream.view()?, [size[0], size[1] - skipped], 2 - skipped, size[1] - 2)?;
    copy(context, &upstream, &to.narrowed(1, 2, 1, size[1] - 2))?;
    copy(context, &cvm.view()?, &to.narrowed(1, 0, 1, 2))
}

/// Sines in the first half of the columns and cosines in the second, of places over ever longer waves.
fn add_position_encoding(context: &Context, x: Tensor, factor: f32, weight: f32, out: Output) -> Result<()> {
    let ([_, places, width], dtype) = (dims("X", &x)?, x.dtype()?);
    if width % 2 == 1 {
        return Err(refuse("X", x.shape(), "an even number of columns"));
    }
    let half = width / 2;
    let angle = |at: usize, column: usize| {
        let power = if half > 1 { 10000f64.powf(column as f64 / (half as f64 - 1.0)) } else { 10000.0 };
        at as f64 / power
    };
    let wave = |at: usize, column: usize| {
        if column < half { angle(at, column).sin() } else { angle(at, column - half).cos() }
    };
    let waves: Vec<u8> =
        (0..places * width).flat_map(|element| wave(element / width, element % width).to_ne_bytes()).collect();
    let c = Compose::new(context);
    let wide = c.upload(DType::F64, &[places, width], &waves)?;
    let waves = c.cast(&c.scale(&wide, weight.into(), 0.0)?, dtype)?;
    let scaled = c.scale(&x.view()?, factor.into(), 0.0)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Add), &[&scaled, &waves], &[])
}

fn add_position_encoding_grad(
    context: &Context,
    _x: Tensor,
    upstream: Tensor,
    factor: f32,
    _weight: f32,
    dx: Output,
) -> Result<()> {
    let number = [openmps_tile::Number::Float(factor.into()), openmps_tile::Number::Float(0.0)];
    compute(context, Elementwise::Unary(Unary::Scale), &[&upstream.view()?], &number, &dx)
}

/// All dimensions but the last as rows.
fn rows(c: &Compose, x: &View) -> Result<View> {
    let width = x.shape.last().copied().unwrap_or(1);
    c.shaped(x, &[x.len() / width.max(1), width])
}

/// Rows in random order, where each has gone to, and the seed of the next call.
fn shuffle_batch(
    context: &Context,
    x: Tensor,
    seed: Tensor,
    start: i32,
    out: Output,
    places: Output,
    next: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let rows = rows(&c, &x)?;
    let given = if seed.shape().contains(&0) { None } else { integers(context, &seed)?.first().copied() };
    let seed = given.filter(|&seed| seed != 0).unwrap_or(start.into());
    let mut from = source(context, 0);
    if seed != 0 {
        from.seed = seed as u64;
    }
    let law =
        Random { law: Law::Permutation, source: from, dims: [rows.shape[0]].into_iter().collect(), dtype: DType::I64 };
    let order = c.apply(&law, &[])?;
    let to = c.constant(x.dtype, &rows.shape, 0.0)?;
    c.launch(&IndexAdd { axis: 0 }, &[to.clone(), order.clone(), rows], std::slice::from_ref(&to))?;
    places.set_dims(&order.shape);
    c.store_value(&places, DType::I64, &order)?;
    store_integers(
        context,
        &next,
        DType::I64,
        &[1],
        &[(from.seed.wrapping_mul(6_364_136_223_846_793_005) >> 33) as i64],
    )?;
    c.store_value(&out, x.dtype, &to)
}

fn shuffle_batch_grad(context: &Context, places: Tensor, upstream: Tensor, _start: i32, dx: Output) -> Result<()> {
    let (c, upstream) = (Compose::new(context), upstream.view()?);
    let value = c.apply(&Gather { axis: 0 }, &[rows(&c, &upstream)?, places.view()?])?;
    c.store_value(&dx, upstream.dtype, &value)
}

/// The gradient of an embedding, each row over how often it was looked up.
fn embedding_with_scaled_gradient_grad(
    context: &Context,
    index: Tensor,
    table: Tensor,
    upstream: Tensor,
    padded: i64,
    out: Output,
) -> Result<()> {
    embedding_grad(context, index, table, upstream, padded, out)?;
    let (c, sum) = (Compose::new(context), out.tensor().view()?);
    let index = index.view()?;
    let flat = c.shaped(&index, &[index.len()])?;
    let counts = c.constant(sum.dtype.compute(), &[sum.shape[0]], 0.0)?;
    let ones = c.constant(counts.dtype, &[index.len()], 1.0)?;
    c.launch(&IndexAdd { axis: 0 }, &[counts.clone(), flat, ones], std::slice::from_ref(&counts))?;
    let one = c.constant(counts.dtype, &[1], 1.0)?;
    let counts = c.map(Elementwise::Binary(Binary::Maximum), &[&counts, &one], &[])?;
    let counts = c.shaped(&counts, &[sum.shape[0], 1])?;
    let quotient = c.map(DIVIDE, &[&c.cast(&sum, counts.dtype)?, &counts], &[])?;
    copy(context, &quotient, &sum)
}

fn power(c: &Compose, x: &View, exponent: f64) -> Result<View> {
    if exponent == 0.5 {
        return c.map(Elementwise::Unary(Unary::Sqrt), &[x], &[]);
    }
    c.map(Elementwise::Unary(Unary::PowScalar), &[x], &[exponent])
}

/// Follow the regularized leader (McMahan et al., 2013): what stays below the first bound becomes zero.
fn ftrl(
    context: &Context,
    parameter: Tensor,
    squared: Tensor,
    linear: Tensor,
    gradient: Tensor,
    rate: Tensor,
    first: f32,
    second: f32,
    exponent: f32,
    parameter_out: Output,
    squared_out: Output,
    linear_out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), parameter.dtype()?);
    let (first, second, exponent) = (f64::from(first) + 1e-10, f64::from(second) + 1e-10, -f64::from(exponent));
    let (p, g, s) = (parameter.view()?, gradient.view()?, squared.view()?);
    let rate = c.shaped(&c.resident(&rate)?, &[1])?;
    let sum = c.add(&s, &c.multiply(&g, &g)?)?;
    let root = power(&c, &sum, exponent)?;
    let step = c.map(DIVIDE, &[&c.subtract(&root, &power(&c, &s, exponent)?)?, &rate], &[])?;
    let leader = c.subtract(&c.add(&linear.view()?, &g)?, &c.multiply(&step, &p)?)?;
    let divisor = c.scale(&c.map(DIVIDE, &[&root, &rate], &[])?, 1.0, 2.0 * second)?;
    // Beyond the bound the distance from it, the other way; within it zero.
    let beyond = c.map(Elementwise::Activation(Activation::SoftShrink), &[&leader], &[first])?;
    let value = c.map(DIVIDE, &[&c.scale(&beyond, -1.0, 0.0)?, &divisor], &[])?;
    c.store_value(&squared_out, dtype, &sum)?;
    c.store_value(&linear_out, dtype, &leader)?;
    c.store_value(&parameter_out, dtype, &value)
}

/// One step with the gradient bounded and one normal number added to it (Abadi et al., 2016).
fn dpsgd(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    bound: f32,
    batch: f32,
    deviation: f32,
    seed: i32,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), parameter.dtype()?);
    let (p, g) = (parameter.view()?, gradient.view()?);
    let norm = c.map(Elementwise::Unary(Unary::Sqrt), &[&c.reduce(Reduction::Sum, &c.multiply(&g, &g)?, &[])?], &[])?;
    let norm = c.shaped(&c.scale(&norm, 1.0 / f64::from(bound), 0.0)?, &[1])?;
    let one = c.constant(dtype, &[1], 1.0)?;
    let scale = c.map(Elementwise::Binary(Binary::Maximum), &[&norm, &one], &[])?;
    let law = Law::Normal { mean: 0.0, deviation: f64::from(deviation) / f64::from(batch) };
    let noise = Random { law, source: source(context, seed), dims: [1].into_iter().collect(), dtype };
    let noise = c.apply(&noise, &[])?;
    let step = c.add(&c.map(DIVIDE, &[&g, &scale], &[])?, &noise)?;
    let rate = c.shaped(&c.resident(&rate)?, &[1])?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Subtract), &[&p, &c.multiply(&step, &rate)?], &[])
}

/// A rate that rises along a line and falls along a parabola.
fn pow2_decay_with_linear_warmup(
    context: &Context,
    rate: Tensor,
    step: Tensor,
    warm: i64,
    total: i64,
    base: f32,
    end: f32,
    rate_out: Output,
    step_out: Output,
) -> Result<()> {
    let (dtype, base, end) = (rate.dtype()?, f64::from(base), f64::from(end));
    let at = integers(context, &step)?.first().copied().unwrap_or(0).wrapping_add(1);
    let value = if at <= warm {
        at as f64 / warm as f64 * base
    } else if at < total {
        let left = 1.0 - (at - warm) as f64 / (total - warm) as f64;
        (base - end) * left * left + end
    } else {
        end
    };
    store_integers(context, &step_out, DType::I64, &step.shape(), &[at])?;
    store_floats(context, &rate_out, dtype, &rate.shape(), &[value])
}
