//! The step of deep gradient compression (Lin et al., 2018): with momentum until gradients are compressed, which then have it in them.

use super::{Momentum, Parameter};
use crate::argument::Upstream;
use crate::error::{Result, refuse};
use crate::kernels::compose::Compose;
use crate::kernels::values::floats;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::Optimizer;
use openmps_tile::DType;

/// Adds the kernel.
pub fn register(table: &mut Table) {
    table.add("dgc_momentum", &[DType::F32], dgc_momentum);
}

/// What compression has multiplied by the number of ranks is divided by it first: where a program has both gradients in one variable, the step
/// takes that quotient.
fn dgc_momentum(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    velocity: Tensor,
    rate: Tensor,
    master: Upstream,
    step: Tensor,
    ranks: Tensor,
    mu: f32,
    nesterov: bool,
    regularization: String,
    coefficient: f32,
    multi_precision: bool,
    rescale: f32,
    begin: f32,
    out: Output,
    velocity_out: Output,
    master_out: Option<Output>,
    gradient_out: Output,
) -> Result<()> {
    let first = |x: &Tensor| Ok::<f64, crate::error::Error>(floats(context, x)?.first().copied().unwrap_or(0.0));
    // Paddle's way to say that nothing is compressed yet and another operator takes the step.
    if begin as i64 <= -1 {
        return Ok(());
    }
    let (ranks, step) = (first(&ranks)? as i64, first(&step)? as i64);
    if ranks <= 1 {
        return Err(refuse("nranks", ranks, "2 or more"));
    }
    let c = Compose::new(context);
    let mean = c.scale(&gradient.view()?, 1.0 / ranks as f64, 0.0)?;
    c.store_value(&gradient_out, gradient.dtype()?, &mean)?;
    let master = master.0.filter(|_| multi_precision);
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    if step < begin as i64 {
        let decay = if regularization == "l2_decay" { coefficient } else { 0.0 };
        return Momentum { mu, nesterov, decay, rescale }.run(&p, &velocity, &velocity_out);
    }
    p.c.store_value(&velocity_out, velocity.dtype()?, &p.c.resident(&velocity)?)?;
    p.finish(Optimizer::Sgd, &[&p.value, &p.gradient, &p.rate], &[])
}
