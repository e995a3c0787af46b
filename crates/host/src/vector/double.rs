//! Elementary functions of float64, written without branches so that loops over them vectorise, and functions of float32 that
//! are computed through them, which rounds them right but for a few of a million.
//!
//! The polynomials are the functions' own series: float64 leaves enough room that nothing is fitted. Errors are below two
//! units in the last place, of the hyperbolic tangent below three.
//!
//! They are for loops that are compiled for a [`Level`](crate::Level): elsewhere each multiplication with its addition is a call, and the standard
//! library is faster.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E, PI};

/// Horner's rule, the coefficient of the highest power first.
#[inline(always)]
pub fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    let mut sum = coefficients[0];
    // A loop, not a fold: a closure would not be compiled for the level.
    for i in 1..N {
        sum = sum.mul_add(x, coefficients[i]);
    }
    sum
}

/// `1 / n!` for each n from `highest` on downwards in steps, times a sign that begins as `sign` and is multiplied by `turn` each time.
const fn inverse_factorials<const N: usize>(highest: usize, step: usize, mut sign: f64, turn: f64) -> [f64; N] {
    let (mut series, mut i) = ([0.0; N], 0);
    while i < N {
        let (mut product, mut factor) = (1.0, 2);
        while factor <= highest - step * i {
            product *= factor as f64;
            factor += 1;
        }
        series[i] = sign * (1.0 / product);
        sign *= turn;
        i += 1;
    }
    series
}

/// `share / n` for each odd n from `highest` on downwards; the share's sign is multiplied by `turn` each time.
const fn over_odd<const N: usize>(highest: usize, mut share: f64, turn: f64) -> [f64; N] {
    let (mut series, mut i) = ([0.0; N], 0);
    while i < N {
        series[i] = share / (highest - 2 * i) as f64;
        share *= turn;
        i += 1;
    }
    series
}

/// `2^n` for `n` in -1022..=1023, from the exponent's bits.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) << 52) as u64)
}

/// Rounds to the nearest integer: as a float and as an i64. Adding 1.5 * 2^52 leaves the integer in the low bits.
#[inline(always)]
fn round_to_integer(x: f64) -> (f64, i64) {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let shifted = x + MAGIC;
    (shifted - MAGIC, (shifted.to_bits() as i64).wrapping_sub(MAGIC.to_bits() as i64))
}

/// NaN stays NaN.
#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// ln 2 in two parts, the first with so few digits that its product with an exponent is exact.
const LN_2_PARTS: [f64; 2] = [f64::from_bits(0x3fe6_2e42_fee0_0000), 1.908_214_929_270_587_7e-10];

/// `e^r - 1` for `r` within half of ln 2.
#[inline(always)]
fn exp_less_one_near_zero(r: f64) -> f64 {
    const SERIES: [f64; 12] = inverse_factorials(13, 1, 1.0, 1.0);
    polynomial(r, SERIES).mul_add(r * r, r)
}

/// The nearest multiple of ln 2, as a count, and what is left of x.
#[inline(always)]
fn multiples_of_ln_2(x: f64) -> (i64, f64) {
    let (n, integer) = round_to_integer(x * LOG2_E);
    (integer, n.mul_add(-LN_2_PARTS[1], n.mul_add(-LN_2_PARTS[0], x)))
}

/// `x 2^n` by two factors, because 2^n alone leaves the range of normal numbers at both ends.
#[inline(always)]
fn scaled(x: f64, n: i64) -> f64 {
    // A logical shift, which every level has; n + 2048 is positive, but of NaN, whose count is any number and whose product NaN.
    let half = (n.wrapping_add(2048) as u64 >> 1) as i64 - 1024;
    x * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `e^x`.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    let (n, r) = multiples_of_ln_2(clamp(x, -746.0, 710.0));
    scaled(1.0 + exp_less_one_near_zero(r), n)
}

/// `2^x`.
#[inline(always)]
pub fn exp2(x: f64) -> f64 {
    let x = clamp(x, -1080.0, 1025.0);
    let (n, integer) = round_to_integer(x);
    scaled(1.0 + exp_less_one_near_zero((x - n) * LN_2), integer)
}

/// `e^x - 1`.
#[inline(always)]
pub fn expm1(x: f64) -> f64 {
    let (n, r) = multiples_of_ln_2(clamp(x, -60.0, 710.0));
    // 2^(n - 1), because 2^1024 is infinite where half of the result is not.
    let half = power_of_two(n.wrapping_sub(1));
    let sum = exp_less_one_near_zero(r).mul_add(half, half - 0.5);
    // The sum of 0 and -0 is 0.
    if x == 0.0 { x } else { sum + sum }
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f64) -> f64 {
    // From 22 on the result is 1; NaN stays.
    let e = expm1(2.0 * clamp(x.abs(), 0.0, 22.0));
    (e / (e + 2.0)).copysign(x)
}

