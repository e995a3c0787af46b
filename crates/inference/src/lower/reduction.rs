//! Reductions, softmax, scans and choices along an axis.

use super::{Lowering, Table, Value, size_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::arg_reduce::ArgReduce;
use openmps::operators::operators::reduce::{Reduce, Reduction};
use openmps::operators::operators::scan::{Kind, Scan};
use openmps::operators::operators::softmax::Softmax;
use openmps::operators::operators::sort::{Sort, TopK};
use std::slice::from_ref;

pub(super) const TABLE: Table = &[
    ("sum", |lowering, operation| reduce(lowering, operation, Reduction::Sum)),
    ("mean", |lowering, operation| reduce(lowering, operation, Reduction::Mean)),
    ("max", |lowering, operation| reduce(lowering, operation, Reduction::Maximum)),
    ("min", |lowering, operation| reduce(lowering, operation, Reduction::Minimum)),
    ("amax", |lowering, operation| reduce(lowering, operation, Reduction::Maximum)),
    ("amin", |lowering, operation| reduce(lowering, operation, Reduction::Minimum)),
    ("prod", |lowering, operation| reduce(lowering, operation, Reduction::Product)),
    ("all", |lowering, operation| reduce(lowering, operation, Reduction::All)),
    ("any", |lowering, operation| reduce(lowering, operation, Reduction::Any)),
    ("mean_all", |lowering, operation| reduce(lowering, operation, Reduction::Mean)),
    ("softmax", |lowering, operation| softmax(lowering, operation, false)),
    ("log_softmax", |lowering, operation| softmax(lowering, operation, true)),
    ("argmax", |lowering, operation| extreme(lowering, operation, true)),
    ("argmin", |lowering, operation| extreme(lowering, operation, false)),
    ("topk", top_k),
    ("argsort", sort),
    ("cumsum", cumulative_sum),
];

impl Lowering<'_> {
    pub(super) fn reduce(&mut self, reduction: Reduction, x: &Value, axes: &[i64], keep_dims: bool) -> Result<Value> {
        self.one(Reduce { reduction, axes: axes.to_vec(), keep_dims, output: None }, from_ref(x))
    }
}

fn reduce(lowering: &mut Lowering, operation: &Operation, reduction: Reduction) -> Result<Vec<Value>> {
    let mut x = lowering.input(operation, 0)?;
    let all = operation.flag("reduce_all", false)?;
    // `prod` has its axes second and an attribute third, the others alike; some have them as attributes only.
    let axes = if all { Vec::new() } else { lowering.integers(operation, 1, "axis")?.unwrap_or_default() };
    let keep_dims = operation.flag("keepdim", false)?;
    let asked = operation.data_type("dtype")?;
    if let Some(dtype) = asked {
        x = lowering.cast(&x, dtype)?;
    }
    // Only sums of booleans and of int32 become wider where nothing is asked for.
    let dtype = lowering.data_type(&x)?;
    let widens = asked.is_none() && reduction == Reduction::Sum && matches!(dtype, DataType::Bool | DataType::I32);
    let output = (!widens && matches!(reduction, Reduction::Sum | Reduction::Product)).then_some(dtype);
    Ok(vec![lowering.one(Reduce { reduction, axes, keep_dims, output }, &[x])?])
}

fn softmax(lowering: &mut Lowering, operation: &Operation, logarithm: bool) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.one(Softmax { axis: operation.integer("axis", -1)?, logarithm }, &[x])?])
}

fn extreme(lowering: &mut Lowering, operation: &Operation, largest: bool) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.number(operation, 1, "axis", -1.0)? as i64;
    let axis = (!operation.flag("flatten", false)?).then_some(axis);
    let keep_dims = operation.flag("keepdims", false)?;
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::I64);
    Ok(vec![lowering.one(ArgReduce { largest, axis, keep_dims, dtype }, &[x])?])
}

fn top_k(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let k = lowering.number(operation, 1, "k", 1.0)?;
    let k = size_of(operation, k as i64)?;
    let (axis, largest) = (operation.integer("axis", -1)?, operation.flag("largest", true)?);
    lowering.apply(TopK { k, axis, largest }, &[x])
}

fn sort(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let (axis, descending) = (operation.integer("axis", -1)?, operation.flag("descending", false)?);
    lowering.apply(Sort { axis, descending }, &[x])
}

fn cumulative_sum(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.number(operation, 1, "axis", -1.0)? as i64;
    let scan = Scan {
        kind: Kind::Sum,
        axis: (!operation.flag("flatten", false)?).then_some(axis),
        exclusive: operation.flag("exclusive", false)?,
        reverse: operation.flag("reverse", false)?,
    };
    let sum = lowering.one(scan, &[x]).map_err(|error| wrong(operation, error.to_string()))?;
    Ok(vec![sum])
}
