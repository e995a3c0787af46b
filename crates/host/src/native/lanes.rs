//! A vector of float32 lanes: the few operations that native kernels need, for each level of vector instructions.
//!
//! Kernels are generic over [`Lanes`], marked `#[inline(always)]`, and instantiated by [`at_level!`] inside functions that enable
//! the level's instructions; that is what turns each method into one instruction.

mod choice;
mod four;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use choice::Choice;
pub(crate) use four::Four;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon as Portable;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use plain::Plain as Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Sse2 as Portable};

use crate::vector::math::{bfloat_to_single, half_to_single, single_to_half};
use half::{bf16, f16};

/// The most lanes of a register.
pub(crate) const WIDEST: usize = 16;

/// Registers that are summed side by side: enough to hide an addition's latency, and each sum stays short, so that little is lost.
pub(crate) const SUMS: usize = 4;

/// Float32 numbers that are computed with side by side. Methods are unsafe because the CPU must have the instructions of the implementing type.
///
/// `max` and `min` return `self` when `self` is NaN, so that NaN travels through activations.
#[allow(clippy::missing_safety_doc, missing_docs)]
pub(crate) trait Arithmetic: Copy {
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
    unsafe fn sqrt(self) -> Self;
    /// Two to the power `self`, which is integral and between -126 and 127.
    unsafe fn exp2_integral(self) -> Self;

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

/// A register of float32 numbers.
#[allow(clippy::missing_safety_doc, missing_docs)]
pub(crate) trait Lanes: Arithmetic + Choice {
    /// The numbers, then zeros.
    #[inline(always)]
    unsafe fn lanes(self) -> [f32; WIDEST] {
        let mut lanes = [0.0; WIDEST];
        // SAFETY: the caller vouches for the instructions; no register is wider.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes
    }

    /// N numbers of float16, converted.
    #[inline(always)]
    unsafe fn load_half(from: *const f16) -> Self {
        let mut singles = [0.0; WIDEST];
        for (i, single) in singles.iter_mut().enumerate().take(Self::N) {
            // SAFETY: the caller vouches for N numbers.
            *single = half_to_single(unsafe { from.add(i).read_unaligned() }.to_bits());
        }
        // SAFETY: the level's instructions are there by this trait's contract; no register is wider.
        unsafe { Self::load(singles.as_ptr()) }
    }

    /// Writes the numbers as float16, each the nearest, of two the even one.
    #[inline(always)]
    unsafe fn store_half(self, to: *mut f16) {
        // SAFETY: the caller vouches for the instructions.
        let lanes = unsafe { self.lanes() };
        for (i, &single) in lanes.iter().enumerate().take(Self::N) {
            // SAFETY: the caller vouches for room for N numbers.
            unsafe { to.add(i).write_unaligned(f16::from_bits(single_to_half(single))) };
        }
    }

    /// N numbers of bfloat16, converted.
    #[inline(always)]
    unsafe fn load_bfloat(from: *const bf16) -> Self {
        let mut singles = [0.0; WIDEST];
        for (i, single) in singles.iter_mut().enumerate().take(Self::N) {
            // SAFETY: the caller vouches for N numbers.
            *single = bfloat_to_single(unsafe { from.add(i).read_unaligned() }.to_bits());
        }
        // SAFETY: as above.
        unsafe { Self::load(singles.as_ptr()) }
    }

    /// Asks for the cache line at an address, which need not be one.
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    /// The same, for the second-level cache.
    #[inline(always)]
    unsafe fn prefetch_to_second(_: *const f32) {}

    /// The sum of each register's numbers.
    #[inline(always)]
    unsafe fn sums(registers: [Self; 4]) -> [f32; 4] {
        // SAFETY: the caller vouches for the instructions.
        registers.map(|register| unsafe { register.lanes() }.iter().sum())
    }

    /// Four numbers of each of N rows, which are `stride` apart: `result[j]` holds number j of every row.
    #[inline(always)]
    unsafe fn load_rows_of_4(from: *const f32, stride: usize) -> [Self; 4] {
        let mut sorted = [[0.0f32; WIDEST]; 4];
        // SAFETY: the level's instructions are there by this trait's contract.
        let mut result = [unsafe { Self::splat(0.0) }; 4];
        for j in 0..4 {
            for i in 0..Self::N {
                // SAFETY: the caller vouches for four numbers of N rows.
                sorted[j][i] = unsafe { *from.add(i * stride + j) };
            }
            // SAFETY: no register is wider.
            result[j] = unsafe { Self::load(sorted[j].as_ptr()) };
        }
        result
    }

