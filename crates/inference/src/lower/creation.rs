//! Values that are made rather than computed: constants, shapes, ranges.

use super::{Lowering, Table, Value, number_of, size_of, sizes_of, value, wrong};
use crate::error::Result;
use crate::program::{Attribute, Operation};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::full::Full;
use openmps::operators::operators::sequence::{Arange, OneHot};
use openmps::operators::view::shape_of;

pub(super) const TABLE: Table = &[
    ("full", full),
    ("full_int_array", full_int_array),
    ("full_like", full_like),
    ("zeros_like", full_like),
    ("ones_like", ones_like),
    ("full_with_tensor", full_with_tensor),
    ("full_batch_size_like", full_batch_size_like),
    ("assign_value", assign_value),
    ("shape", shape),
    ("shape64", shape),
    ("numel", numel),
    ("arange", arange),
    ("one_hot", one_hot),
];

impl Lowering<'_> {
    /// A tensor of one value: known where it is small.
    pub(super) fn filled(&mut self, shape: &[usize], dtype: DataType, number: f64) -> Result<Value> {
        let dims = shape_of(shape)?;
        let count: usize = dims.iter().product();
        if count <= value::LARGEST {
            return Ok(Value::Known(value::rounded(Array::new(&dims, vec![number; count], dtype))));
        }
        self.one(Full { dims, dtype, value: number_of(dtype, number) }, &[])
    }

    /// A number that broadcasts, of a value's type.
    pub(super) fn number_like(&mut self, x: &Value, number: f64) -> Result<Value> {
        self.filled(&[], self.data_type(x)?, number)
    }
}

/// Today's form has the shape as an attribute, the legacy one as an input or an attribute, and its value perhaps as a text.
fn full(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let dims = lowering.integers(operation, 0, "shape")?.unwrap_or_default();
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    let as_text = operation.text("str_value", "")?;
    let number = match as_text.parse::<f64>() {
        Ok(number) if lowering.optional(operation, 1)?.is_none() => number,
        _ => lowering.number(operation, 1, "value", 0.0)?,
    };
    Ok(vec![lowering.filled(&sizes_of(operation, dims)?, dtype, number)?])
}

fn full_int_array(_: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let numbers = operation.integers("value")?.unwrap_or_default();
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::I64);
    let data: Vec<f64> = numbers.into_iter().map(|number| number as f64).collect();
    Ok(vec![Value::Known(Array::new(&[data.len()], data, dtype))])
}

fn like(lowering: &mut Lowering, operation: &Operation, number: f64) -> Result<Vec<Value>> {
    let meta = lowering.meta(&lowering.input(operation, 0)?)?;
    let dtype = operation.data_type("dtype")?.unwrap_or(meta.dtype);
    Ok(vec![lowering.filled(&meta.shape, dtype, number)?])
}

fn full_like(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let number = lowering.number(operation, 1, "value", 0.0)?;
    like(lowering, operation, number)
}

fn ones_like(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    like(lowering, operation, 1.0)
}

/// Value and shape are inputs.
fn full_with_tensor(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let number = lowering.number(operation, 0, "value", 0.0)?;
    let dims = lowering.integers(operation, 1, "shape")?.unwrap_or_default();
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    Ok(vec![lowering.filled(&sizes_of(operation, dims)?, dtype, number)?])
}

fn full_batch_size_like(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.shape(&lowering.input(operation, 0)?)?;
    let mut dims = operation.integers("shape")?.unwrap_or_default();
    let [from, to] = ["input_dim_idx", "output_dim_idx"].map(|name| operation.integer(name, 0));
    let (from, to) = (size_of(operation, from?)?, size_of(operation, to?)?);
    match (x.get(from), dims.get_mut(to)) {
        (Some(&size), Some(dim)) => *dim = size as i64,
        _ => return Err(wrong(operation, format!("dimension {from} of {x:?} as dimension {to} of {dims:?}"))),
    }
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    let number = operation.float("value", 0.0)?;
    Ok(vec![lowering.filled(&sizes_of(operation, dims)?, dtype, number)?])
}

fn assign_value(_: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let dims = sizes_of(operation, operation.integers("shape")?.unwrap_or_default())?;
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    let data = numbers_in(operation);
    Ok(vec![Value::Known(value::rounded(value::listed(operation, &dims, data, dtype)?))])
}

/// The numbers that an operation has among its attributes, of whose names the legacy format has one for each type.
pub(super) fn numbers_in(operation: &Operation) -> Vec<f64> {
    let filled = |name: &str| match operation.attributes.get(name) {
        Some(Attribute::Integers(values)) if !values.is_empty() => {
            Some(values.iter().map(|&value| value as f64).collect::<Vec<_>>())
        }
        Some(Attribute::Floats(values)) if !values.is_empty() => Some(values.clone()),
        _ => None,
    };
    let names = ["values", "fp32_values", "int32_values", "int64_values", "bool_values", "fp64_values"];
    names.into_iter().find_map(filled).unwrap_or_default()
}

fn shape(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let shape = lowering.shape(&lowering.input(operation, 0)?)?;
    let dtype = if operation.name == "shape64" { DataType::I64 } else { DataType::I32 };
    let data: Vec<f64> = shape.iter().map(|&size| size as f64).collect();
    Ok(vec![Value::Known(Array::new(&[data.len()], data, dtype))])
}

fn numel(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let count: usize = lowering.shape(&lowering.input(operation, 0)?)?.iter().product();
    Ok(vec![Value::Known(Array::new(&[], vec![count as f64], DataType::I64))])
}

fn arange(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [start, end, step] = [(0, "start", 0.0), (1, "end", 0.0), (2, "step", 1.0)]
        .map(|(at, name, default)| lowering.number(operation, at, name, default));
    let (start, end, step) = (start?, end?, step?);
    let dtype = match operation.data_type("dtype")? {
        Some(dtype) => dtype,
        None => lowering.data_type(&lowering.input(operation, 0)?)?,
    };
    if step == 0.0 || !(end - start).is_finite() {
        return Err(wrong(operation, format!("from {start} to {end} in steps of {step}")));
    }
    // Paddle counts in the numbers' own type, halves in float32: three steps of 0.1 lead to 0.3.
    let count = match dtype {
        DataType::F32 | DataType::F16 | DataType::BF16 => f64::from((end as f32 - start as f32) / step as f32),
        _ => (end - start) / step,
    };
    let len = count.ceil().max(0.0) as usize;
    if len <= value::LARGEST {
        let data = (0..len).map(|i| start + i as f64 * step).collect();
        return Ok(vec![Value::Known(value::rounded(Array::new(&[len], data, dtype)))]);
    }
    let [start, step] = [start, step].map(|value| number_of(dtype, value));
    Ok(vec![lowering.one(Arange { start, step, len, dtype }, &[])?])
}

fn one_hot(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let classes = lowering.number(operation, 1, "depth", -1.0)?;
    let classes = size_of(operation, classes as i64)?;
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    Ok(vec![lowering.one(OneHot { classes, dtype }, &[x])?])
}
