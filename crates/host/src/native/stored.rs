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

/// A line of elements as float32.
///
/// # Safety
/// As many elements as `to` has are readable, and the CPU has the instructions of `V`.
#[inline(always)]
pub(crate) unsafe fn widened<V: Lanes, W: Stored>(from: *const W, to: &mut [f32]) {
    let whole = to.len() / V::N * V::N;
    // SAFETY: the caller vouches for as many elements as `to` has.
    unsafe {
        for i in (0..whole).step_by(V::N) {
            W::load::<V>(from.add(i)).store(to.as_mut_ptr().add(i));
        }
        for (i, to) in to.iter_mut().enumerate().skip(whole) {
            *to = (*from.add(i)).single();
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
                widened::<V, T>(from, line);
            } else {
                for (j, to) in line.iter_mut().enumerate() {
                    *to = (*from.offset(j as isize * by_column)).single();
                }
            }
        }
    }
}
