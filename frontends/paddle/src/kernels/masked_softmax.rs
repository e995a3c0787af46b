//! Softmax of scores with a mask: an additive one, or the causal one that hides what is above the diagonal.

use super::compose::Compose;
use super::normalisation_gradient::softmax_grad;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::operators::triangle::Triangle;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fused_softmax_mask", FLOATS, fused_softmax_mask);
    table.add("fused_softmax_mask_grad", FLOATS, last_softmax_grad);
    table.add("fused_softmax_mask_upper_triangle", FLOATS, fused_softmax_mask_upper_triangle);
    table.add("fused_softmax_mask_upper_triangle_grad", FLOATS, last_softmax_grad);
}

/// Stores the softmax of the last axis.
fn store_softmax(c: &Compose, scores: View, out: &Output, x: &Tensor) -> Result<()> {
    let value = c.apply(&Softmax { axis: -1, logarithm: false }, &[scores])?;
    c.store_value(out, x.dtype()?, &value)
}

fn fused_softmax_mask(context: &Context, x: Tensor, mask: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let scores = c.input(&x)?;
    let mask = c.cast(&mask.view()?, scores.dtype)?;
    store_softmax(&c, c.add(&scores, &mask)?, &out, &x)
}

fn fused_softmax_mask_upper_triangle(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let scores = c.input(&x)?;
    let matrix = &scores.shape[scores.rank().saturating_sub(2)..];
    let ones = c.temporary(scores.dtype, matrix)?;
    c.fill(&ones, 1.0)?;
    let seen = c.apply(&Triangle { diagonal: 0, lower: true }, &[ones])?;
    let hidden = c.temporary(scores.dtype, &[1])?;
    c.fill(&hidden, f64::NEG_INFINITY)?;
    let scores = c.map(Elementwise::Binary(Binary::Where), &[&seen, &scores, &hidden], &[])?;
    store_softmax(&c, scores, &out, &x)
}

/// Masks are constants: only the softmax is differentiated, and what is hidden has a probability, and so a gradient, of 0.
fn last_softmax_grad(context: &Context, y: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    softmax_grad(context, y, upstream, -1, dx)
}
