//! One step of a gated recurrent unit in the form of older programs, with its gradient.

use super::compose::Compose;
use super::recommendation::copy;
use super::values::{SINGLE, dims, expect, expect_len};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::reduce::Reduction;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("gru_unit", SINGLE, gru_unit);
    table.add("gru_unit_grad", SINGLE, gru_unit_grad);
}

/// Paddle's numbers of activations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Curve {
    Identity,
    Sigmoid,
    Tanh,
    Relu,
}

impl Curve {
    fn of(number: i32) -> Result<Curve> {
        match number {
            0 => Ok(Curve::Identity),
            1 => Ok(Curve::Sigmoid),
            2 => Ok(Curve::Tanh),
            3 => Ok(Curve::Relu),
            _ => Err(refuse("activation", number, "0 (identity), 1 (sigmoid), 2 (tanh) or 3 (relu)")),
        }
    }

    fn apply(self, c: &Compose, x: &View) -> Result<View> {
        let operator = match self {
            Curve::Identity => return Ok(x.clone()),
            Curve::Sigmoid => Elementwise::Activation(Activation::Sigmoid),
            Curve::Tanh => Elementwise::Unary(Unary::Tanh),
            Curve::Relu => Elementwise::Activation(Activation::Relu),
        };
        c.map(operator, &[x], &[])
    }

    /// The gradient by the result.
    fn gradient(self, c: &Compose, y: &View, upstream: &View) -> Result<View> {
        let slope = match self {
            Curve::Identity => return Ok(upstream.clone()),
            Curve::Sigmoid => c.multiply(y, &c.scale(y, -1.0, 1.0)?)?,
            Curve::Tanh => c.scale(&c.multiply(y, y)?, -1.0, 1.0)?,
            Curve::Relu => {
                let zero = c.constant(y.dtype, &[1], 0.0)?;
                let positive = c.map(Elementwise::Binary(Binary::GreaterThan), &[y, &zero], &[])?;
                return c.map(Elementwise::Binary(Binary::Where), &[&positive, upstream, &zero], &[]);
            }
        };
        c.multiply(&slope, upstream)
    }
}

fn product(c: &Compose, left: &View, right: &View, transposed: [bool; 2]) -> Result<View> {
    let of = Matmul { transpose_left: transposed[0], transpose_right: transposed[1] };
    c.apply(&of, &[left.clone(), right.clone()])
}

/// The weights of update and reset gate side by side, and after them in memory those of the candidate.
fn weights(c: &Compose, weight: &View, size: usize) -> Result<[View; 2]> {
    let flat = c.shaped(weight, &[3 * size * size])?;
    let gates = c.shaped(&flat.narrowed(0, 0, 1, 2 * size * size), &[size, 2 * size])?;
    Ok([gates, c.shaped(&flat.narrowed(0, 2 * size * size, 1, size * size), &[size, size])?])
}

/// Columns as a matrix of their own.
fn columns(c: &Compose, x: &View, first: usize, count: usize) -> Result<View> {
    let part = x.narrowed(1, first, 1, count);
    c.scale(&part, 1.0, 0.0)
}

