//! Kernels that arrange elements: transpose, slice, concat, split, expand, tile, flip, roll, triangles, and their gradients.

use super::indexing::zeros;
use crate::context::Temporary;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::concat::{Concat, Split, Stack, Unstack};
use openmps_graph::operators::expand::{Expand, Tile};
use openmps_graph::operators::flip::Flip;
use openmps_graph::operators::repeat_gradient::RepeatGradient;
use openmps_graph::operators::roll::Roll;
use openmps_graph::operators::transpose::Transpose;
use openmps_graph::operators::triangle::Triangle;
use openmps_graph::view::{dense_strides, elements, shape_of};
use openmps_graph::{Meta, Operator, Shape, View};
use openmps_tile::DType;
use openmps_tile::dtype::{ALL, NUMBERS};
use std::borrow::Cow;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("transpose", ALL, transpose).strided();
    table.add("transpose_grad", ALL, transpose_grad).strided();
    table.add("trans_layout_grad", ALL, trans_layout_grad).strided();
    table.add("concat", ALL, concat).strided();
    table.add("concat_grad", ALL, concat_grad).strided();
    table.add("stack", ALL, stack).strided();
    table.add("stack_grad", ALL, stack_grad).strided();
    table.add("split", ALL, split).strided();
    table.add("split_with_num", ALL, split_with_num).strided();
    table.add("unstack", ALL, unstack).strided();
    table.add("unstack_grad", ALL, unstack_grad).strided();
    table.add("unbind", ALL, unbind).strided();
    table.add("expand", ALL, expand).strided();
    table.add("expand_grad", NUMBERS, expand_grad).strided();
    table.add("expand_as", ALL, expand_as).strided();
    table.add("expand_as_grad", NUMBERS, expand_as_grad).strided();
    table.add("broadcast_tensors", ALL, broadcast_tensors).strided();
    table.add("broadcast_tensors_grad", NUMBERS, broadcast_tensors_grad).strided();
    table.add("meshgrid", ALL, meshgrid).strided();
    table.add("meshgrid_grad", NUMBERS, meshgrid_grad).strided();
    table.add("tile", ALL, tile).strided();
    table.add("tile_grad", NUMBERS, tile_grad).strided();
    // The older form says how often, not to which shape.
    table.add("legacy_expand", ALL, tile).strided();
    table.add("legacy_expand_grad", NUMBERS, tile_grad).strided();
    table.add("flip", ALL, flip).strided();
    table.add("reverse", ALL, reverse).strided();
    table.add("roll", ALL, roll).strided();
    table.add("roll_grad", ALL, roll_grad).strided();
    table.add("tril", ALL, tril).strided();
    table.add("triu", ALL, triu).strided();
    table.add("tril_grad", ALL, tril).strided();
    table.add("triu_grad", ALL, triu).strided();
    table.add("tril_triu", ALL, tril_triu).strided();
    table.add("tril_triu_grad", ALL, tril_triu).strided();
    table.add("repeat_interleave", ALL, repeat_interleave).strided();
    table.add("repeat_interleave_grad", NUMBERS, repeat_interleave_grad).strided();
}

/// Runs an operator of one input and one output. The output keeps the shape that Paddle's rules have given it where that has as many
/// elements as the operator's (slices drop axes), and otherwise takes the operator's.
pub(super) fn one(context: &Context, operator: &dyn Operator, x: Tensor, out: &Output) -> Result<()> {
    many(context, operator, &[x.view()?], &[Some(out)])
}

/// As [`one`] for several inputs and outputs; outputs that Paddle does not want are computed into memory of their own.
pub(super) fn many(
    context: &Context,
    operator: &dyn Operator,
    inputs: &[View],
    outputs: &[Option<&Output>],
) -> Result<()> {
    let metas: Vec<Meta> = inputs.iter().map(|view| Meta { dtype: view.dtype, shape: view.shape.clone() }).collect();
    let mut kept: Vec<Temporary> = Vec::new();
    let mut views = Vec::with_capacity(outputs.len());
    for (meta, output) in operator.infer(&metas)?.into_iter().zip(outputs) {
        let address = match output {
            Some(output) => {
                if output.has_unknown_dims() || elements(&output.shape()).ok() != Some(elements(&meta.shape)?) {
                    output.set_dims(&meta.shape);
                }
                context.allocate(output, meta.dtype)?.address
            }
            None => {
                kept.push(context.temporary(meta.dtype, &meta.shape)?);
                kept.last().map_or(0, |temporary| temporary.view.address)
            }
        };
        views.push(View { address, dtype: meta.dtype, strides: dense_strides(&meta.shape), shape: meta.shape });
    }
    let inputs = apart(context, operator, inputs, &views, &mut kept)?;
    Ok(operator.run(context.queue(), &inputs, &views)?)
}

