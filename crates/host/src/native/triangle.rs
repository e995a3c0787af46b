//! Upper and lower triangles of matrices: a row is a copied part and a zeroed part.

use super::memory::{Memory, by_size};
use crate::threads;

/// Copies the elements on one side of a diagonal and zeroes the others: the lower side keeps `j <= i + diagonal`.
///
/// `out` is dense, `count` x `rows` x `columns`; `matrix(k)` is the address of input matrix `k`, `strides` its row and
/// column strides in elements of `element` bytes.
///
/// # Safety
/// Every matrix must be readable, and `out` writable, without overlap.
pub unsafe fn triangle(
    element: usize,
    (count, rows, columns): (usize, usize, usize),
    matrix: impl Fn(usize) -> usize + Sync,
    strides: (isize, isize),
    out: usize,
    (diagonal, lower): (i64, bool),
) {
    threads::parallel_for(count * rows, 2 + columns * element / 8, |begin, end| {
        for row in begin..end {
            let i = row % rows;
            let from = matrix(row / rows) as isize + i as isize * strides.0 * element as isize;
            let to = out + row * columns * element;
            // The first column on the other side.
            let cut = diagonal.saturating_add(i as i64).saturating_add(i64::from(lower));
            let cut = cut.clamp(0, columns as i64) as usize;
            let (kept, zeroed) = if lower { (0..cut, cut..columns) } else { (cut..columns, 0..cut) };
            // SAFETY: both parts lie inside the row.
            unsafe {
                std::ptr::write_bytes((to + zeroed.start * element) as *mut u8, 0, zeroed.len() * element);
                copy_part(element, kept, strides.1, to, from);
            }
        }
    });
}

/// Copies columns of one row.
unsafe fn copy_part(element: usize, columns: std::ops::Range<usize>, stride: isize, to: usize, from: isize) {
    by_size!(element, T => for j in columns {
        // SAFETY: promised by the caller.
        unsafe { *(to as *mut T).add(j) = (from as *const T).offset(j as isize * stride).read_unaligned() }
    });
}

/// Fills a diagonal of a matrix at `to` with the element at `value`, starting at row and column `start`.
///
/// # Safety
/// The diagonal's elements must be writable.
pub unsafe fn fill_diagonal(element: usize, to: Memory, start: (usize, usize), count: usize, value: usize) {
    let step = to.strides[0] + to.strides[1];
    let first = start.0 as isize * to.strides[0] + start.1 as isize * to.strides[1];
    let address = (to.address as isize + first * element as isize) as usize;
    // SAFETY: promised by the caller.
    unsafe { super::copy::fill(element, &[count], Memory::new(address, &[step]), value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_every_diagonal() {
        for (rows, columns) in [(1, 1), (3, 5), (5, 3), (4, 4)] {
            let x: Vec<u16> = (1..=2 * rows * columns).map(|i| i as u16).collect();
            let ends = [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX];
            for (diagonal, lower) in (-6..7).chain(ends).flat_map(|d| [(d, true), (d, false)]) {
                let mut out = vec![9_u16; x.len()];
                let matrix = |k: usize| x.as_ptr() as usize + k * rows * columns * 2;
                let to = out.as_mut_ptr() as usize;
                // SAFETY: the vectors hold two matrices.
                unsafe { triangle(2, (2, rows, columns), matrix, (columns as isize, 1), to, (diagonal, lower)) };
                for (flat, &got) in out.iter().enumerate() {
                    let distance = (flat % columns) as i64 - (flat / columns % rows) as i64;
                    let kept = if lower { distance <= diagonal } else { distance >= diagonal };
                    assert_eq!(got, if kept { x[flat] } else { 0 });
                }
            }
        }
    }
}
