//! Sums of products of unpacked weights with rounded activations: 32 products of bytes at a time, then one multiplication by both scales.

use super::activations::Row;
use super::planes::{AT_ONCE, GROUP, Planes, padded};
use super::{BlockFormat, SIDE_BY_SIDE};

/// The sums of several rows of weights, each with the row of x.
pub(super) fn dots(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    let bytes = x.bytes.len();
    let groups = padded(bytes / GROUP);
    for planes in weights {
        let numbers = [&planes.scales, &planes.others, &planes.offsets];
        assert!(planes.bytes.len() == bytes && numbers.iter().all(|plane| plane.len() >= groups), "rows of one length");
    }
    assert!(x.scales.len() >= groups && x.sums.len() >= groups, "rows of one length");
    // SAFETY: all rows have as many groups, and numbers for these and for what pads them; the level is one that the CPU has.
    unsafe { at_instructions(format, weights, x) }
}

/// What every set of instructions that the CPU has makes of it.
#[cfg(test)]
pub(super) fn at_every_level(
    format: BlockFormat,
    weights: &[Planes; SIDE_BY_SIDE],
    x: &Row,
) -> Vec<[f32; SIDE_BY_SIDE]> {
    // SAFETY: the baseline's instructions.
    let portable = unsafe { of_format::<Portable>(format, weights, x) };
    #[cfg(target_arch = "x86_64")]
    if crate::level() >= crate::Level::Avx2 {
        // SAFETY: the CPU has it.
        return vec![dots(format, weights, x), portable, unsafe { avx2(format, weights, x) }];
    }
    vec![dots(format, weights, x), portable]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    // SAFETY: passed on to the caller.
    unsafe { of_format::<x86::Avx2<false>>(format, weights, x) }
}

