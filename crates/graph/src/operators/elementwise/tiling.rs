//! How all elements of an output are cut into tiles: the layout that suits the tensors, then the places as arguments and the grid.

use super::layout::{self, Dimension, Dimensions};
use super::{Layout, SQUARE, TILE};
use crate::error::Result;
use crate::program;
use crate::queue::Queue;
use crate::view::View;
use openmps_runtime::Pipeline;

/// The tiles of some tensors, the output last.
pub(super) struct Tiling {
    dimensions: Dimensions,
    tensors: usize,
    /// What the kernel must be built for.
    pub layout: Layout,
}

impl Tiling {
    /// None where the output has no elements.
    pub fn over(operator: &'static str, tensors: &[&View]) -> Result<Option<Tiling>> {
        let mut dimensions = layout::dimensions(operator, tensors)?;
        if tensors.last().is_none_or(|output| output.is_empty()) {
            return Ok(None);
        }
        if dimensions.is_empty() {
            dimensions.push(Dimension { size: 1, strides: tensors.iter().map(|_| 1).collect() });
        }
        let layout = choose(&dimensions);
        Ok(Some(Tiling { dimensions, tensors: tensors.len(), layout }))
    }

    /// Launches the kernel; the places come after its other arguments.
    pub fn launch<A>(&self, operator: &'static str, queue: &Queue, pipeline: &Pipeline, mut arguments: A) -> Result<()>
    where
        A: Extend<u64> + AsRef<[u64]>,
    {
        let grid = layout::push_places(&mut arguments, &self.dimensions, self.tensors, &self.layout);
        // SAFETY: the views describe memory that the frontend keeps alive; sizes and strides are theirs.
        unsafe { program::launch(queue, operator, pipeline, grid, arguments.as_ref()) }
    }
}

/// The tile for these dimensions: one row where that is long, else several rows; square where some tensor runs across.
fn choose(dimensions: &Dimensions) -> Layout {
    let columns = dimensions[dimensions.len() - 1].size;
    if dimensions.len() == 1 {
        return Layout { outer: 0, rows: None, columns: TILE };
    }
    let outer = dimensions.len() - 2;
    let last = &dimensions[dimensions.len() - 1];
    if last.strides.iter().any(|&stride| stride.unsigned_abs() > 1) {
        return Layout { outer, rows: Some(SQUARE), columns: SQUARE };
    }
    let columns = columns.next_power_of_two().clamp(1, TILE);
    Layout { outer, rows: Some((TILE / columns).max(1)), columns }
}
