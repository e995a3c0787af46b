//! Operators of one tensor: mathematics.

use super::expression::Expr;
use super::row::*;

const LN_10_INVERSE: f64 = std::f64::consts::LOG10_E;

rows! {
    /// Operators of one tensor that are a single formula.
    Unary {
        Abs "abs", "The absolute value.", ONE, [], SIGNED => Same, 0.0, |x, _| x[0].abs(), |x, _| x[0].abs();
        Negate "negate", "The negative.", ONE, [], SIGNED => Same, 0.0, |x, _| -x[0], |x, _| -x[0];
        Exp "exp", "e to the power of x.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].exp(), |x, _| x[0].exp();
        Expm1 "expm1", "e to the power of x, less 1.", ONE, [], PROMOTED => Float, 8.0, |x, _| x[0].expm1(), |x, _| x[0].exp_m1();
        Log "log", "The natural logarithm.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].log(), |x, _| x[0].ln();
        Log2 "log2", "The logarithm to base 2.", ONE, [], PROMOTED => Float, 6.0, |x, _| x[0].log2(), |x, _| x[0].log2();
        Log10 "log10", "The logarithm to base 10.", ONE, [], PROMOTED => Float, 6.0, |x, _| x[0].log() * LN_10_INVERSE, |x, _| x[0].log10();
        Log1p "log1p", "The logarithm of 1 + x.", ONE, [], PROMOTED => Float, 8.0, |x, _| x[0].log1p(), |x, _| x[0].ln_1p();
        Sqrt "sqrt", "The square root.", ONE, [], PROMOTED => Float, 1.0, |x, _| x[0].sqrt(), |x, _| x[0].sqrt();
        Rsqrt "rsqrt", "1 over the square root.", ONE, [], PROMOTED => Float, 3.0, |x, _| x[0].rsqrt(), |x, _| 1.0 / x[0].sqrt();
        Square "square", "x times x.", ONE, [], NUMBERS => Same, 1.0, |x, _| x[0] * x[0], |x, _| x[0] * x[0];
        Cube "cube", "x times x times x.", ONE, [], NUMBERS => Same, 2.0, |x, _| x[0] * x[0] * x[0], |x, _| x[0] * x[0] * x[0];
        Reciprocal "reciprocal", "1 over x.", ONE, [], PROMOTED => Float, 1.0, |x, _| 1.0 / x[0], |x, _| 1.0 / x[0];
        Sin "sin", "The sine of an angle in radians.", ONE, [], PROMOTED => Float, 8.0, |x, _| x[0].sin(), |x, _| x[0].sin();
        Cos "cos", "The cosine of an angle in radians.", ONE, [], PROMOTED => Float, 8.0, |x, _| x[0].cos(), |x, _| x[0].cos();
        Tan "tan", "The tangent of an angle in radians.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].tan(), |x, _| x[0].tan();
        Asin "asin", "The inverse sine.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].asin(), |x, _| x[0].asin();
        Acos "acos", "The inverse cosine.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].acos(), |x, _| x[0].acos();
        Atan "atan", "The inverse tangent.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].atan(), |x, _| x[0].atan();
        Sinh "sinh", "The hyperbolic sine.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].sinh(), |x, _| x[0].sinh();
        Cosh "cosh", "The hyperbolic cosine.", ONE, [], PROMOTED => Float, 4.0, |x, _| x[0].cosh(), |x, _| x[0].cosh();
        Tanh "tanh", "The hyperbolic tangent.", ONE, [], PROMOTED => Float, 6.0, |x, _| x[0].tanh(), |x, _| x[0].tanh();
        Asinh "asinh", "The inverse hyperbolic sine.", ONE, [], PROMOTED => Float, 8.0, |x, _| asinh(x[0]), |x, _| x[0].asinh();
        Acosh "acosh", "The inverse hyperbolic cosine.", ONE, [], PROMOTED => Float, 8.0, |x, _| acosh(x[0]), |x, _| x[0].acosh();
        Atanh "atanh", "The inverse hyperbolic tangent.", ONE, [], PROMOTED => Float, 8.0, |x, _| atanh(x[0]), |x, _| atanh_f64(x[0]);
        Erf "erf", "The error function.", ONE, [], FLOATS => Same, 6.0, |x, _| x[0].erf(), |x, _| libm::erf(x[0]);
        Floor "floor", "The largest integer not above x.", ONE, [], NUMBERS => Same, 0.0, |x, _| whole(x[0], Expr::floor), |x, _| x[0].floor();
        Ceil "ceil", "The smallest integer not below x.", ONE, [], NUMBERS => Same, 0.0, |x, _| whole(x[0], Expr::ceil), |x, _| x[0].ceil();
        Round "round", "The nearest integer, halves to even.", ONE, [], NUMBERS => Same, 0.0, |x, _| whole(x[0], Expr::round), |x, _| x[0].round_ties_even();
        Trunc "trunc", "The integer towards zero.", ONE, [], NUMBERS => Same, 0.0, |x, _| whole(x[0], Expr::trunc), |x, _| x[0].trunc();
        Sign "sign", "-1, 0 or 1.", ONE, [], NUMBERS => Same, 0.0,
            |x, _| x[0].gt(0.0).select(x[0].number(1.0), x[0].lt(0.0).select(x[0].number(-1.0), x[0].eq(0.0).select(x[0].number(0.0), x[0]))),
            |x, _| if x[0] > 0.0 { 1.0 } else if x[0] < 0.0 { -1.0 } else if x[0] == 0.0 { 0.0 } else { x[0] };
        IsNan "isnan", "Whether x is not a number.", ONE, [], NUMBERS => Bool, 0.0, |x, _| x[0].ne(x[0]), |x, _| f64::from(x[0].is_nan());
        IsInf "isinf", "Whether x is infinite.", ONE, [], NUMBERS => Bool, 0.0,
            |x, _| if x[0].scalar().is_float() { x[0].abs().eq(f64::INFINITY) } else { x[0].ne(x[0]) },
            |x, _| f64::from(x[0].is_infinite());
        IsFinite "isfinite", "Whether x is neither infinite nor NaN.", ONE, [], NUMBERS => Bool, 0.0,
            |x, _| if x[0].scalar().is_float() { x[0].abs().lt(f64::INFINITY) } else { x[0].eq(x[0]) },
            |x, _| f64::from(x[0].is_finite());
        LogicalNot "logical_not", "Whether x is zero.", &[Operand::Truth], [], ALL => Bool, 0.0, |x, _| x[0].not(), |x, _| f64::from(x[0] == 0.0);
        BitwiseNot "bitwise_not", "Every bit inverted.", ONE, [], BITS => Same, 0.0, |x, _| x[0].not(), |x, s| bitwise_not(x[0], s);
        Cast "cast", "The same numbers in another type.", ONE, [], EVERY => Given, 0.0, |x, _| x[0], |x, _| x[0];
        Scale "scale", "x * scale + bias.", ONE, ["scale" = 2.0, "bias" = 3.0], NUMBERS => Same, 4.0, |x, s| x[0] * s[0] + s[1], |x, s| x[0] * s[0] + s[1];
        Clip "clip", "x within bounds; NaN stays.", ONE, ["min" = 1.0, "max" = 2.0], NUMBERS => Same, 0.0,
            |x, s| s[1].min(s[0].max(x[0])), |x, s| clip_f64(x[0], [s[0], s[1]]);
        PowScalar "pow", "x to the power of a number.", ONE, ["factor" = 3.0], PROMOTED => Same, 4.0, |x, s| power(x[0], s[0]), |x, s| x[0].powf(s[0]);
    }
}

