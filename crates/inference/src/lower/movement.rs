//! Operations that move or choose elements.

use super::{Lowering, Table, Value, axes_of, axis_of, size_of, sizes_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::operators::concat::{Concat, Split, Stack};
use openmps::operators::operators::expand::{Expand, Tile};
use openmps::operators::operators::flip::Flip;
use openmps::operators::operators::gather::{Embedding, Gather, GatherNd, Negative, TakeAlongAxis};
use openmps::operators::operators::roll::Roll;
use openmps::operators::operators::slice::{Range, Slice};
use openmps::operators::operators::transpose::Transpose;
use openmps::operators::operators::triangle::Triangle;
use std::slice::from_ref;

pub(super) const TABLE: Table = &[
    ("reshape", reshape),
    ("transpose", transpose),
    ("squeeze", squeeze),
    ("unsqueeze", unsqueeze),
    ("flatten", flatten),
    ("legacy_flatten", legacy_flatten),
    ("concat", concat),
    ("stack", stack),
    ("unstack", unstack),
    ("unbind", unstack),
    ("unstack_all", unstack_all),
    ("split", split),
    ("split_with_num", split_with_num),
    ("split_all", split_all),
    ("gather", gather),
    ("index_select", index_select),
    ("gather_nd", gather_nd),
    ("take_along_axis", take_along_axis),
    ("embedding", embedding),
    ("expand", expand),
    ("expand_as", expand_as),
    ("tile", tile),
    ("flip", flip),
    ("roll", roll),
    ("tril", tril),
    ("triu", triu),
    ("tril_triu", tril_triu),
    ("meshgrid", meshgrid),
];

impl Lowering<'_> {
    pub(super) fn transpose(&mut self, x: &Value, axes: &[i64]) -> Result<Value> {
        if axes.iter().enumerate().all(|(at, &axis)| axis == at as i64) {
            return Ok(x.clone());
        }
        self.one(Transpose { axes: axes.to_vec() }, from_ref(x))
    }

    /// `x[.., start:end, ..]`
    pub(super) fn narrow(&mut self, x: &Value, axis: usize, start: usize, end: usize) -> Result<Value> {
        let range = Range { axis: axis as i64, start: start as i64, end: end as i64, step: 1 };
        self.one(Slice { ranges: vec![range] }, from_ref(x))
    }

    pub(super) fn split(&mut self, x: &Value, axis: usize, sections: &[usize]) -> Result<Vec<Value>> {
        self.apply(Split { axis: axis as i64, sections: sections.to_vec() }, from_ref(x))
    }

    pub(super) fn concat(&mut self, members: &[Value], axis: usize) -> Result<Value> {
        match members {
            [single] => Ok(single.clone()),
            _ => self.one(Concat { axis: axis as i64 }, members),
        }
    }

    pub(super) fn without(&mut self, x: &Value, axes: &[usize]) -> Result<Value> {
        let shape = self.shape(x)?;
        let kept: Vec<usize> = (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect();
        self.reshape(x, &kept)
    }
}

/// 0 keeps a dimension, -1 is what is left.
fn reshape(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let old = lowering.shape(&x)?;
    let asked = lowering.integers(operation, 1, "shape")?.ok_or_else(|| wrong(operation, "no shape"))?;
    let mut shape = Vec::with_capacity(asked.len());
    for (at, &size) in asked.iter().enumerate() {
        shape.push(match size {
            -1 => 1,
            0 => *old.get(at).unwrap_or(&0),
            size => size_of(operation, size)?,
        });
    }
    if let Some(free) = asked.iter().position(|&size| size == -1) {
        // Refuses sizes whose product is no number.
        openmps::operators::view::elements(&shape)?;
        // Sizes that are taken over stand on both sides, also where they are 0.
        let kept = |at: usize| asked.get(at) == Some(&0);
        let rest = |sizes: &[usize]| (0..sizes.len()).filter(|&at| !kept(at)).map(|at| sizes[at]).product::<usize>();
        let (count, others) = (rest(&old), rest(&shape));
        if others == 0 || !count.is_multiple_of(others) {
            return Err(wrong(operation, format!("{old:?} as {asked:?}")));
        }
        shape[free] = count / others;
    }
    Ok(vec![lowering.reshape(&x, &shape)?])
}

fn transpose(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axes = operation.integers("perm")?.ok_or_else(|| wrong(operation, "no order of dimensions"))?;
    Ok(vec![lowering.transpose(&x, &axes)?])
}

/// Dimensions of size 1 go: those that are named, or all.
fn squeeze(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let axes = axes_of(operation, lowering.integers(operation, 1, "axis")?, shape.len())?;
    let all = axes.is_empty();
    let gone: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] == 1 && (all || axes.contains(axis))).collect();
    Ok(vec![lowering.without(&x, &gone)?])
}