fn gru_unit(
    context: &Context,
    x: Tensor,
    before: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    activation: i32,
    gate_activation: i32,
    origin: bool,
    gates: Output,
    reset_before: Output,
    hidden: Output,
) -> Result<()> {
    let ([count, size], dtype) = (dims("HiddenPrev", &before)?, x.dtype()?);
    expect("Input", &x, &[count, 3 * size])?;
    expect("Weight", &weight, &[size, 3 * size])?;
    let (curve, of_gates) = (Curve::of(activation)?, Curve::of(gate_activation)?);
    let (c, before) = (Compose::new(context), before.view()?);
    let [of_two, of_candidate] = weights(&c, &weight.view()?, size)?;
    let mut input = x.view()?;
    if let Some(bias) = bias {
        expect_len("Bias", &bias, 3 * size)?;
        input = c.add(&input, &c.shaped(&bias.view()?, &[1, 3 * size])?)?;
    }
    let two = c.add(&columns(&c, &input, 0, 2 * size)?, &product(&c, &before, &of_two, [false; 2])?)?;
    let two = of_gates.apply(&c, &two)?;
    let (update, reset) = (columns(&c, &two, 0, size)?, columns(&c, &two, size, size)?);
    let kept = c.multiply(&reset, &before)?;
    let candidate = c.add(&columns(&c, &input, 2 * size, size)?, &product(&c, &kept, &of_candidate, [false; 2])?)?;
    let candidate = curve.apply(&c, &candidate)?;
    let (from, to) = if origin { (&candidate, &before) } else { (&before, &candidate) };
    let value = c.add(from, &c.multiply(&update, &c.subtract(to, from)?)?)?;
    let all = c.place(&gates, dtype)?;
    copy(context, &two, &all.narrowed(1, 0, 1, 2 * size))?;
    copy(context, &candidate, &all.narrowed(1, 2 * size, 1, size))?;
    c.store_value(&reset_before, dtype, &kept)?;
    c.store_value(&hidden, dtype, &value)
}

fn gru_unit_grad(
    context: &Context,
    x: Tensor,
    before: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    gates: Tensor,
    reset_before: Tensor,
    upstream: Tensor,
    activation: i32,
    gate_activation: i32,
    origin: bool,
    dx: Option<Output>,
    dbefore: Option<Output>,
    dweight: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let ([count, size], dtype) = (dims("HiddenPrev", &before)?, x.dtype()?);
    let (curve, of_gates) = (Curve::of(activation)?, Curve::of(gate_activation)?);
    let (c, before, upstream) = (Compose::new(context), before.view()?, upstream.view()?);
    let (gates, kept) = (gates.view()?, reset_before.view()?);
    let [of_two, of_candidate] = weights(&c, &weight.view()?, size)?;
    let part = |at: usize| columns(&c, &gates, at * size, size);
    let (update, reset, candidate) = (part(0)?, part(1)?, part(2)?);
    let rest = c.scale(&update, -1.0, 1.0)?;
    let (to_candidate, to_before, sign) = if origin { (&rest, &update, -1.0) } else { (&update, &rest, 1.0) };
    let all = c.temporary(dtype, &[count, 3 * size])?;
    let distance = c.scale(&c.subtract(&candidate, &before)?, sign, 0.0)?;
    let dupdate = of_gates.gradient(&c, &update, &c.multiply(&upstream, &distance)?)?;
    let dcandidate = curve.gradient(&c, &candidate, &c.multiply(&upstream, to_candidate)?)?;
    let dkept = product(&c, &dcandidate, &of_candidate, [false, true])?;
    let dreset = of_gates.gradient(&c, &reset, &c.multiply(&dkept, &before)?)?;
    for (at, value) in [&dupdate, &dreset, &dcandidate].into_iter().enumerate() {
        copy(context, value, &all.narrowed(1, at * size, 1, size))?;
    }
    let dtwo = columns(&c, &all, 0, 2 * size)?;
    if let Some(dweight) = dweight {
        let flat = c.shaped(&c.place(&dweight, dtype)?, &[3 * size * size])?;
        let two = product(&c, &before, &dtwo, [true, false])?;
        let one = product(&c, &kept, &dcandidate, [true, false])?;
        copy(context, &c.shaped(&two, &[two.len()])?, &flat.narrowed(0, 0, 1, 2 * size * size))?;
        copy(context, &c.shaped(&one, &[one.len()])?, &flat.narrowed(0, 2 * size * size, 1, size * size))?;
    }
    if let Some(dbefore) = dbefore {
        let direct = c.add(&c.multiply(&dkept, &reset)?, &c.multiply(&upstream, to_before)?)?;
        c.store_value(&dbefore, dtype, &c.add(&direct, &product(&c, &dtwo, &of_two, [false, true])?)?)?;
    }
    if let (Some(dbias), Some(_)) = (dbias, bias) {
        c.store_value(&dbias, dtype, &c.reduce(Reduction::Sum, &all, &[0])?)?;
    }
    match dx {
        Some(dx) => c.store_value(&dx, dtype, &all),
        None => Ok(()),
    }
}
