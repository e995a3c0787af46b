//! Reductions of a run of elements to one, and what each makes with all those before it.

use super::{CHUNK, leveled};
use crate::level;
use openmps_tile::{Combine, Scalar};

/// `destination[0] = combine(source[0], .., source[count - 1])`; the combination's identity when `count` is 0.
pub type ReduceFunction = unsafe fn(destination: *mut u8, source: *const u8, count: usize);

/// One combination of elements of type `T`.
trait Fold<T> {
    const IDENTITY: T;
    fn combine(x: T, y: T) -> T;
}

/// Chunks whose lanes are combined before they join those of the chunks before: a sum's error grows with this and with the number of such blocks, not
/// with their product.
pub(super) const BLOCK: usize = 128;

#[inline(always)]
unsafe fn fold<F: Fold<T>, T: Copy>(destination: *mut u8, source: *const u8, count: usize) {
    let source = source.cast::<T>();
    let (whole, rest) = (count / CHUNK, count % CHUNK);
    let mut lanes = [F::IDENTITY; CHUNK];
    for begin in (0..whole).step_by(BLOCK) {
        let mut block = [F::IDENTITY; CHUNK];
        for chunk in begin..whole.min(begin + BLOCK) {
            // SAFETY: the caller's `count` elements are valid; this chunk lies within.
            let chunk = unsafe { source.add(chunk * CHUNK).cast::<[T; CHUNK]>().read_unaligned() };
            block = combined::<F, T>(block, chunk);
        }
        lanes = combined::<F, T>(lanes, block);
    }
    if rest > 0 {
        // A whole chunk again: lanes that are named by a number known at run time only do not stay in registers.
        let mut last = [F::IDENTITY; CHUNK];
        // SAFETY: as above; what is left is less than a chunk.
        unsafe {
            let from = source.add(whole * CHUNK).cast::<u8>();
            from.copy_to_nonoverlapping(last.as_mut_ptr().cast(), rest * size_of::<T>());
        }
        lanes = combined::<F, T>(lanes, last);
    }
    // SAFETY: the destination is valid for one element.
    unsafe { destination.cast::<T>().write_unaligned(all::<F, T>(lanes)) };
}

#[inline(always)]
fn combined<F: Fold<T>, T: Copy>(mut lanes: [T; CHUNK], others: [T; CHUNK]) -> [T; CHUNK] {
    for i in 0..CHUNK {
        lanes[i] = F::combine(lanes[i], others[i]);
    }
    lanes
}

/// All lanes combined.
#[inline(always)]
fn all<F: Fold<T>, T: Copy>(mut lanes: [T; CHUNK]) -> T {
    const { assert!(CHUNK == 64, "the halves below") };
    halve::<F, T, 32>(&mut lanes);
    halve::<F, T, 16>(&mut lanes);
    halve::<F, T, 8>(&mut lanes);
    halve::<F, T, 4>(&mut lanes);
    halve::<F, T, 2>(&mut lanes);
    halve::<F, T, 1>(&mut lanes);
    lanes[0]
}

/// The sum of a chunk's lanes, as a sum of elements ends.
#[inline(always)]
pub(super) fn sum_of_lanes(lanes: [f32; CHUNK]) -> f32 {
    all::<Sum, f32>(lanes)
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
    where { F: Fold<T>, T: Copy } = fold at level::reading
}

/// `destination[i] = combine(source[0], .., source[i])` for `i` in `0..count`; from the last element to the first where it goes backwards.
pub type ScanFunction = unsafe fn(destination: *mut u8, source: *const u8, count: usize, backwards: bool);

/// Elements that are scanned in registers.
const SCANNED: usize = 16;

#[inline(always)]
unsafe fn scan_either_way<F: Fold<T>, T: Copy>(destination: *mut u8, source: *const u8, count: usize, backwards: bool) {
    // SAFETY: passed on to the caller.
    unsafe {
        match backwards {
            false => scan_run::<F, T, false>(destination.cast(), source.cast(), count),
            true => scan_run::<F, T, true>(destination.cast(), source.cast(), count),
        }
    }
}

#[inline(always)]
unsafe fn scan_run<F: Fold<T>, T: Copy, const BACKWARDS: bool>(destination: *mut T, source: *const T, count: usize) {
    let (whole, rest) = (count / SCANNED, count % SCANNED);
    let mut before = None;
    for chunk in 0..whole {
        let first = if BACKWARDS { count - (chunk + 1) * SCANNED } else { chunk * SCANNED };
        // SAFETY: the caller's `count` elements are valid; this chunk lies within.
        unsafe {
            let chunk = source.add(first).cast::<[T; SCANNED]>().read_unaligned();
            let scanned = scanned::<F, T, BACKWARDS>(chunk, before);
            destination.add(first).cast::<[T; SCANNED]>().write_unaligned(scanned);
            before = Some(scanned[if BACKWARDS { 0 } else { SCANNED - 1 }]);
        }
    }
    if rest > 0 {
        // Backwards the elements are the last ones of their chunk, so that what is not there comes behind them.
        let (first, at) = if BACKWARDS { (0, SCANNED - rest) } else { (whole * SCANNED, 0) };
        // SAFETY: as above; what is left is less than a chunk.
        unsafe {
            let mut chunk = [source.add(first).read_unaligned(); SCANNED];
            let from = source.add(first).cast::<u8>();
            from.copy_to_nonoverlapping(chunk[at..].as_mut_ptr().cast(), rest * size_of::<T>());
            let scanned = scanned::<F, T, BACKWARDS>(chunk, before);
            let to = destination.add(first).cast::<u8>();
            scanned[at..].as_ptr().cast::<u8>().copy_to_nonoverlapping(to, rest * size_of::<T>());
        }
    }
}