#[cfg(target_arch = "x86_64")]
unsafe fn at_instructions(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    #[target_feature(enable = "avx512f,avx512vl,avx512vnni,avx2,fma")]
    unsafe fn vnni(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
        // SAFETY: passed on to the caller.
        unsafe { of_format::<x86::Avx2<true>>(format, weights, x) }
    }
    use crate::Level;
    // SAFETY: levels that the CPU has.
    unsafe {
        match crate::level() {
            Level::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => vnni(format, weights, x),
            Level::Avx512 | Level::Avx2 => avx2(format, weights, x),
            Level::Portable => of_format::<Portable>(format, weights, x),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn at_instructions(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    #[cfg(not(target_arch = "aarch64"))]
    use Portable as Native;
    #[cfg(target_arch = "aarch64")]
    use neon::Neon as Native;
    // SAFETY: the baseline's instructions.
    unsafe { of_format::<Native>(format, weights, x) }
}

#[inline(always)]
unsafe fn of_format<P: Products>(
    format: BlockFormat,
    weights: &[Planes; SIDE_BY_SIDE],
    x: &Row,
) -> [f32; SIDE_BY_SIDE] {
    // SAFETY: passed on to the caller.
    unsafe {
        match (format.is_signed(), format.has_halves()) {
            (false, _) => sums::<P, false, false>(weights, x),
            (true, false) => sums::<P, true, false>(weights, x),
            (true, true) => sums::<P, true, true>(weights, x),
        }
    }
}

/// Products of 32 bytes, added up in lanes of float32. Methods are unsafe because the CPU must have the instructions.
#[allow(clippy::missing_safety_doc)]
trait Products: Copy {
    unsafe fn zero() -> Self;
    /// `self` and 32 products, times `scales[0]`; where there are HALVES, the last 16 times `scales[1]`. Weights are below 128, or SIGNED.
    unsafe fn add<const SIGNED: bool, const HALVES: bool>(
        self,
        weights: *const u8,
        x: *const i8,
        scales: [*const f32; 2],
    ) -> Self;
    unsafe fn sum(self) -> f32;
}

#[inline(always)]
unsafe fn sums<P: Products, const SIGNED: bool, const HALVES: bool>(
    weights: &[Planes; SIDE_BY_SIDE],
    x: &Row,
) -> [f32; SIDE_BY_SIDE] {
    let groups = x.bytes.len() / GROUP;
    // SAFETY: `dots` has checked that all planes have as many groups, and numbers for what pads them.
    unsafe {
        let mut sums = [P::zero(); SIDE_BY_SIDE];
        let mut offsets = [0.0f32; SIDE_BY_SIDE];
        for first in (0..groups).step_by(AT_ONCE) {
            let mut scales = [[[0.0f32; AT_ONCE]; 2]; SIDE_BY_SIDE];
            for j in 0..SIDE_BY_SIDE {
                for i in 0..AT_ONCE {
                    let of_x = *x.scales.as_ptr().add(first + i);
                    scales[j][0][i] = of_x * *weights[j].scales.as_ptr().add(first + i);
                    if HALVES {
                        scales[j][1][i] = of_x * *weights[j].others.as_ptr().add(first + i);
                    }
                    if !SIGNED {
                        offsets[j] += *x.sums.as_ptr().add(first + i) * *weights[j].offsets.as_ptr().add(first + i);
                    }
                }
            }
            for i in 0..AT_ONCE.min(groups - first) {
                let at = (first + i) * GROUP;
                for j in 0..SIDE_BY_SIDE {
                    let scales = [&raw const scales[j][0][i], &raw const scales[j][1][i]];
                    let weights = weights[j].bytes.as_ptr().add(at);
                    sums[j] = sums[j].add::<SIGNED, HALVES>(weights, x.bytes.as_ptr().add(at), scales);
                }
            }
        }
        let mut result = [0.0; SIDE_BY_SIDE];
        for j in 0..SIDE_BY_SIDE {
            result[j] = sums[j].sum() + offsets[j];
        }
        result
    }
}

/// For CPUs whose instructions are not known here, and the baseline of x86-64.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[derive(Clone, Copy)]
struct Portable(f32);

#[cfg(any(test, not(target_arch = "aarch64")))]
// SAFETY of all methods: the caller vouches for 32 bytes at each address.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Products for Portable {
    #[inline(always)]
    unsafe fn zero() -> Portable {
        Portable(0.0)
    }
    #[inline(always)]
    unsafe fn add<const SIGNED: bool, const HALVES: bool>(
        self,
        weights: *const u8,
        x: *const i8,
        scales: [*const f32; 2],
    ) -> Portable {
        let (weights, x) = unsafe { (&*weights.cast::<[u8; GROUP]>(), &*x.cast::<[i8; GROUP]>()) };
        let mut halves = [0i32; 2];
        for i in 0..GROUP {
            // Unsigned weights are below 128, so that they are the same number as a signed byte.
            halves[i / (GROUP / 2)] += i32::from(weights[i] as i8) * i32::from(x[i]);
        }
        let [first, second] = halves.map(|sum| sum as f32);
        let other = if HALVES { unsafe { *scales[1] } } else { unsafe { *scales[0] } };
        Portable(self.0 + first * unsafe { *scales[0] } + second * other)
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! AVX2, and the instruction of AVX-512 VNNI that multiplies and adds up bytes.

    use super::Products;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(super) struct Avx2<const VNNI: bool>(__m256);

    // SAFETY of all methods: the caller is compiled for the instructions, and vouches for 32 bytes and the scales.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl<const VNNI: bool> Products for Avx2<VNNI> {
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { Avx2(_mm256_setzero_ps()) }
        }
        #[inline(always)]
        unsafe fn add<const SIGNED: bool, const HALVES: bool>(
            self,
            weights: *const u8,
            x: *const i8,
            scales: [*const f32; 2],
        ) -> Self {
            unsafe {
                let (mut q, mut x) = (_mm256_loadu_si256(weights.cast()), _mm256_loadu_si256(x.cast()));
                if SIGNED {
                    // The instructions want one side without a sign: it moves to the other.
                    (q, x) = (_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
                }
                let sums = if VNNI {
                    _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, x)
                } else {
                    // Pairs fit into 16 bits: 2 * 128 * 127.
                    _mm256_madd_epi16(_mm256_maddubs_epi16(q, x), _mm256_set1_epi16(1))
                };
                let scale = if HALVES {
                    _mm256_set_m128(_mm_broadcast_ss(&*scales[1]), _mm_broadcast_ss(&*scales[0]))
                } else {
                    _mm256_broadcast_ss(&*scales[0])
                };
                Avx2(_mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), scale, self.0))
            }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe {
                let half = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
                _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    //! NEON of every aarch64: products of bytes in 16 bits, added up in pairs.

    use super::Products;
    use std::arch::aarch64::*;

    #[derive(Clone, Copy)]
    pub(super) struct Neon(float32x4_t);

    // SAFETY of all methods: NEON belongs to the target's baseline; the caller vouches for 32 bytes and the scales.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl Products for Neon {
        #[inline(always)]
        unsafe fn zero() -> Neon {
            unsafe { Neon(vdupq_n_f32(0.0)) }
        }
        #[inline(always)]
        unsafe fn add<const SIGNED: bool, const HALVES: bool>(
            self,
            weights: *const u8,
            x: *const i8,
            scales: [*const f32; 2],
        ) -> Neon {
            unsafe {
                // Sums of two products fit into 16 bits: 2 * 128 * 127. Unsigned weights are below 128.
                let sixteen = |at: usize| {
                    let (q, x) = (vld1q_s8(weights.add(at).cast()), vld1q_s8(x.add(at)));
                    let products = vmull_s8(vget_low_s8(q), vget_low_s8(x));
                    vpaddlq_s16(vmlal_s8(products, vget_high_s8(q), vget_high_s8(x)))
                };
                let (first, second) = (sixteen(0), sixteen(16));
                if HALVES {
                    let sums = vfmaq_n_f32(self.0, vcvtq_f32_s32(first), *scales[0]);
                    return Neon(vfmaq_n_f32(sums, vcvtq_f32_s32(second), *scales[1]));
                }
                Neon(vfmaq_n_f32(self.0, vcvtq_f32_s32(vaddq_s32(first, second)), *scales[0]))
            }
        }
        #[inline(always)]
        unsafe fn sum(self) -> f32 {
            unsafe { vaddvq_f32(self.0) }
        }
    }
}
