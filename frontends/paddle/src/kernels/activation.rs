//! Activation functions, powers and roundings whose kernels are more than one formula.

use super::compose::Compose;
use super::elementwise::{compute, number};
use super::normalisation::is_channels_last;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_tile::dtype::{FLOATS, NUMBERS};
use openmps_tile::{DType, Number};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("swish", FLOATS, swish).strided();
    table.add("gelu", FLOATS, gelu).strided();
    table.add("elu", FLOATS, elu).strided();
    table.add("clip", NUMBERS, clip).strided();
    table.add("pow", Elementwise::Unary(Unary::PowScalar).row().dtypes, pow).strided();
    table.add("round", NUMBERS, round).strided();
    table.add("logit", FLOATS, logit).strided();
    table.add("prelu", FLOATS, prelu).strided();
    table.add("soft_relu", FLOATS, soft_relu).strided();
    table.add("soft_relu_grad", FLOATS, soft_relu_grad).strided();
}

/// Computes an activation function with these numbers.
fn activate(context: &Context, activation: Activation, x: &Tensor, numbers: &[f64], out: &Output) -> Result<()> {
    let numbers: Vec<Number> = numbers.iter().map(|&number| Number::Float(number)).collect();
    compute(context, Elementwise::Activation(activation), &[&x.view()?], &numbers, out)
}

fn swish(context: &Context, x: Tensor, out: Output) -> Result<()> {
    activate(context, Activation::Silu, &x, &[], &out)
}

fn gelu(context: &Context, x: Tensor, approximate: bool, out: Output) -> Result<()> {
    let activation = if approximate { Activation::GeluTanh } else { Activation::Gelu };
    activate(context, activation, &x, &[], &out)
}

fn elu(context: &Context, x: Tensor, alpha: f32, out: Output) -> Result<()> {
    activate(context, Activation::Elu, &x, &[alpha.into()], &out)
}

/// A bound for elements of a type; beyond all integers of the type it is the last of them, as the largest float is where Paddle has no bound.
fn bound(scalar: &Scalar, dtype: DType) -> Number {
    let ((least, most), value) = (dtype.bounds(), scalar.f64());
    match number(scalar, dtype) {
        Number::Integer(_) if value < least => Number::Integer(least as i64),
        // A float as large as the largest integer is beyond it: integers are converted exactly.
        Number::Integer(integer) if value > most || (value == most && integer < 0) => Number::Integer(most as i64),
        number => number,
    }
}

fn clip(context: &Context, x: Tensor, min: Scalar, max: Scalar, out: Output) -> Result<()> {
    let x = x.view()?;
    let numbers = [bound(&min, x.dtype), bound(&max, x.dtype)];
    let ordered = match numbers {
        [Number::Integer(min), Number::Integer(max)] => min <= max,
        _ => min.f64() <= max.f64(),
    };
    if !ordered {
        let (got, expected) = (format!("{}", min.f64()), format!("at most max, which is {}", max.f64()));
        return Err(Error::Attribute { attribute: "min", got, expected });
    }
    compute(context, Elementwise::Unary(Unary::Clip), &[&x], &numbers, &out)
}

fn pow(context: &Context, x: Tensor, factor: Scalar, out: Output) -> Result<()> {
    let x = x.view()?;
    let factor = number(&factor, x.dtype);
    compute(context, Elementwise::Unary(Unary::PowScalar), &[&x], &[factor], &out)
}

/// `log(1 + exp(x))` of x within a threshold.
fn soft_relu(context: &Context, x: Tensor, threshold: f32, out: Output) -> Result<()> {
    let (c, dtype, threshold) = (Compose::new(context), x.dtype()?, f64::from(threshold));
    let within = c.map(Elementwise::Unary(Unary::Clip), &[&c.input(&x)?], &[-threshold, threshold])?;
    let power = c.map(Elementwise::Unary(Unary::Exp), &[&within], &[])?;
    c.store(&out, dtype, Elementwise::Unary(Unary::Log1p), &[&power], &[])
}

/// `1 - exp(-y)` of the upstream where the result is within the threshold.
fn soft_relu_grad(
    context: &Context,
    _x: Tensor,
    out: Tensor,
    upstream: Tensor,
    threshold: f32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), upstream.dtype()?);
    let out = c.input(&out)?;
    let power = c.map(Elementwise::Unary(Unary::Exp), &[&c.scale(&out, -1.0, 0.0)?], &[])?;
    let slope = c.scale(&power, -1.0, 1.0)?;
    let size = c.map(Elementwise::Unary(Unary::Abs), &[&out], &[])?;
    let bound = c.constant(out.dtype, &[1], threshold.into())?;
    let within = c.map(Elementwise::Binary(Binary::LessThan), &[&size, &bound], &[])?;
    let share = c.multiply(&c.input(&upstream)?, &slope)?;
    let zero = c.constant(out.dtype, &[1], 0.0)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Where), &[&within, &share, &zero], &[])
}

/// Halves to even; after a decimal place where one is given.
fn round(context: &Context, x: Tensor, decimals: i32, out: Output) -> Result<()> {
    const ROUND: Elementwise = Elementwise::Unary(Unary::Round);
    let x = x.view()?;
    if decimals == 0 || !x.dtype.is_float() {
        return compute(context, ROUND, &[&x], &[], &out);
    }
    let c = Compose::new(context);
    let factor = 10f64.powi(decimals);
    let rounded = c.map(ROUND, &[&c.scale(&c.cast(&x, x.dtype.compute())?, factor, 0.0)?], &[])?;
    c.store(&out, x.dtype, Elementwise::Unary(Unary::Scale), &[&rounded], &[1.0 / factor, 0.0])
}

fn logit(context: &Context, x: Tensor, epsilon: f64, out: Output) -> Result<()> {
    const LOGIT: Elementwise = Elementwise::Activation(Activation::Logit);
    let x = x.view()?;
    if epsilon <= 0.0 {
        return compute(context, LOGIT, &[&x], &[], &out);
    }
    let bounded = Compose::new(context);
    let within = bounded.map(Elementwise::Unary(Unary::Clip), &[&x], &[epsilon, 1.0 - epsilon])?;
    compute(context, LOGIT, &[&within], &[], &out)
}

/// The slopes of prelu as they broadcast against x: one for all, one a channel, or one an element.
pub(super) fn prelu_weight(weight: &Tensor, x: &View, data_format: &str, mode: &str) -> Result<View> {
    let weight = weight.view()?;
    let mut dims = vec![1; x.rank()];
    match mode {
        "all" => {}
        "channel" => {
            let channel = if is_channels_last(data_format) { x.rank() - 1 } else { 1 };
            dims[channel] = weight.len();
        }
        _ => dims[1..].copy_from_slice(&x.shape[1..]),
    }
    Ok(View::dense(weight.address, weight.dtype, &dims)?)
}

fn prelu(context: &Context, x: Tensor, weight: Tensor, data_format: String, mode: String, out: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = c.input(&x)?;
    let weight = c.cast(&prelu_weight(&weight, &x, &data_format, &mode)?, x.dtype)?;
    let zero = c.scale(&weight, 0.0, 0.0)?;
    let positive = c.map(Elementwise::Binary(Binary::GreaterThan), &[&x, &zero], &[])?;
    let below = c.multiply(&x, &weight)?;
    c.store(&out, dtype, Elementwise::Binary(Binary::Where), &[&positive, &x, &below], &[])
}
