//! Registers of 32 bytes, and sums of their products: what the kernels of all formats are written in.

#[cfg(any(test, not(target_arch = "aarch64")))]
use super::planes::GROUP;
use crate::vector::math::half_to_single;

/// Sums of products, in lanes of float32. Methods are unsafe because the CPU must have the instructions, and readers of memory because it must be
/// there: 32 bytes unless another number is said.
#[allow(clippy::missing_safety_doc)]
pub(super) trait Products: Copy {
    /// 32 bytes.
    type Bytes: Copy;
    /// Two numbers of float32.
    type Pair: Copy;

    unsafe fn load(from: *const u8) -> Self::Bytes;
    /// 16 bytes: byte i is the low half of byte i, byte 16 + i its high half.
    unsafe fn nibbles(from: *const u8) -> Self::Bytes;
    /// `(byte >> SHIFT) & mask`; no bit of the mask is above those that a shift leaves.
    unsafe fn bits<const SHIFT: i32>(bytes: Self::Bytes, mask: u8) -> Self::Bytes;
    /// `byte | upper << 4`; `upper` is below 16.
    unsafe fn below(bytes: Self::Bytes, upper: Self::Bytes) -> Self::Bytes;
    /// `byte - by`, signed.
    unsafe fn less(bytes: Self::Bytes, by: u8) -> Self::Bytes;

    unsafe fn zero() -> Self;
    /// `self` and the products of numbers below 128 with x, times `scale`.
    unsafe fn add(self, q: Self::Bytes, x: *const i8, scale: f32) -> Self;
    /// The same of signed numbers.
    unsafe fn add_signed(self, q: Self::Bytes, x: *const i8, scale: f32) -> Self;
    /// The same, the first 16 times `scales[0]`, the last 16 times `scales[1]`.
    unsafe fn add_halves(self, q: Self::Bytes, x: *const i8, scales: [f32; 2]) -> Self;
    unsafe fn sum(self) -> f32;

    /// As `add` and `add_signed`, times the first of the pair.
    unsafe fn add_by_first(self, q: Self::Bytes, x: *const i8, pair: Self::Pair) -> Self;
    unsafe fn add_signed_by_first(self, q: Self::Bytes, x: *const i8, pair: Self::Pair) -> Self;

    /// Two numbers of float16, of four bytes.
    unsafe fn pair(from: *const u8) -> Self::Pair;
    /// One, of two bytes, twice.
    unsafe fn twice(from: *const u8) -> Self::Pair;
    unsafe fn times(pair: Self::Pair, by: [f32; 2]) -> Self::Pair;
    unsafe fn plus(left: Self::Pair, right: Self::Pair) -> Self::Pair;
    unsafe fn no_pair() -> Self::Pair;
    unsafe fn second(pair: Self::Pair) -> f32;

    /// A float16, of two bytes.
    #[inline(always)]
    unsafe fn half(from: *const u8) -> f32 {
        // SAFETY: the caller's promise.
        half_to_single(u16::from_le_bytes(unsafe { *from.cast() }))
    }

    /// Asks for the cache line at an address, which need not be one.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}

/// Calls a function that is generic over [`Products`] with the CPU's own: `at_products!(sums(weights: &Weights, x: &Row) -> f32)`. It must be
/// `inline(always)`, so that it is compiled for the instructions.
macro_rules! at_products {
    ($body:ident($($name:ident: $type:ty),*) -> $result:ty) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2")]
            unsafe fn vnni($($name: $type),*) -> $result {
                // SAFETY: the caller's promise.
                unsafe { $body::<$crate::native::quantized::products::Avx2<true>>($($name),*) }
            }
            #[target_feature(enable = "avx2,fma,f16c,bmi2")]
            unsafe fn avx2($($name: $type),*) -> $result {
                // SAFETY: as above.
                unsafe { $body::<$crate::native::quantized::products::Avx2<false>>($($name),*) }
            }
            match $crate::level() {
                $crate::Level::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => vnni($($name),*),
                $crate::Level::Avx512 | $crate::Level::Avx2 => avx2($($name),*),
                $crate::Level::Portable => $body::<$crate::native::quantized::products::Portable>($($name),*),
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            $body::<$crate::native::quantized::products::Neon>($($name),*)
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            $body::<$crate::native::quantized::products::Portable>($($name),*)
        }
    }};
}
pub(super) use at_products;

