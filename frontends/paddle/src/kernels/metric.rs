//! Metrics: how many of the best guesses are right.

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::DType;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    let row = table.add("accuracy", FLOATS, accuracy);
    row.output(0, DType::F32).output(1, DType::I32).output(2, DType::I32);
}

/// The rows among whose indices of the best classes is the label.
fn accuracy(
    context: &Context,
    scores: Tensor,
    indices: Tensor,
    label: Tensor,
    accuracy: Output,
    correct: Output,
    total: Output,
) -> Result<()> {
    if scores.shape().len() != 2 {
        return Err(refuse("shape of input", scores.shape(), "rows of scores, two dimensions"));
    }
    let c = Compose::new(context);
    let indices = c.cast(&indices.view()?, DType::I64)?;
    let label = c.cast(&label.view()?, DType::I64)?;
    let rows = indices.shape.first().copied().unwrap_or(0);
    let label = c.shaped(&label, &[rows, 1])?;
    let equal = c.map(Elementwise::Binary(Binary::Equal), &[&indices, &label], &[])?;
    let right = c.cast(&c.reduce(Reduction::Any, &equal, &[1])?, DType::I64)?;
    let count = c.reduce(Reduction::Sum, &right, &[0, 1])?;
    let share = c.scale(&c.cast(&count, DType::F32)?, 1.0 / rows.max(1) as f64, 0.0)?;
    c.store_value(&accuracy, DType::F32, &c.shaped(&share, &[1])?)?;
    c.store_value(&correct, DType::I32, &c.shaped(&count, &[1])?)?;
    c.fill(&context.allocate(&total, DType::I32)?, rows as f64)
}
