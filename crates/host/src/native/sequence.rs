//! Tensors that are made of nothing but their position: ranges, even spacings, one-hot rows.

use super::gather::Indices;
use super::memory::{Element, slice_mut};
use crate::{Error, threads};

/// `start + i * step`; integers exactly, floats with one rounding.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn arange<T: Element>(out: usize, len: usize, start: (i64, f64), step: (i64, f64), whole: bool) {
    threads::parallel_for(len, 1, |begin, end| {
        // SAFETY: inside the tensor; no other thread has these elements.
        let out = unsafe { slice_mut::<T>(out + begin * size_of::<T>(), end - begin) };
        for (value, i) in out.iter_mut().zip(begin..) {
            *value = if whole {
                T::from_i64(start.0.wrapping_add(step.0.wrapping_mul(i as i64)))
            } else {
                T::from_f64(start.1 + step.1 * i as f64)
            };
        }
    });
}

/// `len` numbers at even distances from `start` to `stop`, both included; symmetric about the middle.
///
/// # Safety
/// `len` elements of `T` at `out` must be writable.
pub unsafe fn linspace<T: Element>(out: usize, len: usize, start: f64, stop: f64) {
    let step = (stop - start) / (len.max(2) - 1) as f64;
    threads::parallel_for(len, 2, |begin, end| {
        // SAFETY: inside the tensor; no other thread has these elements.
        let out = unsafe { slice_mut::<T>(out + begin * size_of::<T>(), end - begin) };
        for (value, i) in out.iter_mut().zip(begin..) {
            *value = T::from_f64(if i < len / 2 || len == 1 {
                start + step * i as f64
            } else {
                stop - step * (len - 1 - i) as f64
            });
        }
    });
}

/// A row of `classes` elements for each index: one at the index, zeros elsewhere.
///
/// # Safety
/// `indices.len() * classes` elements of `T` at `out` must be writable.
pub unsafe fn one_hot<T: Element>(out: usize, classes: usize, indices: Indices) -> Result<(), Error> {
    indices.check_from(0, classes)?;
    // SAFETY: promised by the caller.
    let out = unsafe { slice_mut::<T>(out, indices.len() * classes) };
    out.fill(T::ZERO);
    for position in 0..indices.len() {
        out[position * classes + indices.get(position) as usize] = T::ONE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact() {
        let mut out = [0.0_f32; 7];
        // SAFETY: seven elements.
        unsafe { linspace::<f32>(out.as_mut_ptr() as usize, 7, -1.0, 0.2) };
        assert_eq!((out[0], out[6]), (-1.0, 0.2));
        let mut out = [0_i64; 4];
        let large = (1 << 60) + 1;
        // SAFETY: four elements.
        unsafe { arange::<i64>(out.as_mut_ptr() as usize, 4, (large, 0.0), (-2, 0.0), true) };
        assert_eq!(out, [large, large - 2, large - 4, large - 6]);
    }

    #[test]
    fn one_hot_refuses_a_class_too_many() {
        let mut out = [7_u8; 6];
        let to = out.as_mut_ptr() as usize;
        // SAFETY: six elements.
        unsafe { one_hot::<u8>(to, 3, Indices::I64(&[2, 0])).unwrap() };
        assert_eq!(out, [0, 0, 1, 1, 0, 0]);
        // SAFETY: refused before anything is written.
        let error = unsafe { one_hot::<u8>(to, 3, Indices::I64(&[2, 3])) }.unwrap_err();
        assert!(error.to_string().starts_with("index 3 at position 1"), "{error}");
    }
}
