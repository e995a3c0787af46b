//! Kernels of pooling and their gradients.

use super::compose::Compose;
use super::images::{layout, padding_algorithm, pair, sizes};
use super::indexing::zeros;
use super::movement::{gave_memory_alone, many};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Tensor};
use openmps_graph::operators::pooling::{Pooling, PoolingGradient, PoolingType};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("pool2d", FLOATS, pool2d).strided();
    table.add("pool2d_grad", FLOATS, pool2d_grad).strided();
    table.add("pool2d_double_grad", FLOATS, pool2d_double_grad).strided();
    table.add("max_pool2d_with_index", FLOATS, max_pool2d_with_index).strided().output_as_inferred(1);
    table.add("max_pool2d_with_index_grad", FLOATS, max_pool2d_with_index_grad).strided();
}

/// The attributes of `pool2d`.
pub(super) fn pooling(
    kernel: &[i64],
    strides: &[i64],
    paddings: &[i64],
    ceil_mode: bool,
    exclusive: bool,
    format: &str,
    kind: &str,
    global: bool,
    adaptive: bool,
    algorithm: &str,
) -> Result<Pooling> {
    let kind = match kind {
        "max" => PoolingType::Max,
        "avg" => PoolingType::Average,
        _ => return Err(refuse("pooling_type", kind, "max or avg")),
    };
    let size = if global { [1, 1] } else { pair("kernel_size", kernel)? };
    Ok(Pooling {
        strides: if global || adaptive { [1, 1] } else { pair("strides", strides)? },
        paddings: if global || adaptive { vec![0, 0] } else { sizes("paddings", paddings)? },
        padding_algorithm: padding_algorithm(algorithm)?,
        ceil_mode,
        exclusive,
        global,
        adaptive,
        layout: layout(format),
        ..Pooling::new(kind, size)
    })
}

pub(super) fn pool2d(
    context: &Context,
    x: Tensor,
    kernel: IntArray,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    out: Output,
) -> Result<()> {
    if x.shape().contains(&0) {
        // Neither the mean nor the maximum of nothing is a number.
        return Compose::new(context).fill(&context.allocate(&out, x.dtype()?)?, f64::NAN);
    }
    let of = pooling(&kernel, &strides, &paddings, ceil_mode, exclusive, &format, &kind, global, adaptive, &algorithm)?;
    many(context, &of, &[x.view()?], &[Some(&out)])
}

/// A mean is linear: its gradient's gradient is the mean of what comes in. Of maxima Paddle has none.
fn pool2d_double_grad(
    context: &Context,
    x: Tensor,
    kernel: IntArray,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    out: Output,
) -> Result<()> {
    if kind == "max" {
        return Err(refuse("pooling_type", kind, "avg"));
    }
    pool2d(context, x, kernel, strides, paddings, ceil_mode, exclusive, format, kind, global, adaptive, algorithm, out)
}

pub(super) fn pool2d_grad(
    context: &Context,
    x: Tensor,
    _: Tensor,
    upstream: Tensor,
    kernel: IntArray,
    strides: Vec<i64>,
    paddings: Vec<i64>,
    ceil_mode: bool,
    exclusive: bool,
    format: String,
    kind: String,
    global: bool,
    adaptive: bool,
    algorithm: String,
    dx: Output,
) -> Result<()> {
    if x.shape().contains(&0) || upstream.shape().contains(&0) {
        return zeros(context, x.dtype()?, &x.shape(), &dx).map(|_| ());
    }
    let of = pooling(&kernel, &strides, &paddings, ceil_mode, exclusive, &format, &kind, global, adaptive, &algorithm)?;
    many(context, &PoolingGradient { of }, &[x.view()?, upstream.view()?], &[Some(&dx)])
}

/// Sizes as the kernels without an index take them.
pub(super) fn wide(sizes: &[i32]) -> Vec<i64> {
    sizes.iter().map(|&size| size.into()).collect()
}

/// The attributes of `max_pool2d_with_index`.
fn indexed(
    kernel: &[i32],
    strides: &[i32],
    paddings: &[i32],
    global: bool,
    adaptive: bool,
    ceil_mode: bool,
) -> Result<Pooling> {
    let (kernel, strides, paddings) = (wide(kernel), wide(strides), wide(paddings));
    let of = pooling(&kernel, &strides, &paddings, ceil_mode, true, "NCHW", "max", global, adaptive, "EXPLICIT")?;
    Ok(Pooling { indices: true, ..of })
}

fn max_pool2d_with_index(
    context: &Context,
    x: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    global: bool,
    adaptive: bool,
    ceil_mode: bool,
    out: Output,
    mask: Output,
) -> Result<()> {
    if x.shape().contains(&0) && gave_memory_alone(context, &out, x.dtype()?)? {
        return context.allocate(&mask, DType::I32).map(|_| ());
    }
    let of = indexed(&kernel, &strides, &paddings, global, adaptive, ceil_mode)?;
    many(context, &of, &[x.view()?], &[Some(&out), Some(&mask)])
}

fn max_pool2d_with_index_grad(
    context: &Context,
    x: Tensor,
    mask: Tensor,
    upstream: Tensor,
    kernel: Vec<i32>,
    strides: Vec<i32>,
    paddings: Vec<i32>,
    global: bool,
    adaptive: bool,
    ceil_mode: bool,
    dx: Output,
) -> Result<()> {
    if upstream.shape().contains(&0) {
        return zeros(context, x.dtype()?, &x.shape(), &dx).map(|_| ());
    }
    let of = indexed(&kernel, &strides, &paddings, global, adaptive, ceil_mode)?;
    many(context, &PoolingGradient { of }, &[x.view()?, upstream.view()?, mask.view()?], &[Some(&dx)])
}
