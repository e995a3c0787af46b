//! Kernels that read and write parts: slice, strided_slice, set_value, and their gradients.

use super::movement::{many, one};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::layout::Number;
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::operators::slice::{Range, SetSlice, Slice, SliceGradient};
use openmps_graph::view::dense_strides;
use openmps_graph::{Meta, Operator, View};
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("slice", ALL, slice).strided();
    table.add("slice_grad", ALL, slice_grad).strided();
    table.add("strided_slice", ALL, strided_slice).strided();
    table.add("strided_slice_grad", ALL, strided_slice_grad).strided();
    table.add("set_value", ALL, set_value).strided();
    table.add("set_value_with_tensor", ALL, set_value_with_tensor).strided();
    table.add("set_value_grad", NUMBERS, set_value_grad).strided();
    table.add("set_value_with_scalar_grad", ALL, set_value_with_scalar_grad).strided();
}

fn ranges(axes: &[i64], starts: &[i64], ends: &[i64], steps: &[i64]) -> Result<Vec<Range>> {
    let fits = |list: &[i64]| list.len() == axes.len();
    if !fits(starts) || !fits(ends) || !(steps.is_empty() || fits(steps)) {
        let got = format!("{starts:?} to {ends:?} step {steps:?}");
        return Err(Error::Attribute {
            attribute: "starts",
            got,
            expected: format!("bounds for each of the axes {axes:?}"),
        });
    }
    let range =
        |i: usize| Range { axis: axes[i], start: starts[i], end: ends[i], step: steps.get(i).copied().unwrap_or(1) };
    Ok((0..axes.len()).map(range).collect())
}

fn wide(numbers: &[i32]) -> Vec<i64> {
    numbers.iter().map(|&number| i64::from(number)).collect()
}

#[allow(clippy::too_many_arguments)]
fn slice(
    context: &Context,
    x: Tensor,
    axes: Vec<i64>,
    starts: IntArray,
    ends: IntArray,
    _: Vec<i64>,
    dropped: Vec<i64>,
    out: Output,
) -> Result<()> {
    let operator = Slice { ranges: ranges(&axes, &starts, &ends, &[])? };
    let view = x.view()?;
    // Where bounds come from tensors Paddle could not know the shape.
    let mut dims = operator.infer(&[Meta { dtype: view.dtype, shape: view.shape.clone() }])?.remove(0).shape;
    if out.shape().iter().product::<usize>() != dims.iter().product::<usize>() {
        let drop =
            |axis: usize| dropped.contains(&(axis as i64)) || dropped.contains(&(axis as i64 - view.rank() as i64));
        let kept = dims.iter().enumerate().filter(|(axis, _)| !drop(*axis)).map(|(_, &size)| size).collect();
        dims = kept;
        out.set_dims(&dims);
    }
    one(context, &operator, x, &out)
}

/// A gradient with the axes that its slice has dropped.
fn with_dropped_axes(gradient: &Tensor, dims: &[usize]) -> Result<View> {
    let mut view = gradient.view()?;
    if view.shape[..] == *dims {
        return Ok(view);
    }
    let mut strides = Vec::with_capacity(dims.len());
    let mut own = view.shape.iter().zip(&view.strides).filter(|(size, _)| **size != 1);
    for &size in dims {
        strides.push(if size == 1 { 0 } else { own.next().map_or(0, |(_, &stride)| stride) });
    }
    view = View::strided(view.address, view.dtype, dims, &strides)?;
    Ok(view)
}

fn put_back(context: &Context, x: &Tensor, gradient: &Tensor, ranges: Vec<Range>, out: &Output) -> Result<()> {
    let meta = Meta { dtype: gradient.dtype()?, shape: x.shape() };
    let part = Slice { ranges: ranges.clone() }.infer(&[meta])?.remove(0).shape;
    many(context, &SliceGradient { dims: x.shape(), ranges }, &[with_dropped_axes(gradient, &part)?], &[Some(out)])
}

#[allow(clippy::too_many_arguments)]
fn slice_grad(
    context: &Context,
    x: Tensor,
    gradient: Tensor,
    axes: Vec<i64>,
    starts: IntArray,
    ends: IntArray,
    _: Vec<i64>,
    _: Vec<i64>,
    out: Output,
) -> Result<()> {
    put_back(context, &x, &gradient, ranges(&axes, &starts, &ends, &[])?, &out)
}

#[allow(clippy::too_many_arguments)]
fn strided_slice(
    context: &Context,
    x: Tensor,
    axes: Vec<i32>,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    out: Output,
) -> Result<()> {
    one(context, &Slice { ranges: ranges(&wide(&axes), &starts, &ends, &steps)? }, x, &out)
}

#[allow(clippy::too_many_arguments)]
fn strided_slice_grad(
    context: &Context,
    x: Tensor,
    gradient: Tensor,
    axes: Vec<i32>,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    out: Output,
) -> Result<()> {
    put_back(context, &x, &gradient, ranges(&wide(&axes), &starts, &ends, &steps)?, &out)
}

