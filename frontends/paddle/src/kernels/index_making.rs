//! Kernels that make indices and sequences: masks of sequences, shards, triangles, logspace, repeats by a tensor.

use super::compose::Compose;
use super::movement::many;
use crate::abi::exception::Code;
use crate::error::{Error, Result, refuse};
use crate::table::Table;
use crate::{Context, DataType, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::IndexAdd;
use openmps_graph::operators::sequence::{Arange, Linspace};
use openmps_tile::dtype::{ALL, NUMBERS};
use openmps_tile::{DType, Number};

const INTEGERS: &[DType] = &[DType::I32, DType::I64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sequence_mask", NUMBERS, sequence_mask).output_as_inferred(0);
    table.add("sequence_mask_scalar", NUMBERS, sequence_mask_scalar).output_as_inferred(0);
    table.add("shard_index", INTEGERS, shard_index).strided();
    table.add("tril_indices", INTEGERS, tril_indices);
    table.add("triu_indices", INTEGERS, triu_indices);
    table.add("logspace", NUMBERS, logspace).output_as_inferred(0).anywhere(0..4);
    table.add("repeat_interleave_with_tensor_index", ALL, repeat_interleave);
    table.add("repeat_interleave_with_tensor_index_grad", NUMBERS, repeat_interleave_grad);
}

/// Ones at places below each number, zeros at the others.
fn sequence_mask(
    context: &Context,
    x: Tensor,
    longest: Option<Tensor>,
    len: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let len = match longest {
        Some(longest) => Scalar::of_tensor(context, &longest)?.i64(),
        None => len.into(),
    };
    masked(context, &x, len, data_type, &out)
}

fn sequence_mask_scalar(context: &Context, x: Tensor, len: Scalar, data_type: DataType, out: Output) -> Result<()> {
    masked(context, &x, len.i64(), data_type, &out)
}

/// A negative length stands for the largest number.
fn masked(context: &Context, x: &Tensor, len: i64, data_type: DataType, out: &Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let len = if len >= 0 { len } else { context.integers(&c.reduce(Reduction::Maximum, &x, &[])?)?[0] };
    let len = len.max(0) as usize;
    let steps = Arange { start: Number::Integer(0), step: Number::Integer(1), len, dtype: DType::I64 };
    // A fractional length reaches into one more.
    let dtype = if x.dtype.is_float() { DType::F64 } else { DType::I64 };
    let steps = c.cast(&c.apply(&steps, &[])?, dtype)?;
    let numbers = c.shaped(&c.cast(&x, dtype)?, &[&x.shape[..], &[1]].concat())?;
    let mask = c.map(Elementwise::Binary(Binary::LessThan), &[&steps, &numbers], &[])?;
    out.set_dims(&[&x.shape[..], &[len]].concat());
    c.store_value(out, data_type.or(DType::I64)?, &mask)
}

/// Refuses an index outside of `0..size`. The indices come to the CPU for that: they are labels, one for each row.
pub(super) fn check_indices(
    context: &Context,
    index: &View,
    size: usize,
    what: &'static str,
    code: Code,
) -> Result<()> {
    let outside = |(_, index): &(usize, i64)| !(0..size as i64).contains(index);
    match context.integers(index)?.into_iter().enumerate().find(outside) {
        Some((position, index)) => Err(Error::Index { what, index, position, lowest: 0, size, code }),
        None => Ok(()),
    }
}

/// An index within its own shard, or a number that says that it belongs to another one.
fn shard_index(
    context: &Context,
    x: Tensor,
    size: i32,
    shards: i32,
    shard: i32,
    missing: i32,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let number = |value: i32| -> Result<View> {
        let view = c.temporary(x.dtype, &[1])?;
        c.fill(&view, value.into())?;
        Ok(view)
    };
    check_indices(context, &x, size.max(0) as usize, "shard_index: index", Code::InvalidArgument)?;
    if shards < 1 || !(0..shards).contains(&shard) {
        return Err(refuse("shard_id", shard, &format!("0 to {}", shards - 1)));
    }
    let width = number((size + shards - 1) / shards)?;
    let owner = c.map(Elementwise::Binary(Binary::FloorDivide), &[&x, &width], &[])?;
    let is_own = c.map(Elementwise::Binary(Binary::Equal), &[&owner, &number(shard)?], &[])?;
    let within = c.map(Elementwise::Binary(Binary::Remainder), &[&x, &width], &[])?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Where), &[&is_own, &within, &number(missing)?], &[])
}

