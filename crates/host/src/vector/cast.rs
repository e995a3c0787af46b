//! Conversions between number types.

use super::unary::UnaryFunction;
use super::{CHUNK, leveled, math};
use crate::native::lanes::{Lanes, at_level};
use crate::native::stored::{rounded_to_halves, widened};
use half::f16;
use openmps_tile::{Cast, Scalar};
use std::marker::PhantomData;

/// Converts one element.
trait Convert<T, U> {
    fn convert(x: T) -> U;
}

#[inline(always)]
unsafe fn map<F: Convert<T, U>, T: Copy, U: Copy + Default>(destination: *mut u8, source: *const u8, count: usize) {
    let (destination, source) = (destination.cast::<U>(), source.cast::<T>());
    let mut done = 0;
    while done + CHUNK <= count {
        // SAFETY: the caller's `count` elements are valid at both addresses; this chunk lies within.
        unsafe {
            let chunk = source.add(done).cast::<[T; CHUNK]>().read_unaligned();
            let mut results = [U::default(); CHUNK];
            for i in 0..CHUNK {
                results[i] = F::convert(chunk[i]);
            }
            destination.add(done).cast::<[U; CHUNK]>().write_unaligned(results);
        }
        done += CHUNK;
    }
    while done < count {
        // SAFETY: as above.
        unsafe { destination.add(done).write_unaligned(F::convert(source.add(done).read_unaligned())) };
        done += 1;
    }
}

leveled! {
    fn leveled_map<F, T, U>(destination: *mut u8, source: *const u8, count: usize) -> UnaryFunction
    where { F: Convert<T, U>, T: Copy, U: Copy + Default } = map
}

/// A number type as it lies in memory, and how it converts to and from what arithmetic uses.
trait Memory: Copy + Default {
    const SCALAR: Scalar;
}

/// float16 as bits.
#[derive(Clone, Copy, Default)]
struct Half(u16);
/// bfloat16 as bits.
#[derive(Clone, Copy, Default)]
struct Bfloat(u16);
/// A boolean.
#[derive(Clone, Copy, Default)]
struct Truth(u8);

macro_rules! memory {
    ($($ty:ident = $scalar:ident;)+) => { $(impl Memory for $ty { const SCALAR: Scalar = Scalar::$scalar; })+ };
}
memory! {
    Truth = I1; i8 = I8; i16 = I16; i32 = I32; i64 = I64; u8 = I8; u16 = I16; u32 = I32; u64 = I64;
    Half = F16; Bfloat = BF16; f32 = F32; f64 = F64;
}

/// A numeric conversion from `T`; what it means is in the implementations below.
struct Numeric<T>(PhantomData<T>);

/// Writes `impl Convert` for every pair of source and destination and the look-up over them.
macro_rules! conversions {
    ($name:ident: $($from:ident -> $($to:ident)+ = |$x:ident| $f:expr;)+) => {
        $($(impl Convert<$from, $to> for Numeric<($from, $to)> {
            #[inline(always)]
            fn convert($x: $from) -> $to { conversions!(@to $to, $f) }
        })+)+

        fn $name(from: Scalar, to: Scalar) -> Option<UnaryFunction> {
            $($(if from == <$from>::SCALAR && to == <$to>::SCALAR {
                return Some(leveled_map::<Numeric<($from, $to)>, $from, $to>());
            })+)+
            None
        }
    };
    (@to Half, $f:expr) => { Half(math::single_to_half($f as f32)) };
    (@to Bfloat, $f:expr) => { Bfloat(math::single_to_bfloat($f as f32)) };
    (@to Truth, $f:expr) => { Truth(($f & 1) as u8) };
    (@to $to:ident, $f:expr) => { $f as $to };
}