/// What each element of a chunk makes with those before it, and with what was made before the chunk.
#[inline(always)]
fn scanned<F: Fold<T>, T: Copy, const BACKWARDS: bool>(mut chunk: [T; SCANNED], before: Option<T>) -> [T; SCANNED] {
    const { assert!(SCANNED == 16, "the distances below") };
    join::<F, T, BACKWARDS, 1>(&mut chunk);
    join::<F, T, BACKWARDS, 2>(&mut chunk);
    join::<F, T, BACKWARDS, 4>(&mut chunk);
    join::<F, T, BACKWARDS, 8>(&mut chunk);
    if let Some(before) = before {
        for x in &mut chunk {
            *x = F::combine(before, *x);
        }
    }
    chunk
}

/// Combines each element with the one that comes so far before it, where there is one.
#[inline(always)]
fn join<F: Fold<T>, T: Copy, const BACKWARDS: bool, const DISTANCE: usize>(chunk: &mut [T; SCANNED]) {
    let mut moved = *chunk;
    for (i, moved) in moved.iter_mut().enumerate() {
        *moved = chunk[if BACKWARDS { i + DISTANCE } else { i + SCANNED - DISTANCE } % SCANNED];
    }
    for (i, x) in chunk.iter_mut().enumerate() {
        let combined = F::combine(moved[i], *x);
        let has_one = if BACKWARDS { i + DISTANCE < SCANNED } else { i >= DISTANCE };
        *x = if has_one { combined } else { *x };
    }
}

leveled! {
    fn leveled_scan<F, T>(destination: *mut u8, source: *const u8, count: usize, backwards: bool) -> ScanFunction
    where { F: Fold<T>, T: Copy } = scan_either_way
}

macro_rules! table {
    ($($combine:ident { $($ty:ident $scalar:ident: $identity:expr, |$x:ident, $y:ident| $f:expr;)+ })+) => {
        $(struct $combine;
        $(impl Fold<$ty> for $combine {
            const IDENTITY: $ty = $identity;
            #[inline(always)]
            fn combine($x: $ty, $y: $ty) -> $ty { $f }
        })+)+

        /// The function for a combination of a number type; none where the type does not have it.
        pub fn reduce(combine: Combine, scalar: Scalar) -> Option<ReduceFunction> {
            $(if combine == Combine::$combine {
                $(if scalar == Scalar::$scalar { return Some(leveled_fold::<$combine, $ty>()); })+
            })+
            None
        }

        /// As [`reduce`], for scans.
        pub fn scan(combine: Combine, scalar: Scalar) -> Option<ScanFunction> {
            $(if combine == Combine::$combine {
                $(if scalar == Scalar::$scalar { return Some(leveled_scan::<$combine, $ty>()); })+
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sum_stays_near_the_true_one() {
        let (count, number) = (1 << 20, 0.1_f32);
        let numbers = vec![number; count];
        let mut found = 0.0_f32;
        let sum = reduce(Combine::Sum, Scalar::F32).expect("a sum of float32");
        // SAFETY: so many elements, and one result.
        unsafe { sum((&raw mut found).cast(), numbers.as_ptr().cast(), count) };
        let expected = count as f64 * f64::from(number);
        // Without blocks each lane adds a number 16,384 times to an ever larger sum, and the error is a hundred times this one.
        assert!((f64::from(found) - expected).abs() / expected < 4e-6, "{found} {expected}");
    }

    #[test]
    fn a_scan_is_one_element_after_the_other() {
        let function = scan(Combine::MaximumNumber, Scalar::F32).expect("a scan");
        let sum = scan(Combine::Sum, Scalar::I64).expect("a scan");
        for (count, backwards) in (0..70).chain([500]).flat_map(|count| [(count, false), (count, true)]) {
            let order = |i: usize| if backwards { count - 1 - i } else { i };
            let number = |i: usize| if i % 7 == 3 { f32::NAN } else { (i as f32 * 2.1).sin() };
            let x: Vec<f32> = (0..count).map(number).collect();
            let y: Vec<i64> = (0..count as i64).map(|i| i * i - 40).collect();
            let (mut largest, mut sums) = (vec![9.0_f32; count + 1], vec![9_i64; count + 1]);
            // SAFETY: each vector has `count` elements.
            unsafe {
                function(largest.as_mut_ptr().cast(), x.as_ptr().cast(), count, backwards);
                sum(sums.as_mut_ptr().cast(), y.as_ptr().cast(), count, backwards);
            }
            assert_eq!((largest[count], sums[count]), (9.0, 9), "what lies behind stays");
            let (mut most, mut total) = (f32::NAN, 0);
            for i in (0..count).map(order) {
                (most, total) = (most.max(x[i]), total + y[i]);
                assert_eq!((largest[i].to_bits(), sums[i]), (most.to_bits(), total), "{count} {backwards} {i}");
            }
        }
    }
}
