//! What depends on the values for its size: coordinates of elements that are not zero, masked elements.

use super::memory::{Element, by_size, slice, slice_mut};

/// How many elements are not zero; NaN is not zero.
///
/// # Safety
/// `len` elements of `T` at `x` must be readable.
pub unsafe fn count<T: Element>(x: usize, len: usize) -> usize {
    // SAFETY: promised by the caller.
    let x = unsafe { slice::<T>(x, len) };
    x.chunks(1 << 16).map(|chunk| chunk.iter().map(|&value| u32::from(value != T::ZERO)).sum::<u32>() as usize).sum()
}

/// The coordinates of each element that is not zero, in row-major order: one row of `dims.len()` numbers each.
///
/// # Safety
/// `x` must be a dense tensor of `T` with these dimensions; `out` must hold `found` rows, the result of [`count`].
pub unsafe fn coordinates<T: Element>(x: usize, dims: &[usize], out: usize, found: usize) {
    let rank = dims.len();
    // SAFETY: promised by the caller.
    let (x, out) = unsafe { (slice::<T>(x, dims.iter().product()), slice_mut::<i64>(out, found * rank)) };
    if rank == 0 {
        return;
    }
    let places = x.iter().enumerate().filter(|(_, value)| **value != T::ZERO);
    for (row, (flat, _)) in out.chunks_exact_mut(rank).zip(places) {
        let mut rest = flat;
        for (coordinate, &size) in row.iter_mut().zip(dims).rev() {
            *coordinate = (rest % size) as i64;
            rest /= size;
        }
    }
}

/// The elements whose mask byte is not zero, one after the other; returns how many.
///
/// # Safety
/// `len` elements of `element` bytes at `x`, as many mask bytes, and room for the selected ones at `out`.
pub unsafe fn masked_select(element: usize, x: usize, mask: usize, len: usize, out: usize) -> usize {
    // SAFETY: promised by the caller.
    let mask = unsafe { slice::<u8>(mask, len) };
    let mut next = 0;
    by_size!(element, T => for (i, _) in mask.iter().enumerate().filter(|(_, keep)| **keep != 0) {
        // SAFETY: as many elements fit as the mask selects.
        unsafe { *(out as *mut T).add(next) = *(x as *const T).add(i) }
        next += 1;
    });
    next
}

/// The reverse of [`masked_select`]: selected places take the next value, the others zero.
///
/// # Safety
/// As [`masked_select`] with `x` and `out` in each other's place.
pub unsafe fn masked_scatter(element: usize, values: usize, mask: usize, len: usize, out: usize) {
    // SAFETY: promised by the caller.
    let mask = unsafe { slice::<u8>(mask, len) };
    let mut next = 0;
    by_size!(element, T => for (i, &keep) in mask.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { *(out as *mut T).add(i) = if keep != 0 { *(values as *const T).add(next) } else { 0 } }
        next += usize::from(keep != 0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_and_selects() {
        let x = [0.0_f32, f32::NAN, -0.0, 3.0, 4.0, 0.0];
        let address = x.as_ptr() as usize;
        let mut rows = [9_i64; 6];
        let mut selected = [0.0_f32; 2];
        let mask = [0_u8, 0, 1, 1, 0, 0];
        let mut back = [9.0_f32; 6];
        // SAFETY: the arrays have the sizes named.
        unsafe {
            assert_eq!(count::<f32>(address, 6), 3);
            coordinates::<f32>(address, &[2, 3], rows.as_mut_ptr() as usize, 3);
            let mask = mask.as_ptr() as usize;
            assert_eq!(masked_select(4, address, mask, 6, selected.as_mut_ptr() as usize), 2);
            masked_scatter(4, selected.as_ptr() as usize, mask, 6, back.as_mut_ptr() as usize);
        }
        assert_eq!(rows, [0, 1, 1, 0, 1, 1]);
        assert_eq!(selected, [0.0, 3.0]);
        assert_eq!(back, [0.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
    }
}
