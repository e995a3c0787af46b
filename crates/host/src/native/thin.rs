//! Products with one column: what is left over of a product's columns, where a tile would be mostly empty. A register holds the rows of a panel, and some
//! panels are summed side by side.

use super::lanes::{EIGHT, Lanes, at_eight};

/// Columns at most that are multiplied so: each costs an eighth of half a tile, or less.
pub(crate) const MOST: usize = 4;
/// Panels side by side: as many sums hide the latency of a multiply-add.
pub(crate) const PANELS: usize = 8;

/// Panels of a packed left matrix, which need not be different ones, and a column of the right one.
#[derive(Clone, Copy)]
pub(crate) struct Thin {
    pub left: [*const f32; PANELS],
    /// Rows of a panel, at most a register's.
    pub height: usize,
    /// Terms of the sums, at least one.
    pub depth: usize,
    pub right: *const f32,
    /// From one number of the column to the next.
    pub stride: usize,
}

/// The sums of each row of these panels; those beyond a panel's height are nobody's.
///
/// # Safety
/// The panels and the column hold `depth` terms, and the level in use has registers of eight ([`super::lanes::has_eight`]).
pub(crate) unsafe fn multiply(thin: Thin) -> [[f32; EIGHT]; PANELS] {
    let mut sums = [[0.0; EIGHT]; PANELS];
    let results = &mut sums;
    // SAFETY: the caller's promise.
    unsafe { at_eight!(sum_up(thin: Thin, results: &mut [[f32; EIGHT]; PANELS])) };
    sums
}

/// # Safety
/// As [`multiply`]; a register of `V` has [`EIGHT`] lanes.
#[inline(always)]
unsafe fn sum_up<V: Lanes>(thin: Thin, results: &mut [[f32; EIGHT]; PANELS]) {
    let Thin { left, height, depth, right, stride } = thin;
    // SAFETY: a register that is loaded before the last term ends within its panel; the last term's numbers are copied one by one.
    unsafe {
        let mut sums = [V::splat(0.0); PANELS];
        for k in 0..depth - 1 {
            let factor = V::splat(*right.add(k * stride));
            for p in 0..PANELS {
                sums[p] = V::load(left[p].add(k * height)).fma(factor, sums[p]);
            }
        }
        let factor = V::splat(*right.add((depth - 1) * stride));
        for p in 0..PANELS {
            let mut last = [0.0; EIGHT];
            for i in 0..height {
                last[i] = *left[p].add((depth - 1) * height + i);
            }
            V::load(last.as_ptr()).fma(factor, sums[p]).store(results[p].as_mut_ptr());
        }
    }
}
