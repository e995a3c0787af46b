//! Operations and comparisons on two operands, either of which may be one element repeated.

use super::double::single;
use super::{CHUNK, leveled, math};
use openmps_tile::{Binary, Compare, Scalar, Unary};

/// `destination[i] = f(x[i], y[i])` for `i` in `0..count`; an operand that repeats is read at its first element only.
pub type BinaryFunction =
    unsafe fn(destination: *mut u8, x: *const u8, x_repeats: bool, y: *const u8, y_repeats: bool, count: usize);

/// One operation on two elements of type `T` with a result of type `U`.
trait Map<T, U> {
    fn apply(x: T, y: T) -> U;
}

#[inline(always)]
unsafe fn map<F: Map<T, U>, T: Copy, U: Copy + Default>(
    destination: *mut u8,
    x: *const u8,
    x_repeats: bool,
    y: *const u8,
    y_repeats: bool,
    count: usize,
) {
    // SAFETY: passed on to the caller; the four instances differ in what is repeated only.
    unsafe {
        match (x_repeats, y_repeats) {
            (false, false) => map_with::<F, T, U, false, false>(destination, x, y, count),
            (true, false) => map_with::<F, T, U, true, false>(destination, x, y, count),
            (false, true) => map_with::<F, T, U, false, true>(destination, x, y, count),
            (true, true) => map_with::<F, T, U, true, true>(destination, x, y, count),
        }
    }
}

#[inline(always)]
unsafe fn map_with<F: Map<T, U>, T: Copy, U: Copy + Default, const X: bool, const Y: bool>(
    destination: *mut u8,
    x: *const u8,
    y: *const u8,
    count: usize,
) {
    let (destination, x, y) = (destination.cast::<U>(), x.cast::<T>(), y.cast::<T>());
    if count == 0 {
        return;
    }
    // SAFETY: at least one element is valid at each address.
    let (first_x, first_y) = unsafe { (x.read_unaligned(), y.read_unaligned()) };
    let mut done = 0;
    while done + CHUNK <= count {
        // SAFETY: the caller's `count` elements are valid unless repeated; this chunk lies within.
        unsafe {
            let xs = if X { [first_x; CHUNK] } else { x.add(done).cast::<[T; CHUNK]>().read_unaligned() };
            let ys = if Y { [first_y; CHUNK] } else { y.add(done).cast::<[T; CHUNK]>().read_unaligned() };
            let mut results = [U::default(); CHUNK];
            for i in 0..CHUNK {
                results[i] = F::apply(xs[i], ys[i]);
            }
            destination.add(done).cast::<[U; CHUNK]>().write_unaligned(results);
        }
        done += CHUNK;
    }
    let rest = count - done;
    if rest >= WORTH_A_CHUNK {
        // SAFETY: as above, for `rest` elements; the chunks repeat the first of them.
        unsafe {
            let (mut xs, mut ys) = ([first_x; CHUNK], [first_y; CHUNK]);
            if !X {
                std::ptr::copy_nonoverlapping(x.add(done), xs.as_mut_ptr(), rest);
            }
            if !Y {
                std::ptr::copy_nonoverlapping(y.add(done), ys.as_mut_ptr(), rest);
            }
            let mut results = [U::default(); CHUNK];
            for i in 0..CHUNK {
                results[i] = F::apply(xs[i], ys[i]);
            }
            std::ptr::copy_nonoverlapping(results.as_ptr(), destination.add(done), rest);
        }
        return;
    }
    while done < count {
        // SAFETY: as above.
        unsafe {
            let a = if X { first_x } else { x.add(done).read_unaligned() };
            let b = if Y { first_y } else { y.add(done).read_unaligned() };
            destination.add(done).write_unaligned(F::apply(a, b));
        }
        done += 1;
    }
}

/// From so many elements on a padded chunk is faster than one after the other.
const WORTH_A_CHUNK: usize = 6;

leveled! {
    fn leveled_map<F, T, U>(destination: *mut u8, x: *const u8, x_repeats: bool, y: *const u8, y_repeats: bool, count: usize)
        -> BinaryFunction
    where { F: Map<T, U>, T: Copy, U: Copy + Default } = map
}

