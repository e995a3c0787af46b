//! Kernels that put elements around a tensor, and their gradients.

use super::movement::one;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::operators::pad::{Mode, Pad, PadGradient};
use openmps_tile::Number;
use openmps_tile::dtype::{ALL, FLOATS, NUMBERS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("pad", ALL, pad).strided();
    table.add("pad_grad", ALL, pad_grad).strided();
    table.add("pad3d", NUMBERS, pad3d).strided();
    table.add("pad3d_grad", FLOATS, pad3d_grad).strided();
}

fn constant_pad(paddings: &[i32], value: &Scalar) -> Pad {
    let pair = |pair: &[i32]| (pair[0].into(), pair[1].into());
    Pad {
        paddings: paddings.chunks_exact(2).map(pair).collect(),
        mode: Mode::Constant,
        value: Number::Float(value.f64()),
    }
}

fn pad(context: &Context, x: Tensor, paddings: Vec<i32>, value: Scalar, out: Output) -> Result<()> {
    one(context, &constant_pad(&paddings, &value), x, &out)
}

fn pad_grad(context: &Context, gradient: Tensor, paddings: Vec<i32>, value: Scalar, out: Output) -> Result<()> {
    one(context, &PadGradient { pad: constant_pad(&paddings, &value) }, gradient, &out)
}

/// Paddle's pad3d: pairs for width, height and depth in this order, of a tensor in NCDHW or NDHWC.
fn spatial_pad(rank: usize, paddings: &[i64], mode: &str, value: f64, format: &str) -> Result<Pad> {
    let modes = [("constant", Mode::Constant), ("reflect", Mode::Reflect), ("replicate", Mode::Replicate)];
    let mode = match modes.iter().find(|(name, _)| *name == mode) {
        Some(&(_, mode)) => mode,
        None if mode == "circular" => Mode::Circular,
        None => return Err(refuse("mode", mode, "constant, reflect, replicate or circular")),
    };
    let last = if format == "NDHWC" { rank.wrapping_sub(2) } else { rank.wrapping_sub(1) };
    if rank != 5 || paddings.len() != 6 {
        return Err(refuse("paddings", paddings, "six numbers for a tensor of five dimensions"));
    }
    let mut pairs = vec![(0, 0); rank];
    for (back, pair) in paddings.chunks_exact(2).enumerate() {
        pairs[last - back] = (pair[0], pair[1]);
    }
    Ok(Pad { paddings: pairs, mode, value: Number::Float(value) })
}

fn pad3d(
    context: &Context,
    x: Tensor,
    paddings: IntArray,
    mode: String,
    value: f64,
    format: String,
    out: Output,
) -> Result<()> {
    one(context, &spatial_pad(x.shape().len(), &paddings, &mode, value, &format)?, x, &out)
}

fn pad3d_grad(
    context: &Context,
    x: Tensor,
    gradient: Tensor,
    paddings: IntArray,
    mode: String,
    value: f64,
    format: String,
    out: Output,
) -> Result<()> {
    let pad = spatial_pad(x.shape().len(), &paddings, &mode, value, &format)?;
    one(context, &PadGradient { pad }, gradient, &out)
}