fn unsqueeze(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let mut shape = lowering.shape(&x)?;
    for axis in lowering.integers(operation, 1, "axis")?.unwrap_or_default() {
        let axis = axis_of(operation, axis, shape.len() + 1)?;
        shape.insert(axis, 1);
    }
    Ok(vec![lowering.reshape(&x, &shape)?])
}

fn flatten(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let start = axis_of(operation, operation.integer("start_axis", 1)?, shape.len())?;
    let stop = axis_of(operation, operation.integer("stop_axis", 1)?, shape.len())?;
    if shape.is_empty() || stop < start {
        let flat = [shape.iter().product()];
        return if shape.is_empty() {
            Ok(vec![lowering.reshape(&x, &flat)?])
        } else {
            Err(wrong(operation, "its axes"))
        };
    }
    let mut flat = shape[..start].to_vec();
    flat.push(shape[start..=stop].iter().product());
    flat.extend(&shape[stop + 1..]);
    Ok(vec![lowering.reshape(&x, &flat)?])
}

/// A matrix: the dimensions before `axis`, and the others.
fn legacy_flatten(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let axis = size_of(operation, operation.integer("axis", 1)?)?.min(shape.len());
    let flat = [shape[..axis].iter().product(), shape[axis..].iter().product()];
    Ok(vec![lowering.reshape(&x, &flat)?])
}

fn concat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let rank = members.first().map_or(Ok(0), |member| lowering.shape(member).map(|shape| shape.len()))?;
    let axis = lowering.number(operation, 1, "axis", 0.0)? as i64;
    let axis = axis_of(operation, axis, rank)?;
    let mut alike: Vec<Value> = Vec::with_capacity(members.len());
    for member in members {
        // What is computed of shapes is int32 here and int64 there.
        let [_, member] = match alike.first() {
            Some(first) if !lowering.data_type(first)?.is_float() => {
                let to = lowering.data_type(first)?;
                [first.clone(), lowering.cast(&member, to)?]
            }
            _ => [member.clone(), member],
        };
        alike.push(member);
    }
    Ok(vec![lowering.concat(&alike, axis)?])
}

fn stack(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    Ok(vec![lowering.one(Stack { axis: operation.integer("axis", 0)? }, &members)?])
}

fn parts(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let axis = axis_of(operation, operation.integer("axis", 0)?, shape.len())?;
    let count = *shape.get(axis).ok_or_else(|| wrong(operation, "no dimension to take apart"))?;
    let pieces = lowering.split(&x, axis, &vec![1; count])?;
    pieces.iter().map(|piece| lowering.without(piece, &[axis])).collect()
}

fn unstack(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![Value::List(parts(lowering, operation)?)])
}

fn unstack_all(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    parts(lowering, operation)
}

fn sections(
    lowering: &mut Lowering,
    operation: &Operation,
    x: &Value,
    axis: usize,
    asked: &[i64],
) -> Result<Vec<usize>> {
    let size = *lowering.shape(x)?.get(axis).unwrap_or(&0) as i64;
    let named: i64 = asked.iter().filter(|&&section| section >= 0).sum();
    sizes_of(operation, asked.iter().map(|&section| if section < 0 { size - named } else { section }))
}

fn split(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let asked = lowering.integers(operation, 1, "sections")?.unwrap_or_default();
    let axis = lowering.number(operation, 2, "axis", 0.0)? as i64;
    let axis = axis_of(operation, axis, lowering.shape(&x)?.len())?;
    let sections = sections(lowering, operation, &x, axis, &asked)?;
    Ok(vec![Value::List(lowering.split(&x, axis, &sections)?)])
}

fn equal_parts(
    lowering: &mut Lowering,
    operation: &Operation,
    x: &Value,
    axis: usize,
    count: i64,
) -> Result<Vec<Value>> {
    let size = *lowering.shape(x)?.get(axis).unwrap_or(&0);
    let count = size_of(operation, count)?;
    if count == 0 || !size.is_multiple_of(count) {
        return Err(wrong(operation, format!("a dimension of {size} in {count} parts")));
    }
    lowering.split(x, axis, &vec![size / count; count])
}

