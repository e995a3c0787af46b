//! Kernels that read and write by index: gather, embedding, scatter, masks, and their gradients.

use super::compose::Compose;
use super::movement::{many, one, summed};
use crate::abi::exception::Code;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::layout::axis_of;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::broadcast;
use openmps_graph::operators::full::Full;
use openmps_graph::operators::gather::{Embedding, Gather, GatherNd, Negative, TakeAlongAxis};
use openmps_graph::operators::nonzero as masks;
use openmps_graph::operators::scatter::{EmbeddingGradient, IndexAdd, PutAlongAxis, Reduce, Scatter, ScatterNdAdd};
use openmps_graph::{DType, Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype::{ALL, FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("gather", ALL, gather).strided();
    table.add("gather_grad", NUMBERS, gather_grad);
    table.add("gather_nd", ALL, gather_nd).strided();
    table.add("gather_nd_grad", NUMBERS, gather_nd_grad);
    table.add("index_select", ALL, index_select).strided();
    table.add("index_select_grad", NUMBERS, index_select_grad);
    table.add("index_sample", ALL, index_sample).strided();
    table.add("index_sample_grad", NUMBERS, index_sample_grad);
    table.add("index_add", NUMBERS, index_add).strided();
    table.add("index_add_grad", NUMBERS, index_add_grad).strided();
    table.add("embedding", FLOATS, embedding).strided();
    table.add("embedding_grad", FLOATS, embedding_grad).strided();
    table.add("lookup_table", FLOATS, lookup_table).strided();
    table.add("lookup_table_grad", FLOATS, lookup_table_grad).strided();
    table.add("take_along_axis", ALL, take_along_axis).strided();
    table.add("take_along_axis_grad", NUMBERS, take_along_axis_grad);
    table.add("scatter", NUMBERS, scatter).strided();
    table.add("scatter_grad", NUMBERS, scatter_grad).strided();
    table.add("scatter_nd_add", NUMBERS, scatter_nd_add).strided();
    table.add("scatter_nd_add_grad", NUMBERS, scatter_nd_add_grad).strided();
    table.add("nonzero", ALL, nonzero).strided().output(0, DType::I64);
    table.add("masked_select", ALL, masked_select).strided();
    table.add("masked_select_grad", NUMBERS, masked_select_grad).strided();
}

/// An index that names nothing as Paddle's kernels tell it that raise ValueError; others raise IndexError.
pub(super) fn as_value(error: Error) -> Error {
    error.with_index_as("index", Code::InvalidArgument)
}

/// The indices of an embedding.
fn indices_of(index: &Tensor) -> Result<View> {
    let index = index.view()?;
    match index.dtype {
        DType::I32 | DType::I64 => Ok(index),
        other => Err(Error::ElementType(other.into())),
    }
}

/// An output of zeros, to which a gradient is added.
pub(super) fn zeros(context: &Context, dtype: DType, dims: &[usize], out: &Output) -> Result<View> {
    let view = context.allocate(out, dtype)?;
    let view = View::dense(view.address, dtype, dims)?;
    let zero = Full { dims: view.shape.clone(), dtype, value: Number::Integer(0) };
    zero.run(context.queue(), &[], std::slice::from_ref(&view))?;
    Ok(view)
}

/// Adds to an output of zeros in place.
fn accumulate(
    context: &Context,
    operator: &dyn Operator,
    x: &Tensor,
    index: View,
    gradient: View,
    out: &Output,
) -> Result<()> {
    let sums = zeros(context, gradient.dtype, &x.shape(), out)?;
    Ok(operator.run(context.queue(), &[sums.clone(), index, gradient], &[sums])?)
}

/// A dense tensor in another shape.
fn reshaped(view: View, dims: &[usize]) -> Result<View> {
    Ok(View::dense(view.address, view.dtype, dims)?)
}

fn gather(context: &Context, x: Tensor, index: Tensor, axis: Scalar, out: Output) -> Result<()> {
    let c = Compose::new(context);
    // In a program the axis may be a tensor, which Paddle's rule takes for 0.
    let mut dims = x.shape();
    let at = axis_of("gather", axis.i64(), dims.len())?;
    match &index.shape()[..] {
        [] => _ = dims.remove(at),
        &[count] | &[count, 1] => dims[at] = count,
        _ => {}
    }
    if out.shape() != dims {
        out.set_dims(&dims);
    }
    many(context, &Gather { axis: axis.i64() }, &[x.view()?, wide(&c, &index)?], &[Some(&out)])
}

/// Indices of 16 bits as ones of 64: gather alone takes them.
fn wide(c: &Compose, index: &Tensor) -> Result<View> {
    let index = index.view()?;
    if index.dtype == DType::I16 { c.cast(&index, DType::I64) } else { Ok(index) }
}

/// The gradient of slices taken along an axis; everything arrives dense.
fn gathered_gradient(
    context: &Context,
    x: Tensor,
    index: Tensor,
    gradient: Tensor,
    axis: i64,
    out: &Output,
) -> Result<()> {
    let c = Compose::new(context);
    let (index, gradient) = (wide(&c, &index)?, gradient.view()?);
    let mut dims = x.shape();
    let at = axis_of("gather_grad", axis, dims.len())?;
    dims[at] = index.len();
    let (index, gradient) = (reshaped(index.clone(), &[index.len()])?, reshaped(gradient, &dims)?);
    accumulate(context, &IndexAdd { axis }, &x, index, gradient, out)
}

fn gather_grad(context: &Context, x: Tensor, index: Tensor, gradient: Tensor, axis: Scalar, out: Output) -> Result<()> {
    gathered_gradient(context, x, index, gradient, axis.i64(), &out)
}

fn gather_nd(context: &Context, x: Tensor, index: Tensor, out: Output) -> Result<()> {
    let mut index = index.view()?;
    if index.is_empty() {
        // An empty list of Python has no element type of its own.
        index.dtype = DType::I64;
    }
    many(context, &GatherNd, &[x.view()?, index], &[Some(&out)]).map_err(as_value)
}

fn gather_nd_grad(context: &Context, x: Tensor, index: Tensor, gradient: Tensor, out: Output) -> Result<()> {
    let mut index = index.view()?;
    if index.is_empty() {
        index.dtype = DType::I64;
    }
    accumulate(context, &ScatterNdAdd, &x, index, gradient.view()?, &out)
}

fn index_select(context: &Context, x: Tensor, index: Tensor, axis: i32, out: Output) -> Result<()> {
    many(context, &Gather { axis: axis.into() }, &[x.view()?, index.view()?], &[Some(&out)]).map_err(as_value)
}

fn index_select_grad(
    context: &Context,
    x: Tensor,
    index: Tensor,
    gradient: Tensor,
    axis: i32,
    out: Output,
) -> Result<()> {
    gathered_gradient(context, x, index, gradient, axis.into(), &out)
}

fn index_sample(context: &Context, x: Tensor, index: Tensor, out: Output) -> Result<()> {
    let operator = TakeAlongAxis { axis: 1, negative: Negative::Refused };
    many(context, &operator, &[x.view()?, index.view()?], &[Some(&out)]).map_err(as_value)
}

fn index_sample_grad(context: &Context, x: Tensor, index: Tensor, gradient: Tensor, out: Output) -> Result<()> {
    take_along_axis_grad(context, x, index, gradient, 1, out)
}

fn index_add(context: &Context, x: Tensor, index: Tensor, values: Tensor, axis: i32, out: Output) -> Result<()> {
    let inputs = [x.view()?, index.view()?, values.view()?];
    many(context, &IndexAdd { axis: axis.into() }, &inputs, &[Some(&out)]).map_err(as_value)
}

fn index_add_grad(
    context: &Context,
    index: Tensor,
    _: Tensor,
    gradient: Tensor,
    axis: i32,
    x_gradient: Option<Output>,
    values_gradient: Option<Output>,
) -> Result<()> {
    // Paddle may make this gradient in the memory of the other: it is read first.
    if let Some(out) = values_gradient {
        index_select(context, gradient, index, axis, out)?;
    }
    if let Some(out) = x_gradient {
        one(context, &Copy, gradient, &out)?;
    }
    Ok(())
}

/// Paddle says -1 where no index is padding.
fn padding(index: i64) -> Option<i64> {
    (index >= 0).then_some(index)
}

fn embedding(context: &Context, index: Tensor, table: Tensor, padded: i64, out: Output) -> Result<()> {
    let inputs = [indices_of(&index)?, table.view()?];
    many(context, &Embedding { padding: padding(padded) }, &inputs, &[Some(&out)]).map_err(as_value)
}

pub(super) fn embedding_grad(
    context: &Context,
    index: Tensor,
    table: Tensor,
    gradient: Tensor,
    padded: i64,
    out: Output,
) -> Result<()> {
    let rows = table.shape().first().copied().unwrap_or(0);
    let operator = EmbeddingGradient { rows, padding: padding(padded) };
    many(context, &operator, &[indices_of(&index)?, gradient.view()?], &[Some(&out)]).map_err(as_value)
}

/// Of the older form's attributes only the padded row counts; the others are a parameter server's.
fn lookup_table(
    context: &Context,
    table: Tensor,
    index: Tensor,
    _sparse: bool,
    _distributed: bool,
    padded: i64,
    _prefetch: bool,
    _entry_config: String,
    _is_test: bool,
    _entry: String,
    _class: String,
    _names: Vec<String>,
    _trainer: i32,
    _in_place: bool,
    _hosts: Vec<String>,
    _sections: Vec<i64>,
    out: Output,
) -> Result<()> {
    let index = without_last(&index)?;
    many(context, &Embedding { padding: padding(padded) }, &[index, table.view()?], &[Some(&out)]).map_err(as_value)
}

fn lookup_table_grad(
    context: &Context,
    table: Tensor,
    index: Tensor,
    gradient: Tensor,
    _sparse: bool,
    _distributed: bool,
    padded: i64,
    _prefetch: bool,
    _entry_config: String,
    _is_test: bool,
    _entry: String,
    _class: String,
    _names: Vec<String>,
    _trainer: i32,
    _in_place: bool,
    _hosts: Vec<String>,
    _sections: Vec<i64>,
    out: Output,
) -> Result<()> {
    let rows = table.shape().first().copied().unwrap_or(0);
    let operator = EmbeddingGradient { rows, padding: padding(padded) };
    many(context, &operator, &[without_last(&index)?, gradient.view()?], &[Some(&out)]).map_err(as_value)
}

/// Indices whose last dimension is 1 and not one of the result.
fn without_last(index: &Tensor) -> Result<View> {
    let index = indices_of(index)?;
    let last = index.rank().saturating_sub(1);
    Ok(if index.shape.last() == Some(&1) { index.without_axis(last) } else { index })
}

fn take_along_axis(context: &Context, x: Tensor, index: Tensor, axis: i32, out: Output) -> Result<()> {
    many(
        context,
        &TakeAlongAxis { axis: axis.into(), negative: Negative::FromEnd },
        &[x.view()?, index.view()?],
        &[Some(&out)],
    )
}

fn take_along_axis_grad(
    context: &Context,
    x: Tensor,
    index: Tensor,
    gradient: Tensor,
    axis: i32,
    out: Output,
) -> Result<()> {
    let operator = PutAlongAxis { axis: axis.into(), reduce: Reduce::Add, include_self: true };
    accumulate(context, &operator, &x, index.view()?, gradient.view()?, &out)
}

fn scatter(context: &Context, x: Tensor, index: Tensor, updates: Tensor, overwrite: bool, out: Output) -> Result<()> {
    many(context, &Scatter { overwrite }, &[x.view()?, index.view()?, updates.view()?], &[Some(&out)])
}

fn scatter_grad(
    context: &Context,
    index: Tensor,
    updates: Tensor,
    gradient: Tensor,
    _: bool,
    x_gradient: Option<Output>,
    updates_gradient: Option<Output>,
) -> Result<()> {
    // Paddle may make this gradient in the memory of the other: it is read first.
    if let Some(out) = updates_gradient {
        many(context, &Gather { axis: 0 }, &[gradient.view()?, index.view()?], &[Some(&out)])?;
    }
    if let Some(out) = x_gradient {
        let (dtype, shape) = (gradient.dtype()?, updates.shape());
        let zero = context.upload(dtype, &[], &[0; 8][..dtype.size()])?;
        let zeros = zero.view.broadcast_to(&shape).expect("a scalar fits every shape");
        let inputs = [gradient.view()?, index.view()?, zeros];
        many(context, &Scatter { overwrite: true }, &inputs, &[Some(&out)])?;
    }
    Ok(())
}

fn scatter_nd_add(context: &Context, x: Tensor, index: Tensor, updates: Tensor, out: Output) -> Result<()> {
    many(context, &ScatterNdAdd, &[x.view()?, index.view()?, updates.view()?], &[Some(&out)])
}

fn scatter_nd_add_grad(
    context: &Context,
    index: Tensor,
    _: Tensor,
    gradient: Tensor,
    x_gradient: Option<Output>,
    updates_gradient: Option<Output>,
) -> Result<()> {
    // Paddle may make this gradient in the memory of the other: it is read first.
    if let Some(out) = updates_gradient {
        gather_nd(context, gradient, index, out)?;
    }
    if let Some(out) = x_gradient {
        one(context, &Copy, gradient, &out)?;
    }
    Ok(())
}

fn nonzero(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let x = x.view()?;
    out.set_dims(&[masks::count_nonzero(context.queue(), &x)?, x.rank()]);
    Ok(masks::nonzero(context.queue(), &x, &context.allocate(&out, DType::I64)?)?)
}

fn masked_select(context: &Context, x: Tensor, mask: Tensor, out: Output) -> Result<()> {
    let (x, mask) = (x.view()?, mask.view()?);
    let told = |error| match error {
        source @ openmps_graph::Error::Broadcast { .. } => Error::Told { source, code: Code::PreconditionNotMet },
        other => other.into(),
    };
    out.set_dims(&[masks::count_masked(context.queue(), &x, &mask).map_err(told)?]);
    Ok(masks::masked_select(context.queue(), &x, &mask, &context.allocate(&out, x.dtype)?)?)
}

/// The mask, or the tensor that was selected from, may have been repeated; what was repeated is summed.
fn masked_select_grad(context: &Context, x: Tensor, mask: Tensor, gradient: Tensor, out: Output) -> Result<()> {
    let (dtype, dims, mask) = (x.dtype()?, x.shape(), mask.view()?);
    let wide = broadcast("masked_select", &dims, &mask.shape)?;
    let mask = mask.broadcast_to(&wide).unwrap_or(mask);
    let scatter = |to: &View| masks::masked_scatter(context.queue(), &gradient.view()?, &mask, to).map_err(Error::from);
    if wide == dims {
        return scatter(&context.allocate(&out, dtype)?);
    }
    let scattered = context.temporary(dtype, &wide)?;
    scatter(&scattered.view)?;
    summed(context, &scattered.view, dims, &out)
}
