//! Loss scaling: gradients divided by the scale and searched for what is not finite, and the scale's next value.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::full::Full;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, Operator};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("check_finite_and_unscale", FLOATS, check_finite_and_unscale).output(1, DType::Bool);
    let row = table.add("update_loss_scaling", FLOATS, update_loss_scaling).output_as_inferred(1);
    row.output(2, DType::I32).output(3, DType::I32);
}

/// Every gradient over the scale, mostly in its own memory, and whether any of them had an element that is not finite.
fn check_finite_and_unscale(
    context: &Context,
    xs: Vec<Tensor>,
    scale: Tensor,
    outs: Vec<Option<Output>>,
    found: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let scale = c.resident(&scale)?;
    let mut any = c.temporary(DType::Bool, &[1])?;
    c.fill(&any, 0.0)?;
    for (x, out) in xs.iter().zip(&outs) {
        let (Some(out), dtype) = (out, x.dtype()?) else { continue };
        let value = c.input(x)?;
        if value.is_empty() {
            context.allocate(out, dtype)?;
            continue;
        }
        let axes: Vec<i64> = (0..value.rank() as i64).collect();
        let finite = c.map(Elementwise::Unary(Unary::IsFinite), &[&value], &[])?;
        let all = c.shaped(&c.reduce(Reduction::All, &finite, &axes)?, &[1])?;
        let not = c.map(Elementwise::Unary(Unary::LogicalNot), &[&all], &[])?;
        any = c.map(Elementwise::Binary(Binary::LogicalOr), &[&any, &not], &[])?;
        let divisor = c.cast(&scale, value.dtype)?;
        c.store(out, dtype, Elementwise::Binary(Binary::Divide), &[&value, &divisor], &[])?;
    }
    c.store_value(&found, DType::Bool, &any)
}

/// The scale shrinks after so many steps with infinite gradients, which become zeros, and grows after so many without.
fn update_loss_scaling(
    context: &Context,
    xs: Vec<Tensor>,
    found: Tensor,
    scale: Tensor,
    good: Tensor,
    bad: Tensor,
    grow_every: i32,
    shrink_every: i32,
    growth: f32,
    shrinkage: f32,
    stop: Scalar,
    outs: Vec<Option<Output>>,
    scale_out: Output,
    good_out: Output,
    bad_out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let found = Scalar::of_tensor(context, &found)?.bool();
    for (x, out) in xs.iter().zip(&outs) {
        let Some(out) = out else { continue };
        let from = x.view()?;
        let to = context.allocate(out, from.dtype)?;
        if found {
            c.fill(&to, 0.0)?;
        } else if to.address != from.address {
            c.store_value(out, from.dtype, &from)?;
        }
    }
    if stop.bool() {
        return Ok(());
    }
    let mut count = Counters { good: of(context, &good)?.i64(), bad: of(context, &bad)?.i64() };
    let dtype = scale.dtype()?;
    let scale = of(context, &scale)?.f64();
    let next = match count.step(found, grow_every.into(), shrink_every.into()) {
        Change::None => scale,
        Change::Shrink => (scale * f64::from(shrinkage)).max(1.0),
        Change::Grow if !is_finite(scale * f64::from(growth), dtype) => scale,
        Change::Grow => scale * f64::from(growth),
    };
    set(context, &scale_out, dtype, Number::Float(next))?;
    set(context, &good_out, DType::I32, Number::Integer(count.good))?;
    set(context, &bad_out, DType::I32, Number::Integer(count.bad))
}

/// Steps in a row with finite gradients, and with others.
struct Counters {
    good: i64,
    bad: i64,
}

/// What becomes of the scale.
enum Change {
    None,
    Grow,
    Shrink,
}

impl Counters {
    fn step(&mut self, found: bool, grow_every: i64, shrink_every: i64) -> Change {
        let (counted, other) = if found { (&mut self.bad, &mut self.good) } else { (&mut self.good, &mut self.bad) };
        *other = 0;
        *counted += 1;
        if *counted != if found { shrink_every } else { grow_every } {
            return Change::None;
        }
        *counted = 0;
        if found { Change::Shrink } else { Change::Grow }
    }
}

fn is_finite(scale: f64, dtype: DType) -> bool {
    if dtype == DType::F64 { scale.is_finite() } else { (scale as f32).is_finite() }
}

fn of(context: &Context, tensor: &Tensor) -> Result<Scalar> {
    Scalar::of_tensor(context, tensor)
}

fn set(context: &Context, out: &Output, dtype: DType, value: Number) -> Result<()> {
    let to = context.allocate(out, dtype)?;
    let operator = Full { dims: to.shape.clone(), dtype, value };
    Ok(operator.run(context.queue(), &[], std::slice::from_ref(&to))?)
}
