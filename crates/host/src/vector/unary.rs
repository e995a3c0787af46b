//! Operations on one operand.

use super::double::{self, single};
use super::{CHUNK, leveled, math};
use openmps_tile::{Scalar, Unary};

/// `destination[i] = f(source[i])` for `i` in `0..count`.
pub type UnaryFunction = unsafe fn(destination: *mut u8, source: *const u8, count: usize);

/// One operation on elements of type `T`.
trait Map<T> {
    fn apply(x: T) -> T;

    /// Whether `apply` may be used; else `apply_slowly` serves the whole chunk.
    #[inline(always)]
    fn in_range(_: T) -> bool {
        true
    }

    fn apply_slowly(x: T) -> T {
        Self::apply(x)
    }
}

#[inline(always)]
unsafe fn map<F: Map<T>, T: Copy + Default>(destination: *mut u8, source: *const u8, count: usize) {
    let (destination, source) = (destination.cast::<T>(), source.cast::<T>());
    let mut done = 0;
    while done + CHUNK <= count {
        // SAFETY: the caller's `count` elements are valid at both addresses; this chunk lies within.
        unsafe {
            let chunk = source.add(done).cast::<[T; CHUNK]>().read_unaligned();
            destination.add(done).cast::<[T; CHUNK]>().write_unaligned(whole::<F, T>(chunk));
        }
        done += CHUNK;
    }
    let rest = count - done;
    if rest >= WORTH_A_CHUNK {
        // SAFETY: as above, for `rest` elements; the chunk repeats the first of them.
        unsafe {
            let mut chunk = [source.add(done).read_unaligned(); CHUNK];
            std::ptr::copy_nonoverlapping(source.add(done), chunk.as_mut_ptr(), rest);
            let results = whole::<F, T>(chunk);
            std::ptr::copy_nonoverlapping(results.as_ptr(), destination.add(done), rest);
        }
        return;
    }
    while done < count {
        // SAFETY: as above.
        unsafe {
            let x = source.add(done).read_unaligned();
            let y = if F::in_range(x) { F::apply(x) } else { F::apply_slowly(x) };
            destination.add(done).write_unaligned(y);
        }
        done += 1;
    }
}

/// From so many elements on a padded chunk is faster than one after the other.
const WORTH_A_CHUNK: usize = 6;

#[inline(always)]
fn whole<F: Map<T>, T: Copy>(mut chunk: [T; CHUNK]) -> [T; CHUNK] {
    if chunk.iter().fold(true, |all, &x| all & F::in_range(x)) {
        for x in &mut chunk {
            *x = F::apply(*x);
        }
        return chunk;
    }
    chunk.map(F::apply_slowly)
}

leveled! {
    fn leveled_map<F, T>(destination: *mut u8, source: *const u8, count: usize) -> UnaryFunction
    where { F: Map<T>, T: Copy + Default } = map
}

/// Makes a zero-sized type for each operation and the table from (operation, type) to function.
macro_rules! table {
    ($($operation:ident { $($ty:ident => $f:expr $(, limit $limit:expr => $slow:expr)?;)+ })+) => {
        $(struct $operation;
        $(impl Map<$ty> for $operation {
            #[inline(always)]
            fn apply(x: $ty) -> $ty { ($f)(x) }
            $(#[inline(always)]
            fn in_range(x: $ty) -> bool { x.abs() <= $limit || x.is_nan() }
            fn apply_slowly(x: $ty) -> $ty { ($slow)(x) })?
        })+)+

        /// The function for an operation on a number type; none where the type does not have the operation.
        pub fn unary(operation: Unary, scalar: Scalar) -> Option<UnaryFunction> {
            $(if operation == Unary::$operation {
                $(if scalar == scalar_of!($ty) { return Some(leveled_map::<$operation, $ty>()); })+
            })+
            None
        }
    };
}

macro_rules! scalar_of {
    (i8) => {
        Scalar::I8
    };
    (i16) => {
        Scalar::I16
    };
    (i32) => {
        Scalar::I32
    };
    (i64) => {
        Scalar::I64
    };
    (f32) => {
        Scalar::F32
    };
    (f64) => {
        Scalar::F64
    };
    (u8) => {
        Scalar::I1
    };
}

table! {
    Negate {
        i8 => i8::wrapping_neg; i16 => i16::wrapping_neg; i32 => i32::wrapping_neg; i64 => i64::wrapping_neg;
        f32 => |x: f32| -x; f64 => |x: f64| -x;
    }
    Absolute {
        i8 => i8::wrapping_abs; i16 => i16::wrapping_abs; i32 => i32::wrapping_abs; i64 => i64::wrapping_abs;
        f32 => f32::abs; f64 => f64::abs;
    }
    Not { u8 => |x: u8| x ^ 1; i8 => |x: i8| !x; i16 => |x: i16| !x; i32 => |x: i32| !x; i64 => |x: i64| !x; }
    Exp { f32 => math::exp; f64 => double::exp; }
    Exp2 { f32 => math::exp2; f64 => double::exp2; }
    Expm1 { f32 => math::expm1; f64 => double::expm1; }
    Log { f32 => math::log; f64 => double::log; }
    Log2 { f32 => math::log2; f64 => double::log2; }
    Log1p { f32 => math::log1p; f64 => double::log1p; }
    Sqrt { f32 => f32::sqrt; f64 => f64::sqrt; }
    Rsqrt { f32 => |x: f32| 1.0 / x.sqrt(); f64 => |x: f64| 1.0 / x.sqrt(); }
    Sin { f32 => math::sin, limit math::TRIGONOMETRIC_LIMIT => |x: f32| f64::from(x).sin() as f32; f64 => double::sin, limit double::TRIGONOMETRIC_LIMIT => f64::sin; }
    Cos { f32 => math::cos, limit math::TRIGONOMETRIC_LIMIT => |x: f32| f64::from(x).cos() as f32; f64 => double::cos, limit double::TRIGONOMETRIC_LIMIT => f64::cos; }
    Tan { f32 => single::tan, limit double::TRIGONOMETRIC_LIMIT as f32 => |x: f32| f64::from(x).tan() as f32; f64 => f64::tan; }
    Asin { f32 => single::asin; f64 => f64::asin; }
    Acos { f32 => single::acos; f64 => f64::acos; }
    Atan { f32 => single::atan; f64 => f64::atan; }
    Sinh { f32 => single::sinh; f64 => f64::sinh; }
    Cosh { f32 => single::cosh; f64 => f64::cosh; }
    Tanh { f32 => math::tanh; f64 => double::tanh; }
    Erf { f32 => math::erf; f64 => libm::erf; }
    Floor { f32 => f32::floor; f64 => f64::floor; }
    Ceil { f32 => f32::ceil; f64 => f64::ceil; }
    Round { f32 => math::round_even; f64 => f64::round_ties_even; }
    Truncate { f32 => f32::trunc; f64 => f64::trunc; }
}
