//! Operators of two or three tensors, with broadcasting.

use super::expression::Expr;
use super::row::*;
use super::unary::power;
use openmps_tile::Scalar;

const TRUTHS: &[Operand] = &[Operand::Truth, Operand::Truth];
const CHOICE: &[Operand] = &[Operand::Truth, Operand::Common, Operand::Common];

/// The quotient rounded down. Of floats it is the one that belongs to the remainder, as in Python: 1.0 // 0.1 is 9, because 0.1 is a
/// little more than a tenth.
pub(super) fn floor_divide<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    let quotient = x.div(y);
    if x.scalar().is_float() {
        // What is left without the remainder is a multiple of y but for rounding.
        let remainder = x.rem(y);
        let exact = (x - remainder).div(y);
        let opposite = remainder.lt(0.0).ne(y.lt(0.0));
        let exact = remainder.ne(0.0).and(opposite).select(exact - 1.0, exact);
        let below = exact.floor();
        let whole = (exact - below).gt(0.5).select(below + 1.0, below);
        // A quotient of zero has the sign of x / y.
        let signed = exact.eq(0.0).select(quotient * 0.0, whole);
        return y.eq(0.0).select(quotient, signed);
    }
    // An integer quotient goes towards zero: one too high where signs differ and something remains.
    let inexact = (quotient * y).ne(x);
    let opposite = x.lt(0.0).ne(y.lt(0.0));
    inexact.and(opposite).select(quotient - 1.0, quotient)
}

/// The remainder with the divisor's sign, as Python's `%`.
fn modulo<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    let remainder = x.rem(y);
    let opposite = remainder.lt(0.0).ne(y.lt(0.0));
    remainder.ne(0.0).and(opposite).select(remainder + y, remainder)
}

fn modulo_f64(x: f64, y: f64) -> f64 {
    let remainder = x % y;
    if remainder != 0.0 && (remainder < 0.0) != (y < 0.0) { remainder + y } else { remainder }
}

pub(super) fn floor_divide_f64(x: f64, y: f64) -> f64 {
    if y == 0.0 {
        return x / y;
    }
    let remainder = x % y;
    let opposite = remainder != 0.0 && (remainder < 0.0) != (y < 0.0);
    let exact = (x - remainder) / y - f64::from(opposite);
    if exact == 0.0 { 0.0_f64.copysign(x / y) } else { exact.round() }
}

/// Whether x is less than y; false is less than true.
fn less<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    if x.scalar() == Scalar::I1 { y.and(x.not()) } else { x.lt(y) }
}

fn at_most<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    if x.scalar() == Scalar::I1 { y.or(x.not()) } else { x.le(y) }
}

/// The larger; NaN counts as missing.
fn fmax<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    x.ge(y).select(x, y.ne(y).select(x, y))
}

fn fmin<'s>(x: Expr<'s>, y: Expr<'s>) -> Expr<'s> {
    x.le(y).select(x, y.ne(y).select(x, y))
}

fn maximum_f64(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }
}

fn minimum_f64(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) }
}

fn bits(x: &[f64], combine: fn(i64, i64) -> i64) -> f64 {
    combine(x[0] as i64, x[1] as i64) as f64
}

/// Of integers, where the distance is one of a machine word.
fn shifted(x: &[f64], shift: fn(i64, u32) -> i64) -> Option<f64> {
    (0.0..64.0).contains(&x[1]).then(|| shift(x[0] as i64, x[1] as u32) as f64)
}

