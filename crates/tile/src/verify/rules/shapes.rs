//! The rules of ranges and of operations that rearrange elements.

use super::{Class, Result, axis_below, require, same, tile};
use crate::types::{Dims, MAX_TILE_RANK, Scalar, Type};
use crate::verify::error::Problem;

pub(super) fn program_axis(axis: u8, result: &Type) -> Result {
    axis_below(axis.into(), 3)?;
    same("the result", result, &Type::scalar(Scalar::I32))
}

pub(super) fn range(start: i32, result: &Type) -> Result {
    let fits = result.number() == Some(Scalar::I32) && result.dims.len() == 1;
    require("the result", result, fits, || "an i32 tile of one dimension".to_owned())?;
    let size = result.len();
    let last = i64::from(start) + size as i64 - 1;
    if last <= i64::from(i32::MAX) { Ok(()) } else { Err(Problem::Range { start, size }) }
}

pub(super) fn splat(x: &Type, result: &Type) -> Result {
    require("the operand", x, x.is_scalar(), || "a scalar".to_owned())?;
    tile("the result", result)?;
    same("the result", result, &x.with_dims(&result.dims))
}

pub(super) fn expand_dims(axis: usize, x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    axis_below(axis, x.dims.len() + 1)?;
    let rank_left = x.dims.len() < MAX_TILE_RANK;
    require("the operand", x, rank_left, || format!("at most {} dimensions", MAX_TILE_RANK - 1))?;
    let mut dims = x.dims.clone();
    dims.insert(axis, 1);
    same("the result", result, &x.with_dims(&dims))
}

pub(super) fn broadcast(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    let repeats = |dims: &Dims| x.dims.iter().zip(dims).all(|(&from, &to)| from == to || from == 1);
    let fits = result.element == x.element && result.dims.len() == x.dims.len() && repeats(&result.dims);
    require("the result", result, fits, || format!("{x} with dimensions of size 1 repeated"))
}

pub(super) fn reshape(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    tile("the result", result)?;
    let fits = result.element == x.element && result.len() == x.len();
    require("the result", result, fits, || format!("{} elements of {}", x.len(), x.element))
}

pub(super) fn permute(order: &Dims, x: &Type, result: &Type) -> Result {
    let mut sorted: Vec<usize> = order.to_vec();
    sorted.sort_unstable();
    let whole = sorted.iter().copied().eq(0..x.dims.len());
    require("the operand", x, whole && !x.is_scalar(), || format!("as many dimensions as the order {order:?}"))?;
    let dims: Vec<usize> = order.iter().map(|&axis| x.dims[axis]).collect();
    same("the result", result, &x.with_dims(&dims))
}

/// The type of two tiles joined along a new last dimension.
fn joined(x: &Type) -> std::result::Result<Type, Problem> {
    let fits = x.dims.len() < MAX_TILE_RANK;
    require("the operand", x, fits, || format!("at most {} dimensions", MAX_TILE_RANK - 1))?;
    let mut dims = x.dims.clone();
    dims.push(2);
    Ok(x.with_dims(&dims))
}

pub(super) fn join(x: &Type, y: &Type, result: &Type) -> Result {
    same("operand 1", y, x)?;
    same("the result", result, &joined(x)?)
}

pub(super) fn split(x: &Type, left: &Type, right: &Type) -> Result {
    same("the operand", x, &joined(left)?)?;
    same("the second result", right, left)
}

pub(super) fn concatenate(x: &Type, y: &Type, result: &Type) -> Result {
    tile("operand 0", x)?;
    same("operand 1", y, x)?;
    let mut dims = x.dims.clone();
    dims[0] = dims[0].saturating_mul(2);
    same("the result", result, &x.with_dims(&dims))
}

pub(super) fn unsplat(x: &Type, result: &Type) -> Result {
    tile("the operand", x)?;
    require("the operand", x, x.len() == 1, || "one element".to_owned())?;
    same("the result", result, &x.with_dims(&[]))
}

pub(super) fn gather(axis: usize, x: &Type, indices: &Type, result: &Type) -> Result {
    tile("operand 0", x)?;
    axis_below(axis, x.dims.len())?;
    Class::Offset.require("the indices", indices)?;
    let alike =
        indices.dims.len() == x.dims.len() && (0..x.dims.len()).all(|d| d == axis || indices.dims[d] == x.dims[d]);
    require("the indices", indices, alike, || format!("the dimensions of {x} but for axis {axis}"))?;
    same("the result", result, &x.with_dims(&indices.dims))
}
