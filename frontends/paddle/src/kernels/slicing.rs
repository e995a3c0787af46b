//! Kernels that read parts: slice, strided_slice, and their gradients.

use super::movement::{many, one};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::slice::{Range, Slice, SliceGradient};
use openmps_graph::{Meta, Operator, Shape, View};
use openmps_tile::dtype::ALL;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("slice", ALL, slice).strided();
    table.add("slice_grad", ALL, slice_grad).strided();
    table.add("strided_slice", ALL, strided_slice).strided();
    table.add("strided_slice_raw", ALL, strided_slice_raw).strided();
    table.add("strided_slice_grad", ALL, strided_slice_grad).strided();
}

pub(super) fn ranges(axes: &[i64], starts: &[i64], ends: &[i64], steps: &[i64]) -> Result<Vec<Range>> {
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

/// The ends, of which those of `x[i]` are one more than i: after the last element, where a program's i is -1, stands no 0.
fn ends_of_elements(axes: &[i64], starts: &[i64], ends: &[i64], inferred: &[i64], dropped: &[i64]) -> Vec<i64> {
    let end = |(at, &end): (usize, &i64)| {
        let is_last = inferred.get(at) == Some(&-1) && (starts.get(at), end) == (Some(&-1), 0);
        let is_element = axes.get(at).is_some_and(|axis| dropped.contains(axis));
        if is_last && is_element { i64::MAX } else { end }
    };
    ends.iter().enumerate().map(end).collect()
}

/// Dimensions without the axes that an indexing drops, which may be counted from the end.
fn without_dropped(dims: &[usize], dropped: &[i64]) -> Shape {
    let rank = dims.len() as i64;
    let is_kept = |axis: i64| !dropped.contains(&axis) && !dropped.contains(&(axis - rank));
    dims.iter().zip(0..).filter(|(_, axis)| is_kept(*axis)).map(|(&size, _)| size).collect()
}

fn slice(
    context: &Context,
    x: Tensor,
    axes: Vec<i64>,
    starts: IntArray,
    ends: IntArray,
    inferred: Vec<i64>,
    dropped: Vec<i64>,
    out: Output,
) -> Result<()> {
    let ends = ends_of_elements(&axes, &starts, &ends, &inferred, &dropped);
    let operator = Slice { ranges: ranges(&axes, &starts, &ends, &[])? };
    let view = x.view()?;
    // Where bounds come from tensors Paddle could not know the shape.
    let mut dims = operator.infer(&[Meta { dtype: view.dtype, shape: view.shape.clone() }])?.remove(0).shape;
    if out.has_unknown_dims() || out.shape().iter().product::<usize>() != dims.iter().product::<usize>() {
        dims = without_dropped(&dims, &dropped);
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

fn slice_grad(
    context: &Context,
    x: Tensor,
    gradient: Tensor,
    axes: Vec<i64>,
    starts: IntArray,
    ends: IntArray,
    inferred: Vec<i64>,
    dropped: Vec<i64>,
    out: Output,
) -> Result<()> {
    let ends = ends_of_elements(&axes, &starts, &ends, &inferred, &dropped);
    put_back(context, &x, &gradient, ranges(&axes, &starts, &ends, &[])?, &out)
}

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

/// The form of legacy programs. Axes that are dropped change the output's shape, not its elements.
fn strided_slice_raw(
    context: &Context,
    x: Tensor,
    axes: Vec<i32>,
    starts: IntArray,
    ends: IntArray,
    steps: IntArray,
    _inferred: Vec<i32>,
    dropped: Vec<i32>,
    out: Output,
) -> Result<()> {
    let (operator, x) = (Slice { ranges: ranges(&wide(&axes), &starts, &ends, &steps)? }, x.view()?);
    let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
    let dims = operator.infer(&[meta])?.remove(0).shape;
    if out.has_unknown_dims() {
        out.set_dims(&without_dropped(&dims, &wide(&dropped)));
    }
    let to = View::dense(context.allocate(&out, x.dtype)?.address, x.dtype, &dims)?;
    Ok(operator.run(context.queue(), &[x], &[to])?)
}

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
