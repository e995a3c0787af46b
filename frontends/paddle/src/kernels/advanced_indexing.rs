//! Python's indexing by index tensors: index_elementwise_get, index_elementwise_put, index_put, and their gradients.

use super::indexing::zeros;
use super::movement::{many, one};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::layout::Number;
use openmps_graph::operators::advanced_index::{Axis, Selection, broadcast_shape};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::nonzero::{count_nonzero, nonzero};
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::view::{dense_strides, shape_of};
use openmps_graph::{DType, View};
use openmps_tile::dtype::{ALL, NUMBERS};

/// Adds this family. Inputs arrive dense: the strides that Paddle passes along are those of a dense tensor.
pub fn register(table: &mut Table) {
    table.add("index_elementwise_get", ALL, get);
    table.add("index_elementwise_get_grad", NUMBERS, get_grad);
    table.add("index_elementwise_put", ALL, put);
    table.add("index_elementwise_put_grad", NUMBERS, put_grad);
    table.add("index_elementwise_put_with_tensor", ALL, put_with_tensor);
    table.add("index_elementwise_put_with_tensor_grad", NUMBERS, put_with_tensor_grad);
    table.add("index_put", ALL, index_put);
    table.add("index_put_grad", NUMBERS, index_put_grad);
}

/// An indexing as Paddle describes it: the selection's shape and strides in elements; the sizes of the indexed axes, of which the
/// list goes on after -1 with the shape of the indices; the strides of the indexed axes and the start in bytes.
struct Described {
    selection: Selection,
    indices: Vec<View>,
    /// Holds indices that a mask was turned into.
    _memory: Vec<Vec<u64>>,
}

fn described(
    context: &Context,
    x: &Tensor,
    indices: &[Tensor],
    (dims, strides): (&[i64], &[i64]),
    (sizes, axis_strides): (&[i64], &[i64]),
    start: i64,
) -> Result<Described> {
    let element = x.dtype()?.size() as isize;
    let shape = shape_of(&dims.iter().map(|&size| size.max(0) as usize).collect::<Vec<_>>())?;
    let mut views = indices.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    if let [mask] = &views[..]
        && mask.dtype == DType::Bool
    {
        return masked(context, &mask.clone(), shape, strides, start as isize / element);
    }
    // The indices come in their own shape; the selection's axes that they extend along are told after -1.
    let extended: Vec<usize> =
        sizes.split(|&size| size == -1).nth(1).unwrap_or(&[]).iter().map(|&size| size.max(0) as usize).collect();
    for view in &mut views {
        if !extended.is_empty() && view.is_dense() && view.len() == extended.iter().product() {
            *view = View::dense(view.address, view.dtype, &extended)?;
        }
    }
    let axis = |(&size, &stride): (&i64, &i64)| Axis { size: size.max(0) as usize, stride: stride as isize / element };
    let axes = sizes.iter().take_while(|&&size| size != -1).zip(axis_strides).map(axis).collect();
    let strides = strides.iter().map(|&stride| stride as isize).collect();
    let selection = Selection { shape, strides, start: start as isize / element, axes };
    Ok(Described { selection, indices: views, _memory: Vec::new() })
}

/// A selection by a mask: the elements where it is true, one after the other.
fn masked(
    context: &Context,
    mask: &View,
    shape: openmps_graph::Shape,
    strides: &[i64],
    start: isize,
) -> Result<Described> {
    let rank = mask.rank().min(strides.len());
    let found = count_nonzero(context.queue(), mask)?;
    let memory = vec![0_u64; found * mask.rank()];
    let rows = View::dense(memory.as_ptr() as usize, DType::I64, &[found, mask.rank()])?;
    nonzero(context.queue(), mask, &rows)?;
    let axes = (0..rank).map(|d| Axis { size: shape[d], stride: strides[d] as isize }).collect();
    let rest = shape.len() - rank;
    let indices = (0..rank).map(|d| column(&rows, d, rest)).collect::<Result<Vec<View>>>()?;
    let dims = [&[found], &shape[rank..]].concat();
    let strides = std::iter::once(0).chain(strides[rank..].iter().map(|&stride| stride as isize)).collect();
    Ok(Described {
        selection: Selection { shape: shape_of(&dims)?, strides, start, axes },
        indices,
        _memory: vec![memory],
    })
}

