//! Elementary functions of float32, written without branches so that loops over them vectorise. Errors are a few units in the last place.

/// `2^n` for `n` in -126..=127, from the exponent's bits.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// Rounds to the nearest integer: as a float and as an i32. Adding 1.5 * 2^23 leaves the integer in the low bits.
#[inline(always)]
fn round_to_integer(x: f32) -> (f32, i32) {
    const MAGIC: f32 = 12_582_912.0;
    let shifted = x + MAGIC;
    (shifted - MAGIC, (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32))
}

/// `low` and `high` bound the result; NaN stays NaN, which `f32::clamp` promises but compiles to slower code.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// `e^r` for `r` within half of ln 2.
#[inline(always)]
fn exp_near_zero(r: f32) -> f32 {
    let p = 1.987_569_1e-4_f32.mul_add(r, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 0.5);
    p.mul_add(r * r, r) + 1.0
}

/// `e^x`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = clamp(x, -104.0, 89.0);
    let (n, integer) = round_to_integer(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(-0.693_359_4, x);
    let p = exp_near_zero(n.mul_add(2.121_944_4e-4, r));
    // Two factors, because 2^n alone leaves the range of normal numbers at both ends.
    let half = integer >> 1;
    p * power_of_two(half) * power_of_two(integer - half)
}

/// `2^x`.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (n, integer) = round_to_integer(x);
    let p = exp_near_zero((x - n) * std::f32::consts::LN_2);
    let half = integer >> 1;
    p * power_of_two(half) * power_of_two(integer - half)
}

/// Natural logarithm.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits() as i32;
    // Bring the mantissa into [sqrt(1/2), sqrt(2)) so that the polynomial is centred on 1.
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = shifted >> 23;
    let mantissa = f32::from_bits(((shifted & 0x007f_ffff) + 0x3f35_04f3) as u32);
    let n = exponent as f32 - if tiny { 23.0 } else { 0.0 };
    let m = mantissa - 1.0;
    let square = m * m;
    let p = 7.037_683_6e-2_f32.mul_add(m, -1.151_461e-1);
    let p = p.mul_add(m, 1.167_699_9e-1);
    let p = p.mul_add(m, -1.242_014_1e-1);
    let p = p.mul_add(m, 1.424_932_3e-1);
    let p = p.mul_add(m, -1.666_805_8e-1);
    let p = p.mul_add(m, 2.000_071_5e-1);
    let p = p.mul_add(m, -2.499_999_4e-1);
    let p = p.mul_add(m, 3.333_333e-1);
    let y = p * m * square;
    let y = n.mul_add(-2.121_944_4e-4, y);
    let y = square.mul_add(-0.5, y);
    let result = n.mul_add(0.693_359_4, m + y);
    let result = if x == f32::INFINITY { f32::INFINITY } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x < 0.0 || x.is_nan() { f32::NAN } else { result }
}

/// Logarithm to base 2.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    log(x) * std::f32::consts::LOG2_E
}

/// `log(1 + x)`: the rounding of `1 + x` is corrected by the ratio of `x` to what was really added.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    let corrected = log(sum) * (x / (sum - 1.0));
    let result = if sum == 1.0 { x } else { corrected };
    if x == f32::INFINITY || x == -1.0 { log(sum) } else { result }
}

/// `e^x - 1`, by the tanh form near zero, where the difference would cancel.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let square = x * x;
    let p = 1.984_127e-4_f32.mul_add(x, 1.388_888_9e-3);
    let p = p.mul_add(x, 8.333_334e-3);
    let p = p.mul_add(x, 4.166_666_8e-2);
    let p = p.mul_add(x, 1.666_666_7e-1);
    let p = p.mul_add(x, 0.5);
    // The sum of 0 and -0 is 0.
    let near_zero = p.mul_add(square, x).copysign(x);
    if x.abs() < 0.35 { near_zero } else { exp(x) - 1.0 }
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let p = (-5.704_988_7e-3_f32).mul_add(square, 2.063_908_8e-2);
    let p = p.mul_add(square, -5.373_971_6e-2);
    let p = p.mul_add(square, 1.333_144_2e-1);
    let p = p.mul_add(square, -3.333_328e-1);
    let near_zero = (p * square).mul_add(magnitude, magnitude);
    let far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
    (if magnitude < 0.625 { near_zero } else { far }).copysign(x)
}

