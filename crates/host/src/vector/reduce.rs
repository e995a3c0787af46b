//! Reductions of a run of elements to one, and of rows into a running row.

use super::{CHUNK, leveled};
use openmps_tile::{Combine, Scalar};

/// `destination[0] = combine(source[0], .., source[count - 1])`; the combination's identity when `count` is 0.
pub type ReduceFunction = unsafe fn(destination: *mut u8, source: *const u8, count: usize);

/// One combination of elements of type `T`.
trait Fold<T> {
    const IDENTITY: T;
    fn combine(x: T, y: T) -> T;
}

#[inline(always)]
unsafe fn fold<F: Fold<T>, T: Copy>(destination: *mut u8, source: *const u8, count: usize) {
    let source = source.cast::<T>();
    let mut lanes = [F::IDENTITY; CHUNK];
    let mut done = 0;
    while done + CHUNK <= count {
        // SAFETY: the caller's `count` elements are valid; this chunk lies within.
        let chunk = unsafe { source.add(done).cast::<[T; CHUNK]>().read_unaligned() };
        for i in 0..CHUNK {
            lanes[i] = F::combine(lanes[i], chunk[i]);
        }
        done += CHUNK;
    }
    if done < count {
        // A whole chunk again: lanes that are named by a number known at run time only do not stay in registers.
        let mut rest = [F::IDENTITY; CHUNK];
        // SAFETY: as above; what is left is less than a chunk.
        unsafe {
            let from = source.add(done).cast::<u8>();
            from.copy_to_nonoverlapping(rest.as_mut_ptr().cast(), (count - done) * size_of::<T>());
        }
        for i in 0..CHUNK {
            lanes[i] = F::combine(lanes[i], rest[i]);
        }
    }
    const { assert!(CHUNK == 64, "the halves below") };
    halve::<F, T, 32>(&mut lanes);
    halve::<F, T, 16>(&mut lanes);
    halve::<F, T, 8>(&mut lanes);
    halve::<F, T, 4>(&mut lanes);
    halve::<F, T, 2>(&mut lanes);
    halve::<F, T, 1>(&mut lanes);
    // SAFETY: the destination is valid for one element.
    unsafe { destination.cast::<T>().write_unaligned(lanes[0]) };
}

/// Combines the first W lanes with the next.
#[inline(always)]
fn halve<F: Fold<T>, T: Copy, const W: usize>(lanes: &mut [T; CHUNK]) {
    for i in 0..W {
        lanes[i] = F::combine(lanes[i], lanes[i + W]);
    }
}

leveled! {
    fn leveled_fold<F, T>(destination: *mut u8, source: *const u8, count: usize) -> ReduceFunction
    where { F: Fold<T>, T: Copy } = fold
}

macro_rules! table {
    ($($combine:ident { $($ty:ident $scalar:ident: $identity:expr, |$x:ident, $y:ident| $f:expr;)+ })+) => {
        /// The function for a combination of a number type; none where the type does not have it.
        pub fn reduce(combine: Combine, scalar: Scalar) -> Option<ReduceFunction> {
            $(if combine == Combine::$combine {
                struct $combine;
                $(impl Fold<$ty> for $combine {
                    const IDENTITY: $ty = $identity;
                    #[inline(always)]
                    fn combine($x: $ty, $y: $ty) -> $ty { $f }
                }
                if scalar == Scalar::$scalar { return Some(leveled_fold::<$combine, $ty>()); })+
            })+
            None
        }
    };
}

table! {
    Sum {
        f32 F32: 0.0, |x, y| x + y; f64 F64: 0.0, |x, y| x + y;
        i8 I8: 0, |x, y| x.wrapping_add(y); i16 I16: 0, |x, y| x.wrapping_add(y);
        i32 I32: 0, |x, y| x.wrapping_add(y); i64 I64: 0, |x, y| x.wrapping_add(y);
    }
    Product {
        f32 F32: 1.0, |x, y| x * y; f64 F64: 1.0, |x, y| x * y;
        i8 I8: 1, |x, y| x.wrapping_mul(y); i16 I16: 1, |x, y| x.wrapping_mul(y);
        i32 I32: 1, |x, y| x.wrapping_mul(y); i64 I64: 1, |x, y| x.wrapping_mul(y);
    }
    Minimum {
        f32 F32: f32::INFINITY, |x, y| if x < y || x.is_nan() { x } else { y };
        f64 F64: f64::INFINITY, |x, y| if x < y || x.is_nan() { x } else { y };
        i8 I8: i8::MAX, |x, y| x.min(y); i16 I16: i16::MAX, |x, y| x.min(y);
        i32 I32: i32::MAX, |x, y| x.min(y); i64 I64: i64::MAX, |x, y| x.min(y);
    }
    Maximum {
        f32 F32: f32::NEG_INFINITY, |x, y| if x > y || x.is_nan() { x } else { y };
        f64 F64: f64::NEG_INFINITY, |x, y| if x > y || x.is_nan() { x } else { y };
        i8 I8: i8::MIN, |x, y| x.max(y); i16 I16: i16::MIN, |x, y| x.max(y);
        i32 I32: i32::MIN, |x, y| x.max(y); i64 I64: i64::MIN, |x, y| x.max(y);
    }
    MinimumNumber {
        f32 F32: f32::NAN, |x, y| if y < x || x.is_nan() { y } else { x };
        f64 F64: f64::NAN, |x, y| if y < x || x.is_nan() { y } else { x };
    }
    MaximumNumber {
        f32 F32: f32::NAN, |x, y| if y > x || x.is_nan() { y } else { x };
        f64 F64: f64::NAN, |x, y| if y > x || x.is_nan() { y } else { x };
    }
    And {
        u8 I1: 1, |x, y| x & y; i8 I8: -1, |x, y| x & y; i16 I16: -1, |x, y| x & y;
        i32 I32: -1, |x, y| x & y; i64 I64: -1, |x, y| x & y;
    }
    Or {
        u8 I1: 0, |x, y| x | y; i8 I8: 0, |x, y| x | y; i16 I16: 0, |x, y| x | y;
        i32 I32: 0, |x, y| x | y; i64 I64: 0, |x, y| x | y;
    }
    Xor {
        u8 I1: 0, |x, y| x ^ y; i8 I8: 0, |x, y| x ^ y; i16 I16: 0, |x, y| x ^ y;
        i32 I32: 0, |x, y| x ^ y; i64 I64: 0, |x, y| x ^ y;
    }
}

/// The identity of a combination as the bits of one element.
pub fn identity(combine: Combine, scalar: Scalar) -> Option<[u8; 8]> {
    let function = reduce(combine, scalar)?;
    let mut element = [0; 8];
    // SAFETY: no element is read, one of at most eight bytes is written.
    unsafe { function(element.as_mut_ptr(), std::ptr::NonNull::dangling().as_ptr(), 0) };
    Some(element)
}