/// `x = m 2^n` with m within a factor of the square root of 2 from 1, of a positive number: n and m - 1.
#[inline(always)]
fn mantissa(x: f64) -> (f64, f64) {
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    /// Added to the exponent, so that it is positive and its conversion the bits below 2^52.
    const BIAS: u64 = 1100;
    let is_tiny = x < f64::MIN_POSITIVE;
    let x = if is_tiny { x * 18_014_398_509_481_984.0 } else { x };
    let shifted = x.to_bits().wrapping_sub(ROOT_HALF).wrapping_add(BIAS << 52);
    let n = f64::from_bits((shifted >> 52) | 0x4330_0000_0000_0000) - (4_503_599_627_370_496.0 + BIAS as f64);
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_HALF));
    (if is_tiny { n - 54.0 } else { n }, m - 1.0)
}

/// The logarithm of 1 + f as f less a part: `f - (square - s (square + series))`, with s = f / (2 + f), square = f²/2.
#[inline(always)]
fn log_of_mantissa(f: f64) -> (f64, f64) {
    const SERIES: [f64; 10] = over_odd(21, 2.0, 1.0);
    let s = f / (2.0 + f);
    let z = s * s;
    let square = 0.5 * f * f;
    (square, s * (square + z * polynomial(z, SERIES)))
}

/// What the logarithm of a number that is not positive and finite is.
#[inline(always)]
fn log_or_special(x: f64, result: f64) -> f64 {
    let result = if x == f64::INFINITY { f64::INFINITY } else { result };
    let result = if x == 0.0 { f64::NEG_INFINITY } else { result };
    if x < 0.0 || x.is_nan() { f64::NAN } else { result }
}

/// Natural logarithm.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    let (n, f) = mantissa(x);
    let (square, small) = log_of_mantissa(f);
    let low = n.mul_add(LN_2_PARTS[1], small);
    log_or_special(x, n.mul_add(LN_2_PARTS[0], f - (square - low)))
}

/// Logarithm to base 2, of a power of two exact.
#[inline(always)]
pub fn log2(x: f64) -> f64 {
    let (n, f) = mantissa(x);
    let (square, small) = log_of_mantissa(f);
    log_or_special(x, (f - (square - small)).mul_add(LOG2_E, n))
}

/// `log(1 + x)`: what the rounding of the sum left out is added, by the logarithm's slope.
#[inline(always)]
pub fn log1p(x: f64) -> f64 {
    let sum = 1.0 + x;
    let left_out = if x < 1.0 { x - (sum - 1.0) } else { 1.0 - (sum - x) };
    let result = log(sum) + left_out / sum;
    let result = if x == 0.0 || x == f64::INFINITY { x } else { result };
    if x == -1.0 { f64::NEG_INFINITY } else { result }
}

/// Beyond this magnitude the reduction of [`sin`] and [`cos`] loses digits.
pub const TRIGONOMETRIC_LIMIT: f64 = 100_000.0;

/// π/2 in three parts of all digits; the first product's lowest digit is one of x's, so that the difference is exact.
const HALF_PI_PARTS: [f64; 3] = [FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33];

/// Sine and cosine of what the nearest multiple of a right angle leaves, and the count of right angles.
#[inline(always)]
fn reduced(x: f64) -> (f64, f64, i64) {
    const SINE: [f64; 8] = inverse_factorials(17, 2, 1.0, -1.0);
    const COSINE: [f64; 8] = inverse_factorials(18, 2, -1.0, -1.0);
    let (n, quadrant) = round_to_integer(x * FRAC_2_PI);
    let first = n.mul_add(-HALF_PI_PARTS[0], x);
    let r = n.mul_add(-HALF_PI_PARTS[1], first);
    let low = n.mul_add(-HALF_PI_PARTS[2], n.mul_add(-HALF_PI_PARTS[1], first - r));
    let s = r * r;
    let half = 0.5 * s;
    let sine = r + (r * s).mul_add(polynomial(s, SINE), low * (1.0 - half));
    let most = 1.0 - half;
    let rest = (s * s).mul_add(polynomial(s, COSINE), -(r * low));
    (sine, most + (((1.0 - most) - half) + rest), quadrant)
}

/// Sine of an angle within [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn sin(x: f64) -> f64 {
    let (sine, cosine, quadrant) = reduced(x);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    let value = if quadrant & 2 == 0 { value } else { -value };
    if x == 0.0 { x } else { value }
}

