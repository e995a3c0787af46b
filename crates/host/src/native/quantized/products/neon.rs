//! NEON of every aarch64: products of bytes in 16 bits, added up in pairs.

use super::Products;
use std::arch::aarch64::*;

#[derive(Clone, Copy)]
pub(in super::super) struct Neon(float32x4_t);

// SAFETY of all methods: NEON belongs to the target's baseline; memory by the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Products for Neon {
    type Bytes = [uint8x16_t; 2];
    plain_pairs!();

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [uint8x16_t; 2] {
        unsafe { [vld1q_u8(from), vld1q_u8(from.add(16))] }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> [uint8x16_t; 2] {
        unsafe {
            let packed = vld1q_u8(from);
            [vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8::<4>(packed)]
        }
    }
    #[inline(always)]
    unsafe fn bits<const SHIFT: i32>([low, high]: [uint8x16_t; 2], mask: u8) -> [uint8x16_t; 2] {
        unsafe {
            // By a number that may be zero, which the instruction with a constant refuses.
            let (by, mask) = (vdupq_n_s8(-(SHIFT as i8)), vdupq_n_u8(mask));
            [vandq_u8(vshlq_u8(low, by), mask), vandq_u8(vshlq_u8(high, by), mask)]
        }
    }
    #[inline(always)]
    unsafe fn below(bytes: [uint8x16_t; 2], upper: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        unsafe { [vorrq_u8(bytes[0], vshlq_n_u8::<4>(upper[0])), vorrq_u8(bytes[1], vshlq_n_u8::<4>(upper[1]))] }
    }
    #[inline(always)]
    unsafe fn less([low, high]: [uint8x16_t; 2], by: u8) -> [uint8x16_t; 2] {
        unsafe { [vsubq_u8(low, vdupq_n_u8(by)), vsubq_u8(high, vdupq_n_u8(by))] }
    }
    #[inline(always)]
    unsafe fn zero() -> Neon {
        unsafe { Neon(vdupq_n_f32(0.0)) }
    }
    #[inline(always)]
    unsafe fn add(self, q: [uint8x16_t; 2], x: *const i8, scale: f32) -> Neon {
        unsafe {
            let [first, second] = products(q, x);
            Neon(vfmaq_n_f32(self.0, vcvtq_f32_s32(vaddq_s32(first, second)), scale))
        }
    }
    #[inline(always)]
    unsafe fn add_signed(self, q: [uint8x16_t; 2], x: *const i8, scale: f32) -> Neon {
        // Numbers below 128 are the same as signed bytes.
        unsafe { self.add(q, x, scale) }
    }
    #[inline(always)]
    unsafe fn add_halves(self, q: [uint8x16_t; 2], x: *const i8, scales: [f32; 2]) -> Neon {
        unsafe {
            let [first, second] = products(q, x);
            let sums = vfmaq_n_f32(self.0, vcvtq_f32_s32(first), scales[0]);
            Neon(vfmaq_n_f32(sums, vcvtq_f32_s32(second), scales[1]))
        }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { vaddvq_f32(self.0) }
    }
}

/// Sums of four products each, of the first 16 bytes and of the last.
#[inline(always)]
unsafe fn products([low, high]: [uint8x16_t; 2], x: *const i8) -> [int32x4_t; 2] {
    // SAFETY: the caller vouches for 32 bytes of x.
    unsafe {
        // Sums of two products fit into 16 bits: 2 * 128 * 127. Unsigned numbers are below 128.
        let sixteen = |q: uint8x16_t, x: int8x16_t| {
            let q = vreinterpretq_s8_u8(q);
            let products = vmull_s8(vget_low_s8(q), vget_low_s8(x));
            vpaddlq_s16(vmlal_s8(products, vget_high_s8(q), vget_high_s8(x)))
        };
        [sixteen(low, vld1q_s8(x)), sixteen(high, vld1q_s8(x.add(16)))]
    }
}
