//! Optimizers that weigh a whole tensor's step by norms: Lamb and LARS.

use super::merged::{member, output};
use super::{Parameter, Skipped, skip};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Optimizer};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::dtype::FLOATS;

/// Adds these optimizers.
pub fn register(table: &mut Table) {
    table.add("lamb", FLOATS, lamb);
    table.add("lars_momentum", FLOATS, lars_momentum);
}

/// The norm of all elements: one element.
fn norm(p: &Parameter, x: &View) -> Result<View> {
    let axes: Vec<i64> = (0..x.rank() as i64).collect();
    p.c.shaped(&p.c.reduce(Reduction::Norm, x, &axes)?, &[1])
}

fn lamb(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    power1: Tensor,
    power2: Tensor,
    master: Option<Tensor>,
    skip_update: Option<Tensor>,
    decay: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    always_adapt: bool,
    _multi_precision: bool,
    out: Output,
    moment1_out: Output,
    moment2_out: Output,
    power1_out: Option<Output>,
    power2_out: Option<Output>,
    master_out: Option<Output>,
) -> Result<()> {
    let states = [
        (Some(&parameter), Some(&out)),
        (Some(&moment1), Some(&moment1_out)),
        (Some(&moment2), Some(&moment2_out)),
        (Some(&power1), power1_out.as_ref()),
        (Some(&power2), power2_out.as_ref()),
        (master.as_ref(), master_out.as_ref()),
    ];
    if skip(context, skip_update.as_ref(), &states)? == Skipped::Yes {
        return Ok(());
    }
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let average = p.step(Optimizer::Moment, &[&p.read(&moment1)?, &p.gradient], &[beta1.into()])?;
    let square = p.step(Optimizer::SquareMoment, &[&p.read(&moment2)?, &p.gradient], &[beta2.into()])?;
    let powers = [p.read(&power1)?, p.read(&power2)?];
    let inputs = [&p.value, &average, &square, &powers[0], &powers[1]];
    let direction = p.step(Optimizer::LambDirection, &inputs, &[decay.into(), epsilon.into()])?;
    let mut rate = p.rate.clone();
    if decay > 0.0 || always_adapt {
        rate = p.step(Optimizer::TrustRate, &[&rate, &norm(&p, &p.value)?, &norm(&p, &direction)?], &[])?;
    }
    p.keep(&moment1_out, &moment1, &average)?;
    p.keep(&moment2_out, &moment2, &square)?;
    for ((out, state), (power, beta)) in
        [(&power1_out, &power1), (&power2_out, &power2)].into_iter().zip(powers.iter().zip([beta1, beta2]))
    {
        if let Some(out) = out {
            p.keep(out, state, &p.c.scale(power, beta.into(), 0.0)?)?;
        }
    }
    p.finish(Optimizer::Sgd, &[&p.value, &direction, &rate], &[])
}

fn lars_momentum(
    context: &Context,
    parameters: Vec<Tensor>,
    velocities: Vec<Tensor>,
    rates: Vec<Tensor>,
    gradients: Vec<Tensor>,
    masters: Option<Vec<Tensor>>,
    decays: Vec<f32>,
    mu: f32,
    coefficient: f32,
    epsilon: f32,
    _multi_precision: bool,
    rescale: f32,
    outs: Vec<Option<Output>>,
    velocity_outs: Vec<Option<Output>>,
    master_outs: Vec<Option<Output>>,
) -> Result<()> {
    for (i, parameter) in parameters.iter().enumerate() {
        let (Some(out), Some(velocity_out)) = (output(&outs, i), output(&velocity_outs, i)) else { continue };
        let master = masters.as_ref().and_then(|list| list.get(i));
        let (gradient, rate) = (member(&gradients, i, "gradient")?, member(&rates, i, "learning_rate")?);
        let mut p = Parameter::new(context, parameter, &gradient, &rate, master, (out, output(&master_outs, i)))?;
        let before = member(&velocities, i, "velocity")?;
        if rescale != 1.0 {
            p.gradient = p.c.scale(&p.gradient, rescale.into(), 0.0)?;
        }
        let decay = f64::from(decays.get(i).copied().unwrap_or(0.0));
        if decay > 0.0 {
            let inputs = [&p.rate, &norm(&p, &p.value)?, &norm(&p, &p.gradient)?];
            p.rate = p.step(Optimizer::LarsRate, &inputs, &[coefficient.into(), decay, epsilon.into()])?;
        }
        let inputs = [&p.read(&before)?, &p.gradient, &p.value, &p.rate];
        let velocity = p.step(Optimizer::LarsVelocity, &inputs, &[mu.into(), decay])?;
        p.keep(&velocity_out, &before, &velocity)?;
        p.finish_with(Elementwise::Binary(Binary::Subtract), &[&p.value, &velocity], &[])?;
    }
    Ok(())
}
