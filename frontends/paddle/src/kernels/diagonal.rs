//! Diagonals: of matrices, into matrices, and their sum. A diagonal is a view, so that all of this is copying.

use super::compose::Compose;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::reduce::{Reduce, Reduction};
use openmps_graph::{Operator, View};
use openmps_tile::dtype::{ALL, FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("diag", ALL, diag).strided();
    table.add("diag_grad", FLOATS, diag_grad).strided();
    table.add("diag_embed", ALL, diag_embed).strided();
    table.add("trace", NUMBERS, trace).strided();
    table.add("trace_grad", FLOATS, trace_grad).strided();
}

fn axis(axis: i32, rank: usize) -> Result<usize> {
    let place = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    usize::try_from(place).ok().filter(|&place| place < rank).ok_or_else(|| {
        let expected = format!("an axis of a tensor of {rank} dimensions");
        Error::Attribute { attribute: "axis", got: axis.to_string(), expected }
    })
}

/// The diagonal of two axes, which become one, the last. `offset` is above the main diagonal where positive.
pub(super) fn diagonal(x: &View, offset: i32, axes: [i32; 2]) -> Result<View> {
    let [first, second] = [axis(axes[0], x.rank())?, axis(axes[1], x.rank())?];
    if first == second {
        let (got, expected) = (format!("{axes:?}"), "two different axes".to_owned());
        return Err(Error::Attribute { attribute: "axis1, axis2", got, expected });
    }
    let (down, right) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
    let length = x.shape[first].saturating_sub(down).min(x.shape[second].saturating_sub(right));
    let skipped = down as isize * x.strides[first] + right as isize * x.strides[second];
    let rest = (0..x.rank()).filter(|&axis| axis != first && axis != second);
    let mut dims: Vec<usize> = rest.clone().map(|axis| x.shape[axis]).collect();
    let mut strides: Vec<isize> = rest.map(|axis| x.strides[axis]).collect();
    dims.push(length);
    strides.push(x.strides[first] + x.strides[second]);
    let address =
        if length == 0 { x.address } else { x.address.wrapping_add_signed(skipped * x.dtype.size() as isize) };
    Ok(View::strided(address, x.dtype, &dims, &strides)?)
}

fn copy(context: &Context, from: View, to: View) -> Result<()> {
    Ok(Copy.run(context.queue(), &[from], &[to])?)
}

/// A number as a vector of one.
fn vector(view: View) -> Result<View> {
    if view.rank() > 0 { Ok(view) } else { Ok(View::dense(view.address, view.dtype, &[1])?) }
}

fn diag(context: &Context, x: Tensor, offset: i32, padding: f32, out: Output) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(&out, x.dtype)?;
    if x.rank() == 2 {
        return copy(context, diagonal(&x, offset, [0, 1])?, to);
    }
    Compose::new(context).fill(&to, padding.into())?;
    copy(context, vector(x)?, diagonal(&to, offset, [0, 1])?)
}

fn diag_grad(context: &Context, x: Tensor, upstream: Tensor, offset: i32, dx: Output) -> Result<()> {
    let upstream = upstream.view()?;
    let to = context.allocate(&dx, upstream.dtype)?;
    if x.shape().len() != 2 {
        return copy(context, diagonal(&upstream, offset, [0, 1])?, vector(to)?);
    }
    Compose::new(context).fill(&to, 0.0)?;
    copy(context, upstream, diagonal(&to, offset, [0, 1])?)
}

fn diag_embed(context: &Context, x: Tensor, offset: i32, dim1: i32, dim2: i32, out: Output) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(&out, x.dtype)?;
    Compose::new(context).fill(&to, 0.0)?;
    copy(context, x, diagonal(&to, offset, [dim1, dim2])?)
}

fn trace(context: &Context, x: Tensor, offset: i32, axis1: i32, axis2: i32, out: Output) -> Result<()> {
    let x = x.view()?;
    let to = context.allocate(&out, x.dtype)?;
    let reduction = Reduction::Sum;
    let operator = Reduce { reduction, axes: vec![-1], keep_dims: false, output: Some(x.dtype) };
    Ok(operator.run(context.queue(), &[diagonal(&x, offset, [axis1, axis2])?], &[to])?)
}

fn trace_grad(
    context: &Context,
    _x: Tensor,
    upstream: Tensor,
    offset: i32,
    axis1: i32,
    axis2: i32,
    dx: Output,
) -> Result<()> {
    let upstream = upstream.view()?;
    let to = context.allocate(&dx, upstream.dtype)?;
    Compose::new(context).fill(&to, 0.0)?;
    let diagonal = diagonal(&to, offset, [axis1, axis2])?;
    // The upstream gradient repeated along the diagonal: a stride of 0.
    let mut strides: Vec<isize> = upstream.strides.to_vec();
    strides.push(0);
    let repeated = View::strided(upstream.address, upstream.dtype, &diagonal.shape, &strides)?;
    copy(context, repeated, diagonal)
}
