//! Rows that are reduced side by side, as their elements lie apart, or as they are too short for one at a time.

use super::Reduction;
use super::kernel::{self, Pass};
use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::{even_stride, size};
use crate::view::View;

/// Fewer rows than these are taken one at a time.
const FEWEST: usize = 64;

/// The longest rows of the host device whose elements follow each other, and are taken side by side all the same: what surrounds a row takes some 30 ns.
const SHORT: usize = 16;

/// Rows of a slice that a program walks side by side at most.
const WIDEST: usize = 1024;

/// Elements of several such rows that the host device reads in one step, which costs as much as some hundred of them: they are in its first-level cache.
const TILE: usize = 4096;

/// The most slices of a grid on every GPU.
const MOST_SLICES: usize = 65_535;

/// Slices of rows: `count` of them in each.
pub(super) struct Beside {
    slices: usize,
    count: usize,
    length: usize,
    /// The tensor's strides from slice to slice, from row to row, from element to element.
    strides: [isize; 3],
    /// The dense output's strides from slice to slice and from row to row.
    to: [usize; 2],
}

impl Beside {
    /// None where the axes that stay do not step evenly before and behind those that go, or where rows are better taken one at a time.
    pub fn of(queue: &Queue, x: &View, reduced: &[usize]) -> Option<Beside> {
        let (&first, &last) = (reduced.first()?, reduced.last()?);
        if last - first + 1 != reduced.len() {
            return None;
        }
        let (before, behind): (Vec<usize>, Vec<usize>) = ((0..first).collect(), (last + 1..x.rank()).collect());
        let [outer, inner, length] = [&before[..], &behind, reduced].map(|axes| size(x, axes));
        let [by_outer, by_inner, stride] =
            [even_stride(x, &before)?, even_stride(x, &behind)?, even_stride(x, reduced)?];
        let beside = if inner >= FEWEST || inner >= outer {
            Beside { slices: outer, count: inner, length, strides: [by_outer, by_inner, stride], to: [inner, 1] }
        } else {
            Beside { slices: inner, count: outer, length, strides: [by_inner, by_outer, stride], to: [1, inner] }
        };
        let are_neighbours = beside.strides[1] == 1 && beside.to[1] == 1;
        let is_taken = are_neighbours && beside.slices <= MOST_SLICES || queue.is_host() && length <= SHORT;
        (beside.count >= FEWEST && is_taken).then_some(beside)
    }

    /// Elements of a row, and rows, that a kernel reads at once.
    fn tile(&self, queue: &Queue) -> [usize; 2] {
        if queue.is_host() {
            let width = self.count.next_power_of_two().clamp(FEWEST, WIDEST);
            [(TILE / width).min(self.length.next_power_of_two()), width]
        } else {
            [1, WIDEST]
        }
    }

    pub fn reduce(self, reduction: Reduction, queue: &Queue, x: usize, out: usize, pass: Pass) -> Result<()> {
        let (operator, tile) = (reduction.name(), self.tile(queue));
        let key = Key::Other(operator, vec![pass.input, pass.compute, pass.output], tile.to_vec());
        let pipeline = program::get(operator, &key, || kernel::side_by_side(reduction, pass, tile))?;
        let [of_slice, of_row, stride] = self.strides.map(|stride| stride as u64);
        let [count, length, to_slice, to_row] =
            [self.count, self.length, self.to[0], self.to[1]].map(|size| size as u64);
        let arguments = [x as u64, out as u64, count, length, length, of_slice, of_row, stride, to_slice, to_row];
        let grid = [self.count.div_ceil(tile[1]), self.slices, 1];
        // SAFETY: slices, rows and strides are those of the views, which the frontend keeps alive.
        unsafe { program::launch(queue, operator, &pipeline, grid, &arguments) }
    }
}