/// Pairs as two numbers, where a register of both is not worth it.
macro_rules! plain_pairs {
    () => {
        type Pair = [f32; 2];

        #[inline(always)]
        unsafe fn add_by_first(self, q: Self::Bytes, x: *const i8, [scale, _]: [f32; 2]) -> Self {
            unsafe { self.add(q, x, scale) }
        }
        #[inline(always)]
        unsafe fn add_signed_by_first(self, q: Self::Bytes, x: *const i8, [scale, _]: [f32; 2]) -> Self {
            unsafe { self.add_signed(q, x, scale) }
        }
        #[inline(always)]
        unsafe fn pair(from: *const u8) -> [f32; 2] {
            unsafe { [Self::half(from), Self::half(from.add(2))] }
        }
        #[inline(always)]
        unsafe fn twice(from: *const u8) -> [f32; 2] {
            unsafe { [Self::half(from); 2] }
        }
        #[inline(always)]
        unsafe fn times(pair: [f32; 2], by: [f32; 2]) -> [f32; 2] {
            [pair[0] * by[0], pair[1] * by[1]]
        }
        #[inline(always)]
        unsafe fn plus(left: [f32; 2], right: [f32; 2]) -> [f32; 2] {
            [left[0] + right[0], left[1] + right[1]]
        }
        #[inline(always)]
        unsafe fn no_pair() -> [f32; 2] {
            [0.0; 2]
        }
        #[inline(always)]
        unsafe fn second([_, second]: [f32; 2]) -> f32 {
            second
        }
    };
}

/// For CPUs whose instructions are not known here, and the baseline of x86-64.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[derive(Clone, Copy)]
pub(super) struct Portable(f32);