/// Gives a result that Paddle's rule leaves without elements its memory, which is all that it needs, and says whether it is one: operators may refuse
/// what it is made of.
pub(super) fn gave_memory_alone(context: &Context, out: &Output, dtype: DType) -> Result<bool> {
    let is_empty = out.is_empty();
    if is_empty {
        context.allocate(out, dtype)?;
    }
    Ok(is_empty)
}

/// The inputs, of which those are copied that share memory with an output: `x[1:] = x[:-1]`, and operators that Paddle runs in place.
pub(super) fn apart<'a>(
    context: &Context,
    operator: &dyn Operator,
    inputs: &'a [View],
    outputs: &[View],
    kept: &mut Vec<Temporary>,
) -> Result<Cow<'a, [View]>> {
    let mut inputs = Cow::Borrowed(inputs);
    for at in 0..inputs.len() {
        let in_place =
            |input: &View, output: &View| at == 0 && operator.works_in_place() && input.is_same_memory(output);
        let shares = |input: &View| outputs.iter().any(|output| input.overlaps(output) && !in_place(input, output));
        if shares(&inputs[at]) {
            kept.push(context.copy(&inputs[at])?);
            inputs.to_mut()[at] = kept.last().map_or_else(|| inputs[at].clone(), |copy| copy.view.clone());
        }
    }
    Ok(inputs)
}

/// The sum over everything along which a tensor of `dims` was repeated; of nothing it is zero.
pub(super) fn summed(context: &Context, x: &View, dims: Shape, out: &Output) -> Result<()> {
    if x.is_empty() {
        return zeros(context, x.dtype, &out.shape(), out).map(|_| ());
    }
    many(context, &RepeatGradient { dims }, std::slice::from_ref(x), &[Some(out)])
}

/// The views of several inputs.
pub(super) fn views(tensors: &[Tensor]) -> Result<Vec<View>> {
    tensors.iter().map(Tensor::view).collect()
}

fn wide(numbers: &[i32]) -> Vec<i64> {
    numbers.iter().map(|&number| i64::from(number)).collect()
}

fn transpose(context: &Context, x: Tensor, axes: Vec<i32>, out: Output) -> Result<()> {
    one(context, &Transpose { axes: wide(&axes) }, x, &out)
}

fn transpose_grad(context: &Context, gradient: Tensor, axes: Vec<i32>, out: Output) -> Result<()> {
    one(context, &Transpose { axes: wide(&axes) }.inverse()?, gradient, &out)
}

fn trans_layout_grad(context: &Context, _x: Tensor, gradient: Tensor, axes: Vec<i32>, out: Output) -> Result<()> {
    transpose_grad(context, gradient, axes, out)
}

fn concat(context: &Context, x: Vec<Tensor>, axis: Scalar, out: Output) -> Result<()> {
    many(context, &Concat { axis: axis.i64() }, &views(&x)?, &[Some(&out)])
}

/// Cuts a tensor along an axis into parts of the outputs' sizes, of which some may not be wanted.
fn cut(context: &Context, x: Tensor, axis: i64, sections: Vec<usize>, outputs: &[Option<Output>]) -> Result<()> {
    let outputs: Vec<Option<&Output>> = outputs.iter().map(Option::as_ref).collect();
    many(context, &Split { axis, sections }, &[x.view()?], &outputs)
}

fn concat_grad(
    context: &Context,
    x: Vec<Tensor>,
    gradient: Tensor,
    axis: Scalar,
    outputs: Vec<Option<Output>>,
) -> Result<()> {
    let rank = gradient.shape().len() as i64;
    let at = if axis.i64() < 0 { axis.i64() + rank } else { axis.i64() } as usize;
    let sections = x.iter().map(|x| x.shape().get(at).copied().unwrap_or(1)).collect();
    cut(context, gradient, axis.i64(), sections, &outputs)
}

fn stack(context: &Context, x: Vec<Tensor>, axis: i32, out: Output) -> Result<()> {
    many(context, &Stack { axis: axis.into() }, &views(&x)?, &[Some(&out)])
}

fn stack_grad(context: &Context, gradient: Tensor, axis: i32, outputs: Vec<Option<Output>>) -> Result<()> {
    unbind(context, gradient, axis, outputs)
}

