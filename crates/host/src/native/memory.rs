//! How native kernels are told where a tensor lies: an address with strides, and element types chosen by size or by type.

use half::{bf16, f16};

/// The most dimensions that a data movement kernel takes.
pub const MAX_RANK: usize = 20;

/// A tensor's memory without its dimensions: the address of element (0, 0, ...) and the strides in elements.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// Address of the first element.
    pub address: usize,
    /// Distance between neighbours along each dimension, in elements.
    pub strides: &'a [isize],
}

impl<'a> Memory<'a> {
    /// A tensor at `address` with these strides.
    pub fn new(address: usize, strides: &'a [isize]) -> Memory<'a> {
        Memory { address, strides }
    }
}

/// The strides of a dense row-major tensor, in elements.
pub fn dense_strides(dims: &[usize]) -> [isize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut next = 1;
    for (stride, &size) in strides[..dims.len()].iter_mut().zip(dims).rev() {
        *stride = next;
        next *= size as isize;
    }
    strides
}

/// Copies bytes, which may overlap, as libc does, but piece by piece where its way for many is slow: the string instruction of a Zen 3 copies 2.5 GB a second
/// instead of 60 where the destination lies up to 31 bytes behind the source, whatever pages both are on. So do numbers that go from a device's pages to an
/// array of `malloc`'s.
///
/// # Safety
/// So many bytes are readable at one address, and writable at the other.
#[inline]
pub unsafe fn move_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    let behind = (to as usize).wrapping_sub(from as usize) % PAGE;
    let is_slow = bytes > MOVED && (1..32).contains(&behind);
    if !is_slow || (to as usize).abs_diff(from as usize) < bytes {
        // SAFETY: promised by the caller.
        return unsafe { std::ptr::copy(from, to, bytes) };
    }
    for done in (0..bytes).step_by(MOVED) {
        // SAFETY: promised by the caller; nothing overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), MOVED.min(bytes - done)) };
    }
}

const PAGE: usize = 4096;

/// So many bytes are copied by loads and stores everywhere.
const MOVED: usize = 1024;

/// A dense slice at an address.
///
/// # Safety
/// `len` elements of type `T` at `address` must be initialised, aligned and not written for `'a`.
#[inline]
pub unsafe fn slice<'a, T>(address: usize, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(address as *const T, len) }
}

/// A dense slice at an address, to write.
///
/// # Safety
/// `len` elements of type `T` at `address` must be writable, aligned and not used by anyone else for `'a`.
#[inline]
pub unsafe fn slice_mut<'a, T>(address: usize, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(address as *mut T, len) }
}

/// An element type with arithmetic, as data movement kernels need it: `f32` is summed up in `f64`, half precision in `f32`.
pub trait Element: Copy + Send + Sync + PartialEq + PartialOrd + 'static {
    /// The type in which sums and products are formed.
    type Compute: Copy + Send + Sync + std::ops::Add<Output = Self::Compute> + std::ops::Mul<Output = Self::Compute>;
    /// Whether sums of many would stand still: floats of 16 bits, which are summed in wider types and rounded once.
    const IS_HALF: bool = size_of::<Self>() == 2 && size_of::<Self::Compute>() == 4;
    /// Zero.
    const ZERO: Self;
    /// The value of one, as the type spells it.
    const ONE: Self;
    /// To the computing type.
    fn widen(self) -> Self::Compute;
    /// From the computing type, rounded.
    fn narrow(value: Self::Compute) -> Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
    /// One of so many equal parts; integers are rounded down, as Python divides them.
    fn share(self, parts: u32) -> Self {
        Self::from_f64(self.to_f64() / f64::from(parts))
    }
    /// From float64, rounded; integers are truncated.
    fn from_f64(value: f64) -> Self;
    /// To float64.
    fn to_f64(self) -> f64;
    /// From an integer; floats are rounded.
    fn from_i64(value: i64) -> Self;
    /// To an integer, truncated.
    fn to_i64(self) -> i64;
    /// Whether this is not a number.
    #[inline]
    #[allow(clippy::eq_op)]
    fn is_nan(self) -> bool {
        self != self
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Compute = std::num::Wrapping<$type>;
            const ZERO: $type = 0;
            const ONE: $type = 1;
            #[inline] fn widen(self) -> Self::Compute { std::num::Wrapping(self) }
            #[inline] fn narrow(value: Self::Compute) -> $type { value.0 }
            #[inline] fn plus(self, other: $type) -> $type { self.wrapping_add(other) }
            #[inline] fn times(self, other: $type) -> $type { self.wrapping_mul(other) }
            #[inline] fn share(self, parts: u32) -> $type { i128::from(self).div_euclid(parts.into()) as $type }
            #[inline] fn from_f64(value: f64) -> $type { value as $type }
            #[inline] fn to_f64(self) -> f64 { self as f64 }
            #[inline] fn from_i64(value: i64) -> $type { value as $type }
            #[inline] fn to_i64(self) -> i64 { self as i64 }
        }
    )*};
}
integers!(u8, i8, i16, i32, i64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Compute = f64;
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            #[inline] fn widen(self) -> f64 { self as f64 }
            #[inline] fn narrow(value: f64) -> $type { value as $type }
            #[inline] fn plus(self, other: $type) -> $type { self + other }
            #[inline] fn times(self, other: $type) -> $type { self * other }
            #[inline] fn from_f64(value: f64) -> $type { value as $type }
            #[inline] fn to_f64(self) -> f64 { self as f64 }
            #[inline] fn from_i64(value: i64) -> $type { value as $type }
            #[inline] fn to_i64(self) -> i64 { self as i64 }
        }
    )*};
}
floats!(f32, f64);

