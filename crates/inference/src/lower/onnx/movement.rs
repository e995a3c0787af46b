//! Shapes, and operators that move or repeat elements, or make them of nothing.

use super::integers;
use crate::error::Result;
use crate::lower::value::{LARGEST, listed, rounded};
use crate::lower::{Lowering, Table, Value, axis_of, number_of, size_of, sizes_of, wrong};
use crate::onnx::tensor::data_type;
use crate::program::{Attribute, Operation};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::expand::{Expand, Tile};
use openmps::operators::operators::gather::{Negative, TakeAlongAxis};
use openmps::operators::operators::sequence::{Arange, Eye};
use openmps::operators::operators::triangle::Triangle;
use openmps::operators::view::elements;

pub(super) const TABLE: Table = &[
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("Range", range),
    ("EyeLike", eye_like),
    ("OneHot", one_hot),
    ("Shape", shape),
    ("Size", size),
    ("Reshape", reshape),
    ("Transpose", transpose),
    ("Squeeze", squeeze),
    ("Unsqueeze", unsqueeze),
    ("Flatten", flatten),
    ("Concat", concat),
    ("Split", split),
    ("Expand", expand),
    ("Tile", tile),
    ("Trilu", triangle),
    ("ReverseSequence", reverse_sequence),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
];

/// A tensor that the model's reader knows, or numbers in attributes.
fn constant(_: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if let Some(dims) = operation.integers("shape")? {
        let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
        let data = operation.floats("values")?.unwrap_or_default();
        return Ok(vec![Value::Known(listed(operation, &sizes_of(operation, dims)?, data, dtype)?)]);
    }
    let (dims, data, dtype) = match operation.attributes.iter().next() {
        Some((_, Attribute::Integer(number))) => (vec![], vec![*number as f64], DataType::I64),
        Some((_, Attribute::Float(number))) => (vec![], vec![*number], DataType::F32),
        Some((_, Attribute::Integers(numbers))) => {
            (vec![numbers.len()], numbers.iter().map(|&number| number as f64).collect(), DataType::I64)
        }
        Some((_, Attribute::Floats(numbers))) => (vec![numbers.len()], numbers.clone(), DataType::F32),
        other => return Err(wrong(operation, format!("a constant of {other:?}"))),
    };
    Ok(vec![Value::Known(Array::new(&dims, data, dtype))])
}

/// The reader makes an input of a number that float64 leaves out.
fn constant_of_shape(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let dims = lowering.integers(operation, 0, "")?.unwrap_or_default();
    if let Some(number) = lowering.optional(operation, 1)? {
        let number = lowering.reshape(&number, &vec![1; dims.len()])?;
        return Ok(vec![lowering.expanded(&number, &sizes_of(operation, dims)?)?]);
    }
    let number = operation.floats("value")?.and_then(|numbers| numbers.first().copied()).unwrap_or(0.0);
    let dtype = operation.data_type("dtype")?.unwrap_or(DataType::F32);
    Ok(vec![lowering.filled(&sizes_of(operation, dims)?, dtype, number)?])
}

fn range(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let dtype = lowering.data_type(&lowering.input(operation, 0)?)?;
    let mut bounds = [0.0; 3];
    for (at, bound) in bounds.iter_mut().enumerate() {
        *bound = lowering.number_at(operation, at)?.ok_or_else(|| wrong(operation, "an empty bound"))?;
    }
    let [start, end, step] = bounds;
    if step == 0.0 || !(end - start).is_finite() {
        return Err(wrong(operation, format!("from {start} to {end} in steps of {step}")));
    }
    let len = ((end - start) / step).ceil().max(0.0) as usize;
    Ok(vec![lowering.stepped(start, step, len, dtype)?])
}