fn split_with_num(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.number(operation, 1, "axis", 0.0)? as i64;
    let axis = axis_of(operation, axis, lowering.shape(&x)?.len())?;
    Ok(vec![Value::List(equal_parts(lowering, operation, &x, axis, operation.integer("num", 1)?)?)])
}

/// The legacy form, whose outputs are values of their own.
fn split_all(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.number(operation, 2, "axis", 0.0)? as i64;
    let axis = axis_of(operation, axis, lowering.shape(&x)?.len())?;
    let asked = lowering.integers(operation, 1, "sections")?.unwrap_or_default();
    if asked.is_empty() {
        return equal_parts(lowering, operation, &x, axis, operation.integer("num", 1)?);
    }
    let sections = sections(lowering, operation, &x, axis, &asked)?;
    lowering.split(&x, axis, &sections)
}

fn gather(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let axis = lowering.number(operation, 2, "axis", 0.0)? as i64;
    gathered(lowering, operation, axis)
}

fn index_select(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    gathered(lowering, operation, operation.integer("axis", 0)?)
}

fn gathered(lowering: &mut Lowering, operation: &Operation, axis: i64) -> Result<Vec<Value>> {
    let (x, index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let shape = lowering.shape(&index)?;
    // An index without dimensions takes one out of the result.
    let flat = lowering.reshape(&index, &[shape.iter().product()])?;
    let rank = lowering.shape(&x)?.len();
    let axis = axis_of(operation, axis, rank)?;
    let found = lowering.one(Gather { axis: axis as i64 }, &[x, flat])?;
    Ok(vec![if shape.is_empty() { lowering.without(&found, &[axis])? } else { found }])
}

fn gather_nd(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    Ok(vec![lowering.one(GatherNd, &[x, index])?])
}

fn take_along_axis(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, index) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let axis = operation.integer("axis", 0)?;
    Ok(vec![lowering.one(TakeAlongAxis { axis, negative: Negative::FromEnd }, &[x, index])?])
}

fn embedding(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (ids, weight) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let padding = Some(operation.integer("padding_idx", -1)?).filter(|&index| index >= 0);
    Ok(vec![lowering.one(Embedding { padding }, &[ids, weight])?])
}

fn expand(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let dims = lowering.integers(operation, 1, "shape")?.unwrap_or_default();
    Ok(vec![lowering.one(Expand { dims }, &[x])?])
}

fn expand_as(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let dims = match (lowering.optional(operation, 1)?, operation.integers("target_shape")?) {
        (Some(y), _) => lowering.shape(&y)?.into_iter().map(|size| size as i64).collect(),
        (None, Some(dims)) => dims,
        (None, None) => return Err(wrong(operation, "no shape")),
    };
    Ok(vec![lowering.one(Expand { dims }, &[x])?])
}

fn tile(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let repeats = lowering.integers(operation, 1, "repeat_times")?.unwrap_or_default();
    Ok(vec![lowering.one(Tile { repeats: sizes_of(operation, repeats)? }, &[x])?])
}

fn flip(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.one(Flip { axes: operation.integers("axis")?.unwrap_or_default() }, &[x])?])
}

fn roll(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shifts = lowering.integers(operation, 1, "shifts")?.unwrap_or_default();
    let axes = operation.integers("axis")?.unwrap_or_default();
    if !axes.is_empty() {
        return Ok(vec![lowering.one(Roll { shifts, axes }, &[x])?]);
    }
    // All elements as one line.
    let shape = lowering.shape(&x)?;
    let line = lowering.reshape(&x, &[shape.iter().product()])?;
    let rolled = lowering.one(Roll { shifts, axes: vec![0] }, &[line])?;
    Ok(vec![lowering.reshape(&rolled, &shape)?])
}

fn triangle(lowering: &mut Lowering, operation: &Operation, lower: bool) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let diagonal = operation.integer("diagonal", 0)?;
    Ok(vec![lowering.one(Triangle { diagonal, lower }, &[x])?])
}

fn tril(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    triangle(lowering, operation, true)
}

fn triu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    triangle(lowering, operation, false)
}

fn tril_triu(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    triangle(lowering, operation, operation.flag("lower", true)?)
}

fn meshgrid(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let mut full = Vec::with_capacity(members.len());
    for member in &members {
        full.push(lowering.shape(member)?.iter().product::<usize>() as i64);
    }
    let mut grids = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let mut along = vec![1; members.len()];
        along[at] = full[at] as usize;
        let member = lowering.reshape(member, &along)?;
        grids.push(lowering.one(Expand { dims: full.clone() }, &[member])?);
    }
    Ok(vec![Value::List(grids)])
}
