//! Small kernels that are a few formulas in a row: losses, zero gradients, reductions to a shape, affine channels.

use super::compose::Compose;
use super::elementwise::{compute, refuse_zero};
use super::values::store_floats;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::{FLOATS, NUMBERS};

const SIGNED: &[DType] =
    &[DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("negative", SIGNED, negative).strided();
    table.add("rint", NUMBERS, round).strided();
    table.add("rint_grad", FLOATS, flat).strided();
    table.add("poisson_grad", FLOATS, flat).strided();
    table.add("random_grad", FLOATS, random_grad).strided();
    table.add("nextafter", &[DType::F32, DType::F64], next_after).strided();
    table.add("uniform_inplace_grad", FLOATS, uniform_inplace_grad).strided();
    table.add("gaussian_inplace_grad", FLOATS, gaussian_inplace_grad).strided();
    table.add("fill_grad", FLOATS, fill_grad).strided();
    table.add("gumbel_softmax_grad", FLOATS, super::normalisation_gradient::softmax_grad);
    table.add("grad_add", NUMBERS, sum).strided();
    table.add("trunc_divide", NUMBERS, quotient).strided();
    table.add("log_loss", FLOATS, log_loss).strided();
    table.add("log_loss_grad", FLOATS, log_loss_grad).strided();
    table.add("hinge_loss", FLOATS, hinge_loss).strided();
    table.add("hinge_loss_grad", FLOATS, hinge_loss_grad).strided();
    table.add("identity_loss", FLOATS, identity_loss);
    table.add("identity_loss_grad", FLOATS, identity_loss_grad);
    table.add("reduce_as", NUMBERS, reduce_as);
    table.add("reduce_as_grad", NUMBERS, reduce_as_grad);
    table.add("affine_channel", FLOATS, affine_channel);
    table.add("affine_channel_grad", FLOATS, affine_channel_grad);
}

fn negative(context: &Context, x: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Unary(Unary::Negate), &[&x.view()?], &[], &out)
}

fn round(context: &Context, x: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Unary(Unary::Round), &[&x.view()?], &[], &out)
}

/// The gradient of what has no slope.
fn flat(context: &Context, upstream: Tensor, dx: Output) -> Result<()> {
    Compose::new(context).fill(&context.allocate(&dx, upstream.dtype()?)?, 0.0)
}

/// What was overwritten has no gradient.
fn uniform_inplace_grad(
    context: &Context,
    upstream: Tensor,
    _low: f32,
    _high: f32,
    _seed: i32,
    _diagonals: i32,
    _step: i32,
    _value: f32,
    dx: Output,
) -> Result<()> {
    flat(context, upstream, dx)
}

fn gaussian_inplace_grad(
    context: &Context,
    upstream: Tensor,
    _mean: f32,
    _deviation: f32,
    _seed: i32,
    dx: Output,
) -> Result<()> {
    flat(context, upstream, dx)
}

fn random_grad(context: &Context, upstream: Tensor, _from: i64, _to: i64, dx: Output) -> Result<()> {
    flat(context, upstream, dx)
}

/// The next number of the type from x towards y.
fn next_after(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let dtype = x.dtype()?;
    let c = Compose::new(context);
    // A sum has the shape of both.
    let dims = c.map(Elementwise::Binary(Binary::Add), &[&x.view()?, &y.view()?], &[])?.shape;
    let [x, y] = [x, y].map(|given| {
        let view = given.view()?;
        let repeated = view.broadcast_to(&dims).unwrap_or(view);
        context.elements(&repeated)
    });
    let next = |(x, y): (f64, f64)| match dtype {
        _ if x == y || y.is_nan() => y,
        DType::F32 if y > x => f64::from((x as f32).next_up()),
        DType::F32 => f64::from((x as f32).next_down()),
        _ if y > x => x.next_up(),
        _ => x.next_down(),
    };
    let numbers: Vec<f64> = x?.iter().zip(y?).map(|(x, y)| next((x.float, y.float))).collect();
    store_floats(context, &out, dtype, &dims, &numbers)
}

fn fill_grad(context: &Context, upstream: Tensor, _value: Scalar, dx: Output) -> Result<()> {
    flat(context, upstream, dx)
}

fn sum(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    compute(context, Elementwise::Binary(Binary::Add), &[&x.view()?, &y.view()?], &[], &out)
}

/// Towards zero.
fn quotient(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    refuse_zero(context, &x, &y)?;
    if !x.dtype.is_float() {
        return compute(context, Elementwise::Binary(Binary::Divide), &[&x, &y], &[], &out);
    }
    let c = Compose::new(context);
    let quotient = c.map(Elementwise::Binary(Binary::Divide), &[&x, &y], &[])?;
    c.store(&out, x.dtype, Elementwise::Unary(Unary::Trunc), &[&quotient], &[])
}

/// `1 - p + e` in this order: of a probability near one the difference has all its digits, of `1 + e - p` it has not.
fn complement(c: &Compose, p: &View, epsilon: f64) -> Result<View> {
    c.scale(&c.scale(p, -1.0, 1.0)?, 1.0, epsilon)
}

