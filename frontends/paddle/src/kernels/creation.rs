//! Kernels that make tensors of one value or of given values, of every type.

use crate::error::{Error, Result};
use crate::scalar::dims_of;
use crate::table::Table;
use crate::{Context, DataType, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Elementwise, Unary, run};
use openmps_graph::operators::full::Full;
use openmps_graph::{Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_every("full", full);
    table.add_every("full_like", full_like).output_as_inferred(0);
    table.add("full_with_tensor", dtype::ALL, full_with_tensor).output_as_inferred(0);
    table.add_every("full_int_array", full_int_array).output_as_inferred(0);
    table.add_every("full_batch_size_like", full_batch_size_like).output_as_inferred(0);
    table.add_every("fill", fill_in_place);
    table.add_every("assign_value", assign_value);
}

fn full(context: &Context, shape: IntArray, value: Scalar, data_type: DataType, out: Output) -> Result<()> {
    out.set_dims(&shape.dims()?);
    fill(context, &value, data_type, &out)
}

fn full_like(context: &Context, x: Tensor, value: Scalar, data_type: DataType, out: Output) -> Result<()> {
    let data_type = if data_type.is_undefined() { x.data_type() } else { data_type };
    if let Ok(dtype) = data_type.dtype() {
        let (lowest, highest) = dtype.bounds();
        if value.f64() < lowest || value.f64() > highest {
            let (got, expected) = (value.f64().to_string(), format!("a number of {dtype}, {lowest} to {highest}"));
            return Err(Error::Attribute { attribute: "value", got, expected });
        }
    }
    fill(context, &value, data_type, &out)
}

/// A tensor of one value that is itself a tensor.
fn full_with_tensor(context: &Context, value: Tensor, shape: IntArray, data_type: DataType, out: Output) -> Result<()> {
    out.set_dims(&shape.dims()?);
    let from = value.view()?;
    if from.len() != 1 {
        let (got, expected) = (format!("a tensor of shape {:?}", from.shape), "one element".to_owned());
        return Err(Error::Attribute { attribute: "value", got, expected });
    }
    let to = context.allocate(&out, data_type.or(from.dtype)?)?;
    let from = View { shape: to.shape.clone(), strides: to.shape.iter().map(|_| 0).collect(), ..from };
    run(Elementwise::Unary(Unary::Cast), context.queue(), &[&from], &[], &to)?;
    Ok(())
}

/// A list of integers as a tensor, in a program.
fn full_int_array(context: &Context, values: Vec<i64>, data_type: DataType, out: Output) -> Result<()> {
    out.set_dims(&[values.len()]);
    let size = data_type.size();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(size)).collect();
    write(context, &bytes, data_type, &out)
}

/// The shape of `shape`, but for one dimension, which is one of `x`.
fn full_batch_size_like(
    context: &Context,
    x: Tensor,
    shape: Vec<i32>,
    value: Scalar,
    data_type: DataType,
    from: i32,
    to: i32,
    out: Output,
) -> Result<()> {
    let mut shape: Vec<i64> = shape.into_iter().map(i64::from).collect();
    let sizes = x.shape();
    if let (Some(size), Some(place)) = (sizes.get(from as usize), shape.get_mut(to as usize)) {
        *place = *size as i64;
    }
    out.set_dims(&dims_of(&shape)?);
    fill(context, &value, data_type, &out)
}

fn fill_in_place(context: &Context, x: Tensor, value: Scalar, out: Output) -> Result<()> {
    fill(context, &value, x.data_type(), &out)
}

/// Fills a new tensor, whose elements are written as integers of the same width: any type will do.
fn fill(context: &Context, value: &Scalar, data_type: DataType, out: &Output) -> Result<()> {
    let data_type = if data_type.is_undefined() { out.data_type() } else { data_type };
    let element = value.element(data_type)?;
    let word = |at: usize| i64::from_ne_bytes(std::array::from_fn(|byte| element[at + byte]));
    let view = context.allocate_bytes(out, data_type)?;
    if data_type.size() == 16 {
        // Pairs of numbers in a last dimension of their own.
        let mut half = view.clone();
        half.shape.pop();
        half.strides.pop();
        fill_with(context, word(0), half.clone())?;
        return fill_with(context, word(8), View { address: half.address + 8, ..half });
    }
    fill_with(context, word(0), view)
}

fn fill_with(context: &Context, value: i64, view: View) -> Result<()> {
    let full = Full { dims: view.shape.clone(), dtype: view.dtype, value: Number::Integer(value) };
    full.run(context.queue(), &[], &[view])?;
    Ok(())
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
    write(context, &bytes, data_type, &out)
}

/// Allocates a tensor and writes its bytes.
fn write(context: &Context, bytes: &[u8], data_type: DataType, out: &Output) -> Result<()> {
    let view = context.allocate_bytes(out, data_type)?;
    let expected = view.len() * view.dtype.size();
    if bytes.len() != expected {
        let got = format!("{} bytes of {}", bytes.len(), data_type.name());
        return Err(Error::Attribute {
            attribute: "values",
            got,
            expected: format!("{expected} for {:?}", out.shape()),
        });
    }
    if !bytes.is_empty() {
        context.queue().write(&view, bytes)?;
    }
    Ok(())
}
