//! Kernels that read and write parts: slice, strided_slice, set_value, and their gradients.

use super::movement::{many, one, summed};
use crate::error::{Error, Result};
use crate::scalar::dims_of;
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::slice::{Range, SetSlice, Slice, SliceGradient};
use openmps_graph::view::elements;
use openmps_graph::{Meta, Operator, Shape, View};
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("slice", ALL, slice).strided();
    table.add("slice_grad", ALL, slice_grad).strided();
    table.add("strided_slice", ALL, strided_slice).strided();
    table.add("strided_slice_raw", ALL, strided_slice_raw).strided();
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

/// The axes of what an indexing names, as `x[1, None, ::2]` has them: each is one of the part's, or a new one of size 1.
fn indexed_axes(part: &[usize], dropped: &[i64], added: &[i64]) -> Vec<Option<usize>> {
    let mut axes = Vec::new();
    let mut added = added.iter().peekable();
    for axis in 0..part.len() {
        // A new axis is told by the axis before which it stands.
        while added.next_if(|&&before| before <= axis as i64).is_some() {
            axes.push(None);
        }
        if !dropped.contains(&(axis as i64)) {
            axes.push(Some(axis));
        }
    }
    axes.extend(added.map(|_| None));
    axes
}

/// For each axis of the part the value's axis and the size that it has there: missing ones and those that were dropped have size 1. Leading
/// axes of size 1 that the value has too many are left out, as Python does.
fn value_axes(value: &[usize], part: &[usize], dropped: &[i64], added: &[i64]) -> Result<Vec<Option<usize>>> {
    let axes = indexed_axes(part, dropped, added);
    let size = |axis: &Option<usize>| axis.map_or(1, |axis| part[axis]);
    let surplus = value.len().saturating_sub(axes.len());
    let missing = axes.len().saturating_sub(value.len());
    let own = |at: usize| at.checked_sub(missing).map(|at| at + surplus);
    let fits = |(at, axis)| own(at).is_none_or(|own| value[own] == 1 || value[own] == size(axis));
    if value[..surplus].iter().any(|&size| size != 1) || !axes.iter().enumerate().all(fits) {
        let (left, right) = (axes.iter().map(size).collect(), value.iter().copied().collect());
        return Err(openmps_graph::Error::Broadcast { operator: "set_value", left, right }.into());
    }
    let place = |axis| axes.iter().position(|each| *each == Some(axis)).and_then(own);
    Ok((0..part.len()).map(place).collect())
}

/// The value as it is broadcast over the part.
fn value_view(value: &View, part: &[usize], dropped: &[i64], added: &[i64]) -> Result<View> {
    let axes = value_axes(&value.shape, part, dropped, added)?;
    let dims: Vec<usize> = axes.iter().map(|axis| axis.map_or(1, |axis| value.shape[axis])).collect();
    let strides: Vec<isize> = axes.iter().map(|axis| axis.map_or(0, |axis| value.strides[axis])).collect();
    Ok(View::strided(value.address, value.dtype, &dims, &strides)?)
}

/// The shape of the part that ranges name.
fn part_of(view: &View, ranges: &[Range]) -> Result<Shape> {
    let meta = Meta { dtype: view.dtype, shape: view.shape.clone() };
    Ok(Slice { ranges: ranges.to_vec() }.infer(&[meta])?.remove(0).shape)
}

/// A copy of `x` with the value in one part.
fn assign(
    context: &Context,
    x: &View,
    value: &View,
    ranges: Vec<Range>,
    (dropped, added): (&[i64], &[i64]),
    out: &Output,
) -> Result<()> {
    let value = value_view(value, &part_of(x, &ranges)?, dropped, added)?;
    many(context, &SetSlice { ranges }, &[x.clone(), value], &[Some(out)])
}

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
    let ranges = ranges(&axes, &starts, &ends, &steps)?;
    assign(context, &x.view()?, &value.view()?, ranges, (&dropped, &added), &out)
}

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
    let x = x.view()?;
    let mut bytes = Vec::with_capacity(values.len() * x.dtype.size());
    for value in &values {
        bytes.extend_from_slice(&value.element(x.dtype.into())?[..x.dtype.size()]);
    }
    let ranges = ranges(&axes, &starts, &ends, &steps)?;
    let part = part_of(&x, &ranges)?;
    if values.is_empty() && part.contains(&0) {
        // Paddle gives an empty value any shape; nothing is replaced by it.
        let nothing = View::dense(x.address, x.dtype, &part)?;
        return many(context, &SetSlice { ranges }, &[x, nothing], &[Some(&out)]);
    }
    // One value for any shape stands for all of it.
    let dims = dims_of(&shape)?;
    let dims = if elements(&dims)? == values.len() { dims } else { vec![values.len()] };
    let value = context.upload(x.dtype, &dims, &bytes)?;
    assign(context, &x, &value.view, ranges, (&dropped, &added), &out)
}

/// The gradient of the tensor that was written to: the part that was replaced does not count.
fn cleared(context: &Context, gradient: &Tensor, ranges: Vec<Range>, out: &Output) -> Result<()> {
    let view = gradient.view()?;
    let zero = context.upload(view.dtype, &[], &[0; 8][..view.dtype.size()])?;
    many(context, &SetSlice { ranges }, &[view, zero.view.clone()], &[Some(out)])
}

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
    let part = part_of(&view, &ranges)?;
    let taken = context.temporary(view.dtype, &part)?;
    Slice { ranges }.run(context.queue(), std::slice::from_ref(&view), std::slice::from_ref(&taken.view))?;
    let value = out.shape();
    let axes = value_axes(&value, &part, dropped, added)?;
    let dims = axes.iter().map(|axis| axis.map_or(1, |axis| value[axis])).collect();
    summed(context, &taken.view, dims, out)
}

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