macro_rules! halves {
    ($($type:ty),*) => {$(
        impl Element for $type {
            type Compute = f32;
            const ZERO: $type = <$type>::ZERO;
            const ONE: $type = <$type>::ONE;
            #[inline] fn widen(self) -> f32 { self.to_f32() }
            #[inline] fn narrow(value: f32) -> $type { <$type>::from_f32(value) }
            #[inline] fn plus(self, other: $type) -> $type { Self::narrow(self.to_f32() + other.to_f32()) }
            #[inline] fn times(self, other: $type) -> $type { Self::narrow(self.to_f32() * other.to_f32()) }
            #[inline] fn from_f64(value: f64) -> $type { <$type>::from_f64(value) }
            #[inline] fn to_f64(self) -> f64 { <$type>::to_f64(self) }
            #[inline] fn from_i64(value: i64) -> $type { <$type>::from_f64(value as f64) }
            #[inline] fn to_i64(self) -> i64 { self.to_f32() as i64 }
        }
    )*};
}
halves!(f16, bf16);

/// A boolean with arithmetic: sums are true where one of their terms is, products where all of their factors are.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Truth(u8);

impl Element for Truth {
    type Compute = std::num::Wrapping<u64>;
    const ZERO: Truth = Truth(0);
    const ONE: Truth = Truth(1);
    fn widen(self) -> Self::Compute {
        std::num::Wrapping((self.0 != 0).into())
    }
    fn narrow(value: Self::Compute) -> Truth {
        Truth((value.0 != 0).into())
    }
    fn plus(self, other: Truth) -> Truth {
        Truth((self.0 != 0 || other.0 != 0).into())
    }
    fn times(self, other: Truth) -> Truth {
        Truth((self.0 != 0 && other.0 != 0).into())
    }
    fn from_f64(value: f64) -> Truth {
        Truth((value != 0.0).into())
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self.0 != 0))
    }
    fn from_i64(value: i64) -> Truth {
        Truth((value != 0).into())
    }
    fn to_i64(self) -> i64 {
        (self.0 != 0).into()
    }
}

/// Runs an expression with `$T` standing for the Rust type of a [`DType`](openmps_tile::DType); booleans are `u8`. Unsigned integers of
/// more than 8 bits are only moved, and operators that compute refuse them (`Operator::moves`): here they are signed integers of the same bits.
#[macro_export]
macro_rules! by_type {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use $crate::DType;
        match $dtype {
            DType::Bool | DType::U8 => {
                type $T = u8;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 | DType::U16 => {
                type $T = i16;
                $body
            }
            DType::I32 | DType::U32 => {
                type $T = i32;
                $body
            }
            DType::I64 | DType::U64 => {
                type $T = i64;
                $body
            }
            DType::F16 => {
                type $T = $crate::half::f16;
                $body
            }
            DType::BF16 => {
                type $T = $crate::half::bf16;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
        }
    }};
}

/// Runs an expression with `$T` standing for an unsigned integer of that many bytes: enough where elements only move.
macro_rules! by_size {
    ($size:expr, $T:ident => $body:expr) => {
        match $size {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            16 => {
                type $T = u128;
                $body
            }
            other => unreachable!("no element has {other} bytes"),
        }
    };
}

pub(crate) use by_size;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_moved_whole_wherever_they_lie() {
        let places = [0, 1, 16, 31, 32, 4096, 4097, 5000];
        let cases = places.iter().flat_map(|&from| places.map(|to| (from, to)));
        for ((from, to), bytes) in cases.flat_map(|case| [0, 1, 1024, 1025, 3000, 4500].map(|bytes| (case, bytes))) {
            let mut memory: Vec<u8> = (0..10_000_usize).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut expected = memory.clone();
            expected.copy_within(from..from + bytes, to);
            // SAFETY: both ranges lie in the vector.
            unsafe { move_bytes(memory.as_ptr().add(from), memory.as_mut_ptr().add(to), bytes) };
            assert!(memory == expected, "{bytes} from {from} to {to}");
        }
    }
}