#[cfg(any(test, not(target_arch = "aarch64")))]
// SAFETY of all methods: the trait's contract.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Products for Portable {
    type Bytes = [u8; GROUP];
    plain_pairs!();

    #[inline(always)]
    unsafe fn load(from: *const u8) -> [u8; GROUP] {
        unsafe { *from.cast() }
    }
    #[inline(always)]
    unsafe fn nibbles(from: *const u8) -> [u8; GROUP] {
        let packed = unsafe { *from.cast::<[u8; GROUP / 2]>() };
        std::array::from_fn(|i| if i < GROUP / 2 { packed[i] & 15 } else { packed[i - GROUP / 2] >> 4 })
    }
    #[inline(always)]
    unsafe fn bits<const SHIFT: i32>(bytes: [u8; GROUP], mask: u8) -> [u8; GROUP] {
        bytes.map(|byte| (byte >> SHIFT) & mask)
    }
    #[inline(always)]
    unsafe fn below(bytes: [u8; GROUP], upper: [u8; GROUP]) -> [u8; GROUP] {
        std::array::from_fn(|i| bytes[i] | upper[i] << 4)
    }
    #[inline(always)]
    unsafe fn less(bytes: [u8; GROUP], by: u8) -> [u8; GROUP] {
        bytes.map(|byte| byte.wrapping_sub(by))
    }
    #[inline(always)]
    unsafe fn zero() -> Portable {
        Portable(0.0)
    }
    #[inline(always)]
    unsafe fn add(self, q: [u8; GROUP], x: *const i8, scale: f32) -> Portable {
        // Numbers below 128 are the same as signed bytes.
        unsafe { self.add_signed(q, x, scale) }
    }
    #[inline(always)]
    unsafe fn add_signed(self, q: [u8; GROUP], x: *const i8, scale: f32) -> Portable {
        unsafe { self.add_halves(q, x, [scale; 2]) }
    }
    #[inline(always)]
    unsafe fn add_halves(self, q: [u8; GROUP], x: *const i8, scales: [f32; 2]) -> Portable {
        let x = unsafe { &*x.cast::<[i8; GROUP]>() };
        let mut halves = [0i32; 2];
        for i in 0..GROUP {
            halves[i / (GROUP / 2)] += i32::from(q[i] as i8) * i32::from(x[i]);
        }
        Portable(self.0 + halves[0] as f32 * scales[0] + halves[1] as f32 * scales[1])
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! AVX2 with F16C, and the instruction of AVX-512 VNNI that multiplies and adds up bytes.

    use super::Products;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2<const VNNI: bool>(__m256);

    impl<const VNNI: bool> Avx2<VNNI> {
        /// Sums of four neighbours' products in lanes of 32 bits.
        #[inline(always)]
        unsafe fn products(q: __m256i, x: __m256i) -> __m256 {
            // SAFETY: the caller is compiled for the instructions.
            unsafe {
                _mm256_cvtepi32_ps(if VNNI {
                    _mm256_dpbusd_epi32(_mm256_setzero_si256(), q, x)
                } else {
                    // Pairs fit into 16 bits: 2 * 128 * 127.
                    _mm256_madd_epi16(_mm256_maddubs_epi16(q, x), _mm256_set1_epi16(1))
                })
            }
        }

        /// The same of signed numbers. The instructions want one side without a sign: it moves to the other.
        #[inline(always)]
        unsafe fn signed_products(q: __m256i, x: *const i8) -> __m256 {
            // SAFETY: as above; the caller vouches for 32 bytes of x.
            unsafe { Self::products(_mm256_abs_epi8(q), _mm256_sign_epi8(_mm256_loadu_si256(x.cast()), q)) }
        }
    }

    // SAFETY of all methods: the trait's contract.
    #[allow(clippy::undocumented_unsafe_blocks)]
    impl<const VNNI: bool> Products for Avx2<VNNI> {
        type Bytes = __m256i;
        type Pair = __m128;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m256i {
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn nibbles(from: *const u8) -> __m256i {
            unsafe {
                let packed = _mm_loadu_si128(from.cast());
                let both = _mm256_set_m128i(_mm_srli_epi16::<4>(packed), packed);
                _mm256_and_si256(both, _mm256_set1_epi8(15))
            }
        }
        #[inline(always)]
        unsafe fn bits<const SHIFT: i32>(bytes: __m256i, mask: u8) -> __m256i {
            // Bits of the neighbour that a shift of 16 brings are not in the mask.
            unsafe { _mm256_and_si256(_mm256_srli_epi16::<SHIFT>(bytes), _mm256_set1_epi8(mask as i8)) }
        }
        #[inline(always)]
        unsafe fn below(bytes: __m256i, upper: __m256i) -> __m256i {
            unsafe { _mm256_or_si256(bytes, _mm256_slli_epi16::<4>(upper)) }
        }
        #[inline(always)]
        unsafe fn less(bytes: __m256i, by: u8) -> __m256i {
            unsafe { _mm256_sub_epi8(bytes, _mm256_set1_epi8(by as i8)) }
        }
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { Avx2(_mm256_setzero_ps()) }
        }
        #[inline(always)]
        unsafe fn add(self, q: __m256i, x: *const i8, scale: f32) -> Self {
            unsafe {
                let products = Self::products(q, _mm256_loadu_si256(x.cast()));
                Avx2(_mm256_fmadd_ps(products, _mm256_set1_ps(scale), self.0))
            }
        }
        #[inline(always)]
        unsafe fn add_signed(self, q: __m256i, x: *const i8, scale: f32) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(Self::signed_products(q, x), _mm256_set1_ps(scale), self.0)) }
        }
        #[inline(always)]
        unsafe fn add_halves(self, q: __m256i, x: *const i8, [first, second]: [f32; 2]) -> Self {
            unsafe {
                let scales = _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first));
                Avx2(_mm256_fmadd_ps(Self::signed_products(q, x), scales, self.0))
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
        #[inline(always)]
        unsafe fn add_by_first(self, q: __m256i, x: *const i8, pair: __m128) -> Self {
            unsafe {
                let products = Self::products(q, _mm256_loadu_si256(x.cast()));
                Avx2(_mm256_fmadd_ps(products, _mm256_broadcastss_ps(pair), self.0))
            }
        }
        #[inline(always)]
        unsafe fn add_signed_by_first(self, q: __m256i, x: *const i8, pair: __m128) -> Self {
            unsafe { Avx2(_mm256_fmadd_ps(Self::signed_products(q, x), _mm256_broadcastss_ps(pair), self.0)) }
        }
        #[inline(always)]
        unsafe fn pair(from: *const u8) -> __m128 {
            unsafe { _mm_cvtph_ps(_mm_cvtsi32_si128(from.cast::<i32>().read_unaligned())) }
        }
        #[inline(always)]
        unsafe fn twice(from: *const u8) -> __m128 {
            unsafe { _mm_cvtph_ps(_mm_set1_epi16(from.cast::<i16>().read_unaligned())) }
        }
        #[inline(always)]
        unsafe fn times(pair: __m128, by: [f32; 2]) -> __m128 {
            unsafe { _mm_mul_ps(pair, _mm_set_ps(0.0, 0.0, by[1], by[0])) }
        }
        #[inline(always)]
        unsafe fn plus(left: __m128, right: __m128) -> __m128 {
            unsafe { _mm_add_ps(left, right) }
        }
        #[inline(always)]
        unsafe fn no_pair() -> __m128 {
            unsafe { _mm_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn second(pair: __m128) -> f32 {
            unsafe { _mm_cvtss_f32(_mm_movehdup_ps(pair)) }
        }
        #[inline(always)]
        unsafe fn half(from: *const u8) -> f32 {
            unsafe {
                let bits = i32::from(from.cast::<u16>().read_unaligned());
                _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))
            }
        }
        #[inline(always)]
        unsafe fn prefetch(address: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;

#[cfg(target_arch = "aarch64")]
mod neon {
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
}
