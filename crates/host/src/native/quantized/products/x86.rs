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