/// `x / (1 + e^-y)` of float32 in one pass: the division's unit works while the exponential is computed.
pub fn over_one_and_exponential() -> BinaryFunction {
    struct Logistic;
    impl Map<f32, f32> for Logistic {
        #[inline(always)]
        fn apply(x: f32, y: f32) -> f32 {
            x / (1.0 + math::exp(-y))
        }
    }
    leveled_map::<Logistic, f32, f32>()
}

/// An exponential of `x - y` of float32 in one pass, as a softmax takes it; none of other operations.
pub fn exponential_of_difference(operation: Unary) -> Option<BinaryFunction> {
    struct Natural;
    impl Map<f32, f32> for Natural {
        #[inline(always)]
        fn apply(x: f32, y: f32) -> f32 {
            math::exp(x - y)
        }
    }
    struct OfTwo;
    impl Map<f32, f32> for OfTwo {
        #[inline(always)]
        fn apply(x: f32, y: f32) -> f32 {
            math::exp2(x - y)
        }
    }
    match operation {
        Unary::Exp => Some(leveled_map::<Natural, f32, f32>()),
        Unary::Exp2 => Some(leveled_map::<OfTwo, f32, f32>()),
        _ => None,
    }
}

/// Whether `T` holds elements of the number type; integers of one width share it, their operations differ.
trait Holds {
    fn holds(scalar: Scalar) -> bool;
}

macro_rules! holds {
    ($($ty:ident: $($scalar:ident)|+;)+) => {
        $(impl Holds for $ty {
            fn holds(scalar: Scalar) -> bool { matches!(scalar, $(Scalar::$scalar)|+) }
        })+
    };
}
holds! {
    u8: I1 | I8; i8: I1 | I8; u16: I16; i16: I16; u32: I32; i32: I32; u64: I64; i64: I64; f32: F32; f64: F64;
}

/// Division of integers towards zero, 0 by 0.
trait Quotient: Sized {
    fn quotient(self, y: Self) -> Self;
    fn remainder(self, y: Self) -> Self;
}

macro_rules! quotient {
    // A CPU divides floats in vectors, integers one by one. The nearest float to a quotient is not on the other side of an integer: it lies at least
    // 1 / y away from the next one, and the float has twice as many digits as x.
    ($($ty:ident by $float:ident: |$y:ident| $is_opposite:expr;)+) => {
        $(impl Quotient for $ty {
            #[inline(always)]
            fn quotient(self, $y: $ty) -> $ty {
                let is_opposite: bool = $is_opposite;
                let by = if $y == 0 || is_opposite { 1 } else { $y };
                // SAFETY: the quotient is a number of the type, since x is one and y is neither 0 nor -1.
                let quotient = unsafe { ($float::from(self) / $float::from(by)).to_int_unchecked::<$ty>() };
                let quotient = if is_opposite { self.wrapping_neg() } else { quotient };
                if $y == 0 { 0 } else { quotient }
            }
            #[inline(always)]
            fn remainder(self, y: $ty) -> $ty {
                if y == 0 { 0 } else { self.wrapping_sub(self.quotient(y).wrapping_mul(y)) }
            }
        })+
    };
    ($($ty:ident)+) => {
        $(impl Quotient for $ty {
            #[inline(always)]
            fn quotient(self, y: $ty) -> $ty {
                if y == 0 { 0 } else { self.wrapping_div(y) }
            }
            #[inline(always)]
            fn remainder(self, y: $ty) -> $ty {
                if y == 0 { 0 } else { self.wrapping_rem(y) }
            }
        })+
    };
}
quotient! {
    i8 by f32: |y| y == -1; i16 by f32: |y| y == -1; i32 by f64: |y| y == -1;
    u8 by f32: |y| false; u16 by f32: |y| false; u32 by f64: |y| false;
}
quotient! { i64 u64 }