conversions! { signed:
    i8 -> i16 i32 i64 = |x| x;
    i16 -> i8 i32 i64 = |x| x;
    i32 -> i8 i16 i64 = |x| x;
    i64 -> i8 i16 i32 = |x| x;
}
conversions! { truncate_to_truth: i8 -> Truth = |x| x; i16 -> Truth = |x| x; i32 -> Truth = |x| x; i64 -> Truth = |x| x; }
conversions! { unsigned:
    Truth -> i8 i16 i32 i64 = |x| x.0;
    u8 -> u16 u32 u64 = |x| x;
    u16 -> u32 u64 = |x| x;
    u32 -> u64 = |x| x;
}
conversions! { signed_to_float:
    i8 -> Half Bfloat f32 f64 = |x| x;
    i16 -> Half Bfloat f32 f64 = |x| x;
    i32 -> Half Bfloat f32 f64 = |x| x;
    i64 -> Half Bfloat f32 f64 = |x| x;
}
conversions! { unsigned_to_float:
    Truth -> Half Bfloat f32 f64 = |x| x.0;
    u8 -> Half Bfloat f32 f64 = |x| x;
    u16 -> Half Bfloat f32 f64 = |x| x;
    u32 -> Half Bfloat f32 f64 = |x| x;
    u64 -> Half Bfloat f32 f64 = |x| x;
}
conversions! { float_to_short:
    f32 -> i8 i16 = |x| single_within_integer(x);
    f64 -> i8 i16 = |x| double_within_integer(x);
    Half -> i8 i16 = |x| single_within_integer(math::half_to_single(x.0));
    Bfloat -> i8 i16 = |x| single_within_integer(math::bfloat_to_single(x.0));
}
conversions! { float_to_signed:
    f32 -> i32 = |x| single_to_integer(x);
    f32 -> i64 = |x| single_to_long(x);
    f64 -> i32 i64 = |x| x;
    Half -> i32 i64 = |x| math::half_to_single(x.0);
    Bfloat -> i32 i64 = |x| math::bfloat_to_single(x.0);
}
conversions! { float_to_unsigned:
    f32 -> u32 u64 = |x| x;
    f64 -> u32 u64 = |x| x;
    Half -> u32 u64 = |x| math::half_to_single(x.0);
    Bfloat -> u32 u64 = |x| math::bfloat_to_single(x.0);
}
conversions! { float:
    f32 -> Bfloat f64 = |x| x;
    f64 -> Half Bfloat f32 = |x| x;
    Half -> Bfloat f64 = |x| math::half_to_single(x.0);
    Bfloat -> Half f32 f64 = |x| math::bfloat_to_single(x.0);
}

/// The first number that is none of int32.
const BEYOND: f32 = 2_147_483_648.0;
/// The same of int64.
const BEYOND_LONG: f32 = 9_223_372_036_854_775_808.0;

/// What becomes an integer of 8 or 16 bits by its low bits: 0 for NaN and what int32 does not reach, of which an x86 CPU makes a number that ends in zeros.
#[inline(always)]
fn single_within_integer(x: f32) -> i32 {
    let within = if x.abs() < BEYOND { x } else { 0.0 };
    // SAFETY: above -2^31 and below 2^31.
    unsafe { within.to_int_unchecked::<i32>() }
}

/// As [`single_within_integer`].
#[inline(always)]
fn double_within_integer(x: f64) -> i32 {
    let within = if x.abs() < f64::from(BEYOND) { x } else { 0.0 };
    // SAFETY: above -2^31 and below 2^31.
    unsafe { within.to_int_unchecked::<i32>() }
}

/// Conversions of float32 as by `as`, in instructions on vectors, which the compiler has none of for it: a number in seven times the time.
macro_rules! saturating {
    ($($name:ident: $to:ident below $beyond:ident;)+) => {
        $(#[inline(always)]
        fn $name(x: f32) -> $to {
            let is_beyond = x >= $beyond;
            let within = if is_beyond || x.is_nan() { 0.0 } else { x.max(-$beyond) };
            // SAFETY: at least the type's least number and below the first that is none of it.
            let integer = unsafe { within.to_int_unchecked::<$to>() };
            if is_beyond { $to::MAX } else { integer }
        })+
    };
}
saturating! { single_to_integer: i32 below BEYOND; single_to_long: i64 below BEYOND_LONG; }

/// Between float16 and float32, for which CPUs have instructions.
fn halves(from: Scalar, to: Scalar) -> Option<UnaryFunction> {
    match (from, to) {
        (Scalar::F16, Scalar::F32) => Some(widen),
        (Scalar::F32, Scalar::F16) => Some(round),
        _ => None,
    }
}

/// # Safety
/// As a [`UnaryFunction`].
unsafe fn widen(destination: *mut u8, source: *const u8, count: usize) {
    let (to, from) = (destination.cast::<f32>(), source.cast::<f16>());
    // SAFETY: passed on to the caller; `at_level` calls with instructions that the CPU has.
    unsafe { at_level!(widened_halves(from: *const f16, to: *mut f32, count: usize)) }
}

