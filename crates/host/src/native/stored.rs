//! Elements that are stored in one type and computed in float32.

use super::lanes::{Lanes, at_level};
use crate::vector::math;
use half::{bf16, f16};
use openmps_tile::DType;

/// An element type that becomes float32 on its way into a register.
pub(crate) trait Stored: Copy {
    fn single(self) -> f32;

    /// N elements.
    ///
    /// # Safety
    /// They are readable, and the CPU has the instructions of `V`.
    unsafe fn load<V: Lanes>(from: *const Self) -> V;
}

impl Stored for f32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const f32) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(from) }
    }
}

impl Stored for f16 {
    #[inline(always)]
    fn single(self) -> f32 {
        math::half_to_single(self.to_bits())
    }
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const f16) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_half(from) }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn single(self) -> f32 {
        math::bfloat_to_single(self.to_bits())
    }
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const bf16) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load_bfloat(from) }
    }
}

/// Elements as float32; addresses need not be aligned.
///
/// # Safety
/// `count` elements are valid at both addresses, and the CPU has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn widened<V: Lanes, W: Stored>(from: *const W, to: *mut f32, count: usize) {
    let whole = count / V::N * V::N;
    // SAFETY: the caller's promise.
    unsafe {
        for i in (0..whole).step_by(V::N) {
            W::load::<V>(from.add(i)).store(to.add(i));
        }
        for i in whole..count {
            to.add(i).write_unaligned(from.add(i).read_unaligned().single());
        }
    }
}

/// Numbers times a factor as float16, each rounded to the nearest; addresses need not be aligned. The result may begin where the numbers do.
///
/// # Safety
/// As [`widened`].
#[inline(always)]
pub(crate) unsafe fn rounded_to_halves<V: Lanes>(factor: f32, from: *const f32, to: *mut f16, count: usize) {
    let whole = count / V::N * V::N;
    // SAFETY: the caller's promise; a number is read before a shorter one is written where it was.
    unsafe {
        for i in (0..whole).step_by(V::N) {
            V::load(from.add(i)).mul(V::splat(factor)).store_half(to.add(i));
        }
        for i in whole..count {
            let half = math::single_to_half(factor * from.add(i).read_unaligned());
            to.add(i).write_unaligned(f16::from_bits(half));
        }
    }
}

/// Lines of half precision as float32, one after the other: `columns` elements each, by the steps from line to line and from element to element.
///
/// # Safety
/// The elements of as many lines as `to` has room for are readable.
pub(crate) unsafe fn widen_lines(dtype: DType, from: usize, strides: [isize; 2], to: &mut [f32], columns: usize) {
    // SAFETY: passed on to the caller; `at_level` calls with instructions that the CPU has.
    unsafe { at_level!(lines(dtype: DType, from: usize, strides: [isize; 2], to: &mut [f32], columns: usize)) };
}

#[inline(always)]
unsafe fn lines<V: Lanes>(dtype: DType, from: usize, strides: [isize; 2], to: &mut [f32], columns: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match dtype {
            DType::F16 => lines_of::<V, f16>(from as *const f16, strides, to, columns),
            _ => lines_of::<V, bf16>(from as *const bf16, strides, to, columns),
        }
    }
}

#[inline(always)]
unsafe fn lines_of<V: Lanes, T: Stored>(
    from: *const T,
    [by_row, by_column]: [isize; 2],
    to: &mut [f32],
    columns: usize,
) {
    for (i, line) in to.chunks_exact_mut(columns).enumerate() {
        let from = from.wrapping_offset(i as isize * by_row);
        // SAFETY: a row of the matrix, which the caller vouches for.
        unsafe {
            if by_column == 1 {
                widened::<V, T>(from, line.as_mut_ptr(), line.len());
            } else {
                for (j, to) in line.iter_mut().enumerate() {
                    *to = (*from.offset(j as isize * by_column)).single();
                }
            }
        }
    }
}
