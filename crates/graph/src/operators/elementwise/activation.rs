//! Operators of one tensor: the activation functions of neural networks, as Paddle defines them.

use super::expression::Expr;
use super::row::*;

const SQRT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// The factor in GELU's approximation by tanh.
pub(crate) const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

fn sigmoid(x: Expr<'_>) -> Expr<'_> {
    1.0 / (1.0 + (-x).exp())
}

fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `log(1 + e^x)` without overflow: `max(x, 0) + log1p(e^-|x|)`.
fn softplus(x: Expr<'_>) -> Expr<'_> {
    x.max(0.0) + (-x.abs()).exp().log1p()
}

fn softplus_f64(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// From here on `tanh(softplus(x))` is 1 in every type.
const MISH_IS_X: f64 = 20.0;

/// `tanh(log(1 + e^x))` as a quotient of powers, in which nothing cancels: `n / (n + 2)` for `n = e^x (e^x + 2)`.
pub(super) fn tanh_of_softplus(x: Expr<'_>) -> Expr<'_> {
    let power = x.min(MISH_IS_X).exp();
    let n = power * (power + 2.0);
    n / (n + 2.0)
}

/// The same in float64.
pub(super) fn tanh_of_softplus_f64(x: f64) -> f64 {
    let power = x.min(MISH_IS_X).exp();
    let n = power * (power + 2.0);
    // `f64::min` would lose a NaN.
    if x.is_nan() { x } else { n / (n + 2.0) }
}

/// `min(max(x, low), high)`; NaN stays.
fn clamp<'s>(x: Expr<'s>, low: impl Operand_<'s>, high: impl Operand_<'s>) -> Expr<'s> {
    let (low, high) = (low.like(x), high.like(x));
    let raised = x.lt(low).select(low, x);
    raised.gt(high).select(high, raised)
}

use super::expression::Operand as Operand_;

fn clamp_f64(x: f64, low: f64, high: f64) -> f64 {
    let raised = if x < low { low } else { x };
    if raised > high { high } else { raised }
}

rows! {
    /// Activation functions that are a single formula.
    Activation {
        Relu "relu", "The larger of x and 0.", ONE, [], NUMBERS => Same, 0.0, |x, _| x[0].max(0.0), |x, _| if x[0] <= 0.0 { 0.0 } else { x[0] };
        Relu6 "relu6", "x within 0 and 6.", ONE, [], NUMBERS => Same, 0.0, |x, _| clamp(x[0], 0.0, 6.0), |x, _| clamp_f64(x[0], 0.0, 6.0);
        Sigmoid "sigmoid", "The logistic function.", ONE, [], FLOATS => Same, 6.0, |x, _| sigmoid(x[0]), |x, _| sigmoid_f64(x[0]);
        LogSigmoid "logsigmoid", "The logarithm of the logistic function.", ONE, [], FLOATS => Same, 8.0, |x, _| -softplus(-x[0]), |x, _| -softplus_f64(-x[0]);
        Silu "silu", "x times the logistic function of x.", ONE, [], FLOATS => Same, 8.0, |x, _| x[0] / (1.0 + (-x[0]).exp()), |x, _| x[0] / (1.0 + (-x[0]).exp());
        Swish "swish", "x times the logistic function of beta x.", ONE, ["beta" = 1.5], FLOATS => Same, 8.0,
            |x, s| x[0] / (1.0 + (-(x[0] * s[0])).exp()), |x, s| x[0] / (1.0 + (-x[0] * s[0]).exp());
        Gelu "gelu", "x times the normal distribution's integral.", ONE, [], FLOATS => Same, 16.0,
            |x, _| 0.5 * x[0] * (1.0 + (x[0] * SQRT_HALF).erf()), |x, _| 0.5 * x[0] * (1.0 + libm::erf(x[0] * SQRT_HALF));
        GeluTanh "gelu_tanh", "GELU approximated by tanh.", ONE, [], FLOATS => Same, 16.0,
            |x, _| 0.5 * x[0] * (1.0 + (SQRT_2_OVER_PI * (x[0] + 0.044715 * x[0] * x[0] * x[0])).tanh()),
            |x, _| 0.5 * x[0] * (1.0 + (SQRT_2_OVER_PI * (x[0] + 0.044715 * x[0].powi(3))).tanh());
        Softplus "softplus", "log(1 + e^(beta x)) / beta; x itself above the threshold.", ONE, ["beta" = 2.0, "threshold" = 4.0], FLOATS => Same, 8.0,
            |x, s| (x[0] * s[0]).gt(s[1]).select(x[0], softplus(x[0] * s[0]) / s[0]),
            |x, s| if x[0] * s[0] > s[1] { x[0] } else { softplus_f64(x[0] * s[0]) / s[0] };
        Softsign "softsign", "x over 1 + |x|.", ONE, [], FLOATS => Same, 4.0, |x, _| x[0] / (1.0 + x[0].abs()), |x, _| x[0] / (1.0 + x[0].abs());
        Mish "mish", "x times tanh of softplus.", ONE, ["threshold" = 20.0], FLOATS => Same, 16.0,
            |x, s| x[0] * x[0].gt(s[0]).select(x[0].tanh(), tanh_of_softplus(x[0])), |x, _| x[0] * tanh_of_softplus_f64(x[0]);
        TanhShrink "tanh_shrink", "x less its tanh.", ONE, [], FLOATS => Same, 64.0, |x, _| x[0] - x[0].tanh(), |x, _| x[0] - x[0].tanh();
        HardSwish "hardswish", "x times the clipped line (x + offset) / scale.", ONE, ["threshold" = 6.0, "scale" = 6.0, "offset" = 3.0], FLOATS => Same, 4.0,
            |x, s| x[0] * clamp(x[0] + s[2], 0.0, s[0]) / s[1], |x, s| x[0] * clamp_f64(x[0] + s[2], 0.0, s[0]) / s[1];
        HardSigmoid "hardsigmoid", "The line slope x + offset within 0 and 1.", ONE, ["slope" = 0.25, "offset" = 0.5], FLOATS => Same, 4.0,
            |x, s| clamp(x[0] * s[0] + s[1], 0.0, 1.0), |x, s| clamp_f64(x[0] * s[0] + s[1], 0.0, 1.0);
        HardTanh "hardtanh", "x within two bounds.", ONE, ["min" = -1.0, "max" = 1.0], FLOATS => Same, 0.0,
            |x, s| clamp(x[0], s[0], s[1]), |x, s| clamp_f64(x[0], s[0], s[1]);
        HardShrink "hard_shrink", "0 within the threshold, else x.", ONE, ["threshold" = 0.5], FLOATS => Same, 0.0,
            |x, s| x[0].abs().lt(s[0]).select(x[0].number(0.0), x[0]), |x, s| if x[0].abs() < s[0] { 0.0 } else { x[0] };
        SoftShrink "softshrink", "x moved towards 0 by lambda.", ONE, ["lambda" = 0.5], FLOATS => Same, 2.0,
            |x, s| x[0].gt(s[0]).select(x[0] - s[0], x[0].lt(-s[0]).select(x[0] + s[0], x[0] * 0.0)),
            |x, s| if x[0] > s[0] { x[0] - s[0] } else if x[0] < -s[0] { x[0] + s[0] } else { x[0] * 0.0 };
        ThresholdedRelu "thresholded_relu", "x above the threshold, else a value.", ONE, ["threshold" = 1.0, "value" = 0.25], FLOATS => Same, 0.0,
            |x, s| x[0].le(s[0]).select(s[1], x[0]), |x, s| if x[0] <= s[0] { s[1] } else { x[0] };
        LeakyRelu "leaky_relu", "x where positive, else x times a slope.", ONE, ["negative_slope" = 0.02], FLOATS => Same, 2.0,
            |x, s| x[0].gt(0.0).select(x[0], x[0] * s[0]), |x, s| if x[0] > 0.0 { x[0] } else { x[0] * s[0] };
        Elu "elu", "x where positive, else alpha (e^x - 1).", ONE, ["alpha" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0].gt(0.0).select(x[0], s[0] * x[0].expm1()), |x, s| if x[0] > 0.0 { x[0] } else { s[0] * x[0].exp_m1() };
        Celu "celu", "x where positive, else alpha (e^(x / alpha) - 1).", ONE, ["alpha" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0].gt(0.0).select(x[0], s[0] * (x[0] / s[0]).expm1()), |x, s| if x[0] > 0.0 { x[0] } else { s[0] * (x[0] / s[0]).exp_m1() };
        Selu "selu", "ELU times a scale.", ONE, ["scale" = 1.050_700_987_355_48, "alpha" = 1.673_263_242_354_377_2], FLOATS => Same, 8.0,
            |x, s| s[0] * x[0].gt(0.0).select(x[0], s[1] * x[0].expm1()), |x, s| s[0] * if x[0] > 0.0 { x[0] } else { s[1] * x[0].exp_m1() };
        Logit "logit", "The logarithm of x over 1 - x.", ONE, [], FLOATS => Same, 16.0, |x, _| (x[0] / (1.0 - x[0])).log(), |x, _| (x[0] / (1.0 - x[0])).ln();
        Stanh "stanh", "b tanh(a x).", ONE, ["scale_a" = 0.67, "scale_b" = 1.7159], FLOATS => Same, 8.0,
            |x, s| s[1] * (x[0] * s[0]).tanh(), |x, s| s[1] * (x[0] * s[0]).tanh();
    }
}