/// Rows and columns of the elements of a triangle, as two lines.
fn triangle(
    context: &Context,
    places: impl Iterator<Item = (i64, i64)> + Clone,
    dtype: DType,
    out: &Output,
) -> Result<()> {
    let both = places.clone().map(|place| place.0).chain(places.clone().map(|place| place.1));
    let bytes: Vec<u8> = both.flat_map(|number| number.to_ne_bytes()).collect();
    out.set_dims(&[2, places.count()]);
    let to = context.allocate(out, dtype)?;
    if to.is_empty() {
        return Ok(());
    }
    let c = Compose::new(context);
    let wide = c.upload(DType::I64, &to.shape, &bytes)?;
    c.launch(
        &openmps_graph::operators::elementwise::Call {
            operator: Elementwise::Unary(Unary::Cast),
            scalars: Vec::new(),
            output: Some(dtype),
        },
        &[wide],
        &[to],
    )
}

fn tril_indices(
    context: &Context,
    rows: i32,
    columns: i32,
    offset: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let (rows, columns, offset) = (i64::from(rows), i64::from(columns), i64::from(offset));
    let row = move |i: i64| (0..(i + offset + 1).clamp(0, columns)).map(move |j| (i, j));
    triangle(context, (0..rows).flat_map(row), data_type.or(DType::I64)?, &out)
}

fn triu_indices(
    context: &Context,
    rows: i32,
    columns: i32,
    offset: i32,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let (rows, columns, offset) = (i64::from(rows), i64::from(columns), i64::from(offset));
    let row = move |i: i64| ((i + offset).clamp(0, columns)..columns).map(move |j| (i, j));
    triangle(context, (0..rows).flat_map(row), data_type.or(DType::I64)?, &out)
}

/// Powers of a base at even distances.
fn logspace(
    context: &Context,
    start: Tensor,
    stop: Tensor,
    len: Tensor,
    base: Tensor,
    data_type: DataType,
    out: Output,
) -> Result<()> {
    let number = |tensor: &Tensor| Scalar::of_tensor(context, tensor);
    let (start, stop, base) = (number(&start)?.f64(), number(&stop)?.f64(), number(&base)?.f64());
    let len = number(&len)?.i64();
    let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or_else(|| refuse("num", len, "above 0"))?;
    let c = Compose::new(context);
    let exponents = c.apply(&Linspace { start, stop, len, dtype: DType::F64 }, &[])?;
    let of = c.constant(DType::F64, &[1], base)?;
    out.set_dims(&[len]);
    let value = c.map(Elementwise::Binary(Binary::Power), &[&of, &exponents], &[])?;
    c.store_value(&out, data_type.or(DType::F32)?, &value)
}

/// How often each of so many elements comes, as the places of the elements.
fn repeated(context: &Context, repeats: &Tensor, elements: usize) -> Result<Vec<i64>> {
    if !repeats.dtype().is_ok_and(|dtype| INTEGERS.contains(&dtype)) {
        return Err(refuse("element type of repeats", repeats.data_type().name(), "int32 or int64"));
    }
    if repeats.shape().iter().product::<usize>() != elements {
        return Err(refuse("repeats", repeats.shape(), &format!("a number for each of {elements} elements")));
    }
    let mut places = Vec::new();
    for (at, count) in context.integers(&repeats.view()?)?.into_iter().enumerate() {
        let count = usize::try_from(count).map_err(|_| refuse("repeats", count, "no negative number"))?;
        openmps_graph::view::elements(&[places.len() + count])?;
        places.extend(std::iter::repeat_n(at as i64, count));
    }
    Ok(places)
}

fn indices(c: &Compose, places: &[i64]) -> Result<View> {
    let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_ne_bytes()).collect();
    c.upload(DType::I64, &[places.len()], &bytes)
}

fn repeat_interleave(context: &Context, x: Tensor, repeats: Tensor, axis: i32, _size: i64, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let mut dims = x.shape();
    let at = openmps_graph::layout::axis_of("repeat_interleave", axis.into(), dims.len())?;
    let index = indices(&c, &repeated(context, &repeats, dims[at])?)?;
    dims[at] = index.len();
    out.set_dims(&dims);
    many(context, &Gather { axis: axis.into() }, &[x.view()?, index], &[Some(&out)])
}

fn repeat_interleave_grad(
    context: &Context,
    x: Tensor,
    repeats: Tensor,
    upstream: Tensor,
    axis: i32,
    _size: i64,
    dx: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let at = openmps_graph::layout::axis_of("repeat_interleave", axis.into(), x.shape().len())?;
    let index = indices(&c, &repeated(context, &repeats, x.shape()[at])?)?;
    let upstream = upstream.view()?;
    let to = super::indexing::zeros(context, upstream.dtype, &x.shape(), &dx)?;
    c.launch(&IndexAdd { axis: axis.into() }, &[to.clone(), index, upstream], std::slice::from_ref(&to))
}
