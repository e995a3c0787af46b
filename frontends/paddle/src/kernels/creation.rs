//! Kernels that make tensors of one value or of given values.

use super::copy::fill;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Scalar, Tensor};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_every("full", full);
    table.add_every("full_like", full_like).output_as_inferred(0);
    table.add_every("fill", fill_in_place);
    table.add_every("assign_value", assign_value);
}

fn full(context: &Context, shape: IntArray, value: Scalar, data_type: DataType, out: Output) -> Result<()> {
    out.set_dims(&dims_of(&shape)?);
    fill_with(context, &value, data_type, &out)
}

fn full_like(context: &Context, x: Tensor, value: Scalar, data_type: DataType, out: Output) -> Result<()> {
    let data_type = if data_type.is_undefined() { x.data_type() } else { data_type };
    fill_with(context, &value, data_type, &out)
}

fn fill_in_place(context: &Context, x: Tensor, value: Scalar, out: Output) -> Result<()> {
    fill_with(context, &value, x.data_type(), &out)
}

fn fill_with(context: &Context, value: &Scalar, data_type: DataType, out: &Output) -> Result<()> {
    let data_type = if data_type.is_undefined() { out.data_type() } else { data_type };
    let element = value.element(data_type)?;
    let address = context.allocate_any(out, data_type);
    fill(context, "full", &element[..data_type.size()], address, &out.shape())
}

/// The values of a constant in a program, given one by one.
fn assign_value(
    context: &Context,
    shape: Vec<i32>,
    data_type: DataType,
    values: Vec<Scalar>,
    out: Output,
) -> Result<()> {
    let dims: Vec<i64> = shape.iter().map(|&size| i64::from(size)).collect();
    out.set_dims(&dims_of(&dims)?);
    let data_type = if data_type.is_undefined() { out.data_type() } else { data_type };
    let mut bytes = Vec::with_capacity(values.len() * data_type.size());
    for value in &values {
        bytes.extend_from_slice(&value.element(data_type)?[..data_type.size()]);
    }
    let address = context.allocate_any(&out, data_type);
    let elements = out.shape().iter().product::<usize>();
    if elements != values.len() {
        let (got, expected) = (format!("{} values", values.len()), format!("{elements} for shape {dims:?}"));
        return Err(Error::Attribute { attribute: "values", got, expected });
    }
    if !bytes.is_empty() {
        context.queue().write(address, &bytes)?;
    }
    Ok(())
}

fn dims_of(shape: &[i64]) -> Result<Vec<usize>> {
    let bad =
        |_| Error::Attribute { attribute: "shape", got: format!("{shape:?}"), expected: "no negative size".to_owned() };
    shape.iter().map(|&size| usize::try_from(size).map_err(bad)).collect()
}
