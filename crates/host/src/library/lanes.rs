//! A vector of float32 lanes: the few operations that this library's kernels need, for each level of vector instructions.
//!
//! Kernels are generic over [`Lanes`], marked `#[inline(always)]`, and instantiated by [`at_level!`] inside functions that enable
//! the level's instructions; that is what turns each method into one instruction.

/// The most lanes of a register.
pub(crate) const WIDEST: usize = 16;

/// Registers that are summed side by side: enough to hide an addition's latency, and each sum stays short, so that little is lost.
pub(crate) const SUMS: usize = 4;

/// A register of float32 numbers. Methods are unsafe because the CPU must have the instructions of the implementing type.
///
/// `max` and `min` return `self` when `self` is NaN, so that NaN travels through activations.
#[allow(clippy::missing_safety_doc, missing_docs)]
pub(crate) trait Lanes: Copy {
    const N: usize;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + addend`.
    unsafe fn fma(self, factor: Self, addend: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    /// Two to the power `self`, which is integral and between -126 and 127.
    unsafe fn exp2_integral(self) -> Self;

    /// The numbers, then zeros.
    #[inline(always)]
    unsafe fn lanes(self) -> [f32; WIDEST] {
        let mut lanes = [0.0; WIDEST];
        // SAFETY: the caller vouches for the instructions; no register is wider.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes
    }

    /// `4 * N` numbers, sorted so that `result[j]` holds those at `4 * i + j`.
    #[inline(always)]
    unsafe fn load_by_4(from: *const f32) -> [Self; 4] {
        let mut sorted = [[0.0f32; 16]; 4];
        // SAFETY: the level's instructions are there by this trait's contract.
        let mut result = [unsafe { Self::splat(0.0) }; 4];
        for j in 0..4 {
            for i in 0..Self::N {
                // SAFETY: the caller vouches for 4 * N readable numbers, and 4 * i + j is below that.
                sorted[j][i] = unsafe { *from.add(4 * i + j) };
            }
            // SAFETY: `sorted[j]` holds 16 numbers, at least N.
            result[j] = unsafe { Self::load(sorted[j].as_ptr()) };
        }
        result
    }

    /// The inverse of [`Lanes::load_by_4`].
    #[inline(always)]
    unsafe fn store_by_4(values: [Self; 4], to: *mut f32) {
        let mut sorted = [[0.0f32; 16]; 4];
        for j in 0..4 {
            // SAFETY: `sorted[j]` holds 16 numbers, at least N.
            unsafe { values[j].store(sorted[j].as_mut_ptr()) };
            for i in 0..Self::N {
                // SAFETY: the caller vouches for 4 * N writable numbers.
                unsafe { *to.add(4 * i + j) = sorted[j][i] };
            }
        }
    }

    /// `2 * N` numbers, the even ones and the odd ones.
    #[inline(always)]
    unsafe fn load_by_2(from: *const f32) -> [Self; 2] {
        let mut sorted = [[0.0f32; 16]; 2];
        for i in 0..Self::N {
            // SAFETY: the caller vouches for 2 * N readable numbers.
            unsafe {
                sorted[0][i] = *from.add(2 * i);
                sorted[1][i] = *from.add(2 * i + 1);
            }
        }
        // SAFETY: each row holds 16 numbers, at least N.
        unsafe { [Self::load(sorted[0].as_ptr()), Self::load(sorted[1].as_ptr())] }
    }

    /// The inverse of [`Lanes::load_by_2`].
    #[inline(always)]
    unsafe fn store_by_2(values: [Self; 2], to: *mut f32) {
        let mut sorted = [[0.0f32; 16]; 2];
        for j in 0..2 {
            // SAFETY: each row holds 16 numbers, and the caller vouches for 2 * N writable ones.
            unsafe {
                values[j].store(sorted[j].as_mut_ptr());
                for i in 0..Self::N {
                    *to.add(2 * i + j) = sorted[j][i];
                }
            }
        }
    }

    /// e to the power `self`, within two units of rounding; exponents are cut to the range of normal numbers.
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the caller vouches for the instructions; nothing is read or written.
        unsafe {
            let x = self.max(Self::splat(-87.33)).min(Self::splat(88.37));
            // Adding 1.5 * 2^23 rounds to an integer in the last bits of the sum.
            let magic = Self::splat(12_582_912.0);
            let n = x.fma(Self::splat(std::f32::consts::LOG2_E), magic).sub(magic);
            let r = n.fma(Self::splat(-0.693_359_4), x);
            let r = n.fma(Self::splat(2.121_944_4e-4), r);
            let mut p = Self::splat(1.987_569_1e-4);
            for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
                p = p.fma(r, Self::splat(c));
            }
            let y = p.fma(r.mul(r), r).add(Self::splat(1.0));
            y.mul(n.exp2_integral())
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    macro_rules! lanes {
        ($name:ident, $n:literal, $register:ident, $($method:ident = $intrinsic:ident),*; $fma:item $exp2:item $($sorted:item)*) => {
            #[derive(Clone, Copy)]
            pub(crate) struct $name(pub(crate) $register);

            // SAFETY of all methods: they are called inside functions that enable the type's instructions; `load` and `store`
            // take any alignment and the caller vouches for N numbers.
            #[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
            impl Lanes for $name {
                const N: usize = $n;
                lanes!(@methods $name $($method $intrinsic)*);
                $fma
                $exp2
                $($sorted)*
            }
        };
        (@methods $name:ident splat $i:ident load $l:ident store $s:ident add $a:ident sub $u:ident mul $m:ident div $d:ident max $x:ident min $n:ident) => {
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self { unsafe { $name($i(value)) } }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self { unsafe { $name($l(from)) } }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) { unsafe { $s(to, self.0) } }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self { unsafe { $name($a(self.0, other.0)) } }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self { unsafe { $name($u(self.0, other.0)) } }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self { unsafe { $name($m(self.0, other.0)) } }
            #[inline(always)]
            unsafe fn div(self, other: Self) -> Self { unsafe { $name($d(self.0, other.0)) } }
            // The instruction returns its second operand when either is NaN.
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self { unsafe { $name($x(other.0, self.0)) } }
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self { unsafe { $name($n(other.0, self.0)) } }
        };
    }

    lanes!(Sse2, 4, __m128, splat = _mm_set1_ps, load = _mm_loadu_ps, store = _mm_storeu_ps, add = _mm_add_ps,
        sub = _mm_sub_ps, mul = _mm_mul_ps, div = _mm_div_ps, max = _mm_max_ps, min = _mm_min_ps;
        #[inline(always)]
        unsafe fn fma(self, factor: Self, addend: Self) -> Self {
            unsafe { Sse2(_mm_add_ps(_mm_mul_ps(self.0, factor.0), addend.0)) }
        }
        #[inline(always)]
        unsafe fn exp2_integral(self) -> Self {
            unsafe {
                let biased = _mm_add_epi32(_mm_cvtps_epi32(self.0), _mm_set1_epi32(127));
                Sse2(_mm_castsi128_ps(_mm_slli_epi32::<23>(biased)))
            }
        }
        #[inline(always)]
        unsafe fn load_by_4(from: *const f32) -> [Self; 4] {
            unsafe {
                let mut rows = [0, 1, 2, 3].map(|i| _mm_loadu_ps(from.add(4 * i)));
                let [a, b, c, d] = &mut rows;
                _MM_TRANSPOSE4_PS(a, b, c, d);
                rows.map(Sse2)
            }
        }
        #[inline(always)]
        unsafe fn store_by_4(values: [Self; 4], to: *mut f32) {
            unsafe {
                let mut rows = values.map(|v| v.0);
                let [a, b, c, d] = &mut rows;
                _MM_TRANSPOSE4_PS(a, b, c, d);
                for i in 0..4 {
                    _mm_storeu_ps(to.add(4 * i), rows[i]);
                }
            }
        }
        #[inline(always)]
        unsafe fn load_by_2(from: *const f32) -> [Self; 2] {
            unsafe {
                let (a, b) = (_mm_loadu_ps(from), _mm_loadu_ps(from.add(4)));
                [Sse2(_mm_shuffle_ps::<0b10_00_10_00>(a, b)), Sse2(_mm_shuffle_ps::<0b11_01_11_01>(a, b))]
            }
        }
        #[inline(always)]
        unsafe fn store_by_2(values: [Self; 2], to: *mut f32) {
            unsafe {
                _mm_storeu_ps(to, _mm_unpacklo_ps(values[0].0, values[1].0));
                _mm_storeu_ps(to.add(4), _mm_unpackhi_ps(values[0].0, values[1].0));
            }
        }
    );

    lanes!(Avx2, 8, __m256, splat = _mm256_set1_ps, load = _mm256_loadu_ps, store = _mm256_storeu_ps, add = _mm256_add_ps,
        sub = _mm256_sub_ps, mul = _mm256_mul_ps, div = _mm256_div_ps, max = _mm256_max_ps, min = _mm256_min_ps;
        #[inline(always)]
        unsafe fn fma(self, factor: Self, addend: Self) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, addend.0)) }
        }
        #[inline(always)]
        unsafe fn exp2_integral(self) -> Self {
            unsafe {
                let biased = _mm256_add_epi32(_mm256_cvtps_epi32(self.0), _mm256_set1_epi32(127));
                Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
            }
        }
        #[inline(always)]
        unsafe fn load_by_4(from: *const f32) -> [Self; 4] {
            // Each register takes one group of four from either half, so that a transposition within halves sorts all.
            unsafe { transposed(
                _mm256_loadu2_m128(from.add(16), from),
                _mm256_loadu2_m128(from.add(20), from.add(4)),
                _mm256_loadu2_m128(from.add(24), from.add(8)),
                _mm256_loadu2_m128(from.add(28), from.add(12)),
            ).map(Avx2) }
        }
        #[inline(always)]
        unsafe fn store_by_4(values: [Self; 4], to: *mut f32) {
            unsafe {
                let rows = transposed(values[0].0, values[1].0, values[2].0, values[3].0);
                _mm256_storeu2_m128(to.add(16), to, rows[0]);
                _mm256_storeu2_m128(to.add(20), to.add(4), rows[1]);
                _mm256_storeu2_m128(to.add(24), to.add(8), rows[2]);
                _mm256_storeu2_m128(to.add(28), to.add(12), rows[3]);
            }
        }
        #[inline(always)]
        unsafe fn load_by_2(from: *const f32) -> [Self; 2] {
            unsafe {
                let a = _mm256_loadu2_m128(from.add(8), from);
                let b = _mm256_loadu2_m128(from.add(12), from.add(4));
                [Avx2(_mm256_shuffle_ps::<0b10_00_10_00>(a, b)), Avx2(_mm256_shuffle_ps::<0b11_01_11_01>(a, b))]
            }
        }
        #[inline(always)]
        unsafe fn store_by_2(values: [Self; 2], to: *mut f32) {
            unsafe {
                let low = _mm256_unpacklo_ps(values[0].0, values[1].0);
                let high = _mm256_unpackhi_ps(values[0].0, values[1].0);
                _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(low, high));
                _mm256_storeu_ps(to.add(8), _mm256_permute2f128_ps::<0x31>(low, high));
            }
        }
    );

    /// Transposes the 4x4 block in each half of the registers.
    ///
    /// # Safety
    /// The CPU must have AVX.
    #[inline(always)]
    unsafe fn transposed(a: __m256, b: __m256, c: __m256, d: __m256) -> [__m256; 4] {
        // SAFETY: only register operations; the caller vouches for AVX.
        unsafe {
            let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            [
                _mm256_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
                _mm256_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
            ]
        }
    }

    lanes!(Avx512, 16, __m512, splat = _mm512_set1_ps, load = _mm512_loadu_ps, store = _mm512_storeu_ps, add = _mm512_add_ps,
        sub = _mm512_sub_ps, mul = _mm512_mul_ps, div = _mm512_div_ps, max = _mm512_max_ps, min = _mm512_min_ps;
        #[inline(always)]
        unsafe fn fma(self, factor: Self, addend: Self) -> Self {
            unsafe { Avx512(_mm512_fmadd_ps(self.0, factor.0, addend.0)) }
        }
        #[inline(always)]
        unsafe fn exp2_integral(self) -> Self {
            unsafe {
                let biased = _mm512_add_epi32(_mm512_cvtps_epi32(self.0), _mm512_set1_epi32(127));
                Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased)))
            }
        }
    );
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Sse2 as Portable};

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::Lanes;
    use std::arch::aarch64::*;

    /// Two registers, because four of Apple's pipes need more independent sums than six rows of one register give.
    #[derive(Clone, Copy)]
    pub(crate) struct Neon(float32x4_t, float32x4_t);

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
    impl Lanes for Neon {
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
        }
        #[inline(always)]
        unsafe fn exp2_integral(self) -> Self {
            let power =
                |n| unsafe { vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)))) };
            Neon(power(self.0), power(self.1))
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon as Portable;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod plain {
    use super::Lanes;

    #[derive(Clone, Copy)]
    pub(crate) struct Plain([f32; 4]);

    impl Plain {
        #[inline(always)]
        fn zip(self, other: Self, combine: impl Fn(f32, f32) -> f32) -> Self {
            Plain(std::array::from_fn(|i| combine(self.0[i], other.0[i])))
        }
    }

    // SAFETY of all methods: the caller vouches for N numbers at each address.
    #[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
    impl Lanes for Plain {
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
        unsafe fn exp2_integral(self) -> Self {
            Plain(self.0.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23)))
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use plain::Plain as Portable;

/// Calls `$body::<V>` with the lanes of the level in use, inside a function that enables the level's instructions.
///
/// `$body` must be `#[inline(always)] unsafe fn` and generic over one [`Lanes`] type.
macro_rules! at_level {
    ($body:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
        unsafe fn avx512($($arg: $type),*) $(-> $result)? {
            // SAFETY: passed on to the caller of the enclosing function.
            unsafe { $body::<$crate::library::lanes::Avx512>($($arg),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        unsafe fn avx2($($arg: $type),*) $(-> $result)? {
            // SAFETY: passed on to the caller of the enclosing function.
            unsafe { $body::<$crate::library::lanes::Avx2>($($arg),*) }
        }
        // The caller's `unsafe` covers these: `level` returns only levels that the CPU has.
        match $crate::level() {
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx512 => avx512($($arg),*),
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx2 => avx2($($arg),*),
            _ => $body::<$crate::library::lanes::Portable>($($arg),*),
        }
    }};
}
pub(crate) use at_level;
