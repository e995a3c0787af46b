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
        arrange(&mut dimensions);
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

/// Columns below which a tile goes across them: what surrounds a row of a few elements takes longer than the elements.
const SHORT: usize = 8;

/// Brings two dimensions that fill a tile to the end, as the order of all does not matter: where the last two are small, the largest beside the last.
fn arrange(dimensions: &mut Dimensions) {
    let Some(last) = dimensions.len().checked_sub(1).filter(|&last| last > 0) else { return };
    let size = |i: usize| dimensions[i].size;
    let columns = size(last).min(TILE);
    // A neighbour that is long enough lies nearer in memory than a longer dimension.
    let is_long = size(last - 1) > SQUARE || size(last - 1) * columns >= TILE / 4;
    let rows = if is_long { last - 1 } else { (0..last).max_by_key(|&i| size(i)).unwrap_or(last - 1) };
    let is_across = columns < SHORT && size(rows) > SQUARE;
    let rows = dimensions.remove(rows);
    dimensions.insert(if is_across { last } else { last - 1 }, rows);
}

/// The tile for these dimensions: one row where that is long, else several rows; square where some tensor runs across.
fn choose(dimensions: &Dimensions) -> Layout {
    let [.., rows, last] = dimensions.as_slice() else { return Layout { outer: 0, rows: None, columns: TILE } };
    let outer = dimensions.len() - 2;
    if last.strides.iter().any(|&stride| stride.unsigned_abs() > 1) {
        let rows = rows.size.next_power_of_two().min(SQUARE);
        return Layout { outer, rows: Some(rows), columns: (SQUARE * SQUARE / rows).min(TILE) };
    }
    let columns = last.size.next_power_of_two().clamp(1, TILE);
    Layout { outer, rows: Some((TILE / columns).max(1)), columns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::DType;

    /// Sizes as a kernel walks them, its rows and columns, and its programs.
    fn cut(shapes: [&[usize]; 2]) -> (Vec<usize>, Option<usize>, usize, [usize; 3]) {
        let [x, y] = shapes.map(|shape| View::dense(0, DType::F32, shape).unwrap());
        let shape = layout::broadcast("add", &x.shape, &y.shape).unwrap();
        let out = View::dense(0, DType::F32, &shape).unwrap();
        let tiling = Tiling::over("add", &[&x, &y, &out]).unwrap().unwrap();
        let grid = layout::push_places(&mut Vec::new(), &tiling.dimensions, 3, &tiling.layout);
        let sizes = tiling.dimensions.iter().map(|dimension| dimension.size).collect();
        (sizes, tiling.layout.rows, tiling.layout.columns, grid)
    }

    #[test]
    fn tiles_are_filled_whatever_is_stretched() {
        // Corners of boxes against corners of others: programs of four elements took 40 ns for each.
        assert_eq!(cut([&[2316, 1, 2], &[2, 2]]), (vec![2, 2, 2316], Some(2), 2048, [2, 1, 2]));
        assert_eq!(cut([&[500, 1, 2], &[400, 2]]), (vec![500, 2, 400], Some(2), 2048, [1, 1, 500]));
        assert_eq!(cut([&[90, 6, 9], &[6, 1]]), (vec![6, 90, 9], Some(128), 16, [1, 1, 6]));
        // What fills tiles already stays as it lies in memory.
        assert_eq!(cut([&[64, 3, 56, 56], &[3, 1, 1]]), (vec![64, 3, 3136], Some(1), 2048, [2, 3, 64]));
        assert_eq!(cut([&[4096, 32], &[32]]), (vec![4096, 32], Some(64), 32, [1, 64, 1]));
        assert_eq!(cut([&[7, 3], &[3]]), (vec![7, 3], Some(512), 4, [1, 1, 1]));
    }
}
