//! The gradients of a product by its matrices.

use super::Matmul;
use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node};
use crate::operators::words::Transposed;
use crate::operators::words::Words;

pub(super) fn gradient(operator: &Matmul, b: &mut Backward<'_>) -> Result<Gradients> {
    let (operands, dy) = ([b.inputs[0], b.inputs[1]], b.dy()?);
    of_operands(operator, b, operands, dy)
}

/// The gradients of both operands, the first two inputs of the call, for the product's gradient `dy`.
pub(in crate::operators) fn of_operands(
    operator: &Matmul,
    b: &mut Backward<'_>,
    [left, right]: [Node; 2],
    dy: Node,
) -> Result<Gradients> {
    let shapes = [b.shape(left), b.shape(right)];
    let flag = |flag: bool, shape: &[usize]| Transposed::from_flag(flag && shape.len() > 1);
    let transposed = [flag(operator.transpose_left, &shapes[0]), flag(operator.transpose_right, &shapes[1])];
    let sizes = operator.sizes(&shapes[0], &shapes[1])?;
    // A vector on the left is a row, one on the right a column.
    let mut left_dims = if shapes[0].len() > 1 { shapes[0].to_vec() } else { vec![1, sizes.depth] };
    let right_dims = if shapes[1].len() > 1 { shapes[1].to_vec() } else { vec![sizes.depth, 1] };
    let mut out_dims = [&sizes.batch[..], &[sizes.rows, sizes.columns]].concat();
    if right_dims.len() == 2 && transposed[0] == Transposed::No {
        // One matrix on the right for all: the rows of all batches are those of one product, and nothing is summed up afterwards.
        left_dims = vec![left_dims[..left_dims.len() - 1].iter().product(), sizes.depth];
        out_dims = vec![left_dims[0], sizes.columns];
    }
    let [left, right, dy] = [b.reshape(left, &left_dims)?, b.reshape(right, &right_dims)?, b.reshape(dy, &out_dims)?];
    let of_left = |b: &mut Backward<'_>| {
        let whole = match transposed[0] {
            Transposed::No => b.matmul((dy, Transposed::No), (right, transposed[1].flipped()))?,
            Transposed::Yes => b.matmul((right, transposed[1]), (dy, Transposed::Yes))?,
        };
        let sum = b.sum_to(whole, &left_dims)?;
        b.reshape(sum, &shapes[0])
    };
    let of_right = |b: &mut Backward<'_>| {
        let whole = match transposed[1] {
            Transposed::No => b.matmul((left, transposed[0].flipped()), (dy, Transposed::No))?,
            Transposed::Yes => b.matmul((dy, Transposed::Yes), (left, transposed[0]))?,
        };
        let sum = b.sum_to(whole, &right_dims)?;
        b.reshape(sum, &shapes[1])
    };
    let (wants_left, wants_right) = (b.wanted[0], b.wanted[1]);
    Ok(vec![wants_left.then(|| of_left(b)).transpose()?, wants_right.then(|| of_right(b)).transpose()?])
}
