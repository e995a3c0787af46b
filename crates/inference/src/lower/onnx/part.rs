//! Parts of tensors, and elements that indices name: read, and written.

use super::integers;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axis_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::expand::Expand;
use openmps::operators::operators::gather::{Gather, GatherNd, Negative, TakeAlongAxis};
use openmps::operators::operators::scatter::{PutAlongAxis, Reduce};
use openmps::operators::operators::slice::{Range, Slice};

pub(super) const TABLE: Table = &[
    ("Slice", slice),
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("ScatterElements", scatter_elements),
    ("Scatter", scatter_elements),
    ("ScatterND", scatter_nd),
    ("NonZero", nonzero),
    ("Compress", compress),
    ("TensorScatter", write_rows),
];

/// ONNX's bounds as Python's: what goes backwards begins at the first element at the least, and the largest integers are an end that is left open.
fn range(axis: usize, size: i64, [start, end, step]: [i64; 3]) -> Range {
    let axis = axis as i64;
    if step > 0 {
        return Range { axis, start, end, step };
    }
    let start = if start.saturating_add(size) < 0 { 0 } else { start };
    let end = if [i64::from(i32::MAX), i64::MAX].contains(&end) { i64::MIN } else { end };
    Range { axis, start, end, step }
}

fn slice(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let rank = shape.len() as i64;
    let starts = lowering.integers(operation, 1, "starts")?.unwrap_or_default();
    let ends = lowering.integers(operation, 2, "ends")?.unwrap_or_default();
    let axes = lowering.integers(operation, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = lowering.integers(operation, 4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(wrong(operation, format!("axes {axes:?} from {starts:?} to {ends:?} in steps of {steps:?}")));
    }
    let range = |at: usize| {
        let axis = axis_of(operation, axes[at], rank as usize)?;
        Ok(range(axis, shape[axis] as i64, [starts[at], ends[at], steps[at]]))
    };
    let ranges = (0..starts.len()).map(range).collect::<Result<_>>()?;
    Ok(vec![lowering.one(Slice { ranges }, &[x])?])
}

fn gather(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = lowering.axis(operation, &x, 0)?;
    Ok(vec![lowering.one(Gather { axis: axis as i64 }, &[x, index])?])
}

/// The part of `x` that indices of a smaller shape lie over.
fn gather_elements(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (mut x, index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = lowering.axis(operation, &x, 0)?;
    for (at, &size) in lowering.shape(&index)?.iter().enumerate() {
        if at != axis && lowering.shape(&x)?.get(at).is_some_and(|&own| size < own) {
            x = lowering.narrow(&x, at, 0, size)?;
        }
    }
    let take = TakeAlongAxis { axis: axis as i64, negative: Negative::FromEnd };
    Ok(vec![lowering.one(take, &[x, index])?])
}

/// The first dimensions of both are those of batches: each one's number goes before its tuples.
fn gather_nd(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, mut index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let batches = operation.integer("batch_dims", 0)?.max(0) as usize;
    let shape = lowering.shape(&index)?;
    if batches >= shape.len() {
        return Err(wrong(operation, format!("{batches} dimensions of batches of {shape:?}")));
    }
    for at in (0..batches).rev() {
        let number = integers(0..shape[at] as i64);
        let number = lowering.cast(&number, lowering.data_type(&index)?)?;
        let number = lowering.spread_along(&number, &index, at)?;
        let mut dims: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        dims[shape.len() - 1] = 1;
        let number = lowering.one(Expand { dims }, &[number])?;
        index = lowering.concat(&[number, index], shape.len() - 1)?;
    }
    Ok(vec![lowering.one(GatherNd, &[x, index])?])
}

fn reduction(operation: &Operation) -> Result<Reduce> {
    Ok(match operation.text("reduction", "none")? {
        "none" => Reduce::Assign,
        "add" => Reduce::Add,
        "mul" => Reduce::Multiply,
        "max" => Reduce::Maximum,
        "min" => Reduce::Minimum,
        other => return Err(wrong(operation, format!("the reduction {other:?}"))),
    })
}

fn scatter_elements(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [x, index, updates] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let (x, index, updates) = (x?, index?, updates?);
    let axis = lowering.axis(operation, &x, 0)?;
    let put = PutAlongAxis { axis: axis as i64, reduce: reduction(operation)?, include_self: true };
    Ok(vec![lowering.one(put, &[x, index, updates])?])
}

/// Tuples of indices name rows: of the dimensions behind them, the whole is a matrix.
fn scatter_nd(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [x, index, updates] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let (x, index, updates) = (x?, index?, updates?);
    let (shape, tuples) = (lowering.shape(&x)?, lowering.shape(&index)?);
    let Some((&width, leading)) = tuples.split_last().filter(|(width, _)| **width <= shape.len()) else {
        return Err(wrong(operation, format!("indices of shape {tuples:?} into {shape:?}")));
    };
    let (named, rest) = shape.split_at(width);
    let given = lowering.shape(&updates)?;
    if given != [leading, rest].concat() {
        return Err(wrong(operation, format!("updates of shape {given:?} by indices of {tuples:?} into {shape:?}")));
    }
    let (count, row): (usize, usize) = (leading.iter().product(), rest.iter().product());
    let rows = named.iter().product::<usize>();
    let index = lowering.reshape(&index, &[count, width])?;
    let mut number = lowering.filled(&[count, 1], lowering.data_type(&index)?, 0.0)?;
    let nowhere = lowering.number_like(&index, rows as f64)?;
    let mut missed = Vec::with_capacity(width);
    for (at, &size) in named.iter().enumerate() {
        let own = lowering.narrow(&index, 1, at, at + 1)?;
        let own = lowering.counted_from_end(&own, size)?;
        number = lowering.scaled(&number, size as f64, 0.0)?;
        number = lowering.binary(Binary::Add, &number, &own)?;
        for (order, edge) in [(Binary::LessThan, 0.0), (Binary::GreaterEqual, size as f64)] {
            let edge = lowering.number_like(&own, edge)?;
            missed.push(lowering.binary(order, &own, &edge)?);
        }
    }
    // An index outside of its axis must not name an element of the next row: it names none, which the run refuses.
    for missed in missed {
        number = lowering.choose(&missed, &nowhere, &number)?;
    }
    let number = lowering.one(Expand { dims: vec![count as i64, row as i64] }, &[number])?;
    let matrix = lowering.reshape(&x, &[rows, row])?;
    let updates = lowering.reshape(&updates, &[count, row])?;
    let put = PutAlongAxis { axis: 0, reduce: reduction(operation)?, include_self: true };
    let written = lowering.one(put, &[matrix, number, updates])?;
    Ok(vec![lowering.reshape(&written, &shape)?])
}

/// Coordinates as columns.
fn nonzero(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    // A number is the only element of a row.
    let x = if lowering.shape(&x)?.is_empty() { lowering.reshape(&x, &[1])? } else { x };
    let places = lowering.places(&x)?;
    Ok(vec![lowering.transpose(&places, &[1, 0])?])
}

/// The slices whose condition holds; of all elements where there is no axis.
fn compress(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    // Finding the places runs the graph so far: what is made before belongs to that.
    let condition = lowering.input(operation, 1)?;
    let places = lowering.places(&condition)?;
    let count = lowering.shape(&places)?[0];
    let places = lowering.reshape(&places, &[count])?;
    let mut x = lowering.input(operation, 0)?;
    let axis = match operation.integers("axis")? {
        Some(_) => lowering.axis(operation, &x, 0)?,
        None => {
            let count = lowering.shape(&x)?.iter().product();
            x = lowering.reshape(&x, &[count])?;
            0
        }
    };
    Ok(vec![lowering.one(Gather { axis: axis as i64 }, &[x, places])?])
}

/// A cache with new rows of each batch from a place on, which may go on at the beginning.
fn write_rows(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (cache, rows) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = lowering.axis(operation, &cache, -2)?;
    let (whole, part) = (lowering.shape(&cache)?, lowering.shape(&rows)?);
    if whole.len() != part.len() || axis == 0 || part[axis] > whole[axis] {
        return Err(wrong(operation, format!("rows of shape {part:?} along axis {axis} of {whole:?}")));
    }
    let mut place = lowering.counted(part[axis], DataType::I64)?;
    place = lowering.spread_along(&place, &rows, axis)?;
    if let Some(begin) = lowering.optional(operation, 2)? {
        let begin = lowering.cast(&begin, DataType::I64)?;
        let begin = lowering.spread_along(&begin, &rows, 0)?;
        place = lowering.binary(Binary::Add, &begin, &place)?;
    }
    if operation.text("mode", "linear")? == "circular" {
        let size = lowering.number_like(&place, whole[axis] as f64)?;
        place = lowering.binary(Binary::Remainder, &place, &size)?;
    }
    let place = lowering.expanded(&place, &part)?;
    let put = PutAlongAxis { axis: axis as i64, reduce: Reduce::Assign, include_self: true };
    Ok(vec![lowering.one(put, &[cache, place, rows])?])
}
