//! Products with weights in blocks of few bits, as GGUF files hold them. The weights are read as they are; no copy of them is made.
//!
//! `x weight^T` is computed in integers, as llama.cpp does: every 32 neighbours of x become numbers of 8 bits and a scale (`Activations`), a
//! row of weights becomes `Planes` of small integers in the first-level cache, and 32 products are one or two instructions; for few rows of x
//! blocks are read in place instead. It errs by what 8 bits of x leave out, some thousandths of a result. The product with the weight as it
//! stands, `x weight`, which gradients are made of, and [`widen`] are computed in float32.

mod activations;
mod dots;
mod format;
mod in_place;
mod planes;
mod products;

pub use format::BlockFormat;

use super::matmul::{Matrices, MatrixProduct, matmul};
use super::{Shared, scratch};
use crate::Error;
use crate::threads::parallel_for;
use activations::Activations;
use openmps_tile::DType;
use planes::Planes;
use products::Instructions;
use std::ops::Range;

/// Weights of one block format, a row after the other.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// How the rows are written.
    pub format: BlockFormat,
    /// The address of the first row.
    pub address: usize,
    /// Rows, which are the outputs of `x weight^T`.
    pub rows: usize,
    /// Elements of a row: whole blocks.
    pub columns: usize,
}

impl Weight {
    fn row_bytes(&self) -> usize {
        self.format.row_bytes(self.columns)
    }

    /// # Safety
    /// The weight's memory is readable and `row` below its rows.
    unsafe fn row(&self, row: usize) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts((self.address as *const u8).add(row * self.row_bytes()), self.row_bytes()) }
    }
}

/// Rows of the weight that are computed with side by side: each number of x that is read serves all of them.
const SIDE_BY_SIDE: usize = 4;

/// `out = x weight^T`: x holds `rows` of the weight's columns, `out` as many of its rows.
///
/// # Safety
/// The weight's memory is readable.
pub unsafe fn linear(weight: &Weight, rows: usize, x: &[f32], out: &mut [f32]) {
    assert_eq!((x.len(), out.len()), (rows * weight.columns, rows * weight.rows), "x and the result");
    let groups = weight.columns / planes::GROUP;
    scratch::with(Activations::singles(rows, groups), |memory| {
        let x = &Activations::new(weight.format, x, rows, groups, memory);
        let out = Shared::new(out);
        let ns = SIDE_BY_SIDE * groups * (1 + rows);
        parallel_for(weight.rows.div_ceil(SIDE_BY_SIDE), ns, |begin, end| {
            // SAFETY: the caller's promise; these columns of the result are this task's.
            unsafe {
                if rows < in_place::WORTH_UNPACKING {
                    read_in_place(weight, x, rows, &out, begin..end);
                } else {
                    unpacked(weight, x, rows, &out, begin..end);
                }
            }
        });
    });
}

/// Sums of the weight's rows in `fours`, whose blocks are read where they lie, once for each row of x.
///
/// # Safety
/// As [`linear`]; these columns of the result are the caller's alone.
unsafe fn read_in_place(weight: &Weight, x: &Activations, rows: usize, out: &Shared<f32>, fours: Range<usize>) {
    let instructions = Instructions::best();
    for first in fours.map(|four| four * SIDE_BY_SIDE) {
        let count = SIDE_BY_SIDE.min(weight.rows - first);
        // Rows beyond the last repeat it; their sums are dropped.
        // SAFETY: the caller's promise.
        let lines = std::array::from_fn(|i| unsafe { weight.row(first + i.min(count - 1)) });
        for row in 0..rows {
            let sums = in_place::dots(instructions, weight.format, lines, &x.row(row));
            // SAFETY: the caller's promise.
            unsafe { out.part(row * weight.rows + first, count) }.copy_from_slice(&sums[..count]);
        }
    }
}

/// The same, each row of the weight unpacked once for all rows of x.
///
/// # Safety
/// As [`read_in_place`].
unsafe fn unpacked(weight: &Weight, x: &Activations, rows: usize, out: &Shared<f32>, fours: Range<usize>) {
    let (groups, instructions) = (weight.columns / planes::GROUP, Instructions::best());
    scratch::with(SIDE_BY_SIDE * Planes::singles(groups), |memory| {
        let mut planes = Planes::several(groups, memory);
        for first in fours.map(|four| four * SIDE_BY_SIDE) {
            let count = SIDE_BY_SIDE.min(weight.rows - first);
            for (i, planes) in planes.iter_mut().enumerate().take(count) {
                // SAFETY: the caller's promise.
                planes.unpack(weight.format, unsafe { weight.row(first + i) });
            }
            for row in 0..rows {
                let sums = dots::dots(instructions, weight.format, &planes, &x.row(row));
                // SAFETY: the caller's promise.
                unsafe { out.part(row * weight.rows + first, count) }.copy_from_slice(&sums[..count]);
            }
        }
    });
}

/// Rows of the weight that are widened at once in a product with the weight as it stands.
const WIDENED: usize = 64;

/// `out = x weight`: x holds `rows` of the weight's rows, `out` as many of its columns. Computed in float32.
///
/// # Safety
/// As [`linear`].
pub unsafe fn transposed(weight: &Weight, rows: usize, x: &[f32], out: &mut [f32]) -> Result<(), Error> {
    assert_eq!((x.len(), out.len()), (rows * weight.rows, rows * weight.columns), "x and the result");
    out.fill(0.0);
    scratch::with(WIDENED * weight.columns, |wide: &mut [f32]| {
        for first in (0..weight.rows).step_by(WIDENED) {
            let count = WIDENED.min(weight.rows - first);
            let part = Weight { address: weight.address + first * weight.row_bytes(), rows: count, ..*weight };
            // SAFETY: the caller's promise.
            unsafe { widen(&part, &mut wide[..count * weight.columns]) };
            let product = MatrixProduct {
                left: [weight.rows as isize, 1],
                beta: 1.0,
                ..MatrixProduct::dense(rows, count, weight.columns)
            };
            let left = x.as_ptr().wrapping_add(first) as usize;
            let at = Matrices { left, right: wide.as_ptr() as usize, out: out.as_mut_ptr() as usize };
            // SAFETY: the sizes that were checked above.
            unsafe { matmul(&product, DType::F32, at, &[[0; 3]])? };
        }
        Ok(())
    })
}

/// The weight as float32.
///
/// # Safety
/// As [`linear`].
pub unsafe fn widen(weight: &Weight, to: &mut [f32]) {
    assert_eq!(to.len(), weight.rows * weight.columns, "the result");
    let to = Shared::new(to);
    let groups = weight.columns / planes::GROUP;
    parallel_for(weight.rows, weight.columns / 4, |begin, end| {
        scratch::with(Planes::singles(groups), |memory| {
            let mut planes = Planes::new(groups, memory);
            for row in begin..end {
                // SAFETY: the caller's promise; the row of the result is this task's.
                unsafe {
                    planes.unpack(weight.format, weight.row(row));
                    planes.widen(weight.format, to.part(row * weight.columns, weight.columns));
                }
            }
        });
    });
}

#[cfg(test)]
mod tests;