    /// The inverse of [`Lanes::load_rows_of_4`].
    #[inline(always)]
    unsafe fn store_rows_of_4(values: [Self; 4], to: *mut f32, stride: usize) {
        for j in 0..4 {
            // SAFETY: the level's instructions are there by this trait's contract.
            let sorted = unsafe { values[j].lanes() };
            for i in 0..Self::N {
                // SAFETY: the caller vouches for four numbers of N rows.
                unsafe { *to.add(i * stride + j) = sorted[i] };
            }
        }
    }

    /// Turns a square: number j of N rows, which are `by_row` apart, at `to + j * step`.
    #[inline(always)]
    unsafe fn turn_square(from: *const f32, by_row: usize, to: *mut f32, step: usize) {
        for j in (0..Self::N).step_by(4) {
            // SAFETY: the caller vouches for N numbers of N rows on both sides.
            unsafe { turn_rows_of_4::<Self>(from.add(j), by_row, to.add(j * step), step) };
        }
    }

    /// `4 * N` numbers, sorted so that `result[j]` holds those at `4 * i + j`.
    #[inline(always)]
    unsafe fn load_by_4(from: *const f32) -> [Self; 4] {
        // SAFETY: the caller vouches for 4 * N readable numbers.
        unsafe { Self::load_rows_of_4(from, 4) }
    }

    /// The inverse of [`Lanes::load_by_4`].
    #[inline(always)]
    unsafe fn store_by_4(values: [Self; 4], to: *mut f32) {
        // SAFETY: the caller vouches for 4 * N writable numbers.
        unsafe { Self::store_rows_of_4(values, to, 4) }
    }

    /// The numbers whose bits are set, of the first one the lowest, and zeros in place of the others, which are not read.
    #[inline(always)]
    unsafe fn load_some(from: *const f32, which: u32) -> Self {
        let mut some = [0.0; WIDEST];
        for (i, number) in some.iter_mut().enumerate().take(Self::N) {
            if which >> i & 1 == 1 {
                // SAFETY: the caller vouches for these numbers.
                *number = unsafe { *from.wrapping_add(i) };
            }
        }
        // SAFETY: the level's instructions are there by this trait's contract; no register is wider.
        unsafe { Self::load(some.as_ptr()) }
    }

    /// Writes the numbers whose bits are set, as [`Lanes::load_some`] reads them.
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, which: u32) {
        // SAFETY: the level's instructions are there by this trait's contract.
        let lanes = unsafe { self.lanes() };
        for (i, &lane) in lanes.iter().enumerate().take(Self::N) {
            if which >> i & 1 == 1 {
                // SAFETY: the caller vouches for these numbers.
                unsafe { *to.wrapping_add(i) = lane };
            }
        }
    }

    /// The even and the odd ones of the numbers of two registers.
    #[inline(always)]
    unsafe fn unzip(self, other: Self) -> [Self; 2] {
        let mut both = [0.0; 2 * WIDEST];
        let mut sorted = [[0.0; WIDEST]; 2];
        // SAFETY: the level's instructions are there by this trait's contract; no register is wider.
        unsafe {
            self.store(both.as_mut_ptr());
            other.store(both.as_mut_ptr().add(Self::N));
            for i in 0..Self::N {
                (sorted[0][i], sorted[1][i]) = (both[2 * i], both[2 * i + 1]);
            }
            [Self::load(sorted[0].as_ptr()), Self::load(sorted[1].as_ptr())]
        }
    }

    /// `2 * N` numbers, the even ones and the odd ones.
    #[inline(always)]
    unsafe fn load_by_2(from: *const f32) -> [Self; 2] {
        // SAFETY: the caller vouches for 2 * N readable numbers.
        unsafe { Self::load(from).unzip(Self::load(from.add(Self::N))) }
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
}

/// A sum over the places of a row: of what `add` adds to it for a register's worth of elements from a place on, and of what `single` makes of one
/// element at the row's end.
///
/// # Safety
/// Lanes that the CPU has.
#[inline(always)]
pub(crate) unsafe fn sum_over<V: Lanes>(
    length: usize,
    add: impl Fn(usize, V) -> V,
    single: impl Fn(usize) -> f32,
) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [V::splat(0.0); SUMS];
        let mut at = 0;
        while at + V::N <= length {
            let group = ((length - at) / V::N).min(SUMS);
            for (i, sum) in sums.iter_mut().enumerate().take(group) {
                *sum = add(at + i * V::N, *sum);
            }
            at += group * V::N;
        }
        let [a, b, c, d] = sums;
        let mut total: f32 = a.add(b).add(c.add(d)).lanes()[..V::N].iter().sum();
        for i in at..length {
            total += single(i);
        }
        total
    }
}

