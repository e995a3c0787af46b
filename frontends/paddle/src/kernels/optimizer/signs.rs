//! Rprop, which steps by the signs of gradients, and ASGD, which averages the gradients of the last batches.

use super::Parameter;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Optimizer, Unary};
use openmps_tile::dtype::FLOATS;

/// Adds these optimizers.
pub fn register(table: &mut Table) {
    table.add("rprop", FLOATS, rprop);
    table.add("asgd", FLOATS, asgd);
}

/// Element `index` of a tensor of two numbers.
fn number(p: &Parameter, pair: &Tensor, index: usize) -> Result<View> {
    let pair = p.read(pair)?;
    Ok(View::dense(pair.address + index * pair.dtype.size(), pair.dtype, &[1])?)
}

/// The rate of each number is a state here: it grows while the gradient keeps its sign, and shrinks when it changes.
fn rprop(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    previous: Tensor,
    rate: Tensor,
    master: Option<Tensor>,
    range: Tensor,
    etas: Tensor,
    _multi_precision: bool,
    out: Output,
    previous_out: Output,
    rate_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let (shrink, grow) = (number(&p, &etas, 0)?, number(&p, &etas, 1)?);
    let (low, high) = (number(&p, &range, 0)?, number(&p, &range, 1)?);
    let before = p.read(&previous)?;
    let factor = p.step(Optimizer::SignFactor, &[&p.gradient, &before, &grow, &shrink], &[])?;
    let kept = p.step(Optimizer::KeptGradient, &[&p.gradient, &before], &[])?;
    let next = p.c.multiply(&p.rate, &factor)?;
    let next = p.c.map(Elementwise::Binary(Binary::Minimum), &[&next, &high], &[])?;
    let next = p.c.map(Elementwise::Binary(Binary::Maximum), &[&next, &low], &[])?;
    let sign = p.c.map(Elementwise::Unary(Unary::Sign), &[&kept], &[])?;
    p.keep(&previous_out, &previous, &kept)?;
    p.keep(&rate_out, &rate, &next)?;
    p.finish(Optimizer::Sgd, &[&p.value, &sign, &next], &[])
}

fn asgd(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    sum: Tensor,
    last: Tensor,
    count: Tensor,
    master: Option<Tensor>,
    _multi_precision: bool,
    out: Output,
    sum_out: Output,
    last_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let next = p.step(Optimizer::AveragedGradient, &[&p.read(&sum)?, &p.read(&last)?, &p.gradient], &[])?;
    p.keep(&sum_out, &sum, &next)?;
    p.keep(&last_out, &last, &p.gradient)?;
    p.finish(Optimizer::QuotientStep, &[&p.value, &next, &p.read(&count)?, &p.rate], &[])
}
