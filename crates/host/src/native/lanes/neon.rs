//! Lanes of NEON.

use super::{Arithmetic, Lanes};
use half::{bf16, f16};
use std::arch::aarch64::*;

/// Two registers, because four of Apple's pipes need more independent sums than six rows of one register give.
#[derive(Clone, Copy)]
pub(crate) struct Neon(pub(super) float32x4_t, pub(super) float32x4_t);

macro_rules! both {
    // `self` is handed in: one written here would be another than the arguments'.
    ($me:ident; $($method:ident($($other:ident),*) = $intrinsic:ident($($arg:ident),*);)*) => {
        $(both! { @one $me $method($($other),*) = $intrinsic($($arg),*) })*
    };
    (@one $me:ident $method:ident($($other:ident),*) = $intrinsic:ident($($arg:ident),*)) => {
        #[inline(always)]
        unsafe fn $method($me, $($other: Self),*) -> Self {
            let low = |v: Neon| v.0;
            let high = |v: Neon| v.1;
            unsafe { Neon($intrinsic($(low($arg)),*), $intrinsic($(high($arg)),*)) }
        }
    };
}

// SAFETY of all methods: NEON belongs to the target's baseline; the caller vouches for N numbers at each address.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl Arithmetic for Neon {
    const N: usize = 8;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { Neon(vdupq_n_f32(value), vdupq_n_f32(value)) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Neon(vld1q_f32(from), vld1q_f32(from.add(4))) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe {
            vst1q_f32(to, self.0);
            vst1q_f32(to.add(4), self.1);
        }
    }
    both! { self;
        add(other) = vaddq_f32(self, other);
        sub(other) = vsubq_f32(self, other);
        mul(other) = vmulq_f32(self, other);
        div(other) = vdivq_f32(self, other);
        fma(factor, addend) = vfmaq_f32(addend, self, factor);
        max(other) = vmaxq_f32(self, other);
        min(other) = vminq_f32(self, other);
        sqrt() = vsqrtq_f32(self);
    }
    #[inline(always)]
    unsafe fn exp2_integral(self) -> Self {
        let power =
            |n| unsafe { vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)))) };
        Neon(power(self.0), power(self.1))
    }
}

// SAFETY of all methods: as above.
#[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
impl Lanes for Neon {
    // The conversion's intrinsics ask for arithmetic of float16; the instruction itself belongs to the baseline.
    #[inline(always)]
    unsafe fn load_half(from: *const f16) -> Self {
        unsafe {
            let halves = vld1q_u16(from.cast());
            let (low, high): (float32x4_t, float32x4_t);
            std::arch::asm!(
                "fcvtl {low:v}.4s, {halves:v}.4h",
                "fcvtl2 {high:v}.4s, {halves:v}.8h",
                halves = in(vreg) halves, low = out(vreg) low, high = lateout(vreg) high,
                options(pure, nomem, nostack, preserves_flags),
            );
            Neon(low, high)
        }
    }
    #[inline(always)]
    unsafe fn store_half(self, to: *mut f16) {
        unsafe {
            let halves: uint16x8_t;
            std::arch::asm!(
                "fcvtn {halves:v}.4h, {low:v}.4s",
                "fcvtn2 {halves:v}.8h, {high:v}.4s",
                low = in(vreg) self.0, high = in(vreg) self.1, halves = out(vreg) halves,
                options(pure, nomem, nostack, preserves_flags),
            );
            vst1q_u16(to.cast(), halves);
        }
    }
    #[inline(always)]
    unsafe fn load_bfloat(from: *const bf16) -> Self {
        unsafe {
            let halves = vld1q_u16(from.cast());
            let wide = |half| vreinterpretq_f32_u32(vshll_n_u16::<16>(half));
            Neon(wide(vget_low_u16(halves)), wide(vget_high_u16(halves)))
        }
    }
    #[inline(always)]
    unsafe fn load_rows_of_4(from: *const f32, stride: usize) -> [Self; 4] {
        unsafe {
            let rows = |first: usize| [0, 1, 2, 3].map(|i| vld1q_f32(from.add((first + i) * stride)));
            let [[a, b, c, d], [e, f, g, h]] = [transposed(rows(0)), transposed(rows(4))];
            [Neon(a, e), Neon(b, f), Neon(c, g), Neon(d, h)]
        }
    }
    #[inline(always)]
    unsafe fn store_rows_of_4([a, b, c, d]: [Self; 4], to: *mut f32, stride: usize) {
        unsafe {
            let low = transposed([a.0, b.0, c.0, d.0]);
            let high = transposed([a.1, b.1, c.1, d.1]);
            for i in 0..4 {
                vst1q_f32(to.add(i * stride), low[i]);
                vst1q_f32(to.add((4 + i) * stride), high[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn sums(registers: [Self; 4]) -> [f32; 4] {
        registers.map(|Neon(low, high)| unsafe { vaddvq_f32(vaddq_f32(low, high)) })
    }
}

/// Transposes a 4x4 block.
///
/// # Safety
/// NEON belongs to the target's baseline.
#[inline(always)]
unsafe fn transposed([a, b, c, d]: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: only register operations.
    unsafe {
        let (even, odd) = (vzip1q_f32(a, c), vzip1q_f32(b, d));
        let (even2, odd2) = (vzip2q_f32(a, c), vzip2q_f32(b, d));
        [vzip1q_f32(even, odd), vzip2q_f32(even, odd), vzip1q_f32(even2, odd2), vzip2q_f32(even2, odd2)]
    }
}
