//! The innermost loop of AVX2's tiles, as instructions: twelve sums, two vectors and a number are 15 of 16 registers, and a compiler that is left to
//! place them keeps some sums in memory, in one version and number of rows or another.

use super::block::Place;
use std::arch::asm;
use std::arch::x86_64::__m256;

/// Rows of a panel.
const HEIGHT: usize = 6;

macro_rules! rows {
    ($($name:ident $rows:literal: $($row:literal $low:ident $high:ident),*;)*) => {$(
        /// # Safety
        /// The CPU has AVX2 and FMA; the panel and the right matrix's rows have twice `count` terms more, and `count` is not 0.
        #[target_feature(enable = "avx2,fma")]
        #[inline]
        unsafe fn $name(sums: &mut [[__m256; 2]; $rows], place: &mut Place, count: usize) {
            let [$([mut $low, mut $high]),*] = *sums;
            // SAFETY: it reads these terms and asks for what is ahead, which need not be there; no flag or stack is relied on.
            unsafe {
                asm!(
                    "2:",
                    "vmovups {first}, [{right}]",
                    "vmovups {second}, [{right} + 32]",
                    $(
                        concat!("vbroadcastss {number}, dword ptr [{left} + 4*", $row, "]"),
                        concat!("vfmadd231ps {", stringify!($low), "}, {number}, {first}"),
                        concat!("vfmadd231ps {", stringify!($high), "}, {number}, {second}"),
                    )*
                    "vmovups {first}, [{right} + {stride}]",
                    "vmovups {second}, [{right} + {stride} + 32]",
                    $(
                        concat!("vbroadcastss {number}, dword ptr [{left} + 4*", $row, " + {panel}]"),
                        concat!("vfmadd231ps {", stringify!($low), "}, {number}, {first}"),
                        concat!("vfmadd231ps {", stringify!($high), "}, {number}, {second}"),
                    )*
                    "prefetcht1 [{ahead}]",
                    "prefetcht1 [{ahead} + {step}]",
                    "lea {right}, [{right} + 2*{stride}]",
                    "lea {ahead}, [{ahead} + 2*{step}]",
                    "add {left}, 2*{panel}",
                    "sub {count}, 1",
                    "jnz 2b",
                    $($low = inout(ymm_reg) $low, $high = inout(ymm_reg) $high,)*
                    first = out(ymm_reg) _,
                    second = out(ymm_reg) _,
                    number = out(ymm_reg) _,
                    left = inout(reg) place.left,
                    right = inout(reg) place.right,
                    stride = in(reg) size_of::<f32>() * place.stride,
                    ahead = inout(reg) place.ahead,
                    step = in(reg) size_of::<f32>() * place.ahead_step,
                    count = inout(reg) count => _,
                    panel = const size_of::<f32>() * HEIGHT,
                    options(nostack, readonly),
                );
            }
            *sums = [$([$low, $high]),*];
        }
    )*};
}

rows! {
    one 1: 0 a0 b0;
    two 2: 0 a0 b0, 1 a1 b1;
    three 3: 0 a0 b0, 1 a1 b1, 2 a2 b2;
    four 4: 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3;
    five 5: 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4;
    six 6: 0 a0 b0, 1 a1 b1, 2 a2 b2, 3 a3 b3, 4 a4 b4, 5 a5 b5;
}

/// Whether tiles of such registers and panels have this loop.
pub const fn suits(lanes: usize, height: usize, vectors: usize) -> bool {
    lanes == 8 && height == HEIGHT && vectors == 2
}

/// Adds the products of pairs of terms, and goes on to what follows them.
///
/// # Safety
/// It [`suits`] `V`, the panels and W; V is a register of AVX2, which the CPU has with FMA; twice `count` terms more are readable.
#[inline(always)]
pub unsafe fn add<V, const R: usize, const W: usize>(sums: &mut [[V; W]; R], place: &mut Place, count: usize) {
    if count == 0 {
        return;
    }
    let sums: *mut [[V; W]; R] = sums;
    // SAFETY: these sums are R times two registers; the rest is the caller's promise.
    unsafe {
        match R {
            1 => one(&mut *sums.cast(), place, count),
            2 => two(&mut *sums.cast(), place, count),
            3 => three(&mut *sums.cast(), place, count),
            4 => four(&mut *sums.cast(), place, count),
            5 => five(&mut *sums.cast(), place, count),
            6 => six(&mut *sums.cast(), place, count),
            _ => unreachable!("a panel has six rows"),
        }
    }
}
