//! Values on the way, and what is computed of known ones at once.

use super::wrong;
use crate::course::Origin;
use crate::error::{Error, Result};
use crate::program::Operation;
use openmps::graph::Tensor;
use openmps::operators::operators::concat::{Concat, Split, Stack};
use openmps::operators::operators::elementwise::Call;
use openmps::operators::operators::expand::{Expand, Tile};
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::reduce::Reduce;
use openmps::operators::operators::slice::Slice;
use openmps::operators::operators::transpose::Transpose;
use openmps::operators::view::shape_of;
use openmps::operators::{Array, Meta, Operator};
use openmps::{DataType, Graph, TensorData, bf16, f16};
use std::any::Any;
use std::collections::HashMap;

/// What a value of the program is at this place.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A value of the graph.
    Tensor(Tensor),
    /// Small, and known now.
    Known(Array),
    /// The parameter of this number.
    Weight(usize),
    /// In memory: an input of the program, or computed by a graph before this one.
    Held(Held),
    /// Several values.
    List(Vec<Value>),
}

/// A tensor in memory, and where the run has it from.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) tensor: TensorData,
    pub(crate) origin: Origin,
}

impl Value {
    /// Adds the tensors of the graph that this is made of.
    pub(super) fn collect(&self, tensors: &mut Vec<Tensor>) {
        match self {
            Value::Tensor(tensor) if !tensors.contains(tensor) => tensors.push(*tensor),
            Value::List(members) => members.iter().for_each(|member| member.collect(tensors)),
            _ => {}
        }
    }

    /// The value after these tensors were computed.
    pub(super) fn now(mut self, held: &HashMap<Tensor, Held>) -> Value {
        self.hold(held);
        self
    }

    /// Replaces tensors of the graph by what they were computed to.
    pub(super) fn hold(&mut self, held: &HashMap<Tensor, Held>) {
        match self {
            Value::Tensor(tensor) => {
                if let Some(held) = held.get(tensor) {
                    *self = Value::Held(held.clone());
                }
            }
            Value::List(members) => members.iter_mut().for_each(|member| member.hold(held)),
            _ => {}
        }
    }
}

/// Elements of a known value at most.
pub(super) const LARGEST: usize = 1024;

/// Numbers that a program lists, with the shape that it gives them.
pub(super) fn listed(operation: &Operation, dims: &[usize], data: Vec<f64>, dtype: DataType) -> Result<Array> {
    let shape = shape_of(dims)?;
    if shape.iter().product::<usize>() != data.len() {
        return Err(wrong(operation, format!("{} values for a shape of {dims:?}", data.len())));
    }
    Ok(Array { shape, data, dtype })
}

/// The outputs of an operator on known inputs, where it is one that shapes are computed with.
pub(super) fn evaluate(operator: &impl Operator, inputs: &[Value]) -> Result<Option<Vec<Array>>> {
    let known = |value: &Value| if let Value::Known(array) = value { Some(array.clone()) } else { None };
    let Some(inputs) = inputs.iter().map(known).collect::<Option<Vec<Array>>>() else { return Ok(None) };
    if inputs.is_empty() || !is_of_shapes(operator) {
        return Ok(None);
    }
    let metas: Vec<Meta> = inputs.iter().map(|x| Meta { dtype: x.dtype, shape: x.shape.clone() }).collect();
    let outputs = operator.infer(&metas)?;
    // An index outside is the run's to refuse.
    if (operator as &dyn Any).downcast_ref::<Gather>().is_some_and(|gather| !finds_all(gather, &inputs)) {
        return Ok(None);
    }
    if outputs.iter().any(|meta| meta.shape.iter().product::<usize>() > LARGEST) {
        return Ok(None);
    }
    let results = operator.reference(&inputs);
    // What wraps is computed in the run, in integers.
    let is_exact = |array: &Array| array.data.iter().all(|&value| fits(array.dtype, value));
    Ok(results.iter().all(is_exact).then(|| results.into_iter().map(rounded).collect()))
}

/// Whether all indices are of the axis, from its beginning or from its end.
fn finds_all(gather: &Gather, inputs: &[Array]) -> bool {
    let [x, index] = inputs else { return false };
    let axis = gather.axis.rem_euclid(x.shape.len().max(1) as i64) as usize;
    let size = x.shape.get(axis).map_or(0.0, |&size| size as f64);
    index.data.iter().all(|&index| (-size..size).contains(&index))
}

