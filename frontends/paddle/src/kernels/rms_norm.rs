//! Norms by mean squares with gradients, as language models train with: `paddle.nn.functional.rms_norm`, and
//! `paddle.incubate.nn.functional.fused_rms_norm_ext`, which always is along the last axis and has a scale.

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::layer_norm::LayerNorm;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Types whose inverse roots are float32.
const SINGLE: &[DType] = &[DType::F16, DType::BF16, DType::F32];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("rms_norm", FLOATS, rms_norm).output_as_inferred(1);
    table.add("rms_norm_grad", FLOATS, rms_norm_grad);
    table.add("fused_rms_norm_ext", SINGLE, fused_rms_norm_ext).output(1, DType::F32);
    table.add("fused_rms_norm_ext_grad", SINGLE, fused_rms_norm_ext_grad);
}

/// A tensor as rows that are normalized.
fn rows(c: &Compose, x: &View, of_row: &[i64]) -> Result<View> {
    let axis = x.rank().checked_sub(of_row.len());
    let fits = |axis: usize| x.shape[axis..].iter().zip(of_row).all(|(&size, &row)| size as i64 == row);
    let axis = axis.filter(|&axis| fits(axis)).ok_or_else(|| refuse("normalized_shape", of_row, "x's last sizes"))?;
    c.shaped(x, &[x.shape[..axis].iter().product(), x.shape[axis..].iter().product()])
}

fn rms_norm(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    of_row: Vec<i64>,
    epsilon: f64,
    out: Output,
    inverse: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let x = rows(&c, &c.input(&x)?, &of_row)?;
    let mean = c.reduce(Reduction::Mean, &c.multiply(&x, &x)?, &[1])?;
    let root = c.map(Elementwise::Unary(Unary::Sqrt), &[&c.scale(&mean, 1.0, epsilon)?], &[])?;
    let one = c.constant(root.dtype, &[1], 1.0)?;
    c.store(&inverse, dtype.compute(), Elementwise::Binary(Binary::Divide), &[&one, &root], &[])?;
    let norm = LayerNorm { begin: 1, epsilon, scale: scale.is_some(), bias: false, centred: false, statistics: false };
    let scale = scale.map(|scale| c.shaped(&c.input(&scale)?, &[x.shape[1]])).transpose()?;
    let inputs: Vec<View> = std::iter::once(x).chain(scale).collect();
    c.store_value(&out, dtype, &c.apply(&norm, &inputs)?)
}

/// `(g - x mean(g x)) / size` for normalized x and weighted upstream g; of the scale the sum over rows.
fn rms_norm_grad(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    inverse: Tensor,
    upstream: Tensor,
    of_row: Vec<i64>,
    _epsilon: f64,
    dx: Option<Output>,
    dscale: Option<Output>,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, upstream) = (rows(&c, &c.input(&x)?, &of_row)?, rows(&c, &c.input(&upstream)?, &of_row)?);
    let inverse = c.shaped(&c.cast(&inverse.view()?, x.dtype)?, &[x.shape[0], 1])?;
    let normed = c.multiply(&x, &inverse)?;
    if let (Some(dscale), Some(scale)) = (dscale, &scale) {
        let sum = c.reduce(Reduction::Sum, &c.multiply(&upstream, &normed)?, &[0])?;
        c.store_value(&dscale, scale.dtype()?, &sum)?;
    }
    let Some(dx) = dx else { return Ok(()) };
    let weighted = match scale {
        Some(scale) => c.multiply(&upstream, &c.shaped(&c.input(&scale)?, &[1, x.shape[1]])?)?,
        None => upstream,
    };
    let share = c.reduce(Reduction::Mean, &c.multiply(&weighted, &normed)?, &[1])?;
    let rest = c.subtract(&weighted, &c.multiply(&normed, &share)?)?;
    c.store_value(&dx, dtype, &c.multiply(&rest, &inverse)?)
}

/// The sizes of x's last axis.
fn last(x: &Tensor) -> Vec<i64> {
    x.shape().last().map(|&size| size as i64).into_iter().collect()
}

fn fused_rms_norm_ext(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    epsilon: f32,
    out: Output,
    inverse: Output,
) -> Result<()> {
    let shape = x.shape();
    // Paddle's rule leaves the number of rows open.
    inverse.set_dims(&[shape[..shape.len().saturating_sub(1)].iter().product()]);
    rms_norm(context, x, Some(scale), last(&x), epsilon.into(), out, inverse)
}

fn fused_rms_norm_ext_grad(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    inverse: Tensor,
    upstream: Tensor,
    epsilon: f32,
    dx: Option<Output>,
    dscale: Option<Output>,
) -> Result<()> {
    rms_norm_grad(context, x, Some(scale), inverse, upstream, last(&x), epsilon.into(), dx, dscale)
}
