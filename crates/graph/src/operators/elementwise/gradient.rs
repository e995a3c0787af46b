//! Gradients of elementwise operators: whose they are, and their formulas over the output's gradient (the last input) and the input or output
//! that it needs.

use super::activation::{SQRT_2_OVER_PI, tanh_of_softplus, tanh_of_softplus_f64};
use super::binary::{floor_divide, floor_divide_f64};
use super::expression::Expr;
use super::row::*;
use super::{Activation, Unary};
use std::f64::consts::{LN_2, LN_10};

const INVERSE_SQRT_2_PI: f64 = 0.398_942_280_401_432_7;
const SQRT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

fn sigmoid(x: Expr<'_>) -> Expr<'_> {
    1.0 / (1.0 + (-x).exp())
}

fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn zero_unless<'s>(condition: Expr<'s>, value: Expr<'s>) -> Expr<'s> {
    condition.select(value, 0.0)
}

/// `part / (x^2 + y^2)`, where `part` is x or y, without the squares, which overflow and vanish; 0 at the origin, where an angle has no slope.
fn over_squares<'s>(x: &[Expr<'s>], part: Expr<'s>) -> Expr<'s> {
    let (large, small) = (x[0].abs().max(x[1].abs()), x[0].abs().min(x[1].abs()));
    let share = small / large;
    large.eq(0.0).select(large, part / large / (large * (1.0 + share * share)))
}

fn unless_f64(condition: bool, value: f64) -> f64 {
    if condition { value } else { 0.0 }
}

/// From what a formula of one tensor computes its gradient, besides dy.
pub(super) enum Rule {
    /// Steps of constants: the gradient is zero.
    Zero,
    /// The tensor.
    Input(Gradient),
    /// The operator's result, which is often cheaper than its operand (tanh, exp).
    Output(Gradient),
}

/// Whose gradient is which formula, by its name: of one of the operator's input or of its result, none at all (steps of constants), or the formula
/// of another name. An operator without a line has no gradient, or one of several steps (`differentiate.rs`).
macro_rules! rules {
    ($name:ident of $kind:ident: input [$($input:ident)*] output [$($output:ident)*] zero [$($zero:ident)*] also [$($also:ident $formula:ident)*]) => {
        pub(super) fn $name(operator: $kind) -> Option<Rule> {
            Some(match operator {
                $($kind::$input => Rule::Input(Gradient::$input),)*
                $($kind::$output => Rule::Output(Gradient::$output),)*
                $($kind::$zero => Rule::Zero,)*
                $($kind::$also => Rule::Input(Gradient::$formula),)*
                _ => return None,
            })
        }
    };
}

rules! {
    of_unary of Unary:
    input [
        Abs Log Log2 Log10 Log1p Square Cube Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Clip
    ]
    output [Exp Expm1 Sqrt Rsqrt Reciprocal Tanh]
    zero [Floor Ceil Round Trunc Sign IsNan IsInf IsFinite LogicalNot BitwiseNot]
    also [PowScalar Pow]
}

rules! {
    of_activation of Activation:
    input [
        LogSigmoid Silu Gelu GeluTanh Softplus Softsign Mish TanhShrink HardSwish HardTanh HardShrink SoftShrink ThresholdedRelu LeakyRelu Elu
        Celu Logit Stanh
    ]
    output [Relu Relu6 Sigmoid HardSigmoid Selu]
    zero []
    also []
}

