//! From tensors of any strides to the few dimensions a kernel walks: broadcast, drop, merge.

use crate::error::{Error, Result};
use crate::view::{MAX_RANK, Shape, View};
use arrayvec::ArrayVec;

/// The most tensors an elementwise kernel touches.
pub const MAX_TENSORS: usize = 6;

/// One dimension that a kernel walks: its size and each tensor's stride in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// How many elements.
    pub size: usize,
    /// One stride a tensor, the output's last.
    pub strides: ArrayVec<isize, MAX_TENSORS>,
}

/// The dimensions that remain, outermost first.
pub type Dimensions = ArrayVec<Dimension, MAX_RANK>;

/// The shape that two shapes broadcast to, aligned at their last dimensions.
pub fn broadcast(operator: &'static str, left: &[usize], right: &[usize]) -> Result<Shape> {
    let rank = left.len().max(right.len());
    let mut shape = Shape::new();
    for position in 0..rank {
        let size = |dims: &[usize]| (position + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
        match (size(left), size(right)) {
            (a, b) if a == b || b == 1 => shape.push(a),
            (1, b) => shape.push(b),
            _ => {
                let (left, right) = (crate::view::shape_of(left)?, crate::view::shape_of(right)?);
                return Err(Error::Broadcast { operator, left, right });
            }
        }
    }
    Ok(shape)
}

/// The dimensions to walk so that every element of the last tensor is visited once, the others repeated as needed.
///
/// Dimensions of size 1 go; neighbours that every tensor steps through evenly become one. Every tensor's shape must
/// broadcast to the last one's.
pub fn dimensions(operator: &'static str, tensors: &[&View]) -> Result<Dimensions> {
    let output = tensors[tensors.len() - 1];
    let mut dimensions = Dimensions::new();
    for (position, &size) in output.shape.iter().enumerate() {
        let mut strides = ArrayVec::new();
        for view in tensors {
            strides.push(stride_at(operator, view, output, position)?);
        }
        if size == 1 {
            continue;
        }
        let next = Dimension { size, strides };
        match dimensions.last_mut() {
            Some(last) if steps_evenly(last, &next) => {
                last.size *= size;
                last.strides = next.strides;
            }
            _ => dimensions.push(next),
        }
    }
    Ok(dimensions)
}

/// Adds the sizes and the tensors' strides to a kernel's arguments; the grid.
pub fn push_places(
    arguments: &mut impl Extend<u64>,
    dimensions: &Dimensions,
    tensors: usize,
    layout: &super::Layout,
) -> [usize; 3] {
    arguments.extend(dimensions.iter().map(|dimension| dimension.size as u64));
    for tensor in 0..tensors {
        arguments.extend(dimensions.iter().map(|dimension| dimension.strides[tensor] as u64));
    }
    let inner = usize::from(layout.rows.is_some()) + 1;
    let outer = &dimensions[..dimensions.len() - inner];
    let columns = dimensions[dimensions.len() - 1].size.div_ceil(layout.columns);
    let rows = layout.rows.map_or(1, |rows| dimensions[dimensions.len() - 2].size.div_ceil(rows));
    [columns, rows, outer.iter().map(|dimension| dimension.size).product()]
}

fn stride_at(operator: &'static str, view: &View, output: &View, position: usize) -> Result<isize> {
    let mismatch = || {
        let (left, right) = (view.shape.clone(), output.shape.clone());
        Error::Broadcast { operator, left, right }
    };
    if view.rank() > output.rank() {
        return Err(mismatch());
    }
    let Some(own) = (position + view.rank()).checked_sub(output.rank()) else { return Ok(0) };
    match view.shape[own] {
        size if size == output.shape[position] => Ok(if size == 1 { 0 } else { view.strides[own] }),
        1 => Ok(0),
        _ => Err(mismatch()),
    }
}

fn steps_evenly(outer: &Dimension, inner: &Dimension) -> bool {
    outer.strides.iter().zip(&inner.strides).all(|(&outer, &stride)| outer == stride * inner.size as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::DType;

    #[test]
    fn dense_tensors_become_one_dimension() {
        let view = View::dense(0, DType::F32, &[2, 1, 3, 4]).unwrap();
        let walked = dimensions("add", &[&view, &view, &view]).unwrap();
        assert_eq!(walked.len(), 1);
        assert_eq!((walked[0].size, walked[0].strides.as_slice()), (24, &[1, 1, 1][..]));
    }

    #[test]
    fn a_repeated_row_keeps_two() {
        let (matrix, row) =
            (View::dense(0, DType::F32, &[5, 6, 7]).unwrap(), View::dense(0, DType::F32, &[7]).unwrap());
        let walked = dimensions("add", &[&matrix, &row, &matrix]).unwrap();
        assert_eq!(walked.iter().map(|d| d.size).collect::<Vec<_>>(), [30, 7]);
        assert_eq!(walked[0].strides.as_slice(), [7, 0, 7]);
    }

    #[test]
    fn shapes_that_do_not_broadcast_are_named() {
        let message = broadcast("add", &[2, 3], &[4]).unwrap_err().to_string();
        assert_eq!(message, "add: shapes [2, 3] and [4] do not broadcast");
    }
}
