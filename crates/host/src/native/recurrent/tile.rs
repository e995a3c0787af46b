//! Tiles of a step's product: a few sequences by some vectors of columns, and the weights as these read them.

use super::Layer;
use crate::native::lanes::{Lanes, lanes};
use crate::native::panels::gather;

/// `sums += left * right` for R rows of `left`, `stride` apart, and W vectors of columns; each row of `right` follows the one before.
///
/// # Safety
/// `depth` numbers of each row of `left`, and as many rows of `right`, are readable; the CPU has the instructions of `V`.
#[inline(always)]
pub(super) unsafe fn multiply<V: Lanes, const R: usize, const W: usize>(
    sums: &mut [[V; W]; R],
    (left, stride): (*const f32, usize),
    mut right: *const f32,
    depth: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for k in 0..depth {
            // Few registers are left beside the sums: one for each row, and one vector of the right matrix at a time.
            let mut a = [V::splat(0.0); R];
            for i in 0..R {
                a[i] = V::splat(*left.add(i * stride + k));
            }
            for j in 0..W {
                let b = V::load(right.add(j * V::N));
                for i in 0..R {
                    sums[i][j] = a[i].fma(b, sums[i][j]);
                }
            }
            right = right.add(W * V::N);
        }
    }
}

/// A weight of gates x hidden rows, each of `hidden` numbers, turned and cut into blocks for the forward pass. A row of a block has one number of the state
/// times `vectors` registers: those of all gates of as many units as a register has lanes, and then of the next units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub hidden: usize,
    pub gates: usize,
    pub vectors: usize,
    pub lanes: usize,
}

impl Blocks {
    /// Those of the forward pass, for the level in use: sums of all gates stand beside each other.
    pub fn new(layer: &Layer) -> Blocks {
        let gates = layer.cell.gates();
        Blocks { hidden: layer.hidden, gates, vectors: if gates == 3 { 3 } else { 4 }, lanes: lanes() }
    }

    /// Those of the backward pass: any four vectors of columns.
    pub fn of_columns(layer: &Layer) -> Blocks {
        Blocks { hidden: layer.hidden, gates: 1, vectors: 4, lanes: lanes() }
    }

    /// Numbers of all blocks, and of what their last vector is short of.
    pub fn packed_len(&self, depth: usize) -> usize {
        self.count() * self.len(depth) + self.row()
    }

    /// Units of a block.
    pub fn units(&self) -> usize {
        self.vectors / self.gates * self.lanes
    }

    pub fn count(&self) -> usize {
        self.hidden.div_ceil(self.units())
    }

    /// Numbers of a row of a block.
    fn row(&self) -> usize {
        self.vectors * self.lanes
    }

    /// Numbers of a block, whose rows are as many as the products' terms.
    pub fn len(&self, depth: usize) -> usize {
        self.row() * depth
    }

    /// Packs the weight for `state * weight'`. What stands for units that are not there is left as it is; no result has it.
    pub fn pack_turned(&self, weight: &[f32], packed: &mut [f32]) {
        let depth = self.hidden;
        for block in 0..self.count() {
            for vector in 0..self.vectors {
                let unit = block * self.units() + vector / self.gates * self.lanes;
                let Some(rest) = self.hidden.checked_sub(unit).filter(|&rest| rest > 0) else { continue };
                let row = vector % self.gates * self.hidden + unit;
                let to = &mut packed[block * self.len(depth) + vector * self.lanes..];
                // SAFETY: these rows and their numbers are the weight's.
                unsafe {
                    gather(
                        (depth, rest.min(self.lanes)),
                        self.row(),
                        weight[row * depth..].as_ptr(),
                        (1, depth as isize),
                        to,
                    )
                };
            }
        }
    }

    /// Packs the weight for `gates * weight`: blocks of columns.
    pub fn pack_straight(&self, weight: &[f32], depth: usize, packed: &mut [f32]) {
        for block in 0..self.count() {
            let unit = block * self.units();
            let columns = self.units().min(self.hidden - unit);
            let to = &mut packed[block * self.len(depth)..];
            // SAFETY: these columns are the weight's.
            unsafe { gather((depth, columns), self.row(), weight[unit..].as_ptr(), (self.hidden as isize, 1), to) };
        }
    }
}