fn split(context: &Context, x: Tensor, sections: IntArray, axis: Scalar, outputs: Vec<Option<Output>>) -> Result<()> {
    let shape = x.shape();
    let at = if axis.i64() < 0 { axis.i64() + shape.len() as i64 } else { axis.i64() } as usize;
    let size = shape.get(at).copied().unwrap_or(0) as i64;
    // One section may be left open as -1.
    let known: i64 = sections.iter().filter(|&&section| section >= 0).sum();
    let sections =
        sections.iter().map(|&section| if section < 0 { size - known } else { section }.max(0) as usize).collect();
    cut(context, x, axis.i64(), sections, &outputs)
}

fn split_with_num(context: &Context, x: Tensor, number: i32, axis: Scalar, outputs: Vec<Option<Output>>) -> Result<()> {
    let shape = x.shape();
    let at = if axis.i64() < 0 { axis.i64() + shape.len() as i64 } else { axis.i64() } as usize;
    let (size, number) = (shape.get(at).copied().unwrap_or(0), number.max(1) as usize);
    cut(context, x, axis.i64(), vec![size / number; number], &outputs)
}

fn unstack(context: &Context, x: Tensor, axis: i32, _: i32, outputs: Vec<Option<Output>>) -> Result<()> {
    unbind(context, x, axis, outputs)
}

fn unstack_grad(context: &Context, gradients: Vec<Tensor>, axis: i32, out: Output) -> Result<()> {
    stack(context, gradients, axis, out)
}

fn unbind(context: &Context, x: Tensor, axis: i32, outputs: Vec<Option<Output>>) -> Result<()> {
    let outputs: Vec<Option<&Output>> = outputs.iter().map(Option::as_ref).collect();
    many(context, &Unstack { axis: axis.into() }, &[x.view()?], &outputs)
}

fn expand(context: &Context, x: Tensor, shape: IntArray, out: Output) -> Result<()> {
    one(context, &Expand { dims: shape.to_vec() }, x, &out)
}

fn expand_grad(context: &Context, x: Tensor, gradient: Tensor, _: IntArray, out: Output) -> Result<()> {
    one(context, &RepeatGradient { dims: x.shape() }, gradient, &out)
}

fn expand_as(context: &Context, x: Tensor, y: Option<Tensor>, target: Vec<i64>, out: Output) -> Result<()> {
    let dims = y.map_or(target, |y| y.shape().iter().map(|&size| size as i64).collect());
    one(context, &Expand { dims }, x, &out)
}

fn expand_as_grad(context: &Context, x: Tensor, gradient: Tensor, _: Vec<i64>, out: Output) -> Result<()> {
    one(context, &RepeatGradient { dims: x.shape() }, gradient, &out)
}

fn broadcast_tensors(context: &Context, x: Vec<Tensor>, outputs: Vec<Option<Output>>) -> Result<()> {
    for (x, out) in x.into_iter().zip(outputs).filter_map(|(x, out)| Some((x, out?))) {
        one(context, &Expand { dims: out.shape().iter().map(|&size| size as i64).collect() }, x, &out)?;
    }
    Ok(())
}

fn broadcast_tensors_grad(
    context: &Context,
    x: Vec<Tensor>,
    gradients: Vec<Tensor>,
    outputs: Vec<Option<Output>>,
) -> Result<()> {
    for ((x, gradient), out) in x.into_iter().zip(gradients).zip(outputs) {
        if let Some(out) = out {
            one(context, &RepeatGradient { dims: x.shape() }, gradient, &out)?;
        }
    }
    Ok(())
}

/// A one-dimensional input as one axis of the grid.
fn grid_axis(x: &Tensor, axis: usize, rank: usize) -> Result<View> {
    let (view, mut dims) = (x.view()?, vec![1; rank]);
    if view.rank() > 1 {
        let expected = format!("one dimension or none of input {axis}");
        return Err(refuse("shape of inputs", view.shape, &expected));
    }
    dims[axis] = view.len();
    let mut strides = vec![0; rank];
    strides[axis] = view.strides.first().copied().unwrap_or(1);
    Ok(View::strided(view.address, view.dtype, &dims, &strides)?)
}

fn meshgrid(context: &Context, x: Vec<Tensor>, outputs: Vec<Option<Output>>) -> Result<()> {
    for (axis, out) in outputs.iter().enumerate() {
        if let Some(out) = out {
            let dims = out.shape().iter().map(|&size| size as i64).collect();
            many(context, &Expand { dims }, &[grid_axis(&x[axis], axis, x.len())?], &[Some(out)])?;
        }
    }
    Ok(())
}

fn meshgrid_grad(
    context: &Context,
    x: Vec<Tensor>,
    gradients: Vec<Tensor>,
    outputs: Vec<Option<Output>>,
) -> Result<()> {
    for (axis, out) in outputs.iter().enumerate() {
        if let Some(out) = out {
            let dims = grid_axis(&x[axis], axis, x.len())?.shape;
            many(context, &RepeatGradient { dims }, &[gradients[axis].view()?], &[Some(out)])?;
        }
    }
    Ok(())
}