impl Lowering<'_> {
    /// Numbers at even distances, known where they are few.
    pub(super) fn stepped(&mut self, start: f64, step: f64, len: usize, dtype: DataType) -> Result<Value> {
        if len <= LARGEST {
            let data = (0..len).map(|i| start + i as f64 * step).collect();
            return Ok(Value::Known(rounded(Array::new(&[len], data, dtype))));
        }
        let [start, step] = [start, step].map(|value| number_of(dtype, value));
        self.one(Arange { start, step, len, dtype }, &[])
    }

    /// 0, 1, 2, ...
    pub(super) fn counted(&mut self, len: usize, dtype: DataType) -> Result<Value> {
        self.stepped(0.0, 1.0, len, dtype)
    }
}

fn eye_like(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let dtype = match operation.integer("dtype", 0)? {
        0 => lowering.data_type(&x)?,
        code => data_type(code).ok_or_else(|| wrong(operation, format!("the element type of number {code}")))?,
    };
    let [rows, columns] = lowering.shape(&x)?[..] else { return Err(wrong(operation, "other than a matrix")) };
    // Another diagonal is the main one of a larger matrix.
    let diagonal = operation.integer("k", 0)?.clamp(-(rows as i64), columns as i64);
    let (down, right) = ((-diagonal).max(0) as usize, diagonal.max(0) as usize);
    let side = rows.max(columns) + down + right;
    let whole = lowering.one(Eye { rows: side, columns: side, dtype }, &[])?;
    let part = lowering.narrow(&whole, 0, right, right + rows)?;
    Ok(vec![lowering.narrow(&part, 1, down, down + columns)?])
}

/// Indices, depth, and the values off and on; negative indices count from the end, others outside leave all off.
fn one_hot(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (indices, values) = (lowering.input(operation, 0)?, lowering.input(operation, 2)?);
    let depth = lowering.number_at(operation, 1)?.ok_or_else(|| wrong(operation, "an empty depth"))?;
    let classes = size_of(operation, depth as i64)?;
    let indices = lowering.cast(&indices, DataType::I64)?;
    let indices = lowering.counted_from_end(&indices, classes)?;
    let mut shape = lowering.shape(&indices)?;
    let rank = shape.len();
    shape.push(1);
    let indices = lowering.reshape(&indices, &shape)?;
    let class = lowering.counted(classes, DataType::I64)?;
    let ones = lowering.binary(Binary::Equal, &indices, &class)?;
    let (off, on) = (lowering.narrow(&values, 0, 0, 1)?, lowering.narrow(&values, 0, 1, 2)?);
    let chosen = lowering.choose(&ones, &on, &off)?;
    let axis = axis_of(operation, operation.integer("axis", -1)?, rank + 1)?;
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.insert(axis, rank as i64);
    Ok(vec![lowering.transpose(&chosen, &order)?])
}

fn shape(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let shape = lowering.shape(&lowering.input(operation, 0)?)?;
    let rank = shape.len() as i64;
    let place = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
    let (start, end) = (place(operation.integer("start", 0)?), place(operation.integer("end", rank)?));
    Ok(vec![integers(shape[start..end.max(start)].iter().map(|&size| size as i64))])
}

fn size(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let count: usize = lowering.shape(&lowering.input(operation, 0)?)?.iter().product();
    Ok(vec![Value::Known(Array::new(&[], vec![count as f64], DataType::I64))])
}

/// 0 keeps a dimension unless zeros are allowed, -1 is what is left.
fn reshape(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let old = lowering.shape(&x)?;
    let asked = lowering.integers(operation, 1, "shape")?.ok_or_else(|| wrong(operation, "no shape"))?;
    let keeps = !operation.flag("allowzero", false)?;
    let mut shape = Vec::with_capacity(asked.len());
    for (at, &size) in asked.iter().enumerate() {
        shape.push(match size {
            -1 => 1,
            0 if keeps => *old.get(at).ok_or_else(|| wrong(operation, format!("{old:?} as {asked:?}")))?,
            size => size_of(operation, size)?,
        });
    }
    if let Some(free) = asked.iter().position(|&size| size == -1) {
        let (count, others) = (elements(&old)?, elements(&shape)?);
        if others == 0 && count > 0 || others > 0 && !count.is_multiple_of(others) {
            return Err(wrong(operation, format!("{old:?} as {asked:?}")));
        }
        shape[free] = count.checked_div(others).unwrap_or(0);
    }
    Ok(vec![lowering.reshape(&x, &shape)?])
}