/// One coordinate of rows of coordinates, with axes of size 1 for those that are not indexed.
fn column(rows: &View, d: usize, rest: usize) -> Result<View> {
    let mut column = rows.narrowed(1, d, 1, 1).without_axis(1);
    column.shape.extend(std::iter::repeat_n(1, rest));
    column.strides.extend(std::iter::repeat_n(0, rest));
    Ok(column)
}

/// What Paddle passes after the tensors: dims, strides, sizes, axis strides, start.
macro_rules! described {
    ($context:expr, $x:expr, $indices:expr, $dims:expr, $strides:expr, $sizes:expr, $axis_strides:expr, $start:expr) => {
        described($context, $x, $indices, (&$dims, &$strides), (&$sizes, &$axis_strides), $start)?
    };
}

#[allow(clippy::too_many_arguments)]
fn get(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    if out.shape() != what.selection.shape && !out.shape().is_empty() {
        out.set_dims(&what.selection.shape);
    }
    let to = context.allocate(&out, x.dtype()?)?;
    let to = View::dense(to.address, to.dtype, &what.selection.shape)?;
    Ok(what.selection.get(context.queue(), &x.view()?, &what.indices, &to)?)
}

#[allow(clippy::too_many_arguments)]
fn get_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    _: bool,
    _: bool,
    out: Output,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    let gradient = gradient.view()?;
    let sums = zeros(context, gradient.dtype, &x.shape(), &out)?;
    let gradient = View::dense(gradient.address, gradient.dtype, &what.selection.shape)?;
    Ok(what.selection.add(context.queue(), &sums, &what.indices, &gradient)?)
}

/// A copy of a tensor in the output, which may be the tensor itself.
fn copied(context: &Context, x: &Tensor, out: &Output) -> Result<View> {
    one(context, &Copy, *x, out)?;
    out.tensor().view()
}

/// Puts one element all over a selection.
fn put_element(context: &Context, what: &Described, x: &View, element: &[u8; 8]) -> Result<()> {
    let value = View::dense(element.as_ptr() as usize, x.dtype, &[])?;
    Ok(what.selection.put(context.queue(), x, &what.indices, &value)?)
}

#[allow(clippy::too_many_arguments)]
fn put(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Scalar,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    let mut element = [0; 8];
    element.copy_from_slice(&value.element(x.data_type())?[..8]);
    put_element(context, &what, &copied(context, &x, &out)?, &element)
}

#[allow(clippy::too_many_arguments)]
fn put_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    let copy = copied(context, &gradient, &out)?;
    put_element(context, &what, &copy, &Number::Int(0).element(copy.dtype))
}

#[allow(clippy::too_many_arguments)]
fn put_with_tensor(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    out: Output,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    let to = copied(context, &x, &out)?;
    Ok(what.selection.put(context.queue(), &to, &what.indices, &without_leading_ones(value.view()?, &what))?)
}

/// A value may have more leading axes of size 1 than the selection has axes.
fn without_leading_ones(mut value: View, what: &Described) -> View {
    while value.rank() > what.selection.shape.len() && value.shape[0] == 1 {
        value = value.without_axis(0);
    }
    value
}

