//! Gradients of activation functions and of mathematics of one tensor whose kernels are not made in `formula.rs`.

use super::activation::prelu_weight;
use super::compose::Compose;
use super::elementwise::compute;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// From one tensor (the input or the output, as the operator's row says), the upstream gradient, and numbers.
fn gradient(
    context: &Context,
    gradient: Gradient,
    x: &Tensor,
    upstream: &Tensor,
    numbers: &[f64],
    dx: &Output,
) -> Result<()> {
    let numbers: arrayvec::ArrayVec<Number, 4> = numbers.iter().map(|&number| Number::Float(number)).collect();
    compute(context, Elementwise::Gradient(gradient), &[&x.view()?, &upstream.view()?], &numbers, dx)
}

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("swish_grad", FLOATS, swish_grad).strided();
    table.add("gelu_grad", FLOATS, gelu_grad).strided();
    table.add("silu_grad", FLOATS, silu_grad).strided();
    table.add("elu_grad", FLOATS, elu_grad).strided();
    table.add("pow_grad", FLOATS, pow_grad).strided();
    table.add("clip_grad", FLOATS, clip_grad).strided();
    table.add("logit_grad", FLOATS, logit_grad).strided();
    table.add("prelu_grad", FLOATS, prelu_grad).strided();
    for name in ["floor_grad", "ceil_grad", "round_grad", "trunc_grad", "sign_grad"] {
        table.add(name, FLOATS, zero_grad).strided();
    }
}

fn swish_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    gradient(context, Gradient::Silu, &x, &upstream, &[], &dx)
}

fn gelu_grad(context: &Context, x: Tensor, upstream: Tensor, approximate: bool, dx: Output) -> Result<()> {
    let member = if approximate { Gradient::GeluTanh } else { Gradient::Gelu };
    gradient(context, member, &x, &upstream, &[], &dx)
}

fn silu_grad(context: &Context, x: Tensor, _out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    gradient(context, Gradient::Silu, &x, &upstream, &[], &dx)
}

fn elu_grad(context: &Context, x: Tensor, _out: Tensor, upstream: Tensor, alpha: f32, dx: Output) -> Result<()> {
    gradient(context, Gradient::Elu, &x, &upstream, &[alpha.into()], &dx)
}

fn pow_grad(context: &Context, x: Tensor, upstream: Tensor, factor: Scalar, dx: Output) -> Result<()> {
    gradient(context, Gradient::Pow, &x, &upstream, &[factor.f64()], &dx)
}

fn clip_grad(context: &Context, x: Tensor, upstream: Tensor, min: Scalar, max: Scalar, dx: Output) -> Result<()> {
    gradient(context, Gradient::Clip, &x, &upstream, &[min.f64(), max.f64()], &dx)
}

/// Steps have no slope.
fn zero_grad(context: &Context, upstream: Tensor, dx: Output) -> Result<()> {
    let to = context.allocate(&dx, upstream.dtype()?)?;
    Compose::new(context).fill(&to, 0.0)
}

/// Where epsilon bounds x the gradient beyond the bounds is 0.
fn logit_grad(context: &Context, x: Tensor, upstream: Tensor, epsilon: f64, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    if epsilon <= 0.0 {
        return c.store(&dx, dtype, Elementwise::Gradient(Gradient::Logit), &[&x, &upstream], &[]);
    }
    // The slope is no number outside of 0 to 1: what is kept is chosen last.
    let slope = c.map(Elementwise::Gradient(Gradient::Logit), &[&x, &upstream], &[])?;
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::Clip), &[&x, &slope], &[epsilon, 1.0 - epsilon])
}

fn prelu_grad(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    upstream: Tensor,
    data_format: String,
    mode: String,
    dx: Option<Output>,
    dweight: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (c.input(&x)?, c.input(&upstream)?);
    let weight = c.cast(&prelu_weight(&weight, &x, &data_format, &mode)?, x.dtype)?;
    let zero = c.scale(&weight, 0.0, 0.0)?;
    let positive = c.map(Elementwise::Binary(Binary::GreaterThan), &[&x, &zero], &[])?;
    if let Some(dweight) = dweight {
        let slope = c.multiply(&x, &upstream)?;
        let slope = c.map(Elementwise::Gradient(Gradient::NotChosen), &[&positive, &slope], &[])?;
        let sum = c.summed_to(&slope, &weight.shape)?;
        c.store_value(&dweight, dtype, &sum)?;
    }
    let Some(dx) = dx else { return Ok(()) };
    let below = c.multiply(&upstream, &weight)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Where), &[&positive, &upstream, &below], &[])
}
