//! Gradients of activation functions and of mathematics of one tensor, with and without attributes.

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

macro_rules! kernels {
    ($($function:ident $member:ident ($($attribute:ident: $ty:ty),*) [$($number:expr),*])+) => {
        $(#[allow(unused_variables)]
        fn $function(context: &Context, x: Tensor, upstream: Tensor, $($attribute: $ty,)* dx: Output) -> Result<()> {
            gradient(context, Gradient::$member, &x, &upstream, &[$(f64::from($number)),*], &dx)
        })+

        /// Adds this family.
        pub fn register(table: &mut Table) {
            $(table.add(stringify!($function), FLOATS, $function).strided();)+
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
    };
}

kernels! {
    relu_grad Relu () []
    relu6_grad Relu6 () []
    sigmoid_grad Sigmoid () []
    tanh_grad Tanh () []
    exp_grad Exp () []
    expm1_grad Expm1 () []
    log_grad Log () []
    log2_grad Log2 () []
    log10_grad Log10 () []
    log1p_grad Log1p () []
    sqrt_grad Sqrt () []
    rsqrt_grad Rsqrt () []
    square_grad Square () []
    reciprocal_grad Reciprocal () []
    abs_grad Abs () []
    sin_grad Sin () []
    cos_grad Cos () []
    tan_grad Tan () []
    asin_grad Asin () []
    acos_grad Acos () []
    atan_grad Atan () []
    sinh_grad Sinh () []
    cosh_grad Cosh () []
    asinh_grad Asinh () []
    acosh_grad Acosh () []
    atanh_grad Atanh () []
    erf_grad Erf () []
    swish_grad Silu () []
    softsign_grad Softsign () []
    logsigmoid_grad LogSigmoid () []
    tanh_shrink_grad TanhShrink () []
    hardswish_grad HardSwish () [6.0, 6.0, 3.0]
    hardsigmoid_grad HardSigmoid (slope: f32, offset: f32) [slope, offset]
    hardtanh_grad HardTanh (low: f32, high: f32) [low, high]
    hard_shrink_grad HardShrink (threshold: f32) [threshold]
    softshrink_grad SoftShrink (lambda: f32) [lambda]
    thresholded_relu_grad ThresholdedRelu (threshold: f32, value: f32) [threshold]
    leaky_relu_grad LeakyRelu (slope: f64) [slope]
    softplus_grad Softplus (beta: f64, threshold: f64) [beta, threshold]
    celu_grad Celu (alpha: f32) [alpha]
    selu_grad Selu (scale: f32, alpha: f32) [scale, alpha]
    stanh_grad Stanh (scale_a: f32, scale_b: f32) [scale_a, scale_b]
    mish_grad Mish (threshold: f32) []
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
    let (x, mut upstream) = (c.input(&x)?, c.input(&upstream)?);
    if epsilon > 0.0 {
        upstream = c.map(Elementwise::Gradient(Gradient::Clip), &[&x, &upstream], &[epsilon, 1.0 - epsilon])?;
    }
    c.store(&dx, dtype, Elementwise::Gradient(Gradient::Logit), &[&x, &upstream], &[])
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