/// The sum of the products of two rows.
///
/// # Safety
/// Lanes that the CPU has, and rows of so many numbers.
#[inline(always)]
pub(crate) unsafe fn dot_lanes<V: Lanes>(a: *const f32, b: *const f32, len: usize) -> f32 {
    // SAFETY: indices stay below `len`.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        let mut i = 0;
        while i + 4 * V::N <= len {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = V::load(a.add(i + j * V::N)).fma(V::load(b.add(i + j * V::N)), *sum);
            }
            i += 4 * V::N;
        }
        while i + V::N <= len {
            sums[0] = V::load(a.add(i)).fma(V::load(b.add(i)), sums[0]);
            i += V::N;
        }
        let lanes = sums[0].add(sums[1]).add(sums[2].add(sums[3])).lanes();
        let mut sum: f32 = lanes[..V::N].iter().sum();
        while i < len {
            sum += *a.add(i) * *b.add(i);
            i += 1;
        }
        sum
    }
}

/// Calls `$body::<V>` with the lanes of the level in use, inside a function that enables the level's instructions.
///
/// `$body` must be `#[inline(always)] unsafe fn` and generic over one [`Lanes`] type.
macro_rules! at_level {
    ($body:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
        unsafe fn avx512($($arg: $type),*) $(-> $result)? {
            // SAFETY: passed on to the caller of the enclosing function.
            unsafe { $body::<$crate::native::lanes::Avx512>($($arg),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        unsafe fn avx2($($arg: $type),*) $(-> $result)? {
            // SAFETY: passed on to the caller of the enclosing function.
            unsafe { $body::<$crate::native::lanes::Avx2>($($arg),*) }
        }
        // The caller's `unsafe` covers these: `level` returns only levels that the CPU has.
        match $crate::level() {
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx512 => avx512($($arg),*),
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx2 => avx2($($arg),*),
            _ => $body::<$crate::native::lanes::Portable>($($arg),*),
        }
    }};
}
pub(crate) use at_level;

/// Calls `$body::<V>` with registers of [`EIGHT`] lanes, as [`at_level!`] does with those of the level in use; only where [`has_eight`] says so.
macro_rules! at_eight {
    ($body:ident($($arg:ident: $type:ty),* $(,)?)) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        unsafe fn avx2($($arg: $type),*) {
            // SAFETY: passed on to the caller of the enclosing function.
            unsafe { $body::<$crate::native::lanes::Avx2>($($arg),*) }
        }
        // The caller's `unsafe` covers these: a CPU with AVX-512 has AVX2, too.
        match $crate::level() {
            #[cfg(target_arch = "x86_64")]
            $crate::Level::Avx512 | $crate::Level::Avx2 => avx2($($arg),*),
            _ => $body::<$crate::native::lanes::Portable>($($arg),*),
        }
    }};
}
pub(crate) use at_eight;

/// Lanes of the registers that CPUs with AVX2, with AVX-512, whose own are wider, and with NEON have.
pub(crate) const EIGHT: usize = 8;

/// Whether the level in use has registers of [`EIGHT`] lanes.
pub(crate) fn has_eight() -> bool {
    crate::level() != crate::Level::Portable || Portable::N == EIGHT
}

/// Turns four numbers of each of N rows, which are `by_row` apart: N side by side at `to`, and the next ones `step` further on.
///
/// # Safety
/// The CPU has the instructions, the numbers are readable, and there is room for a register at each of the four places.
#[inline(always)]
pub(crate) unsafe fn turn_rows_of_4<V: Lanes>(from: *const f32, by_row: usize, to: *mut f32, step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] = V::load_rows_of_4(from, by_row);
        a.store(to);
        b.store(to.add(step));
        c.store(to.add(2 * step));
        d.store(to.add(3 * step));
    }
}

/// Lanes of a register of the level in use.
pub(crate) fn lanes() -> usize {
    #[inline(always)]
    unsafe fn of<V: Lanes>() -> usize {
        V::N
    }
    // SAFETY: `at_level` calls with instructions that the CPU has.
    unsafe { at_level!(of() -> usize) }
}

#[cfg(test)]
mod tests;
