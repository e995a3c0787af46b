//! Gradients of elementwise operators: from the output's gradient (the last input) and the input or output that it needs.

use super::expression::Expr;
use super::row::*;

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

fn unless_f64(condition: bool, value: f64) -> f64 {
    if condition { value } else { 0.0 }
}

rows! {
    /// Gradients that are a single formula. Unless said otherwise the inputs are x (or the output y) and dy.
    Gradient {
        Abs "abs_grad", "dy times the sign of x.", TWO, [], FLOATS => Same, 1.0,
            |x, _| x[0].gt(0.0).select(x[1], x[0].lt(0.0).select(-x[1], 0.0)), |x, _| if x[0] == 0.0 { 0.0 } else { x[0].signum() * x[1] };
        Exp "exp_grad", "dy times y.", TWO, [], FLOATS => Same, 1.0, |x, _| x[0] * x[1], |x, _| x[0] * x[1];
        Log "log_grad", "dy over x.", TWO, [], FLOATS => Same, 1.0, |x, _| x[1] / x[0], |x, _| x[1] / x[0];
        Sqrt "sqrt_grad", "dy over 2 y.", TWO, [], FLOATS => Same, 3.0, |x, _| 0.5 * x[1] / x[0], |x, _| 0.5 * x[1] / x[0];
        Rsqrt "rsqrt_grad", "-dy y^3 / 2.", TWO, [], FLOATS => Same, 6.0, |x, _| -0.5 * x[1] * x[0] * x[0] * x[0], |x, _| -0.5 * x[1] * x[0].powi(3);
        Square "square_grad", "2 x dy.", TWO, [], FLOATS => Same, 2.0, |x, _| 2.0 * x[0] * x[1], |x, _| 2.0 * x[0] * x[1];
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
            |x, _| { let s = sigmoid(x[0]); x[1] * s * (1.0 + x[0] * (1.0 - s)) },
            |x, _| { let s = sigmoid_f64(x[0]); x[1] * s * (1.0 + x[0] * (1.0 - s)) };
        Gelu "gelu_grad", "The gradient of GELU.", TWO, [], FLOATS => Same, 32.0,
            |x, _| x[1] * (0.5 * (1.0 + (x[0] * SQRT_HALF).erf()) + INVERSE_SQRT_2_PI * x[0] * (-0.5 * x[0] * x[0]).exp()),
            |x, _| x[1] * (0.5 * (1.0 + libm::erf(x[0] * SQRT_HALF)) + INVERSE_SQRT_2_PI * x[0] * (-0.5 * x[0] * x[0]).exp());
        HardSwish "hardswish_grad", "The gradient of hardswish.", TWO, ["threshold" = 6.0, "scale" = 6.0, "offset" = 3.0], FLOATS => Same, 8.0,
            |x, s| x[1] * (x[0] + s[2]).le(0.0).select(x[0].number(0.0), (x[0] + s[2]).lt(s[0]).select((2.0 * x[0] + s[2]) / s[1], 1.0)),
            |x, s| x[1] * if x[0] + s[2] <= 0.0 { 0.0 } else if x[0] + s[2] < s[0] { (2.0 * x[0] + s[2]) / s[1] } else { 1.0 };
        HardSigmoid "hardsigmoid_grad", "slope dy where y is within 0 and 1.", TWO, ["slope" = 0.25, "offset" = 0.5], FLOATS => Same, 2.0,
            |x, s| zero_unless(x[0].gt(0.0).and(x[0].lt(1.0)), x[1] * s[0]), |x, s| unless_f64(x[0] > 0.0 && x[0] < 1.0, x[1] * s[0]);
        LeakyRelu "leaky_relu_grad", "dy where x is positive, else dy times the slope.", TWO, ["negative_slope" = 0.02], FLOATS => Same, 2.0,
            |x, s| x[0].gt(0.0).select(x[1], x[1] * s[0]), |x, s| if x[0] > 0.0 { x[1] } else { x[1] * s[0] };
        Softplus "softplus_grad", "dy times the logistic function of beta x.", TWO, ["beta" = 2.0, "threshold" = 4.0], FLOATS => Same, 16.0,
            |x, s| (x[0] * s[0]).gt(s[1]).select(x[1], x[1] * sigmoid(x[0] * s[0])),
            |x, s| if x[0] * s[0] > s[1] { x[1] } else { x[1] * sigmoid_f64(x[0] * s[0]) };
        Pow "pow_grad", "dy factor x^(factor - 1).", TWO, ["factor" = 3.0], FLOATS => Same, 8.0,
            |x, s| x[1] * s[0] * x[0].pow(s[0] - 1.0), |x, s| x[1] * s[0] * x[0].powf(s[0] - 1.0);
        Clip "clip_grad", "dy where x is strictly within the bounds.", TWO, ["min" = -1.0, "max" = 2.0], FLOATS => Same, 0.0,
            |x, s| zero_unless(x[0].gt(s[0]).and(x[0].lt(s[1])), x[1]), |x, s| unless_f64(x[0] > s[0] && x[0] < s[1], x[1]);
        DivideY "divide_grad_y", "-dy out / y, the divisor's gradient: out, y, dy.", THREE, [], FLOATS => Same, 8.0,
            |x, _| -(x[2] * x[0] / x[1]), |x, _| -x[2] * x[0] / x[1];
        SoftmaxStep "softmax_grad_step", "(dy - sum) y, the last step of softmax's gradient: y, dy, sum.", THREE, [], FLOATS => Same, 8.0,
            |x, _| (x[1] - x[2]) * x[0], |x, _| (x[1] - x[2]) * x[0];
    }
}
