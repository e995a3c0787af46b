//! Kernels whose results follow from positions and shapes alone: arange, linspace, eye, one_hot, numel, shape.

use super::compose::Compose;
use super::indexing::as_value;
use super::movement::many;
use super::values::integer_bytes;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, DataType, Output, Scalar, Tensor};
use openmps_graph::DType;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::sequence::{Arange, Eye, Linspace, OneHot};
use openmps_graph::view::elements;
use openmps_tile::Number;
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("arange", NUMBERS, arange);
    table.add("arange_tensor", NUMBERS, arange_tensor).anywhere(0..3);
    table.add("range_tensor", NUMBERS, range_tensor).anywhere(0..3);
    table.add("linspace", NUMBERS, linspace).output_as_inferred(0).anywhere(0..3);
    table.add("eye", ALL, eye).output_as_inferred(0);
    table.add("one_hot", &[DType::I32, DType::I64], one_hot).output_as_inferred(0);
    table.add("one_hot_raw", &[DType::I32, DType::I64], one_hot_raw).output_as_inferred(0);
    table.add("increment", NUMBERS, increment);
    table.add_every("numel", numel).output(0, DType::I64);
    table.add_every("is_empty", is_empty).output(0, DType::Bool);
    table.add_every("shape", shape).output(0, DType::I32).on_host().anywhere(0..1);
    table.add_every("shape64", shape64).output(0, DType::I64).on_host().anywhere(0..1);
}

fn number(value: &Scalar, dtype: DType) -> Number {
    if dtype.is_float() { Number::Float(value.f64()) } else { Number::Integer(value.i64()) }
}

/// The one number of a tensor.
fn read(context: &Context, tensor: &Tensor) -> Result<Number> {
    Ok(number(&Scalar::of_tensor(context, tensor)?, tensor.dtype()?))
}

/// Whether a sequence may have its end as its last number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Excluded,
    Included,
}

/// How many numbers there are from start to end; none where steps lead away from the end.
fn count([start, end, step]: [Number; 3], last: End, dtype: DType) -> Option<usize> {
    if let [Number::Integer(start), Number::Integer(end), Number::Integer(step)] = [start, end, step] {
        let span = (i128::from(end) - i128::from(start)) * i128::from(step.signum());
        let (span, step) = (u128::try_from(span).ok()?, step.unsigned_abs().into());
        let count = if last == End::Included { span / step + 1 } else { span.div_ceil(step) };
        return Some(usize::try_from(count).unwrap_or(usize::MAX));
    }
    let [start, end, step] = [start, end, step].map(Number::to_f64);
    // In the result's type: a difference or a quotient that it rounds to a whole number is one.
    let steps = match dtype {
        DType::F32 => f64::from((end as f32 - start as f32) / step as f32),
        _ => (end - start) / step,
    };
    let count = if last == End::Included { steps.floor() + 1.0 } else { steps.ceil() };
    (steps >= 0.0).then_some(count as usize)
}

fn sequence(context: &Context, numbers: [Number; 3], last: End, dtype: DType, out: &Output) -> Result<()> {
    let [start, end, step] = numbers;
    if step.to_f64() == 0.0 {
        let expected = "a number other than zero".to_owned();
        return Err(Error::Attribute { attribute: "step", got: "0".to_owned(), expected });
    }
    let len = match (count(numbers, last, dtype), last) {
        (Some(len), _) => len,
        (None, End::Excluded) => 0,
        (None, End::Included) => {
            let expected = format!("what steps of {} reach from {}", step.to_f64(), start.to_f64());
            return Err(Error::Attribute { attribute: "end", got: end.to_f64().to_string(), expected });
        }
    };
    elements(&[len])?;
    out.set_dims(&[len]);
    many(context, &Arange { start, step, len, dtype }, &[], &[Some(out)])
}

fn arange(context: &Context, start: Scalar, end: Scalar, step: Scalar, out: Output) -> Result<()> {
    let dtype = out.dtype()?;
    sequence(context, [start, end, step].map(|value| number(&value, dtype)), End::Excluded, dtype, &out)
}

