//! One of two numbers in each lane, by a comparison of two others.

/// Registers of float32 that can be compared. Comparisons with NaN are false.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Choice: Copy {
    /// `yes` in the lanes in which `self < other`, `no` in the others.
    unsafe fn where_less(self, other: Self, yes: Self, no: Self) -> Self;
    /// The same for `self <= other`.
    unsafe fn where_at_most(self, other: Self, yes: Self, no: Self) -> Self;
    /// The same for `self == other`.
    unsafe fn where_equal(self, other: Self, yes: Self, no: Self) -> Self;
}

/// Implements [`Choice`] by an expression of a comparison's name and four registers.
macro_rules! choice {
    ($name:ident: $less:tt $at_most:tt $equal:tt => $choose:ident) => {
        // SAFETY of all methods: the caller vouches for the instructions.
        #[allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]
        impl Choice for $name {
            #[inline(always)]
            unsafe fn where_less(self, other: Self, yes: Self, no: Self) -> Self {
                unsafe { $choose!($less self other yes no) }
            }
            #[inline(always)]
            unsafe fn where_at_most(self, other: Self, yes: Self, no: Self) -> Self {
                unsafe { $choose!($at_most self other yes no) }
            }
            #[inline(always)]
            unsafe fn where_equal(self, other: Self, yes: Self, no: Self) -> Self {
                unsafe { $choose!($equal self other yes no) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::x86::{Avx2, Avx512, Sse2};
    use super::Choice;
    use std::arch::x86_64::*;

    macro_rules! of_16 {
        ($how:ident $x:ident $y:ident $yes:ident $no:ident) => {
            Avx512(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<$how>($x.0, $y.0), $no.0, $yes.0))
        };
    }
    macro_rules! of_8 {
        ($how:ident $x:ident $y:ident $yes:ident $no:ident) => {
            Avx2(_mm256_blendv_ps($no.0, $yes.0, _mm256_cmp_ps::<$how>($x.0, $y.0)))
        };
    }
    macro_rules! of_4 {
        ($how:ident $x:ident $y:ident $yes:ident $no:ident) => {{
            let holds = $how($x.0, $y.0);
            Sse2(_mm_or_ps(_mm_and_ps(holds, $yes.0), _mm_andnot_ps(holds, $no.0)))
        }};
    }
    choice!(Avx512: _CMP_LT_OQ _CMP_LE_OQ _CMP_EQ_OQ => of_16);
    choice!(Avx2: _CMP_LT_OQ _CMP_LE_OQ _CMP_EQ_OQ => of_8);
    choice!(Sse2: _mm_cmplt_ps _mm_cmple_ps _mm_cmpeq_ps => of_4);
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::super::neon::Neon;
    use super::Choice;
    use std::arch::aarch64::*;

    macro_rules! of_two {
        ($how:ident $x:ident $y:ident $yes:ident $no:ident) => {
            Neon(vbslq_f32($how($x.0, $y.0), $yes.0, $no.0), vbslq_f32($how($x.1, $y.1), $yes.1, $no.1))
        };
    }
    choice!(Neon: vcltq_f32 vcleq_f32 vceqq_f32 => of_two);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod plain {
    use super::super::plain::Plain;
    use super::Choice;

    macro_rules! one_by_one {
        ($how:tt $x:ident $y:ident $yes:ident $no:ident) => {
            Plain(std::array::from_fn(|i| if $x.0[i] $how $y.0[i] { $yes.0[i] } else { $no.0[i] }))
        };
    }
    choice!(Plain: < <= == => one_by_one);
}