/// Cosine of an angle within [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn cos(x: f64) -> f64 {
    let (sine, cosine, quadrant) = reduced(x);
    let value = if quadrant & 1 == 0 { cosine } else { sine };
    if (quadrant + 1) & 2 == 0 { value } else { -value }
}

/// The arc tangent of a ratio within 0..=1, to the digits of float32.
#[inline(always)]
fn arc_tangent(ratio: f64) -> f64 {
    const SERIES: [f64; 9] = over_odd(19, -1.0, -1.0);
    // Turned back by an eighth of π where that leaves less: the series then ends early.
    const EIGHTH_TANGENT: f64 = std::f64::consts::SQRT_2 - 1.0;
    let is_far = ratio > 0.2;
    let near = (ratio - EIGHTH_TANGENT) / ratio.mul_add(EIGHTH_TANGENT, 1.0);
    let r = if is_far { near } else { ratio };
    let s = r * r;
    let angle = polynomial(s, SERIES).mul_add(s * r, r);
    if is_far { angle + PI / 8.0 } else { angle }
}

/// Functions of float32.
pub mod single {
    use super::{FRAC_PI_2, PI};

    /// x to the power of y, with C's special cases.
    #[inline(always)]
    pub fn pow(x: f32, y: f32) -> f32 {
        let (magnitude, exponent) = (f64::from(x.abs()), f64::from(y));
        let power = super::exp2(exponent * super::log2(magnitude)) as f32;
        let power = if magnitude == 1.0 || y == 0.0 { 1.0 } else { power };
        let half = 0.5 * y;
        let (is_whole, is_even) = (y.floor() == y, half.floor() == half);
        let power = if x.is_sign_negative() && is_whole && !is_even { -power } else { power };
        let power = if x < 0.0 && x != f32::NEG_INFINITY && !is_whole { f32::NAN } else { power };
        if y.is_nan() && x != 1.0 { f32::NAN } else { power }
    }

    /// Tangent of an angle within [`super::TRIGONOMETRIC_LIMIT`].
    #[inline(always)]
    pub fn tan(x: f32) -> f32 {
        let (sine, cosine, quadrant) = super::reduced(f64::from(x));
        let quotient = if quadrant & 1 == 0 { sine / cosine } else { -cosine / sine };
        if x == 0.0 { x } else { quotient as f32 }
    }

    /// The angle of two lengths that are not negative, to the digits of float32. Of two zeros it is 0, of two infinities half of a right one.
    #[inline(always)]
    fn angle_of(height: f64, width: f64) -> f64 {
        let is_steep = height > width;
        let (less, more) = if is_steep { (width, height) } else { (height, width) };
        let ratio = if less == more { 1.0 } else { less / more };
        let angle = super::arc_tangent(if less == 0.0 { 0.0 } else { ratio });
        if is_steep { FRAC_PI_2 - angle } else { angle }
    }

    /// The angle of (x, y), with C's special cases.
    #[inline(always)]
    pub fn atan2(y: f32, x: f32) -> f32 {
        let angle = angle_of(f64::from(y.abs()), f64::from(x.abs()));
        let angle = if x.is_sign_negative() { PI - angle } else { angle };
        let angle = (angle as f32).copysign(y);
        if x.is_nan() || y.is_nan() { f32::NAN } else { angle }
    }

    /// Inverse tangent.
    #[inline(always)]
    pub fn atan(x: f32) -> f32 {
        (angle_of(f64::from(x.abs()), 1.0) as f32).copysign(x)
    }

    /// Inverse sine; NaN outside -1..=1.
    #[inline(always)]
    pub fn asin(x: f32) -> f32 {
        let size = f64::from(x.abs());
        (angle_of(size, ((1.0 - size) * (1.0 + size)).sqrt()) as f32).copysign(x)
    }

    /// Inverse cosine; NaN outside -1..=1.
    #[inline(always)]
    pub fn acos(x: f32) -> f32 {
        let x = f64::from(x);
        // Half of the angle, which keeps its digits where x is near 1.
        (2.0 * angle_of((1.0 - x).sqrt(), (1.0 + x).sqrt())) as f32
    }

    /// Hyperbolic sine.
    #[inline(always)]
    pub fn sinh(x: f32) -> f32 {
        // Beyond float32's range already, and not yet beyond float64's.
        let e = super::expm1(super::clamp(f64::from(x.abs()), 0.0, 100.0));
        ((0.5 * (e + e / (e + 1.0))) as f32).copysign(x)
    }

    /// Hyperbolic cosine.
    #[inline(always)]
    pub fn cosh(x: f32) -> f32 {
        let e = super::exp(f64::from(x.abs()));
        (0.5 * (e + 1.0 / e)) as f32
    }
}

#[cfg(test)]
mod tests;
