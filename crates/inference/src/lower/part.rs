//! Parts of tensors along some axes: read, and written.

use super::creation::numbers_in;
use super::{Lowering, Table, Value, axes_of, value, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::operators::slice::{Range, SetSlice, Slice};
use std::slice::from_ref;

pub(super) const TABLE: Table = &[
    ("slice", slice),
    ("strided_slice", strided_slice),
    ("set_value", |lowering, operation| set_value(lowering, operation, None, 1)),
    ("set_value_with_tensor", |lowering, operation| set_value(lowering, operation, Some(1), 2)),
    ("legacy_set_value", legacy_set_value),
];

fn slice(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axes = operation.integers("axes")?.unwrap_or_default();
    let starts = lowering.integers(operation, 1, "starts")?.unwrap_or_default();
    let mut ends = lowering.integers(operation, 2, "ends")?.unwrap_or_default();
    let gone = operation.integers("decrease_axis")?;
    // Of an axis that goes, -1 is the last element: the end is one more, and would be the first one.
    for ((axis, start), end) in axes.iter().zip(&starts).zip(&mut ends) {
        if (*start, *end) == (-1, 0) && gone.as_ref().is_some_and(|gone| gone.contains(axis)) {
            *end = i64::MAX;
        }
    }
    let ranges = ranges(operation, &axes, &starts, &ends, &vec![1; axes.len()])?;
    part(lowering, operation, &x, ranges)
}

/// These ranges of `x`, without the axes of `decrease_axis`.
fn part(lowering: &mut Lowering, operation: &Operation, x: &Value, ranges: Vec<Range>) -> Result<Vec<Value>> {
    let part = lowering.one(Slice { ranges }, from_ref(x))?;
    let gone = axes_of(operation, operation.integers("decrease_axis")?, lowering.shape(x)?.len())?;
    Ok(vec![lowering.without(&part, &gone)?])
}

fn ranges(operation: &Operation, axes: &[i64], starts: &[i64], ends: &[i64], steps: &[i64]) -> Result<Vec<Range>> {
    if [starts.len(), ends.len(), steps.len()] != [axes.len(); 3] {
        return Err(wrong(operation, format!("axes {axes:?} from {starts:?} to {ends:?} in steps of {steps:?}")));
    }
    let range = |at: usize| Range { axis: axes[at], start: starts[at], end: ends[at], step: steps[at] };
    Ok((0..axes.len()).map(range).collect())
}

/// Ranges whose starts, ends and steps are inputs from `at` on, or attributes.
fn stepped(lowering: &mut Lowering, operation: &Operation, at: usize, steps: &str) -> Result<Vec<Range>> {
    let axes = operation.integers("axes")?.unwrap_or_default();
    let mut bound = |at, name| Ok::<_, crate::Error>(lowering.integers(operation, at, name)?.unwrap_or_default());
    let (starts, ends, steps) = (bound(at, "starts")?, bound(at + 1, "ends")?, bound(at + 2, steps)?);
    ranges(operation, &axes, &starts, &ends, &steps)
}

fn strided_slice(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let ranges = stepped(lowering, operation, 1, "strides")?;
    part(lowering, operation, &x, ranges)
}

/// The legacy form has the value as an input or as attributes.
fn legacy_set_value(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let value_at = lowering.optional(operation, 1)?.map(|_| 1);
    set_value(lowering, operation, value_at, 2)
}

/// `x[starts:ends:steps, ..] = value`. The value is an input, or numbers in attributes; the bounds are inputs from `bounds_at` on.
fn set_value(
    lowering: &mut Lowering,
    operation: &Operation,
    value_at: Option<usize>,
    bounds_at: usize,
) -> Result<Vec<Value>> {
    if operation.integers("none_axes")?.is_some_and(|axes| !axes.is_empty()) {
        return Err(wrong(operation, "new axes among the indices"));
    }
    let ranges = stepped(lowering, operation, bounds_at, "steps")?;
    let x = lowering.input(operation, 0)?;
    let dtype = lowering.data_type(&x)?;
    let value = match value_at {
        Some(at) => lowering.input(operation, at)?,
        None => {
            let numbers = numbers_in(operation);
            let dims = super::sizes_of(operation, operation.integers("shape")?.unwrap_or_default())?;
            Value::Known(value::listed(operation, &dims, numbers, dtype)?)
        }
    };
    let value = lowering.cast(&value, dtype)?;
    let value = lowering.with_axes(operation, &value, &x)?;
    Ok(vec![lowering.one(SetSlice { ranges }, &[x, value])?])
}

impl Lowering<'_> {
    /// A value for a part of `x` without its `decrease_axes`, with these axes of size 1.
    fn with_axes(&mut self, operation: &Operation, value: &Value, x: &Value) -> Result<Value> {
        let rank = self.shape(x)?.len();
        let mut gone = axes_of(operation, operation.integers("decrease_axes")?, rank)?;
        gone.sort_unstable();
        let mut shape = self.shape(value)?;
        while shape.len() + gone.len() < rank {
            shape.insert(0, 1);
        }
        for axis in gone {
            if shape.len() < rank {
                shape.insert(axis.min(shape.len()), 1);
            }
        }
        self.reshape(value, &shape)
    }
}