/// Whether an element type has this number of a reference, which computes in float64, but for rounding.
fn fits(dtype: DataType, value: f64) -> bool {
    /// Above it float64 leaves integers out.
    const EXACT: f64 = (1_u64 << 53) as f64;
    let (least, most) = dtype.bounds();
    dtype.is_float() || dtype == DataType::Bool || (least.max(-EXACT)..=most.min(EXACT)).contains(&value.trunc())
}

fn is_of_shapes(operator: &dyn Any) -> bool {
    operator.is::<Call>()
        || operator.is::<Gather>()
        || operator.is::<Slice>()
        || operator.is::<Concat>()
        || operator.is::<Stack>()
        || operator.is::<Split>()
        || operator.is::<Expand>()
        || operator.is::<Tile>()
        || operator.is::<Reduce>()
        || operator.is::<Transpose>()
}

/// References compute in float64: the numbers as the element type has them.
pub(super) fn rounded(mut array: Array) -> Array {
    let round = |value: f64| match array.dtype {
        DataType::Bool => f64::from(u8::from(value != 0.0)),
        DataType::F32 => f64::from(value as f32),
        DataType::F16 => f16::from_f64(value).to_f64(),
        DataType::BF16 => bf16::from_f64(value).to_f64(),
        DataType::F64 => value,
        _ => value.trunc(),
    };
    array.data.iter_mut().for_each(|value| *value = round(*value));
    array
}

/// A known value as a constant of a graph.
pub(super) fn constant(graph: &mut Graph, array: &Array) -> Result<Tensor> {
    macro_rules! of {
        ($type:ty, $convert:expr) => {{
            let values: Vec<$type> = array.data.iter().map($convert).collect();
            graph.constant(&array.shape, &values)?
        }};
    }
    Ok(match array.dtype {
        DataType::Bool => {
            let bytes = of!(u8, |&value| u8::from(value != 0.0));
            graph.cast(bytes, DataType::Bool)?
        }
        DataType::U8 => of!(u8, |&value| value as u8),
        DataType::I8 => of!(i8, |&value| value as i8),
        DataType::U16 => of!(u16, |&value| value as u16),
        DataType::U32 => of!(u32, |&value| value as u32),
        DataType::U64 => of!(u64, |&value| value as u64),
        DataType::I16 => of!(i16, |&value| value as i16),
        DataType::I32 => of!(i32, |&value| value as i32),
        DataType::I64 => of!(i64, |&value| value as i64),
        DataType::F16 => of!(f16, |&value| f16::from_f64(value)),
        DataType::BF16 => of!(bf16, |&value| bf16::from_f64(value)),
        DataType::F32 => of!(f32, |&value| value as f32),
        DataType::F64 => of!(f64, |&value| value),
    })
}

/// Elements that are read from a tensor at most: what a program reads are sizes, axes, counts and scales.
const MOST_READ: usize = 1 << 20;

/// A tensor's elements.
pub(crate) fn read(tensor: &TensorData) -> Result<Array> {
    let count: usize = tensor.shape().iter().product();
    if count > MOST_READ {
        return Err(Error::program(format!(
            "it needs the values of a tensor of {count} elements: {MOST_READ} at most"
        )));
    }
    let data: Vec<f64> = match tensor.data_type() {
        DataType::Bool | DataType::U8 => tensor.bytes()?.into_iter().map(f64::from).collect(),
        DataType::I8 => tensor.read::<i8>()?.into_iter().map(f64::from).collect(),
        DataType::U16 => tensor.read::<u16>()?.into_iter().map(f64::from).collect(),
        DataType::U32 => tensor.read::<u32>()?.into_iter().map(f64::from).collect(),
        DataType::U64 => tensor.read::<u64>()?.into_iter().map(|value| value as f64).collect(),
        DataType::I16 => tensor.read::<i16>()?.into_iter().map(f64::from).collect(),
        DataType::I32 => tensor.read::<i32>()?.into_iter().map(f64::from).collect(),
        DataType::I64 => tensor.read::<i64>()?.into_iter().map(|value| value as f64).collect(),
        DataType::F16 => tensor.read::<f16>()?.into_iter().map(|value| value.to_f64()).collect(),
        DataType::BF16 => tensor.read::<bf16>()?.into_iter().map(|value| value.to_f64()).collect(),
        DataType::F32 => tensor.read::<f32>()?.into_iter().map(f64::from).collect(),
        DataType::F64 => tensor.read::<f64>()?,
    };
    Ok(Array::new(tensor.shape(), data, tensor.data_type()))
}
