//! Multiplication and addition rounded once, of three operands, any of which may be one element repeated.

use super::leveled;
use openmps_tile::Scalar;
use openmps_tile::interpret::element;

/// `destination[i] = x[i] * y[i] + z[i]` for `i` in `0..count`; an operand that repeats is read at its first element only.
pub type FusedFunction = unsafe fn(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize);

/// An element type with a fused multiplication.
trait Fused: Copy {
    fn fused(x: Self, y: Self, z: Self) -> Self;
}

impl Fused for f32 {
    #[inline(always)]
    fn fused(x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }
}

impl Fused for f64 {
    #[inline(always)]
    fn fused(x: f64, y: f64, z: f64) -> f64 {
        x.mul_add(y, z)
    }
}

/// The bits of a half type: the sum of exact float64 products, rounded to the type.
macro_rules! half {
    ($name:ident, $scalar:ident) => {
        #[derive(Clone, Copy)]
        struct $name(u16);
        impl Fused for $name {
            fn fused(x: $name, y: $name, z: $name) -> $name {
                $name(element::multiply_add(Scalar::$scalar, x.0.into(), y.0.into(), z.0.into()) as u16)
            }
        }
    };
}
half!(Half, F16);
half!(Bfloat, BF16);

#[inline(always)]
unsafe fn map<T: Fused>(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) {
    let steps = repeats.map(|repeats| usize::from(!repeats));
    let [x, y, z] = operands.map(|operand| operand.cast::<T>());
    for i in 0..count {
        // SAFETY: the caller's `count` elements are valid at each address that does not repeat, one at those that do.
        unsafe {
            let at = |from: *const T, step: usize| from.add(i * step).read_unaligned();
            let result = T::fused(at(x, steps[0]), at(y, steps[1]), at(z, steps[2]));
            destination.cast::<T>().add(i).write_unaligned(result);
        }
    }
}

leveled! {
    fn leveled_map<T>(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) -> FusedFunction
    where { T: Fused } = map
}

/// The function for a float type; none for others.
pub fn fused(scalar: Scalar) -> Option<FusedFunction> {
    Some(match scalar {
        Scalar::F32 => leveled_map::<f32>(),
        Scalar::F64 => leveled_map::<f64>(),
        Scalar::F16 => leveled_map::<Half>(),
        Scalar::BF16 => leveled_map::<Bfloat>(),
        _ => return None,
    })
}