/// From here on the square of x is all that is seen of x^2 + 1 and of x^2 - 1: the inverse hyperbolic sine and cosine are log(2 x).
const LARGE: f64 = (1_u64 << 28) as f64;

/// `log(2 x)` of a large x, whose double may overflow.
fn log_of_double(x: Expr<'_>) -> Expr<'_> {
    x.log() + std::f64::consts::LN_2
}

/// The result of an odd function of the magnitude of x, with the sign of x.
fn odd<'s>(x: Expr<'s>, of_magnitude: Expr<'s>) -> Expr<'s> {
    x.lt(0.0).select(-of_magnitude, of_magnitude)
}

/// `log(x + sqrt(x^2 + 1))`, without the cancellation near zero.
fn asinh(x: Expr<'_>) -> Expr<'_> {
    let size = x.abs();
    let square = size * size;
    let near = (size + square / (1.0 + (square + 1.0).sqrt())).log1p();
    odd(x, size.gt(LARGE).select(log_of_double(size), near))
}

/// `log(x + sqrt(x^2 - 1))`, without the cancellation near one.
fn acosh(x: Expr<'_>) -> Expr<'_> {
    let above = x - 1.0;
    let near = (above + (above * (above + 2.0)).sqrt()).log1p();
    let value = x.gt(LARGE).select(log_of_double(x), near);
    x.lt(1.0).select(x.number(f64::NAN), value)
}

/// `log((1 + x) / (1 - x)) / 2`, without the cancellation near zero.
fn atanh(x: Expr<'_>) -> Expr<'_> {
    let size = x.abs();
    odd(x, 0.5 * (2.0 * size / (1.0 - size)).log1p())
}

/// The standard library's loses digits where x is small.
fn atanh_f64(x: f64) -> f64 {
    (0.5 * (2.0 * x.abs() / (1.0 - x.abs())).ln_1p()).copysign(x)
}

/// A rounding to whole numbers; integers are whole.
fn whole<'s>(x: Expr<'s>, rounded: fn(Expr<'s>) -> Expr<'s>) -> Expr<'s> {
    if x.scalar().is_float() { rounded(x) } else { x }
}

fn bitwise_not(x: f64, _: &[f64]) -> f64 {
    -x - 1.0
}

fn clip_f64(x: f64, [min, max]: [f64; 2]) -> f64 {
    let raised = if min > x { min } else { x };
    if max < raised { max } else { raised }
}

/// A power. Of integers it is exact and wraps around, as products do; negative exponents leave 1, -1 and, for all other bases, 0.
pub(super) fn power<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    if x.scalar().is_float() {
        return x.pow(y);
    }
    let bits = x.scalar().size() * 8 - 1;
    let (mut result, mut square) = (x.number(1.0), x);
    for bit in 0..bits {
        let is_set = y.and((1_u64 << bit) as f64).ne(0.0);
        result = is_set.select(result * square, result);
        square = square * square;
    }
    let of_minus_one = y.and(1.0).ne(0.0).select(x.number(-1.0), 1.0);
    let inverse = x.eq(-1.0).select(of_minus_one, x.eq(1.0).select(x, 0.0));
    y.lt(0.0).select(inverse, result)
}