/// `-y log(p + e) - (1 - y) log(1 - p + e)`
fn log_loss(context: &Context, input: Tensor, label: Tensor, epsilon: f32, out: Output) -> Result<()> {
    let (c, dtype, epsilon) = (Compose::new(context), input.dtype()?, f64::from(epsilon));
    let (p, y) = (c.input(&input)?, c.input(&label)?);
    let log = |x: &View| c.map(Elementwise::Unary(Unary::Log), &[x], &[]);
    let yes = c.multiply(&c.scale(&y, -1.0, 0.0)?, &log(&c.scale(&p, 1.0, epsilon)?)?)?;
    let no = c.multiply(&c.scale(&y, -1.0, 1.0)?, &log(&complement(&c, &p, epsilon)?)?)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Subtract), &[&yes, &no], &[])
}

fn log_loss_grad(
    context: &Context,
    input: Tensor,
    label: Tensor,
    upstream: Tensor,
    epsilon: f32,
    dinput: Output,
) -> Result<()> {
    let (c, dtype, epsilon) = (Compose::new(context), input.dtype()?, f64::from(epsilon));
    let (p, y, upstream) = (c.input(&input)?, c.input(&label)?, c.input(&upstream)?);
    let over = |x: &View, y: &View| c.map(Elementwise::Binary(Binary::Divide), &[x, y], &[]);
    let yes = over(&y, &c.scale(&p, 1.0, epsilon)?)?;
    let no = over(&c.scale(&y, -1.0, 1.0)?, &complement(&c, &p, epsilon)?)?;
    c.store(&dinput, dtype, MULTIPLY, &[&upstream, &c.subtract(&no, &yes)?], &[])
}

/// `1 - x (2 y - 1)` of labels 0 and 1: how far a number is from being on its label's side.
fn margin(c: &Compose, x: &View, label: &View) -> Result<[View; 2]> {
    let side = c.scale(label, 2.0, -1.0)?;
    Ok([c.scale(&c.multiply(x, &side)?, -1.0, 1.0)?, side])
}

fn hinge_loss(context: &Context, x: Tensor, label: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let [margin, _] = margin(&c, &c.input(&x)?, &c.input(&label)?)?;
    c.store(&out, dtype, Elementwise::Activation(Activation::Relu), &[&margin], &[])
}

fn hinge_loss_grad(context: &Context, x: Tensor, label: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let [margin, side] = margin(&c, &c.input(&x)?, &c.input(&label)?)?;
    let share = c.scale(&c.multiply(&c.input(&upstream)?, &side)?, -1.0, 0.0)?;
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::Relu), &[&margin, &share], &[])
}

/// Paddle's numbers of reductions: 0 is the sum, 1 the mean, and 2 none.
fn identity_loss(context: &Context, x: Tensor, reduction: i32, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let value = match reduction {
        0 => c.reduce(Reduction::Sum, &x, &[])?,
        1 => c.reduce(Reduction::Mean, &x, &[])?,
        2 => x,
        other => return Err(refuse("reduction", other, "0, the sum, 1, the mean, or 2, none")),
    };
    c.store_value(&out, dtype, &value)
}

fn identity_loss_grad(context: &Context, x: Tensor, upstream: Tensor, reduction: i32, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    let count = if reduction == 1 { x.shape().iter().product::<usize>() } else { 1 };
    let value = c.scale(&c.input(&upstream)?, 1.0 / count as f64, 0.0)?;
    c.store_value(&dx, dtype, &if reduction == 2 { value } else { c.shaped(&value, &[1])? })
}

/// The sum over what was repeated to the shape of x.
fn reduce_as(context: &Context, x: Tensor, target: Tensor, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let dims = target.shape();
    c.store_value(&out, dtype, &if dims == x.shape { x } else { c.summed_to(&x, &dims)? })
}

fn reduce_as_grad(context: &Context, _x: Tensor, _target: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let c = Compose::new(context);
    c.store_value(&dx, upstream.dtype()?, &upstream.view()?)
}

/// A number for each channel, so that it broadcasts with images.
fn per_channel(c: &Compose, x: &View, rank: usize, format: &str) -> Result<View> {
    let mut dims = vec![1; rank];
    let axis = if format == "NHWC" { rank - 1 } else { 1 };
    dims[axis] = x.len();
    c.shaped(x, &dims)
}

fn affine_channel(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    format: String,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let scale = per_channel(&c, &scale.view()?, x.rank(), &format)?;
    let bias = per_channel(&c, &bias.view()?, x.rank(), &format)?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Add), &[&c.multiply(&x, &scale)?, &bias], &[])
}

fn affine_channel_grad(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    _bias: Tensor,
    upstream: Tensor,
    format: String,
    dx: Option<Output>,
    dscale: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let (c, x, upstream) = (Compose::new(context), x.view()?, upstream.view()?);
    let scale = per_channel(&c, &scale.view()?, x.rank(), &format)?;
    if let Some(dscale) = dscale {
        c.store_value(&dscale, x.dtype, &c.summed_to(&c.multiply(&upstream, &x)?, &scale.shape)?)?;
    }
    if let Some(dbias) = dbias {
        c.store_value(&dbias, x.dtype, &c.summed_to(&upstream, &scale.shape)?)?;
    }
    match dx {
        Some(dx) => c.store(&dx, x.dtype, MULTIPLY, &[&upstream, &scale], &[]),
        None => Ok(()),
    }
}
