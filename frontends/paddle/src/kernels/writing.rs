//! Kernels that write parts: set_value and its gradients. Complex numbers are pairs of floats here, whose last axis is taken whole.

use super::complex::{allocate_pairs, pairs};
use super::compose::Compose;
use super::movement::{apart, many, summed};
use super::slicing::ranges;
use crate::error::{Result, refuse};
use crate::scalar::dims_of;
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::operators::slice::{Range, SetSlice, Slice};
use openmps_graph::view::elements;
use openmps_graph::{Meta, Operator, Shape, View};
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("set_value", ALL, set_value).strided();
    table.add("set_value_with_tensor", ALL, set_value_with_tensor).strided();
    table.add("set_value_grad", NUMBERS, set_value_grad).strided();
    table.add("set_value_with_scalar_grad", ALL, set_value_with_scalar_grad).strided();
    table.add_complex("set_value", set_value).strided();
    table.add_complex("set_value_with_tensor", set_value_with_tensor).strided();
    table.add_complex("set_value_grad", set_value_grad).strided();
    table.add_complex("set_value_with_scalar_grad", set_value_with_scalar_grad).strided();
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

/// The numbers of a tensor, complex ones as pairs.
fn numbers(x: &Tensor) -> Result<View> {
    if x.data_type().is_complex() { pairs(x) } else { x.view() }
}

/// The ranges of axes that may be counted from the end, which pairs have behind their own.
fn ranges_of(x: &Tensor, axes: &[i64], starts: &[i64], ends: &[i64], steps: &[i64]) -> Result<Vec<Range>> {
    let rank = x.shape().len() as i64;
    let axes: Vec<i64> = axes.iter().map(|&axis| if axis < 0 { axis + rank } else { axis }).collect();
    ranges(&axes, starts, ends, steps)
}

/// Runs an operator whose result has the type of the tensor `like`.
fn put(context: &Context, operator: &dyn Operator, inputs: &[View], like: &Tensor, out: &Output) -> Result<()> {
    if !like.data_type().is_complex() {
        return many(context, operator, inputs, &[Some(out)]);
    }
    let (to, mut kept) = ([allocate_pairs(context, out, inputs[0].dtype)?], Vec::new());
    let inputs = apart(context, operator, inputs, &to, &mut kept)?;
    Ok(operator.run(context.queue(), &inputs, &to)?)
}

/// A copy of `x` with the value in one part.
fn assign(
    context: &Context,
    x: &Tensor,
    value: &View,
    ranges: Vec<Range>,
    (dropped, added): (&[i64], &[i64]),
    out: &Output,
) -> Result<()> {
    let to = numbers(x)?;
    let value = value_view(value, &part_of(&to, &ranges)?, dropped, added)?;
    put(context, &SetSlice { ranges }, &[to, value], x, out)
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
    if x.data_type().is_complex() != value.data_type().is_complex() {
        return Err(refuse("value", value.data_type().name(), &format!("elements of {}", x.data_type().name())));
    }
    let ranges = ranges_of(&x, &axes, &starts, &ends, &steps)?;
    assign(context, &x, &numbers(&value)?, ranges, (&dropped, &added), &out)
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
    let (to, data_type) = (numbers(&x)?, x.data_type());
    let mut bytes = Vec::with_capacity(values.len() * data_type.size());
    for value in &values {
        bytes.extend_from_slice(&value.element(data_type)?[..data_type.size()]);
    }
    let ranges = ranges_of(&x, &axes, &starts, &ends, &steps)?;
    let part = part_of(&to, &ranges)?;
    if values.is_empty() && part.contains(&0) {
        // Paddle gives an empty value any shape; nothing is replaced by it.
        let nothing = View::dense(to.address, to.dtype, &part)?;
        return put(context, &SetSlice { ranges }, &[to, nothing], &x, &out);
    }
    // One value for any shape stands for all of it.
    let dims = dims_of(&shape)?;
    let mut dims = if elements(&dims)? == values.len() { dims } else { vec![values.len()] };
    if data_type.is_complex() {
        dims.push(2);
    }
    let value = context.upload(to.dtype, &dims, &bytes)?;
    assign(context, &x, &value.view, ranges, (&dropped, &added), &out)
}

/// The gradient of the tensor that was written to: the part that was replaced does not count.
fn cleared(context: &Context, gradient: &Tensor, ranges: Vec<Range>, out: &Output) -> Result<()> {
    let view = numbers(gradient)?;
    let zero = context.upload(view.dtype, &[], &[0; 8][..view.dtype.size()])?;
    put(context, &SetSlice { ranges }, &[view, zero.view.clone()], gradient, out)
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
    let ranges = ranges_of(&gradient, &axes, &starts, &ends, &steps)?;
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
    let view = numbers(gradient)?;
    let part = part_of(&view, &ranges)?;
    let taken = context.temporary(view.dtype, &part)?;
    Slice { ranges }.run(context.queue(), std::slice::from_ref(&view), std::slice::from_ref(&taken.view))?;
    let mut value = out.shape();
    if gradient.data_type().is_complex() {
        value.push(2);
    }
    let axes = value_axes(&value, &part, dropped, added)?;
    let dims = axes.iter().map(|axis| axis.map_or(1, |axis| value[axis])).collect();
    if !gradient.data_type().is_complex() {
        return summed(context, &taken.view, dims, out);
    }
    let (c, to) = (Compose::new(context), allocate_pairs(context, out, view.dtype)?);
    if taken.view.is_empty() {
        return c.fill(&to, 0.0);
    }
    let to = View::dense(to.address, to.dtype, &dims)?;
    c.launch(&RepeatGradient { dims }, std::slice::from_ref(&taken.view), &[to])
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
    cleared(context, &gradient, ranges_of(&gradient, &axes, &starts, &ends, &steps)?, &out)
}