fn transpose(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let rank = lowering.shape(&x)?.len() as i64;
    let axes = operation.integers("perm")?.unwrap_or_else(|| (0..rank).rev().collect());
    Ok(vec![lowering.transpose(&x, &axes)?])
}

fn squeeze(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let gone = match lowering.integers(operation, 1, "axes")? {
        Some(axes) => axes.into_iter().map(|axis| axis_of(operation, axis, shape.len())).collect::<Result<Vec<_>>>()?,
        None => (0..shape.len()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if let Some(&axis) = gone.iter().find(|&&axis| shape.get(axis).is_some_and(|&size| size != 1)) {
        return Err(wrong(operation, format!("axis {axis} of {shape:?}")));
    }
    Ok(vec![lowering.without(&x, &gone)?])
}

fn unsqueeze(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let mut shape = lowering.shape(&x)?;
    let axes = lowering.integers(operation, 1, "axes")?.unwrap_or_default();
    let rank = shape.len() + axes.len();
    let mut axes = axes.into_iter().map(|axis| axis_of(operation, axis, rank)).collect::<Result<Vec<_>>>()?;
    axes.sort_unstable();
    axes.into_iter().for_each(|axis| shape.insert(axis.min(shape.len()), 1));
    Ok(vec![lowering.reshape(&x, &shape)?])
}

/// A matrix: the dimensions before `axis`, and the others.
fn flatten(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    // It may stand behind the last one.
    let axis = operation.integer("axis", 1)?;
    let axis = size_of(operation, if axis < 0 { axis + shape.len() as i64 } else { axis })?.min(shape.len());
    let flat = [shape[..axis].iter().product(), shape[axis..].iter().product()];
    Ok(vec![lowering.reshape(&x, &flat)?])
}

fn concat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.inputs(operation)?;
    let first = members.first().ok_or_else(|| wrong(operation, "no input"))?;
    let axis = lowering.axis(operation, first, 1)?;
    Ok(vec![lowering.concat(&members, axis)?])
}

/// Parts of given sizes, or as many as asked for, of which the last one may be smaller.
fn split(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let axis = lowering.axis(operation, &x, 0)?;
    let size = *lowering.shape(&x)?.get(axis).ok_or_else(|| wrong(operation, "a tensor without dimensions"))?;
    let sections = match lowering.integers(operation, 1, "split")? {
        Some(sections) => sizes_of(operation, sections)?,
        None => {
            let count = operation.outputs.len().max(1);
            let asked = operation.integer("num_outputs", count as i64)?;
            if asked != count as i64 {
                return Err(wrong(operation, format!("{asked} parts with {count} outputs")));
            }
            let each = size.div_ceil(count);
            (0..count).map(|at| size.saturating_sub(at * each).min(each)).collect()
        }
    };
    lowering.split(&x, axis, &sections)
}

/// Both broadcast: a dimension of 1 of either is the other's.
fn expand(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let mut shape = lowering.shape(&x)?;
    let mut asked = sizes_of(operation, lowering.integers(operation, 1, "")?.unwrap_or_default())?;
    let rank = shape.len().max(asked.len());
    [&mut shape, &mut asked].into_iter().for_each(|dims| {
        let missing = rank - dims.len();
        dims.splice(0..0, std::iter::repeat_n(1, missing));
    });
    let dims = shape.iter().zip(&asked).map(|(&own, &asked)| if asked == 1 { own } else { asked } as i64).collect();
    Ok(vec![lowering.one(Expand { dims }, &[x])?])
}

fn tile(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let repeats = lowering.integers(operation, 1, "")?.unwrap_or_default();
    Ok(vec![lowering.one(Tile { repeats: sizes_of(operation, repeats)? }, &[x])?])
}

fn triangle(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let diagonal = lowering.number_at(operation, 1)?.unwrap_or(0.0) as i64;
    Ok(vec![lowering.one(Triangle { diagonal, lower: !operation.flag("upper", true)? }, &[x])?])
}

/// The first elements of each sequence of a batch, as many as its length, from the last one to the first.
fn reverse_sequence(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, lengths) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let shape = lowering.shape(&x)?;
    let [batch, time] = [("batch_axis", 1), ("time_axis", 0)]
        .map(|(name, default)| axis_of(operation, operation.integer(name, default)?, shape.len()));
    let (batch, time) = (batch?, time?);
    let lengths = lowering.cast(&lengths, DataType::I64)?;
    let lengths = lowering.spread_along(&lengths, &x, batch)?;
    let step = lowering.counted(shape[time], DataType::I64)?;
    let step = lowering.spread_along(&step, &x, time)?;
    let within = lowering.binary(Binary::LessThan, &step, &lengths)?;
    let mirrored = lowering.binary(Binary::Subtract, &lengths, &step)?;
    let mirrored = lowering.scaled(&mirrored, 1.0, -1.0)?;
    let places = lowering.choose(&within, &mirrored, &step)?;
    let places = lowering.one(Expand { dims: shape.iter().map(|&size| size as i64).collect() }, &[places])?;
    let take = TakeAlongAxis { axis: time as i64, negative: Negative::Refused };
    Ok(vec![lowering.one(take, &[x, places])?])
}