rows! {
    /// Gradients that are a single formula. Unless said otherwise the inputs are x (or the output y) and dy.
    Gradient {
        Abs "abs_grad", "dy times the sign of x.", TWO, [], FLOATS => Same, 1.0,
            |x, _| x[0].gt(0.0).select(x[1], x[0].lt(0.0).select(-x[1], x[0].eq(0.0).select(x[0].number(0.0), x[0]))),
            |x, _| if x[0] == 0.0 { 0.0 } else { x[0].signum() * x[1] };
        Exp "exp_grad", "dy times y.", TWO, [], FLOATS => Same, 1.0, |x, _| x[0] * x[1], |x, _| x[0] * x[1];
        Log "log_grad", "dy over x.", TWO, [], FLOATS => Same, 1.0, |x, _| x[1] / x[0], |x, _| x[1] / x[0];
        Sqrt "sqrt_grad", "dy over 2 y.", TWO, [], FLOATS => Same, 3.0, |x, _| 0.5 * x[1] / x[0], |x, _| 0.5 * x[1] / x[0];
        Rsqrt "rsqrt_grad", "-dy y^3 / 2.", TWO, [], FLOATS => Same, 6.0, |x, _| -0.5 * x[1] * x[0] * x[0] * x[0], |x, _| -0.5 * x[1] * x[0].powi(3);
        Square "square_grad", "2 x dy.", TWO, [], FLOATS => Same, 2.0, |x, _| 2.0 * (x[0] * x[1]), |x, _| 2.0 * (x[0] * x[1]);
        Cube "cube_grad", "3 x^2 dy.", TWO, [], FLOATS => Same, 4.0, |x, _| 3.0 * (x[0] * x[0] * x[1]), |x, _| 3.0 * (x[0] * x[0] * x[1]);
        Reciprocal "reciprocal_grad", "-dy y^2.", TWO, [], FLOATS => Same, 4.0, |x, _| -(x[1] * x[0] * x[0]), |x, _| -x[1] * x[0] * x[0];
        Sin "sin_grad", "dy times the cosine of x.", TWO, [], FLOATS => Same, 8.0, |x, _| x[1] * x[0].cos(), |x, _| x[1] * x[0].cos();
        Cos "cos_grad", "-dy times the sine of x.", TWO, [], FLOATS => Same, 8.0, |x, _| -(x[1] * x[0].sin()), |x, _| -x[1] * x[0].sin();
        Tanh "tanh_grad", "dy (1 - y^2).", TWO, [], FLOATS => Same, 16.0, |x, _| x[1] * (1.0 - x[0] * x[0]), |x, _| x[1] * (1.0 - x[0] * x[0]);
        Erf "erf_grad", "dy times the bell curve of x.", TWO, [], FLOATS => Same, 16.0,
            |x, _| std::f64::consts::FRAC_2_SQRT_PI * x[1] * (-(x[0] * x[0])).exp(), |x, _| std::f64::consts::FRAC_2_SQRT_PI * x[1] * (-x[0] * x[0]).exp();
        Relu "relu_grad", "dy where y is positive.", TWO, [], FLOATS => Same, 0.0, |x, _| zero_unless(x[0].gt(0.0), x[1]), |x, _| unless_f64(x[0] > 0.0, x[1]);
        Relu6 "relu6_grad", "dy where y is within 0 and 6.", TWO, [], FLOATS => Same, 0.0,
            |x, _| zero_unless(x[0].gt(0.0).and(x[0].lt(6.0)), x[1]), |x, _| unless_f64(x[0] > 0.0 && x[0] < 6.0, x[1]);
        Sigmoid "sigmoid_grad", "dy y (1 - y).", TWO, [], FLOATS => Same, 16.0, |x, _| x[1] * x[0] * (1.0 - x[0]), |x, _| x[1] * x[0] * (1.0 - x[0]);
        Silu "silu_grad", "The gradient of x times the logistic function.", TWO, [], FLOATS => Same, 32.0,
            |x, _| {
                // Where the logistic function is 0 or 1 an infinite x would make NaN of the product.
                let s = sigmoid(x[0]);
                let slope = s * (1.0 + x[0] * (1.0 - s));
                x[1] * s.eq(0.0).or(s.eq(1.0)).select(s, slope)
            },
            |x, _| { let s = sigmoid_f64(x[0]); x[1] * s * (1.0 + x[0] * (1.0 - s)) };
        Gelu "gelu_grad", "The gradient of GELU.", TWO, [], FLOATS => Same, 32.0,
            |x, _| x[1] * (0.5 * (1.0 + (x[0] * SQRT_HALF).erf()) + INVERSE_SQRT_2_PI * x[0] * (-0.5 * x[0] * x[0]).exp()),
            |x, _| x[1] * (0.5 * (1.0 + libm::erf(x[0] * SQRT_HALF)) + INVERSE_SQRT_2_PI * x[0] * (-0.5 * x[0] * x[0]).exp());
        HardSwish "hardswish_grad", "The gradient of hardswish.", TWO, ["threshold" = 6.0, "scale" = 6.0, "offset" = 3.0], FLOATS => Same, 8.0,
            |x, s| x[1] * (x[0] + s[2]).le(0.0).select(x[0].number(0.0), (x[0] + s[2]).ge(s[0]).select(x[0].number(1.0), (2.0 * x[0] + s[2]) / s[1])),
            |x, s| x[1] * if x[0] + s[2] <= 0.0 { 0.0 } else if x[0] + s[2] >= s[0] { 1.0 } else { (2.0 * x[0] + s[2]) / s[1] };
        HardSigmoid "hardsigmoid_grad", "slope dy where y is within 0 and 1.", TWO, ["slope" = 0.25, "offset" = 0.5], FLOATS => Same, 2.0,
            |x, s| zero_unless(x[0].gt(0.0).and(x[0].lt(1.0)), x[1] * s[0]), |x, s| unless_f64(x[0] > 0.0 && x[0] < 1.0, x[1] * s[0]);
        LeakyRelu "leaky_relu_grad", "dy where x is not negative, else dy times the slope; 0 for NaN.", TWO, ["negative_slope" = 0.02], FLOATS => Same, 2.0,
            |x, s| x[0].ge(0.0).select(x[1], zero_unless(x[0].lt(0.0), x[1] * s[0])),
            |x, s| if x[0] >= 0.0 { x[1] } else { unless_f64(x[0] < 0.0, x[1] * s[0]) };
        Softplus "softplus_grad", "dy times the logistic function of beta x.", TWO, ["beta" = 2.0, "threshold" = 4.0], FLOATS => Same, 16.0,
            |x, s| (x[0] * s[0]).gt(s[1]).select(x[1], x[1] * sigmoid(x[0] * s[0])),
            |x, s| if x[0] * s[0] > s[1] { x[1] } else { x[1] * sigmoid_f64(x[0] * s[0]) };
        Pow "pow_grad", "dy factor x^(factor - 1).", TWO, ["factor" = 3.0], FLOATS => Same, 8.0,
            |x, s| s[0].eq(0.0).select(x[0].number(0.0), x[1] * s[0] * x[0].pow(s[0] - 1.0)),
            |x, s| if s[0] == 0.0 { 0.0 } else { x[1] * s[0] * x[0].powf(s[0] - 1.0) };
        Clip "clip_grad", "dy where x is within the bounds or on one.", TWO, ["min" = -1.0, "max" = 2.0], FLOATS => Same, 0.0,
            |x, s| zero_unless(x[0].ge(s[0]).and(x[0].le(s[1])), x[1]), |x, s| unless_f64(x[0] >= s[0] && x[0] <= s[1], x[1]);
        DivideY "divide_grad_y", "-dy out / y, the divisor's gradient: out, y, dy.", THREE, [], FLOATS => Same, 8.0,
            |x, _| -(x[2] * x[0] / x[1]), |x, _| -x[2] * x[0] / x[1];
        GeluTanh "gelu_tanh_grad", "The gradient of GELU approximated by tanh.", TWO, [], FLOATS => Same, 64.0,
            |x, _| {
                let t = (SQRT_2_OVER_PI * (x[0] + 0.044715 * x[0] * x[0] * x[0])).tanh();
                let inner = SQRT_2_OVER_PI * (1.0 + 0.134145 * x[0] * x[0]);
                let rest = 1.0 - t * t;
                let bent = rest.eq(0.0).select(rest, 0.5 * x[0] * rest * inner);
                x[1] * (0.5 * (1.0 + t) + bent)
            },
            |x, _| {
                let t = (SQRT_2_OVER_PI * (x[0] + 0.044715 * x[0].powi(3))).tanh();
                x[1] * (0.5 * (1.0 + t) + 0.5 * x[0] * (1.0 - t * t) * SQRT_2_OVER_PI * (1.0 + 0.134145 * x[0] * x[0]))
            };
        Log2 "log2_grad", "dy over x ln 2.", TWO, [], FLOATS => Same, 4.0, |x, _| x[1] / (x[0] * LN_2), |x, _| x[1] / (x[0] * LN_2);
        Log10 "log10_grad", "dy over x ln 10.", TWO, [], FLOATS => Same, 4.0, |x, _| x[1] / (x[0] * LN_10), |x, _| x[1] / (x[0] * LN_10);
        Log1p "log1p_grad", "dy over 1 + x.", TWO, [], FLOATS => Same, 4.0, |x, _| x[1] / (1.0 + x[0]), |x, _| x[1] / (1.0 + x[0]);
        Expm1 "expm1_grad", "dy (y + 1).", TWO, [], FLOATS => Same, 4.0, |x, _| x[1] * (x[0] + 1.0), |x, _| x[1] * (x[0] + 1.0);
        Tan "tan_grad", "dy over the cosine of x squared.", TWO, [], FLOATS => Same, 16.0,
            |x, _| { let c = x[0].cos(); x[1] / (c * c) }, |x, _| x[1] / (x[0].cos() * x[0].cos());
        Asin "asin_grad", "dy over sqrt(1 - x^2).", TWO, [], FLOATS => Same, 64.0, |x, _| x[1] / ((1.0 - x[0]) * (1.0 + x[0])).sqrt(), |x, _| x[1] / ((1.0 - x[0]) * (1.0 + x[0])).sqrt();
        Acos "acos_grad", "-dy over sqrt(1 - x^2).", TWO, [], FLOATS => Same, 64.0, |x, _| -(x[1] / ((1.0 - x[0]) * (1.0 + x[0])).sqrt()), |x, _| -x[1] / ((1.0 - x[0]) * (1.0 + x[0])).sqrt();
        Atan "atan_grad", "dy over 1 + x^2.", TWO, [], FLOATS => Same, 8.0, |x, _| x[1] / (1.0 + x[0] * x[0]), |x, _| x[1] / (1.0 + x[0] * x[0]);
        Sinh "sinh_grad", "dy times the hyperbolic cosine of x.", TWO, [], FLOATS => Same, 16.0, |x, _| x[1] * x[0].cosh(), |x, _| x[1] * x[0].cosh();
        Cosh "cosh_grad", "dy times the hyperbolic sine of x.", TWO, [], FLOATS => Same, 16.0, |x, _| x[1] * x[0].sinh(), |x, _| x[1] * x[0].sinh();
        Asinh "asinh_grad", "dy over sqrt(x^2 + 1).", TWO, [], FLOATS => Same, 8.0, |x, _| x[1] / (x[0] * x[0] + 1.0).sqrt(), |x, _| x[1] / (x[0] * x[0] + 1.0).sqrt();
        Acosh "acosh_grad", "dy over sqrt(x^2 - 1).", TWO, [], FLOATS => Same, 64.0, |x, _| x[1] / ((x[0] - 1.0) * (x[0] + 1.0)).sqrt(), |x, _| x[1] / ((x[0] - 1.0) * (x[0] + 1.0)).sqrt();
        Atanh "atanh_grad", "dy over 1 - x^2.", TWO, [], FLOATS => Same, 64.0, |x, _| x[1] / ((1.0 - x[0]) * (1.0 + x[0])), |x, _| x[1] / ((1.0 - x[0]) * (1.0 + x[0]));
        CopySign "copysign_grad", "dy where x has the sign of y, -dy where it has not, 0 where x is 0: x, out, dy.", THREE, [], FLOATS => Same, 0.0,
            |x, _| x[0].eq(0.0).select(x[0].number(0.0), x[0].eq(x[1]).select(x[2], -x[2])),
            |x, _| if x[0] == 0.0 { 0.0 } else if x[0] == x[1] { x[2] } else { -x[2] };
        Softsign "softsign_grad", "dy over (1 + |x|)^2.", TWO, [], FLOATS => Same, 8.0,
            |x, _| { let d = 1.0 + x[0].abs(); x[1] / (d * d) }, |x, _| x[1] / ((1.0 + x[0].abs()) * (1.0 + x[0].abs()));
        LogSigmoid "logsigmoid_grad", "dy times the logistic function of -x.", TWO, [], FLOATS => Same, 16.0,
            |x, _| x[1] * sigmoid(-x[0]), |x, _| x[1] * sigmoid_f64(-x[0]);
        TanhShrink "tanh_shrink_grad", "dy tanh(x)^2.", TWO, [], FLOATS => Same, 32.0,
            |x, _| { let t = x[0].tanh(); x[1] * t * t }, |x, _| x[1] * x[0].tanh() * x[0].tanh();
        HardShrink "hard_shrink_grad", "dy where x is not within the threshold.", TWO, ["threshold" = 0.5], FLOATS => Same, 0.0,
            |x, s| x[0].abs().lt(s[0]).select(x[0].number(0.0), x[1]), |x, s| unless_f64(x[0].abs() >= s[0] || x[0].is_nan(), x[1]);
        SoftShrink "softshrink_grad", "dy where x is outside of the threshold.", TWO, ["lambda" = 0.5], FLOATS => Same, 0.0,
            |x, s| zero_unless(x[0].abs().gt(s[0]), x[1]), |x, s| unless_f64(x[0].abs() > s[0], x[1]);
        HardTanh "hardtanh_grad", "dy where x is strictly within the bounds.", TWO, ["min" = -1.0, "max" = 1.0], FLOATS => Same, 0.0,
            |x, s| zero_unless(x[0].gt(s[0]).and(x[0].lt(s[1])), x[1]), |x, s| unless_f64(x[0] > s[0] && x[0] < s[1], x[1]);
        ThresholdedRelu "thresholded_relu_grad", "dy where x is above the threshold.", TWO, ["threshold" = 1.0], FLOATS => Same, 0.0,
            |x, s| zero_unless(x[0].gt(s[0]), x[1]), |x, s| unless_f64(x[0] > s[0], x[1]);
        Elu "elu_grad", "dy where x is positive, else dy alpha e^x.", TWO, ["alpha" = 0.75], FLOATS => Same, 8.0,
            |x, s| x[0].gt(0.0).select(x[1], x[1] * s[0] * x[0].exp()), |x, s| if x[0] > 0.0 { x[1] } else { x[1] * s[0] * x[0].exp() };
        Celu "celu_grad", "dy where x is positive, else dy e^(x / alpha).", TWO, ["alpha" = 0.75], FLOATS => Same, 16.0,
            |x, s| x[0].gt(0.0).select(x[1], x[1] * (x[0] / s[0]).exp()), |x, s| if x[0] > 0.0 { x[1] } else { x[1] * (x[0] / s[0]).exp() };
        Selu "selu_grad", "dy (y + scale alpha) where y is not positive, else dy scale.", TWO, ["scale" = 1.050_700_987_355_48, "alpha" = 1.673_263_242_354_377_2], FLOATS => Same, 8.0,
            |x, s| x[0].le(0.0).select(x[1] * (x[0] + s[0] * s[1]), x[1] * s[0]), |x, s| if x[0] <= 0.0 { x[1] * (x[0] + s[0] * s[1]) } else { x[1] * s[0] };
        Stanh "stanh_grad", "dy a b (1 - tanh(a x)^2).", TWO, ["scale_a" = 0.67, "scale_b" = 1.7159], FLOATS => Same, 32.0,
            |x, s| { let t = (x[0] * s[0]).tanh(); x[1] * s[0] * s[1] * (1.0 - t * t) },
            |x, s| { let t = (x[0] * s[0]).tanh(); x[1] * s[0] * s[1] * (1.0 - t * t) };
        Mish "mish_grad", "The gradient of x tanh(softplus(x)).", TWO, [], FLOATS => Same, 64.0,
            |x, _| {
                let t = tanh_of_softplus(x[0]);
                x[1] * (t + x[0] * (1.0 - t * t) * sigmoid(x[0]))
            },
            |x, _| {
                let t = tanh_of_softplus_f64(x[0]);
                x[1] * (t + x[0] * (1.0 - t * t) * sigmoid_f64(x[0]))
            };
        WhereGreater "where_greater_grad", "dy where x is above y, half of it where they are equal: x, y, dy.", THREE, [], FLOATS => Same, 1.0,
            |x, _| x[0].gt(x[1]).select(x[2], zero_unless(x[0].eq(x[1]), 0.5 * x[2])),
            |x, _| if x[0] == x[1] { 0.5 * x[2] } else { unless_f64(x[0] > x[1], x[2]) };
        WhereLess "where_less_grad", "dy where x is below y, half of it where they are equal: x, y, dy.", THREE, [], FLOATS => Same, 1.0,
            |x, _| x[0].lt(x[1]).select(x[2], zero_unless(x[0].eq(x[1]), 0.5 * x[2])),
            |x, _| if x[0] == x[1] { 0.5 * x[2] } else { unless_f64(x[0] < x[1], x[2]) };
        FmaxX "fmax_grad_x", "dy where x is not below y, or y is NaN: x, y, dy.", THREE, [], FLOATS => Same, 0.0,
            |x, _| zero_unless(x[0].ge(x[1]).or(x[1].ne(x[1])), x[2]), |x, _| unless_f64(x[0] >= x[1] || x[1].is_nan(), x[2]);
        FmaxY "fmax_grad_y", "What is left of dy by fmax_grad_x: x, y, dy.", THREE, [], FLOATS => Same, 0.0,
            |x, _| x[0].ge(x[1]).or(x[1].ne(x[1])).select(x[2].number(0.0), x[2]), |x, _| unless_f64(!(x[0] >= x[1] || x[1].is_nan()), x[2]);
        FminX "fmin_grad_x", "dy where x is not above y, or y is NaN: x, y, dy.", THREE, [], FLOATS => Same, 0.0,
            |x, _| zero_unless(x[0].le(x[1]).or(x[1].ne(x[1])), x[2]), |x, _| unless_f64(x[0] <= x[1] || x[1].is_nan(), x[2]);
        FminY "fmin_grad_y", "What is left of dy by fmin_grad_x: x, y, dy.", THREE, [], FLOATS => Same, 0.0,
            |x, _| x[0].le(x[1]).or(x[1].ne(x[1])).select(x[2].number(0.0), x[2]), |x, _| unless_f64(!(x[0] <= x[1] || x[1].is_nan()), x[2]);
        WhereEqual "where_equal_grad", "dy where x equals y: x, y, dy.", THREE, [], FLOATS => Same, 0.0, |x, _| zero_unless(x[0].eq(x[1]), x[2]), |x, _| unless_f64(x[0] == x[1], x[2]);
        Chosen "where_grad_x", "dy where the condition holds: condition, dy.", MASKED, [], ALL => Same, 0.0, |x, _| zero_unless(x[0], x[1]), |x, _| unless_f64(x[0] != 0.0, x[1]);
        NotChosen "where_grad_y", "dy where the condition does not hold: condition, dy.", MASKED, [], ALL => Same, 0.0,
            |x, _| x[0].select(x[1].number(0.0), x[1]), |x, _| unless_f64(x[0] == 0.0, x[1]);
        Atan2X "atan2_grad_x", "dy times y over x^2 + y^2: x, y, dy.", THREE, [], FLOATS => Same, 16.0,
            |x, _| x[2] * over_squares(x, x[1]), |x, _| x[2] * x[1] / (x[0] * x[0] + x[1] * x[1]);
        Atan2Y "atan2_grad_y", "-dy times x over x^2 + y^2: x, y, dy.", THREE, [], FLOATS => Same, 16.0,
            |x, _| -(x[2] * over_squares(x, x[0])), |x, _| -x[2] * x[0] / (x[0] * x[0] + x[1] * x[1]);
        LerpX "lerp_grad_x", "dy (1 - weight): weight, dy.", TWO, [], FLOATS => Same, 8.0, |x, _| x[1] * (1.0 - x[0]), |x, _| x[1] * (1.0 - x[0]);
        Logit "logit_grad", "dy over x (1 - x).", TWO, [], FLOATS => Same, 16.0, |x, _| x[0].lt(0.0).or(x[0].gt(1.0)).select(x[0].number(f64::NAN), x[1] / (x[0] * (1.0 - x[0]))),
            |x, _| if x[0] < 0.0 || x[0] > 1.0 { f64::NAN } else { x[1] / (x[0] * (1.0 - x[0])) };
        PowerX "elementwise_pow_grad_x", "dy y x^(y - 1): x, y, dy.", THREE, [], FLOATS => Same, 16.0,
            |x, _| x[1].eq(0.0).select(x[1].number(0.0), x[2] * (x[1] * x[0].pow(x[1] - 1.0))),
            |x, _| if x[1] == 0.0 { 0.0 } else { x[2] * (x[1] * x[0].powf(x[1] - 1.0)) };
        PowerY "elementwise_pow_grad_y", "dy ln(x) x^y: x, y, dy.", THREE, [], FLOATS => Same, 16.0,
            |x, _| x[0].eq(0.0).and(x[1].ge(0.0)).select(x[0].number(0.0), x[2] * x[0].log() * x[0].pow(x[1])),
            |x, _| if x[0] == 0.0 && x[1] >= 0.0 { 0.0 } else { x[2] * x[0].ln() * x[0].powf(x[1]) };
        RemainderY "remainder_grad_y", "-dy times the quotient rounded down: x, y, dy.", THREE, [], FLOATS => Same, 1.0,
            |x, _| -(x[2] * floor_divide(x[0], x[1])), |x, _| -x[2] * floor_divide_f64(x[0], x[1]);
        Heaviside "heaviside_grad_y", "dy where x is 0: x, dy.", TWO, [], FLOATS => Same, 0.0,
            |x, _| zero_unless(x[0].eq(0.0), x[1]), |x, _| unless_f64(x[0] == 0.0, x[1]);
        ExpDifference "exp_difference", "dy e^(x - y), the gradient of a logarithm of summed powers: x, y, dy.", THREE, [], FLOATS => Same, 8.0, |x, _| x[2] * (x[0] - x[1]).exp(), |x, _| x[2] * (x[0] - x[1]).exp();
    }
}
