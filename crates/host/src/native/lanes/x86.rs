//! Lanes of x86-64: SSE2, AVX2, AVX-512.

use super::{Arithmetic, Lanes};
use half::{bf16, f16};
use std::arch::x86_64::*;

macro_rules! lanes {
    ($name:ident, $n:literal, $register:ident, $($method:ident = $intrinsic:ident),*; $fma:item $exp2:item $($sorted:item)*) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) $register);

        // SAFETY of all methods: they are called inside functions that enable the type's instructions; `load` and `store`
        // take any alignment and the caller vouches for N numbers.
        #[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
        impl Arithmetic for $name {
            const N: usize = $n;
            lanes!(@methods $name $($method $intrinsic)*);
            $fma
            $exp2
        }

        // SAFETY of all methods: as above.
        #[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
        impl Lanes for $name {
            #[inline(always)]
            unsafe fn prefetch(address: *const f32) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
            }
            #[inline(always)]
            unsafe fn prefetch_to_second(address: *const f32) {
                unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
            }
            $($sorted)*
        }
    };
    (@methods $name:ident splat $i:ident load $l:ident store $s:ident add $a:ident sub $u:ident mul $m:ident div $d:ident max $x:ident min $n:ident sqrt $q:ident) => {
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
        #[inline(always)]
        unsafe fn sqrt(self) -> Self { unsafe { $name($q(self.0)) } }
    };
}