/// Whether the number has a minus sign; zeros have one or not.
fn is_negative(x: Expr<'_>) -> Expr<'_> {
    if x.scalar().is_float() { x.lt(0.0).or(x.eq(0.0).and((1.0 / x).lt(0.0))) } else { x.lt(0.0) }
}

/// One over a quantisation scale; a scale of nothing is a little more.
fn inverse_scale(scale: Expr<'_>) -> Expr<'_> {
    1.0 / scale.le(1e-30).select(scale + 1e-6, scale)
}

fn inverse_scale_f64(scale: f64) -> f64 {
    1.0 / if scale <= 1e-30 { scale + 1e-6 } else { scale }
}

/// The nearest integer; halves go away from zero.
fn round_away(x: Expr<'_>) -> Expr<'_> {
    let whole = x.trunc();
    let rest = x - whole;
    rest.ge(0.5).select(whole + 1.0, rest.le(-0.5).select(whole - 1.0, whole))
}

rows! {
    /// Operators of several tensors that are a single formula.
    Binary {
        Add "add", "x + y; of booleans, whether one is true.", TWO, [], ALL => Same, 1.0, |x, _| if x[0].scalar() == Scalar::I1 { x[0].or(x[1]) } else { x[0] + x[1] },
            |x, _| x[0] + x[1];
        Subtract "subtract", "x - y.", TWO, [], NUMBERS => Same, 1.0, |x, _| x[0] - x[1], |x, _| x[0] - x[1];
        Multiply "multiply", "x times y; of booleans, whether both are true.", TWO, [], ALL => Same, 1.0, |x, _| if x[0].scalar() == Scalar::I1 { x[0].and(x[1]) } else { x[0] * x[1] },
            |x, _| x[0] * x[1];
        Divide "divide", "x over y; towards zero for integers.", TWO, [], NUMBERS => Same, 1.0, |x, _| x[0].div(x[1]),
            |x, _| x[0] / x[1];
        FloorDivide "floor_divide", "x over y, rounded down.", TWO, [], NUMBERS => Same, 1.0, |x, _| floor_divide(x[0], x[1]),
            |x, _| floor_divide_f64(x[0], x[1]);
        Remainder "remainder", "The remainder with the sign of y.", TWO, [], NUMBERS => Same, 2.0, |x, _| modulo(x[0], x[1]), |x, _| modulo_f64(x[0], x[1]);
        Maximum "maximum", "The larger; NaN when either is.", TWO, [], NUMBERS => Same, 0.0, |x, _| x[0].max(x[1]), |x, _| maximum_f64(x[0], x[1]);
        Minimum "minimum", "The smaller; NaN when either is.", TWO, [], NUMBERS => Same, 0.0, |x, _| x[0].min(x[1]), |x, _| minimum_f64(x[0], x[1]);
        Fmax "fmax", "The larger; the number when one is NaN.", TWO, [], NUMBERS => Same, 0.0, |x, _| fmax(x[0], x[1]), |x, _| x[0].max(x[1]);
        Fmin "fmin", "The smaller; the number when one is NaN.", TWO, [], NUMBERS => Same, 0.0, |x, _| fmin(x[0], x[1]), |x, _| x[0].min(x[1]);
        Power "elementwise_pow", "x to the power of y.", TWO, [], PROMOTED => Same, 4.0, |x, _| power(x[0], x[1]), |x, _| x[0].powf(x[1]);
        Atan2 "atan2", "The angle of the point (y, x).", TWO, [], PROMOTED => Float, 4.0, |x, _| x[0].atan2(x[1]), |x, _| x[0].atan2(x[1]);
        Heaviside "heaviside", "0 below zero, 1 above, y at zero.", TWO, [], NUMBERS => Same, 0.0,
            |x, _| x[0].eq(0.0).select(x[1], x[0].gt(0.0).select(x[0].number(1.0), 0.0)),
            |x, _| if x[0] == 0.0 { x[1] } else { f64::from(x[0] > 0.0) };
        Equal "equal", "Whether x is y.", TWO, [], ALL => Bool, 0.0, |x, _| x[0].eq(x[1]), |x, _| f64::from(x[0] == x[1]);
        NotEqual "not_equal", "Whether x is not y.", TWO, [], ALL => Bool, 0.0, |x, _| x[0].ne(x[1]), |x, _| f64::from(x[0] != x[1]);
        LessThan "less_than", "Whether x is less than y.", TWO, [], ALL => Bool, 0.0, |x, _| less(x[0], x[1]), |x, _| f64::from(x[0] < x[1]);
        LessEqual "less_equal", "Whether x is at most y.", TWO, [], ALL => Bool, 0.0, |x, _| at_most(x[0], x[1]), |x, _| f64::from(x[0] <= x[1]);
        GreaterThan "greater_than", "Whether x is more than y.", TWO, [], ALL => Bool, 0.0, |x, _| less(x[1], x[0]), |x, _| f64::from(x[0] > x[1]);
        GreaterEqual "greater_equal", "Whether x is at least y.", TWO, [], ALL => Bool, 0.0, |x, _| at_most(x[1], x[0]), |x, _| f64::from(x[0] >= x[1]);
        LogicalAnd "logical_and", "Whether both are not zero.", TRUTHS, [], ALL => Bool, 0.0, |x, _| x[0].and(x[1]), |x, _| f64::from(x[0] != 0.0 && x[1] != 0.0);
        LogicalOr "logical_or", "Whether one is not zero.", TRUTHS, [], ALL => Bool, 0.0, |x, _| x[0].or(x[1]), |x, _| f64::from(x[0] != 0.0 || x[1] != 0.0);
        LogicalXor "logical_xor", "Whether just one is not zero.", TRUTHS, [], ALL => Bool, 0.0, |x, _| x[0].xor(x[1]), |x, _| f64::from((x[0] != 0.0) != (x[1] != 0.0));
        BitwiseAnd "bitwise_and", "Bits set in both.", TWO, [], BITS => Same, 0.0, |x, _| x[0].and(x[1]), |x, _| bits(x, |a, b| a & b);
        BitwiseOr "bitwise_or", "Bits set in one.", TWO, [], BITS => Same, 0.0, |x, _| x[0].or(x[1]), |x, _| bits(x, |a, b| a | b);
        BitwiseXor "bitwise_xor", "Bits set in just one.", TWO, [], BITS => Same, 0.0, |x, _| x[0].xor(x[1]), |x, _| bits(x, |a, b| a ^ b);
        LeftShift "bitwise_left_shift", "Bits moved y places to the left; 0 where y is negative or not below the width.", TWO, [], INTEGERS => Same, 0.0,
            |x, _| x[0].shift_left(x[1]), |x, _| shifted(x, |a, b| a.wrapping_shl(b)).unwrap_or(0.0);
        RightShift "bitwise_right_shift", "Bits moved y places to the right, with copies of the sign; the sign alone where y is negative or not below the width.", TWO, [], INTEGERS => Same, 0.0,
            |x, _| x[0].shift_right(x[1]), |x, _| shifted(x, |a, b| a >> b).unwrap_or(if x[0] < 0.0 { -1.0 } else { 0.0 });
        CopySign "copysign", "The magnitude of x with the sign of y; a NaN has none.", TWO, [], SIGNED => Same, 0.0,
            |x, _| { let size = x[0].abs(); is_negative(x[1]).select(-size, size) },
            |x, _| x[0].copysign(if x[1].is_nan() { 1.0 } else { x[1] });
        Where "where", "x where the condition holds, else y.", CHOICE, [], ALL => Same, 0.0, |x, _| x[0].select(x[1], x[2]), |x, _| if x[0] != 0.0 { x[1] } else { x[2] };
        Lerp "lerp", "x + weight (y - x).", THREE, [], FLOATS => Same, 8.0, |x, _| x[0] + x[2] * (x[1] - x[0]), |x, _| x[0] + x[2] * (x[1] - x[0]);
        ProductsDifference "products_difference", "a c - b d, the real part of a complex product: a, b, c, d.", FOUR, [], FLOATS => Same, 8.0,
            |x, _| x[0] * x[2] - x[1] * x[3], |x, _| x[0] * x[2] - x[1] * x[3];
        ProductsSum "products_sum", "a d + b c, the imaginary part of a complex product: a, b, c, d.", FOUR, [], FLOATS => Same, 8.0,
            |x, _| x[0] * x[3] + x[1] * x[2], |x, _| x[0] * x[3] + x[1] * x[2];
        QuantizeEven "quantize_even", "bins x / scale rounded to the nearest integer, halves to even, and bounded: x, scale.", TWO, ["bins" = 4.0], FLOATS => Same, 0.0,
            |x, s| { let level = (s[0] * inverse_scale(x[1]) * x[0]).round(); level.gt(s[0]).select(s[0], level.lt(-s[0] - 1.0).select(-s[0] - 1.0, level)) },
            |x, s| { let level = (s[0] * inverse_scale_f64(x[1]) * x[0]).round_ties_even(); if level > s[0] { s[0] } else if level < -s[0] - 1.0 { -s[0] - 1.0 } else { level } };
        QuantizeAway "quantize_away", "bins x / scale of x within the scale, rounded to the nearest integer, halves away from zero: x, scale.", TWO, ["bins" = 4.0], FLOATS => Same, 0.0,
            |x, s| { let bound = x[0].gt(x[1]).select(x[1], x[0].lt(-x[1]).select(-x[1], x[0])); round_away(s[0] * inverse_scale(x[1]) * bound) },
            |x, s| { let bound = if x[0] > x[1] { x[1] } else if x[0] < -x[1] { -x[1] } else { x[0] }; (s[0] * inverse_scale_f64(x[1]) * bound).round() };
    }
}