/// The value with the axes that the indexing has dropped put back, and without those that it has added.
fn value_view(value: &View, rank: usize, dropped: &[i64], added: &[i64]) -> Result<View> {
    let (mut dims, mut strides) = (value.shape.to_vec(), value.strides.to_vec());
    for &axis in added.iter().rev() {
        let at = axis as usize;
        if dims.len() > at && dims[at] == 1 && dims.len() + dropped.len() > rank {
            dims.remove(at);
            strides.remove(at);
        }
    }
    let mut dropped: Vec<usize> = dropped.iter().map(|&axis| axis as usize).collect();
    dropped.sort_unstable();
    let leading = rank.saturating_sub(dims.len() + dropped.len());
    for axis in dropped {
        // Axes of the value count from the end: missing leading ones are broadcast.
        if let Some(at) = axis.checked_sub(leading)
            && at <= dims.len()
        {
            dims.insert(at, 1);
            strides.insert(at, 0);
        }
    }
    Ok(View::strided(value.address, value.dtype, &dims, &strides)?)
}

#[allow(clippy::too_many_arguments)]
fn set_value_with_tensor(
    context: &Context,
    x: Tensor,
    value: Tensor,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    axes: Vec<i64>,
    dropped: Vec<i64>,
    added: Vec<i64>,
    out: Output,
) -> Result<()> {
    let view = x.view()?;
    let value = value_view(&value.view()?, view.rank(), &dropped, &added)?;
    many(context, &SetSlice { ranges: ranges(&axes, &starts, &ends, &steps)? }, &[view, value], &[Some(&out)])
}

#[allow(clippy::too_many_arguments)]
fn set_value(
    context: &Context,
    x: Tensor,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    axes: Vec<i64>,
    dropped: Vec<i64>,
    added: Vec<i64>,
    shape: Vec<i64>,
    values: Vec<Scalar>,
    out: Output,
) -> Result<()> {
    let view = x.view()?;
    let mut memory = vec![0_u64; (values.len() * view.dtype.size()).div_ceil(8).max(1)];
    let size = view.dtype.size();
    for (i, value) in values.iter().enumerate() {
        let element = value.element(view.dtype.into())?;
        // SAFETY: the memory holds an element for each value.
        unsafe {
            std::ptr::copy_nonoverlapping(element.as_ptr(), memory.as_mut_ptr().cast::<u8>().add(i * size), size)
        };
    }
    let dims: Vec<usize> = shape.iter().map(|&size| size.max(0) as usize).collect();
    // One value for any shape stands for all of it.
    let dims = if dims.iter().product::<usize>() == values.len() { dims } else { vec![values.len()] };
    let given = View::dense(memory.as_ptr() as usize, view.dtype, &dims)?;
    let value = value_view(&given, view.rank(), &dropped, &added)?;
    many(context, &SetSlice { ranges: ranges(&axes, &starts, &ends, &steps)? }, &[view, value], &[Some(&out)])
}

/// The gradient of the tensor that was written to: the part that was replaced does not count.
fn cleared(context: &Context, gradient: &Tensor, ranges: Vec<Range>, out: &Output) -> Result<()> {
    let view = gradient.view()?;
    let zero = Number::Int(0).element(view.dtype);
    let zero = View::dense(zero.as_ptr() as usize, view.dtype, &[])?;
    many(context, &SetSlice { ranges }, &[view, zero], &[Some(out)])
}

#[allow(clippy::too_many_arguments)]
fn set_value_grad(
    context: &Context,
    gradient: Tensor,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    axes: Vec<i64>,
    dropped: Vec<i64>,
    added: Vec<i64>,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    let ranges = ranges(&axes, &starts, &ends, &steps)?;
    // Paddle may make x's gradient in the memory of the other: it is read first.
    if let Some(out) = value_gradient {
        value_part(context, &gradient, ranges.clone(), (&dropped, &added), &out)?;
    }
    x_gradient.map_or(Ok(()), |out| cleared(context, &gradient, ranges, &out))
}

/// The gradient of the value: the part that it was written to, summed up where it was broadcast.
fn value_part(
    context: &Context,
    gradient: &Tensor,
    ranges: Vec<Range>,
    (dropped, added): (&[i64], &[i64]),
    out: &Output,
) -> Result<()> {
    let view = gradient.view()?;
    let slice = Slice { ranges };
    let part = slice.infer(&[Meta { dtype: view.dtype, shape: view.shape.clone() }])?.remove(0).shape;
    let memory = vec![0_u64; (part.iter().product::<usize>() * view.dtype.size()).div_ceil(8)];
    let strides = dense_strides(&part);
    let taken = View { address: memory.as_ptr() as usize, dtype: view.dtype, shape: part, strides };
    slice.run(context.queue(), std::slice::from_ref(&view), std::slice::from_ref(&taken))?;
    let shaped = View::dense(0, view.dtype, &out.shape())?;
    let dims = value_view(&shaped, view.rank(), dropped, added)?.shape;
    many(context, &RepeatGradient { dims }, &[taken], &[Some(out)])
}

#[allow(clippy::too_many_arguments)]
fn set_value_with_scalar_grad(
    context: &Context,
    gradient: Tensor,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    axes: Vec<i64>,
    _: Vec<i64>,
    _: Vec<i64>,
    out: Output,
) -> Result<()> {
    cleared(context, &gradient, ranges(&axes, &starts, &ends, &steps)?, &out)
}