/// Makes a zero-sized type for each operation and the table from (operation, number type) to function.
macro_rules! table {
    (@result $ty:ident same) => { $ty };
    (@result $ty:ident $result:ident) => { $result };
    ($(#[$doc:meta])* $name:ident($key:ident) -> $result:ident {
        $($operation:ident { $($($ty:ident)+ : |$x:ident, $y:ident| $f:expr;)+ })+
    }) => {
        $(#[$doc])*
        pub fn $name(operation: $key, scalar: Scalar) -> Option<BinaryFunction> {
            $(if operation == $key::$operation {
                struct $operation;
                $($(impl Map<$ty, table!(@result $ty $result)> for $operation {
                    #[inline(always)]
                    fn apply($x: $ty, $y: $ty) -> table!(@result $ty $result) { $f }
                }
                if $ty::holds(scalar) {
                    return Some(leveled_map::<$operation, $ty, table!(@result $ty $result)>());
                })+)+
            })+
            None
        }
    };
}

table! {
    /// The function for an operation on a number type; none where the type does not have the operation.
    binary(Binary) -> same {
        Add { f32 f64: |x, y| x + y; i8 i16 i32 i64: |x, y| x.wrapping_add(y); }
        Subtract { f32 f64: |x, y| x - y; i8 i16 i32 i64: |x, y| x.wrapping_sub(y); }
        Multiply { f32 f64: |x, y| x * y; i8 i16 i32 i64: |x, y| x.wrapping_mul(y); }
        Divide { f32 f64: |x, y| x / y; i8 i16 i32 i64: |x, y| x.quotient(y); }
        DivideUnsigned { u8 u16 u32 u64: |x, y| x.quotient(y); }
        Remainder { f32 f64: |x, y| x % y; i8 i16 i32 i64: |x, y| x.remainder(y); }
        RemainderUnsigned { u8 u16 u32 u64: |x, y| x.remainder(y); }
        Minimum { f32 f64: |x, y| if x < y || x.is_nan() { x } else { y }; i8 i16 i32 i64: |x, y| x.min(y); }
        Maximum { f32 f64: |x, y| if x > y || x.is_nan() { x } else { y }; i8 i16 i32 i64: |x, y| x.max(y); }
        MinimumNumber { f32 f64: |x, y| if y < x || x.is_nan() { y } else { x }; }
        MaximumNumber { f32 f64: |x, y| if y > x || x.is_nan() { y } else { x }; }
        MinimumUnsigned { u8 u16 u32 u64: |x, y| x.min(y); }
        MaximumUnsigned { u8 u16 u32 u64: |x, y| x.max(y); }
        Power { f32: |x, y| single::pow(x, y); f64: |x, y| x.powf(y); }
        Atan2 { f32: |x, y| single::atan2(x, y); f64: |x, y| x.atan2(y); }
        MultiplyHighUnsigned {
            u8: |x, y| ((u16::from(x) * u16::from(y)) >> 8) as u8; u16: |x, y| ((u32::from(x) * u32::from(y)) >> 16) as u16;
            u32: |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32; u64: |x, y| ((u128::from(x) * u128::from(y)) >> 64) as u64;
        }
        And { u8 u16 u32 u64: |x, y| x & y; }
        Or { u8 u16 u32 u64: |x, y| x | y; }
        Xor { u8 u16 u32 u64: |x, y| x ^ y; }
        ShiftLeft {
            u8: |x, y| x.checked_shl(y.into()).unwrap_or(0); u16: |x, y| x.checked_shl(y.into()).unwrap_or(0);
            u32: |x, y| x.checked_shl(y).unwrap_or(0); u64: |x, y| if y < 64 { x << y } else { 0 };
        }
        ShiftRight {
            i8: |x, y| x >> (y as u8).min(7); i16: |x, y| x >> (y as u16).min(15);
            i32: |x, y| x >> (y as u32).min(31); i64: |x, y| x >> (y as u64).min(63);
        }
        ShiftRightUnsigned {
            u8: |x, y| x.checked_shr(y.into()).unwrap_or(0); u16: |x, y| x.checked_shr(y.into()).unwrap_or(0);
            u32: |x, y| x.checked_shr(y).unwrap_or(0); u64: |x, y| if y < 64 { x >> y } else { 0 };
        }
    }
}

table! {
    /// The function for a comparison of a number type; its results are bytes 0 and 1.
    compare(Compare) -> u8 {
        Equal { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x == y); }
        NotEqual { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x != y); }
        Less { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x < y); }
        LessEqual { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x <= y); }
        Greater { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x > y); }
        GreaterEqual { f32 f64 i8 i16 i32 i64: |x, y| u8::from(x >= y); }
        LessUnsigned { u8 u16 u32 u64: |x, y| u8::from(x < y); }
        LessEqualUnsigned { u8 u16 u32 u64: |x, y| u8::from(x <= y); }
        GreaterUnsigned { u8 u16 u32 u64: |x, y| u8::from(x > y); }
        GreaterEqualUnsigned { u8 u16 u32 u64: |x, y| u8::from(x >= y); }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::unary::unary;

    #[test]
    fn quotients_are_those_of_integers() {
        let mut numbers: Vec<i32> =
            vec![0, 1, -1, 2, -2, 3, 7, -7, 64, 1000, i32::MAX, i32::MIN, i32::MIN + 1, 46_341, 1 << 30];
        numbers.extend((1..40).map(|i: i32| i.wrapping_mul(0x9e37_79b1_u32 as i32).wrapping_mul(i)));
        for &x in &numbers {
            for &y in numbers.iter().filter(|&&y| y != 0) {
                assert_eq!((x.quotient(y), x.remainder(y)), (x.wrapping_div(y), x.wrapping_rem(y)), "{x} {y}");
                let [x, y] = [x, y].map(i32::cast_unsigned);
                assert_eq!((x.quotient(y), x.remainder(y)), (x / y, x % y), "{x} {y}");
            }
            assert_eq!((x.quotient(0), x.remainder(0)), (0, 0));
        }
        for (x, y) in (i16::MIN..=i16::MAX).flat_map(|x| [1, -1, 3, -7, 255, 256, i16::MAX, i16::MIN].map(|y| (x, y))) {
            assert_eq!((x.quotient(y), x.remainder(y)), (x.wrapping_div(y), x.wrapping_rem(y)), "{x} {y}");
            let [x, y] = [x, y].map(i16::cast_unsigned);
            assert_eq!((x.quotient(y), x.remainder(y)), (x / y, x % y), "{x} {y}");
        }
        for (x, y) in
            (i8::MIN..=i8::MAX).flat_map(|x| (i8::MIN..=i8::MAX).map(move |y| (x, y))).filter(|(_, y)| *y != 0)
        {
            assert_eq!((x.quotient(y), x.remainder(y)), (x.wrapping_div(y), x.wrapping_rem(y)), "{x} {y}");
            let [x, y] = [x, y].map(i8::cast_unsigned);
            assert_eq!((x.quotient(y), x.remainder(y)), (x / y, x % y), "{x} {y}");
        }
    }

    #[test]
    fn an_exponential_of_a_difference_is_the_one_of_the_other() {
        let x: Vec<f32> = (0..200).map(|i| (i as f32 - 90.0) * 1.3).chain([f32::NAN, f32::INFINITY]).collect();
        let y: Vec<f32> = (0..202).map(|i| (i as f32 * 0.7).sin() * 9.0).collect();
        let subtract = binary(Binary::Subtract, Scalar::F32).expect("a difference");
        for operation in [Unary::Exp, Unary::Exp2] {
            let function = exponential_of_difference(operation).expect("an exponential");
            let exponential = unary(operation, Scalar::F32).expect("an exponential");
            for (repeating, count) in (0..4).flat_map(|bits| [0, 1, 63, 64, 202].map(|count| (bits, count))) {
                let [of_x, of_y] = [repeating & 1 == 1, repeating & 2 == 2];
                let (mut found, mut expected) = (vec![9.0_f32; 203], vec![9.0_f32; 203]);
                // SAFETY: each vector has at least `count` elements.
                unsafe {
                    let (x, y) = (x.as_ptr().cast(), y.as_ptr().cast());
                    function(found.as_mut_ptr().cast(), x, of_x, y, of_y, count);
                    let to = expected.as_mut_ptr().cast();
                    subtract(to, x, of_x, y, of_y, count);
                    exponential(to, to, count);
                }
                let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{operation:?} {repeating} {count}");
            }
        }
    }
}
