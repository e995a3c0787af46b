//! Shape and type rules of reading and writing by index.

use super::{TensorType, check, check_axes, check_same_type};
use crate::error::{Error, Result};
use openmps_tile::DType;

pub fn check_index(operation: &'static str, indices: &TensorType) -> Result<()> {
    let fits = matches!(indices.dtype, DType::I32 | DType::I64);
    if fits { Ok(()) } else { Err(Error::Type { operation, dtype: indices.dtype, engine: "MPSGraph" }) }
}

/// Indices of one element each: lengths are those of the data but along the axis.
pub fn check_along(name: &'static str, data: &TensorType, indices: &TensorType, axis: usize) -> Result<()> {
    check_axes(name, &[axis], data.shape.len())?;
    check_index(name, indices)?;
    let others = |shape: &[usize]| [&shape[..axis], &shape[axis + 1..]].concat();
    let fits = data.shape.len() == indices.shape.len() && others(&data.shape) == others(&indices.shape);
    check(fits, name, || format!("{:?} and {:?} differ in more than axis {axis}", data.shape, indices.shape))
}

/// The shape of the slices that tuples of indices name.
pub fn of_tuples(name: &'static str, data: &TensorType, indices: &TensorType) -> Result<Vec<usize>> {
    check_index(name, indices)?;
    let (width, leading) = match indices.shape.split_last() {
        Some((&width, leading)) if width > 0 && width <= data.shape.len() => (width, leading),
        _ => (0, &[][..]),
    };
    check(width > 0, name, || format!("{:?} are no tuples of indices of {:?}", indices.shape, data.shape))?;
    Ok([leading, &data.shape[width..]].concat())
}

pub fn scatter(name: &'static str, inputs: &[&TensorType], axis: usize) -> Result<TensorType> {
    let [data, indices, updates] = [inputs[0], inputs[1], inputs[2]];
    check_axes(name, &[axis], data.shape.len())?;
    check_index(name, indices)?;
    check(indices.shape.len() == 1, name, || format!("the indices {:?} are not one-dimensional", indices.shape))?;
    let expected = [&data.shape[..axis], &indices.shape, &data.shape[axis + 1..]].concat();
    check_updates(name, data, updates, &expected)
}

pub fn scatter_along(name: &'static str, inputs: &[&TensorType], axis: usize) -> Result<TensorType> {
    let [data, indices, updates] = [inputs[0], inputs[1], inputs[2]];
    check_along(name, data, indices, axis)?;
    check_updates(name, data, updates, &indices.shape)
}

pub fn scatter_tuples(name: &'static str, inputs: &[&TensorType]) -> Result<TensorType> {
    let [data, indices, updates] = [inputs[0], inputs[1], inputs[2]];
    let expected = of_tuples(name, data, indices)?;
    check_updates(name, data, updates, &expected)
}

fn check_updates(
    name: &'static str,
    data: &TensorType,
    updates: &TensorType,
    expected: &[usize],
) -> Result<TensorType> {
    check_same_type(name, &[data, updates])?;
    check(updates.shape == expected, name, || {
        format!("updates are {:?}, where {expected:?} is needed", updates.shape)
    })?;
    Ok(data.clone())
}