fn arange_tensor(context: &Context, start: Tensor, end: Tensor, step: Tensor, out: Output) -> Result<()> {
    let numbers = [read(context, &start)?, read(context, &end)?, read(context, &step)?];
    sequence(context, numbers, End::Excluded, start.dtype()?, &out)
}

/// `paddle.range`, whose last number may be the end.
fn range_tensor(context: &Context, start: Tensor, end: Tensor, step: Tensor, out: Output) -> Result<()> {
    let numbers = [read(context, &start)?, read(context, &end)?, read(context, &step)?];
    sequence(context, numbers, End::Included, start.dtype()?, &out)
}

fn linspace(
    context: &Context,
    start: Tensor,
    stop: Tensor,
    len: Tensor,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let (start, stop) = (read(context, &start)?.to_f64(), read(context, &stop)?.to_f64());
    let len = read(context, &len)?.to_i64();
    let refused = |_| {
        let (got, expected) = (len.to_string(), "no negative number".to_owned());
        Error::Attribute { attribute: "num", got, expected }
    };
    let len = usize::try_from(len).map_err(refused)?;
    elements(&[len])?;
    out.set_dims(&[len]);
    many(context, &Linspace { start, stop, len, dtype: data_type.or(DType::F32)? }, &[], &[Some(&out)])
}

fn eye(context: &Context, rows: Scalar, columns: Scalar, data_type: DataType, out: Output) -> Result<()> {
    let rows = rows.i64().max(0) as usize;
    let columns = if columns.i64() < 0 { rows } else { columns.i64() as usize };
    elements(&[rows, columns])?;
    out.set_dims(&[rows, columns]);
    many(context, &Eye { rows, columns, dtype: data_type.or(DType::F32)? }, &[], &[Some(&out)])
}

/// The form of legacy programs.
fn one_hot_raw(
    context: &Context,
    x: Tensor,
    classes: Scalar,
    _data_type: DataType,
    _beyond: bool,
    out: Output,
) -> Result<()> {
    one_hot(context, x, classes, out)
}

fn one_hot(context: &Context, x: Tensor, classes: Scalar, out: Output) -> Result<()> {
    // Paddle's own rule for the result's shape counts classes in 32 bits.
    let Ok(count) = i32::try_from(classes.i64()).map(|count| count.max(0) as usize) else {
        let (got, expected) = (classes.i64().to_string(), "0 to 2147483647".to_owned());
        return Err(Error::Attribute { attribute: "num_classes", got, expected });
    };
    let operator = OneHot { classes: count, dtype: DType::F32 };
    many(context, &operator, &[x.view()?], &[Some(&out)]).map_err(as_value)
}

/// Adds to a tensor of one element: a counter of loops.
fn increment(context: &Context, x: Tensor, value: f32, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let step = c.constant(x.dtype, &x.shape, value.into())?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Add), &[&x, &step], &[])
}

fn numel(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let count = x.shape().iter().product::<usize>() as i64;
    let view = context.allocate(&out, DType::I64)?;
    Ok(context.queue().write(&view, &count.to_ne_bytes())?)
}

fn is_empty(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let view = context.allocate(&out, DType::Bool)?;
    Ok(context.queue().write(&view, &[u8::from(x.shape().contains(&0))])?)
}

fn write_shape(context: &Context, x: &Tensor, dtype: DType, out: &Output) -> Result<()> {
    let sizes: Vec<i64> = x.shape().iter().map(|&size| size as i64).collect();
    out.set_dims(&[sizes.len()]);
    context.write_on_host(out, dtype, &integer_bytes(dtype, &sizes)?)
}

fn shape(context: &Context, x: Tensor, out: Output) -> Result<()> {
    write_shape(context, &x, DType::I32, &out)
}

fn shape64(context: &Context, x: Tensor, out: Output) -> Result<()> {
    write_shape(context, &x, DType::I64, &out)
}
