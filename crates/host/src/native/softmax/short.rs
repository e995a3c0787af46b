//! Softmax of short rows: as many rows side by side as a register has lanes, turned for it and back. Alone each would leave most of a register empty, and the
//! sums of its lanes would take longer than all exponentials.

use super::{Softmax, power};
use crate::native::lanes::{Lanes, WIDEST};
use crate::native::transpose::transpose;

/// The most elements of a short row, of the widest registers.
const LONGEST: usize = 4 * WIDEST;

/// Whether rows of so many elements are short: of more than four registers they are as fast one by one.
#[inline(always)]
pub(super) fn are_short<V: Lanes>(length: usize) -> bool {
    length <= 4 * V::N
}

/// The elements of rows side by side: the first ones of all rows, then the second ones.
#[repr(align(64))]
struct Turned([[f32; WIDEST]; LONGEST]);

/// Rows `begin` to `end` of [`softmax`](super::softmax), short ones.
///
/// # Safety
/// As [`softmax`](super::softmax), for lanes that the CPU has.
#[inline(always)]
pub(super) unsafe fn rows<V: Lanes>(sizes: &Softmax, x: usize, out: usize, begin: usize, end: usize) {
    debug_assert!(are_short::<V>(sizes.length), "{} elements of a short row", sizes.length);
    let (length, bytes) = (sizes.length, size_of::<f32>() as isize);
    // Lanes without a row are computed with, too, and not stored.
    let mut turned = Turned([[0.0; WIDEST]; LONGEST]);
    let memory = (turned.0.as_mut_ptr() as isize, WIDEST as isize * bytes);
    for row in (begin..end).step_by(V::N) {
        let count = V::N.min(end - row);
        let from = ((x as isize).wrapping_add(row as isize * sizes.stride * bytes), sizes.stride * bytes);
        let to = ((out + row * length * size_of::<f32>()) as isize, length as isize * bytes);
        // SAFETY: rows of x and of the result, and as many elements of as many lanes.
        unsafe {
            transpose(size_of::<f32>(), false, (count, length), memory, from);
            side_by_side::<V>(&mut turned.0[..length], sizes.logarithm);
            transpose(size_of::<f32>(), false, (length, count), to, memory);
        }
    }
}

/// The softmax of each lane, or its logarithm, in place.
///
/// # Safety
/// Lanes that the CPU has.
#[inline(always)]
unsafe fn side_by_side<V: Lanes>(elements: &mut [[f32; WIDEST]], logarithm: bool) {
    // SAFETY: no register is wider than what is there of each element.
    unsafe {
        let mut most = V::splat(f32::NEG_INFINITY);
        for element in &*elements {
            // NaN counts as nothing, since the sum of exponentials will tell.
            most = most.max(V::load(element.as_ptr()));
        }
        let mut sum = V::splat(0.0);
        for element in &mut *elements {
            let shifted = V::load(element.as_ptr()).sub(most);
            let power = power(shifted);
            if logarithm { shifted } else { power }.store(element.as_mut_ptr());
            sum = sum.add(power);
        }
        if logarithm {
            let logarithms = V::load(sum.lanes().map(f32::ln).as_ptr());
            for element in elements {
                V::load(element.as_ptr()).sub(logarithms).store(element.as_mut_ptr());
            }
        } else {
            let factors = V::splat(1.0).div(sum);
            for element in elements {
                V::load(element.as_ptr()).mul(factors).store(element.as_mut_ptr());
            }
        }
    }
}
