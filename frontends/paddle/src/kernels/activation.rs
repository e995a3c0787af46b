//! Activation functions, powers and roundings whose kernels are more than one formula, and sums whose second operand is aligned by an axis.

use super::compose::Compose;
use super::elementwise::{compute, number};
use super::normalisation::is_channels_last;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::{Shape, View};
use openmps_tile::Number;
use openmps_tile::dtype::{FLOATS, NUMBERS};

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
    table.add("add_raw", NUMBERS, add_raw).strided();
    table.add("subtract_raw", NUMBERS, subtract_raw).strided();
    table.add("multiply_raw", NUMBERS, multiply_raw).strided();
    table.add("divide_raw", NUMBERS, divide_raw).strided();
    table.add("fused_elementwise_add", NUMBERS, fused_add).strided();
    table.add("fused_elementwise_sub", NUMBERS, fused_subtract).strided();
    table.add("fused_elementwise_mul", NUMBERS, fused_multiply).strided();
    table.add("fused_elementwise_div", NUMBERS, fused_divide).strided();
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

fn clip(context: &Context, x: Tensor, min: Scalar, max: Scalar, out: Output) -> Result<()> {
    let x = x.view()?;
    let numbers = [number(&min, x.dtype), number(&max, x.dtype)];
    let ordered = if x.dtype.is_float() { min.f64() <= max.f64() } else { min.i64() <= max.i64() };
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

/// The dimensions of a second operand whose first one is at `axis` of `rank` dimensions: dimensions of size 1 follow its own.
pub(super) fn aligned_shape(y: &Shape, rank: usize, axis: i32) -> Shape {
    let after = usize::try_from(axis).ok().and_then(|axis| rank.checked_sub(axis + y.len())).unwrap_or(0);
    y.iter().copied().chain(std::iter::repeat_n(1, after)).collect()
}

/// The second operand in its [`aligned_shape`].
pub(super) fn aligned(y: View, rank: usize, axis: i32) -> Result<View> {
    let shape = aligned_shape(&y.shape, rank, axis);
    let strides: Vec<isize> = y.strides.iter().copied().chain(shape[y.rank()..].iter().map(|_| 1)).collect();
    Ok(View::strided(y.address, y.dtype, &shape, &strides)?)
}

macro_rules! raw {
    ($($function:ident $fused:ident $member:ident)+) => { $(
        fn $function(context: &Context, x: Tensor, y: Tensor, axis: i32, out: Output) -> Result<()> {
            let x = x.view()?;
            let y = aligned(y.view()?, x.rank(), axis)?;
            compute(context, Elementwise::Binary(Binary::$member), &[&x, &y], &[], &out)
        }

        /// Of Paddle's attributes its own CPU reads the axis only: the others are oneDNN's.
        fn $fused(
            context: &Context,
            x: Tensor,
            y: Tensor,
            axis: i32,
            _activation: String,
            _alpha: f32,
            _beta: f32,
            _output_scale: f32,
            _axes: Vec<i32>,
            _scale_x: f32,
            _scale_y: f32,
            _scale_out: f32,
            out: Output,
        ) -> Result<()> {
            $function(context, x, y, axis, out)
        }
    )+ };
}
raw! {
    add_raw fused_add Add
    subtract_raw fused_subtract Subtract
    multiply_raw fused_multiply Multiply
    divide_raw fused_divide Divide
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
