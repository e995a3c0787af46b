//! Layers of older programs: convolution along time that looks ahead, attention of one tensor of queries, keys and values, products of slots.

use super::compose::Compose;
use super::rearrangement::accumulate;
use super::values::{SINGLE, dims, expect};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::operators::transpose::Transpose;
use openmps_tile::DType;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("row_conv", &[DType::F32], row_conv);
    table.add("row_conv_grad", &[DType::F32], row_conv_grad);
    table.add("self_dp_attention", SINGLE, self_dp_attention);
    table.add("batch_fc", SINGLE, batch_fc);
}

/// A sequence from a step on, and as many steps from its beginning.
fn shifted(x: &View, by: usize) -> [View; 2] {
    let count = x.shape[1] - by;
    [x.narrowed(1, by, 1, count), x.narrowed(1, 0, 1, count)]
}

/// The weights of one of the steps ahead.
fn step(filter: &View, at: usize) -> View {
    filter.narrowed(0, at, 1, 1)
}

/// Sizes of a batch of sequences, and how many steps of the filter there are room for.
fn sizes(x: &Tensor, filter: &Tensor) -> Result<[usize; 4]> {
    let [count, times, width] = dims("X", x)?;
    let [ahead, _] = dims("Filter", filter)?;
    expect("Filter", filter, &[ahead, width])?;
    Ok([count, times, width, ahead.min(times)])
}

/// Each step and some that follow it, weighed column by column.
fn row_conv(context: &Context, x: Tensor, filter: Tensor, out: Output) -> Result<()> {
    let [count, times, width, ahead] = sizes(&x, &filter)?;
    let (c, x, filter) = (Compose::new(context), x.view()?, filter.view()?);
    let sum = c.constant(x.dtype, &[count, times, width], 0.0)?;
    for at in 0..if x.is_empty() { 0 } else { ahead } {
        let [later, _] = shifted(&x, at);
        let [_, to] = shifted(&sum, at);
        accumulate(context, &c.multiply(&later, &step(&filter, at))?, &to)?;
    }
    c.store_value(&out, x.dtype, &sum)
}

fn row_conv_grad(
    context: &Context,
    x: Tensor,
    filter: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dfilter: Option<Output>,
) -> Result<()> {
    let [count, times, width, ahead] = sizes(&x, &filter)?;
    let (c, x, upstream) = (Compose::new(context), x.view()?, upstream.view()?);
    let filter = filter.view()?;
    let of_x = c.constant(x.dtype, &[count, times, width], 0.0)?;
    let of_filter = c.constant(x.dtype, &filter.shape, 0.0)?;
    for at in 0..if x.is_empty() { 0 } else { ahead } {
        let [later, _] = shifted(&x, at);
        let ([to, _], [_, from]) = (shifted(&of_x, at), shifted(&upstream, at));
        accumulate(context, &c.multiply(&from, &step(&filter, at))?, &to)?;
        let sum = c.reduce(Reduction::Sum, &c.multiply(&later, &from)?, &[0, 1])?;
        accumulate(context, &c.shaped(&sum, &[1, width])?, &step(&of_filter, at))?;
    }
    if let Some(dx) = dx {
        c.store_value(&dx, x.dtype, &of_x)?;
    }
    match dfilter {
        Some(dfilter) => c.store_value(&dfilter, x.dtype, &of_filter),
        None => Ok(()),
    }
}

/// Attention of heads whose queries, keys and values are one tensor (batch, sequence, three, heads, size).
fn self_dp_attention(context: &Context, x: Tensor, factor: f32, heads: i32, out: Output) -> Result<()> {
    let [count, length, three, of, size] = dims("X", &x)?;
    if three != 3 || usize::try_from(heads) != Ok(of) {
        return Err(refuse("X, head_number", (x.shape(), heads), "(batch, sequence, 3, head_number, size)"));
    }
    let c = Compose::new(context);
    let parts = c.apply(&Transpose { axes: vec![2, 0, 3, 1, 4] }, &[x.view()?])?;
    let part = |at: usize| c.shaped(&parts.narrowed(0, at, 1, 1), &[count * of, length, size]);
    let product = |transpose_right: bool, left: View, right: View| {
        c.apply(&Matmul { transpose_left: false, transpose_right }, &[left, right])
    };
    let scores = c.scale(&product(true, part(0)?, part(1)?)?, factor.into(), 0.0)?;
    let weights = c.apply(&Softmax { axis: 2, logarithm: false }, &[scores])?;
    let value = c.shaped(&product(false, weights, part(2)?)?, &[count, of, length, size])?;
    c.store_value(&out, x.dtype()?, &c.apply(&Transpose { axes: vec![0, 2, 1, 3] }, &[value])?)
}

/// A linear layer for each slot.
fn batch_fc(context: &Context, x: Tensor, weight: Tensor, bias: Tensor, out: Output) -> Result<()> {
    let ([slots, rows, width], [_, _, columns]) = (dims("Input", &x)?, dims("W", &weight)?);
    expect("W", &weight, &[slots, width, columns])?;
    expect("Bias", &bias, &[slots, columns])?;
    let c = Compose::new(context);
    let product = Matmul { transpose_left: false, transpose_right: false };
    let value = c.apply(&product, &[x.view()?, weight.view()?])?;
    let bias = c.shaped(&bias.view()?, &[slots, 1, columns])?;
    out.set_dims(&[slots, rows, columns]);
    c.store(&out, x.dtype()?, Elementwise::Binary(Binary::Add), &[&value, &bias], &[])
}
