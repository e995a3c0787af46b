//! Gradients of activation functions and of mathematics of one tensor, with and without attributes.

use super::elementwise::compute;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Elementwise, Gradient};
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
    erf_grad Erf () []
    swish_grad Silu () []
    softsign_grad Softsign () []
    logsigmoid_grad LogSigmoid () []
    tanh_shrink_grad TanhShrink () []
    hardswish_grad HardSwish () [6.0, 6.0, 3.0]
    hardsigmoid_grad HardSigmoid (slope: f32, offset: f32) [slope, offset]
    hardtanh_grad HardTanh (low: f32, high: f32) [low, high]
    hard_shrink_grad SoftShrink (threshold: f32) [threshold]
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