lanes!(Sse2, 4, __m128, splat = _mm_set1_ps, load = _mm_loadu_ps, store = _mm_storeu_ps, add = _mm_add_ps,
    sub = _mm_sub_ps, mul = _mm_mul_ps, div = _mm_div_ps, max = _mm_max_ps, min = _mm_min_ps, sqrt = _mm_sqrt_ps;
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
    unsafe fn load_bfloat(from: *const bf16) -> Self {
        unsafe { Sse2(_mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(from.cast())))) }
    }
    #[inline(always)]
    unsafe fn sums(registers: [Self; 4]) -> [f32; 4] {
        unsafe {
            let mut rows = registers.map(|register| register.0);
            let [a, b, c, d] = &mut rows;
            _MM_TRANSPOSE4_PS(a, b, c, d);
            four(_mm_add_ps(_mm_add_ps(rows[0], rows[1]), _mm_add_ps(rows[2], rows[3])))
        }
    }
    #[inline(always)]
    unsafe fn load_rows_of_4(from: *const f32, stride: usize) -> [Self; 4] {
        unsafe {
            let mut rows = [0, 1, 2, 3].map(|i| _mm_loadu_ps(from.add(stride * i)));
            let [a, b, c, d] = &mut rows;
            _MM_TRANSPOSE4_PS(a, b, c, d);
            rows.map(Sse2)
        }
    }
    #[inline(always)]
    unsafe fn store_rows_of_4(values: [Self; 4], to: *mut f32, stride: usize) {
        unsafe {
            let mut rows = values.map(|v| v.0);
            let [a, b, c, d] = &mut rows;
            _MM_TRANSPOSE4_PS(a, b, c, d);
            for i in 0..4 {
                _mm_storeu_ps(to.add(stride * i), rows[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn unzip(self, other: Self) -> [Self; 2] {
        let (a, b) = (self.0, other.0);
        unsafe { [Sse2(_mm_shuffle_ps::<0b10_00_10_00>(a, b)), Sse2(_mm_shuffle_ps::<0b11_01_11_01>(a, b))] }
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
    sub = _mm256_sub_ps, mul = _mm256_mul_ps, div = _mm256_div_ps, max = _mm256_max_ps, min = _mm256_min_ps, sqrt = _mm256_sqrt_ps;
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
    unsafe fn load_half(from: *const f16) -> Self {
        unsafe { Avx2(_mm256_cvtph_ps(_mm_loadu_si128(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_half(self, to: *mut f16) {
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }
    #[inline(always)]
    unsafe fn load_bfloat(from: *const bf16) -> Self {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Avx2(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn sums(registers: [Self; 4]) -> [f32; 4] {
        let [a, b, c, d] = registers;
        unsafe { sums_of_eight([a.0, b.0, c.0, d.0]) }
    }
    #[inline(always)]
    unsafe fn load_rows_of_4(from: *const f32, stride: usize) -> [Self; 4] {
        // Each register takes one row from either half, so that a transposition within halves sorts all.
        unsafe {
            let [a, b, c, d] = transposed(
                _mm256_loadu2_m128(from.add(4 * stride), from),
                _mm256_loadu2_m128(from.add(5 * stride), from.add(stride)),
                _mm256_loadu2_m128(from.add(6 * stride), from.add(2 * stride)),
                _mm256_loadu2_m128(from.add(7 * stride), from.add(3 * stride)),
            );
            [Avx2(a), Avx2(b), Avx2(c), Avx2(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_rows_of_4(values: [Self; 4], to: *mut f32, stride: usize) {
        unsafe {
            let rows = transposed(values[0].0, values[1].0, values[2].0, values[3].0);
            for i in 0..4 {
                _mm256_storeu2_m128(to.add((4 + i) * stride), to.add(i * stride), rows[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, which: u32) -> Self {
        unsafe { Avx2(_mm256_maskload_ps(from, chosen(which))) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, which: u32) {
        unsafe { _mm256_maskstore_ps(to, chosen(which), self.0) }
    }
    #[inline(always)]
    unsafe fn unzip(self, other: Self) -> [Self; 2] {
        unsafe {
            let (a, b) = (_mm256_permute2f128_ps::<0x20>(self.0, other.0), _mm256_permute2f128_ps::<0x31>(self.0, other.0));
            [Avx2(_mm256_shuffle_ps::<0b10_00_10_00>(a, b)), Avx2(_mm256_shuffle_ps::<0b11_01_11_01>(a, b))]
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

#[inline(always)]
fn four(register: __m128) -> [f32; 4] {
    let mut numbers = [0.0; 4];
    // SAFETY: room for the register's four numbers; SSE belongs to the target's baseline.
    unsafe { _mm_storeu_ps(numbers.as_mut_ptr(), register) };
    numbers
}

/// The sum of each register's numbers.
///
/// # Safety
/// The CPU must have AVX.
#[inline(always)]
unsafe fn sums_of_eight([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    // SAFETY: only register operations; the caller vouches for AVX.
    unsafe {
        let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        four(_mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves)))
    }
}

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

/// All bits of the numbers whose bit is set.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn chosen(which: u32) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(which as i32), bits), bits)
    }
}

lanes!(Avx512, 16, __m512, splat = _mm512_set1_ps, load = _mm512_loadu_ps, store = _mm512_storeu_ps, add = _mm512_add_ps,
    sub = _mm512_sub_ps, mul = _mm512_mul_ps, div = _mm512_div_ps, max = _mm512_max_ps, min = _mm512_min_ps, sqrt = _mm512_sqrt_ps;
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
    #[inline(always)]
    unsafe fn load_half(from: *const f16) -> Self {
        unsafe { Avx512(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_half(self, to: *mut f16) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
    }
    #[inline(always)]
    unsafe fn load_bfloat(from: *const bf16) -> Self {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Avx512(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn sums(registers: [Self; 4]) -> [f32; 4] {
        let [a, b, c, d] = registers;
        unsafe { sums_of_eight([folded(a.0), folded(b.0), folded(c.0), folded(d.0)]) }
    }
    #[inline(always)]
    unsafe fn load_rows_of_4(from: *const f32, stride: usize) -> [Self; 4] {
        // Each register takes one row from every quarter, so that a transposition within quarters sorts all.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 4];
            for i in 0..4 {
                let row = |quarter: usize| _mm_loadu_ps(from.add((4 * quarter + i) * stride));
                let low = _mm256_set_m128(row(1), row(0));
                let high = _mm256_set_m128(row(3), row(2));
                rows[i] = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
            }
            let [a, b, c, d] = transposed_quarters(rows);
            [Avx512(a), Avx512(b), Avx512(c), Avx512(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_rows_of_4(values: [Self; 4], to: *mut f32, stride: usize) {
        unsafe {
            let rows = transposed_quarters([values[0].0, values[1].0, values[2].0, values[3].0]);
            for i in 0..4 {
                let row = |quarter: usize| to.add((4 * quarter + i) * stride);
                _mm_storeu_ps(row(0), _mm512_castps512_ps128(rows[i]));
                _mm_storeu_ps(row(1), _mm512_extractf32x4_ps::<1>(rows[i]));
                _mm_storeu_ps(row(2), _mm512_extractf32x4_ps::<2>(rows[i]));
                _mm_storeu_ps(row(3), _mm512_extractf32x4_ps::<3>(rows[i]));
            }
        }
    }
    #[inline(always)]
    unsafe fn turn_square(from: *const f32, by_row: usize, to: *mut f32, step: usize) {
        // Transposed within quarters, four rows at a time, and then the quarters themselves.
        unsafe {
            let mut turned = [[_mm512_setzero_ps(); 4]; 4];
            for i in 0..4 {
                let mut rows = [_mm512_setzero_ps(); 4];
                for j in 0..4 {
                    rows[j] = _mm512_loadu_ps(from.add((4 * i + j) * by_row));
                }
                turned[i] = transposed_quarters(rows);
            }
            for j in 0..4 {
                let columns = quarters(turned[0][j], turned[1][j], turned[2][j], turned[3][j]);
                for quarter in 0..4 {
                    _mm512_storeu_ps(to.add((4 * quarter + j) * step), columns[quarter]);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn load_by_4(from: *const f32) -> [Self; 4] {
        // Each register takes one group of four from every quarter, so that a transposition within quarters sorts all.
        unsafe {
            let groups = quarters(
                _mm512_loadu_ps(from),
                _mm512_loadu_ps(from.add(16)),
                _mm512_loadu_ps(from.add(32)),
                _mm512_loadu_ps(from.add(48)),
            );
            let [a, b, c, d] = transposed_quarters(groups);
            [Avx512(a), Avx512(b), Avx512(c), Avx512(d)]
        }
    }
    #[inline(always)]
    unsafe fn store_by_4(values: [Self; 4], to: *mut f32) {
        unsafe {
            let [a, b, c, d] = transposed_quarters([values[0].0, values[1].0, values[2].0, values[3].0]);
            let [a, b, c, d] = quarters(a, b, c, d);
            _mm512_storeu_ps(to, a);
            _mm512_storeu_ps(to.add(16), b);
            _mm512_storeu_ps(to.add(32), c);
            _mm512_storeu_ps(to.add(48), d);
        }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, which: u32) -> Self {
        unsafe { Avx512(_mm512_maskz_loadu_ps(which as __mmask16, from)) }
    }
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, which: u32) {
        unsafe { _mm512_mask_storeu_ps(to, which as __mmask16, self.0) }
    }
    #[inline(always)]
    unsafe fn unzip(self, other: Self) -> [Self; 2] {
        unsafe {
            let (a, b) = (self.0, other.0);
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            [Avx512(_mm512_permutex2var_ps(a, even, b)), Avx512(_mm512_permutex2var_ps(a, odd, b))]
        }
    }
    #[inline(always)]
    unsafe fn store_by_2(values: [Self; 2], to: *mut f32) {
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            _mm512_storeu_ps(to, _mm512_permutex2var_ps(values[0].0, low, values[1].0));
            _mm512_storeu_ps(to.add(16), _mm512_permutex2var_ps(values[0].0, high, values[1].0));
        }
    }
);

impl Avx512 {
    /// Adds, to each lane of `sums`, the products of its two pairs of bfloat16: `sums + self.high * other.high + self.low * other.low`, rounded to
    /// float32 after each. Subnormal factors and sums are zero.
    ///
    /// # Safety
    /// The CPU must have AVX-512 BF16.
    #[inline(always)]
    pub(crate) unsafe fn add_bfloat_products(self, other: Avx512, sums: Avx512) -> Avx512 {
        // SAFETY: registers of one size, of which every pattern of bits is a value; the caller vouches for the instruction.
        unsafe {
            let pairs = |register: __m512| std::mem::transmute::<__m512, __m512bh>(register);
            Avx512(_mm512_dpbf16_ps(sums.0, pairs(self.0), pairs(other.0)))
        }
    }
}

/// The sums of a register's halves.
///
/// # Safety
/// The CPU must have AVX-512.
#[inline(always)]
unsafe fn folded(register: __m512) -> __m256 {
    // SAFETY: only register operations; the caller vouches for AVX-512.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(register), _mm512_extractf32x8_ps::<1>(register)) }
}

/// Transposes the 4x4 matrix whose elements are the registers' quarters.
///
/// # Safety
/// The CPU must have AVX-512.
#[inline(always)]
unsafe fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> [__m512; 4] {
    // SAFETY: only register operations; the caller vouches for AVX-512.
    unsafe {
        let (ab_low, ab_high) =
            (_mm512_shuffle_f32x4::<0b01_00_01_00>(a, b), _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
        let (cd_low, cd_high) =
            (_mm512_shuffle_f32x4::<0b01_00_01_00>(c, d), _mm512_shuffle_f32x4::<0b11_10_11_10>(c, d));
        [
            _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_low, cd_low),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_low, cd_low),
            _mm512_shuffle_f32x4::<0b10_00_10_00>(ab_high, cd_high),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(ab_high, cd_high),
        ]
    }
}

/// Transposes the 4x4 block in each quarter of the registers.
///
/// # Safety
/// The CPU must have AVX-512.
#[inline(always)]
unsafe fn transposed_quarters([a, b, c, d]: [__m512; 4]) -> [__m512; 4] {
    // SAFETY: only register operations; the caller vouches for AVX-512.
    unsafe {
        let (ab_low, ab_high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        [
            _mm512_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low),
            _mm512_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low),
            _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
            _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
        ]
    }
}