/// # Safety
/// As [`widened`].
#[inline(always)]
unsafe fn widened_halves<V: Lanes>(from: *const f16, to: *mut f32, count: usize) {
    // SAFETY: passed on to the caller.
    unsafe { widened::<V, f16>(from, to, count) }
}

/// # Safety
/// As a [`UnaryFunction`].
unsafe fn round(destination: *mut u8, source: *const u8, count: usize) {
    let (factor, from, to) = (1.0, source.cast::<f32>(), destination.cast::<f16>());
    // SAFETY: passed on to the caller; `at_level` calls with instructions that the CPU has.
    unsafe { at_level!(rounded_to_halves(factor: f32, from: *const f32, to: *mut f16, count: usize)) }
}

/// The function for a conversion; none where the pair of types is not one of the conversion's.
///
/// float64 reaches the half types through float32, so it may round twice.
pub fn cast(cast: Cast, from: Scalar, to: Scalar) -> Option<UnaryFunction> {
    match cast {
        Cast::Signed if to == Scalar::I1 => truncate_to_truth(from, to),
        Cast::Signed => signed(from, to),
        Cast::Unsigned => unsigned(from, to),
        Cast::SignedToFloat => signed_to_float(from, to),
        Cast::UnsignedToFloat => unsigned_to_float(from, to),
        Cast::FloatToSigned | Cast::FloatToUnsigned if to.size() < 4 => float_to_short(from, to),
        Cast::FloatToSigned => float_to_signed(from, to),
        Cast::FloatToUnsigned => float_to_unsigned(from, to),
        Cast::Float => halves(from, to).or_else(|| float(from, to)),
        Cast::Bits => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_the_nearest_int32_or_its_low_bits() {
        let special =
            [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.99, -0.99, 127.9, 128.0, -128.9, -129.0];
        let near = [
            9.3e18,
            -9.3e18,
            32767.5,
            32768.0,
            -32769.0,
            2_147_483_520.0,
            2_147_483_648.0,
            -2_147_483_648.0,
            -2_147_483_904.0,
            1e30,
        ];
        // Of every sign and exponent.
        let spread = (0..1000_u32).map(|i| f32::from_bits(i * 4_294_967));
        let floats: Vec<f32> = special.into_iter().chain(near).chain(spread).collect();
        let doubles: Vec<f64> = floats.iter().map(|&x| f64::from(x) * (1.0 + f64::EPSILON)).collect();
        let run = |conversion: Cast, from: Scalar, to: Scalar| {
            let mut out = vec![0u8; floats.len() * to.size()];
            let function = cast(conversion, from, to).expect("a conversion");
            let source = if from == Scalar::F64 { doubles.as_ptr().cast() } else { floats.as_ptr().cast() };
            // SAFETY: both have as many elements.
            unsafe { function(out.as_mut_ptr(), source, floats.len()) };
            out
        };
        let bytes =
            |numbers: &[f64], of: &dyn Fn(f64) -> Vec<u8>| numbers.iter().flat_map(|&x| of(x)).collect::<Vec<u8>>();
        let wide: Vec<f64> = floats.iter().map(|&x| x.into()).collect();
        let to_i32 = run(Cast::FloatToSigned, Scalar::F32, Scalar::I32);
        assert_eq!(to_i32, bytes(&wide, &|x| (x as i32).to_ne_bytes().to_vec()));
        let to_i64 = run(Cast::FloatToSigned, Scalar::F32, Scalar::I64);
        assert_eq!(to_i64, bytes(&wide, &|x| (x as i64).to_ne_bytes().to_vec()));
        // What int32 does not reach has no low bits; signed and unsigned integers have the same.
        let within = |x: f64| if x.abs() < 2_147_483_648.0 { x as i64 } else { 0 };
        for conversion in [Cast::FloatToSigned, Cast::FloatToUnsigned] {
            for (from, numbers) in [(Scalar::F32, &wide), (Scalar::F64, &doubles)] {
                let shorts = run(conversion, from, Scalar::I16);
                assert_eq!(shorts, bytes(numbers, &|x| (within(x) as i16).to_ne_bytes().to_vec()));
                assert_eq!(run(conversion, from, Scalar::I8), bytes(numbers, &|x| vec![within(x) as u8]));
            }
        }
    }
}