/// The gradients of a tensor that was written to and of the value that was written.
fn written_gradients(
    context: &Context,
    what: &Described,
    gradient: &Tensor,
    accumulated: bool,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    // Paddle may make x's gradient in the memory of the other: it is read first.
    if let Some(out) = value_gradient {
        let from = gradient.view()?;
        let shape = what.selection.shape.clone();
        let memory = vec![0_u64; (shape.iter().product::<usize>() * from.dtype.size()).div_ceil(8)];
        let address = memory.as_ptr() as usize;
        let taken = View { address, dtype: from.dtype, strides: dense_strides(&shape), shape };
        what.selection.get(context.queue(), &from, &what.indices, &taken)?;
        let shaped = without_leading_ones(View::dense(0, from.dtype, &out.shape())?, what);
        many(context, &RepeatGradient { dims: shaped.shape }, &[taken], &[Some(&out)])?;
    }
    let Some(out) = x_gradient else { return Ok(()) };
    let copy = copied(context, gradient, &out)?;
    if accumulated { Ok(()) } else { put_element(context, what, &copy, &Number::Int(0).element(copy.dtype)) }
}

#[allow(clippy::too_many_arguments)]
fn put_with_tensor_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    _: Tensor,
    gradient: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    sizes: Vec<i64>,
    axis_strides: Vec<i64>,
    start: i64,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    let what = described!(context, &x, &indices, dims, strides, sizes, axis_strides, start);
    written_gradients(context, &what, &gradient, false, x_gradient, value_gradient)
}

/// index_put's indexing: the first axes are indexed, one by each tensor; a mask indexes as many axes as it has.
fn leading(context: &Context, x: &Tensor, indices: &[Tensor]) -> Result<Described> {
    let shape = x.shape();
    let strides = dense_strides(&shape);
    let (mut views, mut memories) = (Vec::new(), Vec::new());
    for index in indices {
        let view = index.view()?;
        if view.dtype != DType::Bool {
            views.push(view);
            continue;
        }
        let found = count_nonzero(context.queue(), &view)?;
        memories.push(vec![0_u64; found * view.rank()]);
        let address = memories.last().map_or(0, |memory| memory.as_ptr() as usize);
        let rows = View::dense(address, DType::I64, &[found, view.rank()])?;
        nonzero(context.queue(), &view, &rows)?;
        for d in 0..view.rank() {
            views.push(column(&rows, d, 0)?);
        }
    }
    if views.len() > shape.len() {
        let (got, expected) = (format!("{} indexed axes", views.len()), format!("at most {}", shape.len()));
        return Err(Error::Attribute { attribute: "indices", got, expected });
    }
    let extended = broadcast_shape(&views, openmps_graph::view::MAX_RANK)?;
    let rest = views.len();
    let axes = (0..rest).map(|d| Axis { size: shape[d], stride: strides[d] }).collect();
    let dims = [&extended[..], &shape[rest..]].concat();
    let own = std::iter::repeat_n(0, extended.len()).chain(strides[rest..].iter().copied()).collect();
    for view in &mut views {
        let ones = shape.len() - rest;
        view.shape.extend(std::iter::repeat_n(1, ones));
        view.strides.extend(std::iter::repeat_n(0, ones));
    }
    let selection = Selection { shape: shape_of(&dims)?, strides: own, start: 0, axes };
    Ok(Described { selection, indices: views, _memory: memories })
}

fn index_put(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    value: Tensor,
    accumulate: bool,
    out: Output,
) -> Result<()> {
    let what = leading(context, &x, &indices)?;
    let (to, value) = (copied(context, &x, &out)?, without_leading_ones(value.view()?, &what));
    if accumulate {
        return Ok(what.selection.add(context.queue(), &to, &what.indices, &value)?);
    }
    Ok(what.selection.put(context.queue(), &to, &what.indices, &value)?)
}

#[allow(clippy::too_many_arguments)]
fn index_put_grad(
    context: &Context,
    x: Tensor,
    indices: Vec<Tensor>,
    _: Tensor,
    gradient: Tensor,
    accumulate: bool,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    let what = leading(context, &x, &indices)?;
    written_gradients(context, &what, &gradient, accumulate, x_gradient, value_gradient)
}
