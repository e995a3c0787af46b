//! Lanes of CPUs whose vector instructions are not known here.

use super::{Arithmetic, Lanes};

#[derive(Clone, Copy)]
pub(crate) struct Plain(pub(super) [f32; 4]);

impl Plain {
    #[inline(always)]
    fn zip(self, other: Self, combine: impl Fn(f32, f32) -> f32) -> Self {
        Plain(std::array::from_fn(|i| combine(self.0[i], other.0[i])))
    }
}

// SAFETY of all methods: the caller vouches for N numbers at each address.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl Arithmetic for Plain {
    const N: usize = 4;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Plain([value; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Plain(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, addend: Self) -> Self {
        self.zip(factor, |a, b| a * b).zip(addend, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if b > a { b } else { a })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if b < a { b } else { a })
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        Plain(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        Plain(self.0.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23)))
    }
}

impl Lanes for Plain {}
