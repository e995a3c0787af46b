//! Kernels that copy elements of every type: contiguous, strided_copy, assign, squeeze.

use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::{Operator, View};

/// Adds this family.
pub fn register(table: &mut Table) {
    // Paddle calls these two with strided inputs in any case, and looks them up under the ordinary layout.
    table.add_every("contiguous", contiguous);
    table.add_every("strided_copy", strided_copy);
    table.add_every("assign", contiguous).strided();
    table.add_every("assign_raw", assign_raw).strided();
    // Other shapes of the same elements that Paddle has no view for in inference programs.
    table.add_every("squeeze", with_axes);
    table.add_every("squeeze_grad", without_axes);
    table.add_every("unsqueeze", with_axes);
    table.add_every("unsqueeze_grad", like_input);
    table.add_every("squeeze_with_xshape", reshaped);
    table.add_every("unsqueeze_with_xshape", reshaped);
    table.add_every("flatten2", flattened);
    table.add_every("flatten2_grad", unflattened);
    table.add_every("npu_identity", identity);
    table.add_every("depend", dependent);
    table.add_every("share_data", shared).strided();
    table.add_every("set", set).strided();
}

fn contiguous(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let from = x.bytes_view()?;
    let to = context.allocate_bytes(&out, x.data_type())?;
    copy(context, from, to)
}

fn reshaped(context: &Context, x: Tensor, _axes: IntArray, out: Output, xshape: Option<Output>) -> Result<()> {
    reshaped_to(context, &x, &out, xshape)
}

fn with_axes(context: &Context, x: Tensor, _axes: IntArray, out: Output) -> Result<()> {
    reshaped_to(context, &x, &out, None)
}

fn without_axes(context: &Context, x: Tensor, upstream: Tensor, _axes: IntArray, dx: Output) -> Result<()> {
    like_input(context, x, upstream, dx)
}

fn like_input(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (shape, count) = (x.shape(), upstream.shape().iter().product::<usize>());
    // A legacy program hands over the shape alone, as that of a tensor without elements: behind a 0.
    let dims = match shape.split_first() {
        Some((0, dims)) if count > 0 && dims.iter().product::<usize>() == count => dims,
        _ => &shape[..],
    };
    dx.set_dims(dims);
    reshaped_to(context, &upstream, &dx, None)
}

fn reshaped_to(context: &Context, x: &Tensor, out: &Output, _xshape: Option<Output>) -> Result<()> {
    let from = x.bytes_view()?;
    let to = context.allocate_bytes(out, x.data_type())?;
    let flat = |view: &View| View::dense(view.address, view.dtype, &[view.len()]);
    copy(context, flat(&from)?, flat(&to)?)
}

fn flattened(context: &Context, x: Tensor, _axis: i32, out: Output, xshape: Option<Output>) -> Result<()> {
    reshaped_to(context, &x, &out, xshape)
}

fn unflattened(context: &Context, x: Tensor, _xshape: Tensor, upstream: Tensor, _axis: i32, dx: Output) -> Result<()> {
    dx.set_dims(&x.shape());
    reshaped_to(context, &upstream, &dx, None)
}

/// The formats of the device that it is named after are not told apart here.
fn identity(context: &Context, x: Tensor, _format: i32, out: Output) -> Result<()> {
    contiguous(context, x, out)
}

/// The tensors that have to be there before.
fn dependent(context: &Context, x: Tensor, _before: Vec<Tensor>, out: Output) -> Result<()> {
    contiguous(context, x, out)
}

fn shared(_context: &Context, x: Tensor, out: Output) -> Result<()> {
    out.share(&x);
    Ok(())
}

/// The source's memory, seen in another shape.
fn set(
    _context: &Context,
    _x: Tensor,
    source: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    out: Output,
) -> Result<()> {
    let dims: Vec<usize> = dims.iter().map(|&size| size.max(0) as usize).collect();
    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
    out.share(&source);
    out.set_view(&dims, &strides, offset);
    Ok(())
}

fn assign_raw(context: &Context, x: Option<Tensor>, out: Output) -> Result<()> {
    x.map_or(Ok(()), |x| contiguous(context, x, out))
}

/// Writes `x` into a view of `out`'s memory, which is there already: `y[1:3] = x`.
fn strided_copy(
    context: &Context,
    x: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    out: Output,
) -> Result<()> {
    let dims: Vec<usize> = dims.iter().map(|&size| size.max(0) as usize).collect();
    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
    out.set_view(&dims, &strides, offset);
    if dims.contains(&0) {
        // In place into another element type there is nothing to copy, but the type is the result's.
        out.set_data_type(x.data_type());
        return Ok(());
    }
    let (mut from, to) = (x.bytes_view()?, out.tensor().bytes_view()?);
    if from.shape != to.shape {
        if from.len() != 1 {
            return Err(Error::Graph(openmps_graph::Error::Shape {
                operator: "strided_copy",
                what: "input",
                got: x.shape(),
                expected: format!("{dims:?}"),
            }));
        }
        from = View { shape: to.shape.clone(), strides: to.shape.iter().map(|_| 0).collect(), ..from };
    }
    copy(context, from, to)
}

/// Copies between two views of one shape; a tensor copied onto itself is left alone, and one onto a part of itself is read before.
fn copy(context: &Context, from: View, to: View) -> Result<()> {
    if from.is_same_memory(&to) {
        return Ok(());
    }
    let apart = context.apart(&from, &to)?;
    let from = apart.as_ref().map_or(from, |copy| copy.view.clone());
    Ok(Copy.run(context.queue(), &[from], &[to])?)
}
