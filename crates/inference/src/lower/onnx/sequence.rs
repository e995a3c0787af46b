//! Lists of tensors.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, sizes_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::concat::Stack;

pub(super) const TABLE: Table = &[
    ("SequenceEmpty", |_, _| Ok(vec![Value::List(Vec::new())])),
    ("SequenceConstruct", |lowering, operation| Ok(vec![Value::List(lowering.inputs(operation)?)])),
    ("SequenceAt", at),
    ("SequenceInsert", insert),
    ("SequenceErase", erase),
    ("SequenceLength", length),
    ("SplitToSequence", split),
    ("ConcatFromSequence", concat),
    ("Optional", optional),
    ("OptionalHasElement", is_there),
    ("OptionalGetElement", |lowering, operation| Ok(vec![lowering.input(operation, 0)?])),
];

/// A value that may be missing: what is missing is not made at all.
fn optional(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(lowering.optional(operation, 0)?.into_iter().collect())
}

fn is_there(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let id = operation.inputs.first().copied().flatten();
    let is_there = id.is_some_and(|id| lowering.value_of(id, "an optional value").is_ok());
    Ok(vec![Value::Known(Array::new(&[], vec![f64::from(u8::from(is_there))], DataType::Bool))])
}

/// A place in a list, counted from its end where negative; `default` where there is none.
fn place(
    lowering: &mut Lowering,
    operation: &Operation,
    input: usize,
    length: usize,
    default: Option<usize>,
) -> Result<usize> {
    let Some(asked) = lowering.number_at(operation, input)? else {
        return default.ok_or_else(|| wrong(operation, "an empty list"));
    };
    let place = if asked < 0.0 { asked + length as f64 } else { asked };
    let most = if default == Some(length) { length } else { length.saturating_sub(1) };
    if place < 0.0 || place > most as f64 {
        return Err(wrong(operation, format!("place {asked} of {length}")));
    }
    Ok(place as usize)
}

fn at(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let at = place(lowering, operation, 1, members.len(), None)?;
    Ok(vec![members.into_iter().nth(at).ok_or_else(|| wrong(operation, "an empty list"))?])
}

fn insert(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (mut members, member) = (lowering.list(operation, 0)?, lowering.input(operation, 1)?);
    let at = place(lowering, operation, 2, members.len(), Some(members.len()))?;
    members.insert(at, member);
    Ok(vec![Value::List(members)])
}

fn erase(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut members = lowering.list(operation, 0)?;
    let at = place(lowering, operation, 1, members.len(), members.len().checked_sub(1))?;
    if at >= members.len() {
        return Err(wrong(operation, "an empty list"));
    }
    members.remove(at);
    Ok(vec![Value::List(members)])
}

fn length(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let length = lowering.list(operation, 0)?.len() as f64;
    Ok(vec![Value::Known(Array::new(&[], vec![length], DataType::I64))])
}

/// Parts of given sizes, or slices, which lose the axis unless it is kept.
fn split(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.axis(operation, &x, 0)?;
    let size = *lowering.shape(&x)?.get(axis).ok_or_else(|| wrong(operation, "a tensor without dimensions"))?;
    let Some(sizes) = lowering.optional(operation, 1)? else {
        let mut slices = lowering.split(&x, axis, &vec![1; size])?;
        if !operation.flag("keepdims", true)? {
            slices = slices.iter().map(|slice| lowering.without(slice, &[axis])).collect::<Result<_>>()?;
        }
        return Ok(vec![Value::List(slices)]);
    };
    let is_number = lowering.shape(&sizes)?.is_empty();
    let sizes = lowering.known(&sizes)?.data.into_iter().map(|size| size as i64).collect::<Vec<_>>();
    let mut sizes = sizes_of(operation, sizes)?;
    if let (true, [each]) = (is_number, &sizes[..]) {
        let each = (*each).max(1);
        sizes = (0..size.div_ceil(each)).map(|at| each.min(size - at * each)).collect();
    }
    Ok(vec![Value::List(lowering.split(&x, axis, &sizes)?)])
}

fn concat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let axis = operation.integer("axis", 0)?;
    if operation.flag("new_axis", false)? {
        return Ok(vec![lowering.one(Stack { axis }, &members)?]);
    }
    let first = members.first().ok_or_else(|| wrong(operation, "an empty list"))?;
    let axis = lowering.axis(operation, first, 0)?;
    Ok(vec![lowering.concat(&members, axis)?])
}