/// An image's sizes and the length of a block, which must divide them.
fn blocks(lowering: &mut Lowering, operation: &Operation, x: &Value) -> Result<([usize; 4], usize)> {
    let shape = lowering.shape(x)?;
    let block = size_of(operation, operation.integer("blocksize", 0)?)?;
    match <[usize; 4]>::try_from(shape) {
        Ok(sizes) if block > 0 => Ok((sizes, block)),
        Ok(_) => Err(wrong(operation, "a block of no size")),
        Err(shape) => Err(wrong(operation, format!("an image of shape {shape:?}"))),
    }
}

/// `[n, c b b, h, w]` as `[n, c, h b, w b]`.
fn depth_to_space(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let ([n, c, h, w], b) = blocks(lowering, operation, &x)?;
    if !c.is_multiple_of(b * b) {
        return Err(wrong(operation, format!("{c} channels in blocks of {b} x {b}")));
    }
    let c = c / (b * b);
    let (apart, order) = match operation.text("mode", "DCR")? {
        "CRD" => ([n, c, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        _ => ([n, b, b, c, h, w], [0, 3, 4, 1, 5, 2]),
    };
    let y = lowering.reshape(&x, &apart)?;
    let y = lowering.transpose(&y, &order)?;
    Ok(vec![lowering.reshape(&y, &[n, c, h * b, w * b])?])
}

fn space_to_depth(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let ([n, c, h, w], b) = blocks(lowering, operation, &x)?;
    if !h.is_multiple_of(b) || !w.is_multiple_of(b) {
        return Err(wrong(operation, format!("{h} x {w} pixels in blocks of {b} x {b}")));
    }
    let y = lowering.reshape(&x, &[n, c, h / b, b, w / b, b])?;
    let order = if operation.text("mode", "DCR")? == "CRD" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let y = lowering.transpose(&y, &order)?;
    Ok(vec![lowering.reshape(&y, &[n, c * b * b, h / b, w / b])?])
}

impl Lowering<'_> {
    /// Indices of which negative ones counted from the end of an axis.
    pub(super) fn counted_from_end(&mut self, indices: &Value, size: usize) -> Result<Value> {
        let zero = self.number_like(indices, 0.0)?;
        let is_negative = self.binary(Binary::LessThan, indices, &zero)?;
        let moved = self.scaled(indices, 1.0, size as f64)?;
        self.choose(&is_negative, &moved, indices)
    }
}