/// The logistic function `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `e^x` for `x` in -126 ln 2..=0, where one power of two is enough.
#[inline(always)]
fn exp_of_negative(x: f32) -> f32 {
    let (n, integer) = round_to_integer(x * std::f32::consts::LOG2_E);
    let r = n.mul_add(-0.693_359_4, x);
    exp_near_zero(n.mul_add(2.121_944_4e-4, r)) * power_of_two(integer)
}

/// The error function: a polynomial near zero, `1 - e^q(x)` beyond.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    // From 4 on the result is 1; NaN stays.
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let s = t * t;
    let r = (-1.728_534_7e-5_f32).mul_add(t, 3.831_971_3e-4);
    let u = (-3.883_964_4e-3_f32).mul_add(t, 2.425_462_2e-2);
    let r = r.mul_add(s, u);
    let r = r.mul_add(t, -1.067_778_8e-1);
    let r = r.mul_add(t, -6.348_467e-1);
    let r = r.mul_add(t, -1.287_175_1e-1);
    let far = 1.0 - exp_of_negative(r.mul_add(t, -t));
    let p = (-5.967_617e-4_f32).mul_add(s, 4.991_194_2e-3);
    let p = p.mul_add(s, -2.676_813_5e-2);
    let p = p.mul_add(s, 1.128_199_3e-1);
    let p = p.mul_add(s, -3.761_253_4e-1);
    let p = p.mul_add(s, 1.283_791_7e-1);
    let near = p.mul_add(t, t);
    (if t > 0.927_734_4 { far } else { near }).copysign(x)
}

/// Beyond this magnitude the three-part reduction of [`sin`] and [`cos`] loses digits.
pub const TRIGONOMETRIC_LIMIT: f32 = 30_000.0;

/// Sine and cosine of the reduced argument, and the quadrant.
#[inline(always)]
fn reduced(x: f32) -> (f32, f32, i32) {
    let (n, quadrant) = round_to_integer(x * std::f32::consts::FRAC_2_PI);
    let r = n.mul_add(-1.570_312_5, x);
    let r = n.mul_add(-4.837_513e-4, r);
    let r = n.mul_add(-7.549_79e-8, r);
    let s = r * r;
    let p = 2.608_316e-6_f32.mul_add(s, -1.981_069_2e-4);
    let p = p.mul_add(s, 8.333_079e-3);
    let p = p.mul_add(s, -1.666_666e-1);
    let sine = (p * s).mul_add(r, r);
    let p = 2.443_315_7e-5_f32.mul_add(s, -1.388_731_6e-3);
    let p = p.mul_add(s, 4.166_664_6e-2);
    let cosine = (p * s).mul_add(s, s.mul_add(-0.5, 1.0));
    (sine, cosine, quadrant)
}

/// Sine of an angle within [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (sine, cosine, quadrant) = reduced(x);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    let value = if quadrant & 2 == 0 { value } else { -value };
    if x == 0.0 { x } else { value }
}

/// Cosine of an angle within [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (sine, cosine, quadrant) = reduced(x);
    let value = if quadrant & 1 == 0 { cosine } else { sine };
    if (quadrant + 1) & 2 == 0 { value } else { -value }
}

/// Nearest integer, halves to even, keeping the sign of zero.
#[inline(always)]
pub fn round_even(x: f32) -> f32 {
    x.round_ties_even()
}

/// float16 bits to float32.
#[inline(always)]
pub fn half_to_single(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let sign = u32::from(bits & 0x8000) << 16;
    // 2^112 moves the exponent's bias from 15 to 127 and normalises subnormal numbers on the way.
    let value = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let special = f32::from_bits(magnitude | 0x7f80_0000);
    let value = if magnitude >= 0x0f80_0000 { special } else { value };
    f32::from_bits(value.to_bits() | sign)
}

/// float32 to float16 bits, to nearest even.
#[inline(always)]
pub fn single_to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let infinity_or_nan = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    // Adding 0.5 aligns a subnormal result's bits at the bottom of the mantissa, rounded by the adder.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
    let result = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let result = if magnitude >= 0x477f_f000 { infinity_or_nan } else { result };
    (sign | result) as u16
}

/// bfloat16 bits to float32.
#[inline(always)]
pub fn bfloat_to_single(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// float32 to bfloat16 bits, to nearest even.
#[inline(always)]
pub fn single_to_bfloat(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if value.is_nan() { nan } else { rounded }) as u16
}