fn tile(context: &Context, x: Tensor, repeats: IntArray, out: Output) -> Result<()> {
    one(context, &Tile { repeats: repeats.dims()? }, x, &out)
}

fn tile_grad(context: &Context, x: Tensor, gradient: Tensor, _: IntArray, out: Output) -> Result<()> {
    one(context, &RepeatGradient { dims: x.shape() }, gradient, &out)
}

fn flip(context: &Context, x: Tensor, axes: Vec<i32>, out: Output) -> Result<()> {
    one(context, &Flip { axes: wide(&axes) }, x, &out)
}

fn reverse(context: &Context, x: Tensor, axes: IntArray, out: Output) -> Result<()> {
    one(context, &Flip { axes: axes.to_vec() }, x, &out)
}

/// Without axes the flattened tensor is rolled.
fn roll_by(context: &Context, x: Tensor, shifts: Vec<i64>, axes: Vec<i64>, out: &Output) -> Result<()> {
    if !axes.is_empty() {
        return one(context, &Roll { shifts, axes }, x, out);
    }
    let view = x.view()?;
    if view.is_dense() {
        let flat = View::dense(view.address, view.dtype, &[view.len()])?;
        return many(context, &Roll { shifts, axes: vec![0] }, &[flat], &[Some(out)]);
    }
    // A flattened strided tensor is no view: it is copied first.
    let copy = context.copy(&view)?;
    let flat = View::dense(copy.view.address, view.dtype, &[view.len()])?;
    many(context, &Roll { shifts, axes: vec![0] }, &[flat], &[Some(out)])
}

fn roll(context: &Context, x: Tensor, shifts: IntArray, axes: Vec<i64>, out: Output) -> Result<()> {
    roll_by(context, x, shifts.to_vec(), axes, &out)
}

fn roll_grad(
    context: &Context,
    _: Tensor,
    gradient: Tensor,
    shifts: IntArray,
    axes: Vec<i64>,
    out: Output,
) -> Result<()> {
    roll_by(context, gradient, shifts.iter().map(|shift| -shift).collect(), axes, &out)
}

fn tril(context: &Context, x: Tensor, diagonal: i32, out: Output) -> Result<()> {
    one(context, &Triangle { diagonal: diagonal.into(), lower: true }, x, &out)
}

fn triu(context: &Context, x: Tensor, diagonal: i32, out: Output) -> Result<()> {
    one(context, &Triangle { diagonal: diagonal.into(), lower: false }, x, &out)
}

fn tril_triu(context: &Context, x: Tensor, diagonal: i32, lower: bool, out: Output) -> Result<()> {
    one(context, &Triangle { diagonal: diagonal.into(), lower }, x, &out)
}

/// Each element of an axis several times in a row: a repetition of a new axis behind it.
fn repeat_interleave(context: &Context, x: Tensor, repeats: i32, axis: i32, _: i64, out: Output) -> Result<()> {
    let mut view = x.view()?;
    let at = openmps_graph::layout::axis_of("repeat_interleave", axis.into(), view.rank())?;
    let rank = view.rank() + 1;
    view.shape.try_insert(at + 1, 1).map_err(|_| openmps_graph::Error::Rank(rank))?;
    view.strides.try_insert(at + 1, 0).map_err(|_| openmps_graph::Error::Rank(rank))?;
    let mut dims: Vec<i64> = view.shape.iter().map(|&size| size as i64).collect();
    dims[at + 1] = repeats.into();
    many(context, &Expand { dims }, &[view], &[Some(&out)])
}

fn repeat_interleave_grad(
    context: &Context,
    x: Tensor,
    gradient: Tensor,
    repeats: i32,
    axis: i32,
    _: i64,
    out: Output,
) -> Result<()> {
    let (shape, view) = (x.shape(), gradient.view()?);
    let at = openmps_graph::layout::axis_of("repeat_interleave_grad", axis.into(), shape.len())?;
    let mut repeated = shape.to_vec();
    repeated.insert(at + 1, repeats.max(0) as usize);
    let mut strides = view.strides.to_vec();
    strides.insert(at, view.strides[at] * repeats as isize);
    let view = View::strided(view.address, view.dtype, &repeated, &strides)?;
    let mut dims = shape.to_vec();
    dims.insert(at + 1, 1);
    many(context, &RepeatGradient { dims: shape_of(&dims)? }, &[view], &[Some(&out)])
}
