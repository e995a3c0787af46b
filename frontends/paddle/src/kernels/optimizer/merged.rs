//! Steps of many parameters in one call: what `use_multi_tensor` and Paddle's fused optimizers ask for.

use super::{Adam, Momentum, Parameter, Skipped, skip};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_tile::dtype::FLOATS;

/// Adds these optimizers.
pub fn register(table: &mut Table) {
    table.add("merged_momentum", FLOATS, merged_momentum);
    table.add("merged_adam", FLOATS, merged_adam);
    table.add("fused_adam", FLOATS, fused_adam);
}

/// The member for parameter `index`, or the only one.
fn of<T: Copy>(list: &[T], index: usize) -> Option<T> {
    list.get(index).or(list.first().filter(|_| list.len() == 1)).copied()
}

/// A list's tensor of one of the parameters.
pub(super) fn member<T: Copy>(list: &[T], index: usize, what: &'static str) -> Result<T> {
    list.get(index).copied().ok_or(Error::Missing { what, index })
}

/// The same of outputs, of which Paddle leaves some out.
pub(super) fn output(list: &[Option<Output>], index: usize) -> Option<Output> {
    list.get(index).copied().flatten()
}

fn merged_momentum(
    context: &Context,
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    velocities: Vec<Tensor>,
    rates: Vec<Tensor>,
    masters: Option<Vec<Tensor>>,
    mu: f32,
    nesterov: bool,
    regularizations: Vec<String>,
    coefficients: Vec<f32>,
    _multi_precision: bool,
    rescale: f32,
    outs: Vec<Option<Output>>,
    velocity_outs: Vec<Option<Output>>,
    master_outs: Vec<Option<Output>>,
) -> Result<()> {
    for (i, parameter) in parameters.iter().enumerate() {
        let outs = (output(&outs, i), output(&velocity_outs, i), of(&rates, i));
        let (Some(out), Some(velocity_out), Some(rate)) = outs else { continue };
        let master = masters.as_ref().and_then(|list| list.get(i));
        let regularized = regularizations.get(i).is_some_and(|kind| kind == "l2_decay");
        let decay = coefficients.get(i).copied().filter(|_| regularized).unwrap_or(0.0);
        let (gradient, outs) = (member(&gradients, i, "gradient")?, (out, output(&master_outs, i)));
        let p = Parameter::new(context, parameter, &gradient, &rate, master, outs)?;
        Momentum { mu, nesterov, decay, rescale }.run(&p, &member(&velocities, i, "velocity")?, &velocity_out)?;
    }
    Ok(())
}

/// The tensors of a call with many parameters.
struct Lists {
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    rates: Vec<Tensor>,
    moments: [Vec<Tensor>; 2],
    largest: Option<Vec<Tensor>>,
    powers: [Vec<Tensor>; 2],
    masters: Option<Vec<Tensor>>,
    outs: Vec<Option<Output>>,
    moment_outs: [Vec<Option<Output>>; 2],
    largest_outs: Vec<Option<Output>>,
    power_outs: [Vec<Option<Output>>; 2],
    master_outs: Vec<Option<Output>>,
}

/// The attributes of such a call.
struct Attributes {
    betas: [f64; 2],
    epsilon: f64,
    /// Decoupled, as AdamW's; 0 for Adam.
    decay: f64,
    keep_powers: bool,
    amsgrad: bool,
}

impl Lists {
    fn run(&self, context: &Context, attributes: &Attributes) -> Result<()> {
        for (i, parameter) in self.parameters.iter().enumerate() {
            let moment_outs = [output(&self.moment_outs[0], i), output(&self.moment_outs[1], i)];
            let (Some(out), [Some(first), Some(second)]) = (output(&self.outs, i), moment_outs) else { continue };
            let Some(rate) = of(&self.rates, i) else { continue };
            let master = self.masters.as_ref().and_then(|list| list.get(i));
            let outs = (out, output(&self.master_outs, i));
            let gradient = member(&self.gradients, i, "gradient")?;
            let p = Parameter::new(context, parameter, &gradient, &rate, master, outs)?;
            let adam = Adam {
                moments: [member(&self.moments[0], i, "moment1")?, member(&self.moments[1], i, "moment2")?],
                largest: self.largest.as_ref().and_then(|list| list.get(i)).copied(),
                powers: [member(&self.powers[0], i, "beta1_pow")?, member(&self.powers[1], i, "beta2_pow")?],
                betas: attributes.betas,
                epsilon: attributes.epsilon,
                decay: attributes.decay,
                moments_out: [first, second],
                largest_out: output(&self.largest_outs, i),
                powers_out: [output(&self.power_outs[0], i), output(&self.power_outs[1], i)],
                amsgrad: attributes.amsgrad,
                keep_powers: attributes.keep_powers,
            };
            adam.run(&p)?;
        }
        Ok(())
    }

    /// Each state with its output.
    fn states(&self) -> Vec<(Option<&Tensor>, Option<&Output>)> {
        let pairs = [
            (Some(&self.parameters), &self.outs),
            (Some(&self.moments[0]), &self.moment_outs[0]),
            (Some(&self.moments[1]), &self.moment_outs[1]),
            (self.largest.as_ref(), &self.largest_outs),
            (Some(&self.powers[0]), &self.power_outs[0]),
            (Some(&self.powers[1]), &self.power_outs[1]),
            (self.masters.as_ref(), &self.master_outs),
        ];
        pairs
            .into_iter()
            .flat_map(|(states, outs)| {
                states.into_iter().flatten().zip(outs).map(|(state, out)| (Some(state), out.as_ref()))
            })
            .collect()
    }
}

fn merged_adam(
    context: &Context,
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    rates: Vec<Tensor>,
    moments1: Vec<Tensor>,
    moments2: Vec<Tensor>,
    largest: Option<Vec<Tensor>>,
    powers1: Vec<Tensor>,
    powers2: Vec<Tensor>,
    masters: Option<Vec<Tensor>>,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    _multi_precision: bool,
    keep_powers: bool,
    amsgrad: bool,
    outs: Vec<Option<Output>>,
    moment1_outs: Vec<Option<Output>>,
    moment2_outs: Vec<Option<Output>>,
    largest_outs: Vec<Option<Output>>,
    power1_outs: Vec<Option<Output>>,
    power2_outs: Vec<Option<Output>>,
    master_outs: Vec<Option<Output>>,
) -> Result<()> {
    let lists = Lists {
        parameters,
        gradients,
        rates,
        moments: [moments1, moments2],
        largest,
        powers: [powers1, powers2],
        masters,
        outs,
        moment_outs: [moment1_outs, moment2_outs],
        largest_outs,
        power_outs: [power1_outs, power2_outs],
        master_outs,
    };
    let betas = [beta1.f64(), beta2.f64()];
    lists.run(context, &Attributes { betas, epsilon: epsilon.f64(), decay: 0.0, keep_powers, amsgrad })
}

fn fused_adam(
    context: &Context,
    parameters: Vec<Tensor>,
    gradients: Vec<Tensor>,
    rate: Tensor,
    moments1: Vec<Tensor>,
    moments2: Vec<Tensor>,
    largest: Option<Vec<Tensor>>,
    powers1: Vec<Tensor>,
    powers2: Vec<Tensor>,
    masters: Option<Vec<Tensor>>,
    skip_update: Option<Tensor>,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    _chunk_size: i32,
    decay: f32,
    adamw: bool,
    _multi_precision: bool,
    keep_powers: bool,
    amsgrad: bool,
    outs: Vec<Option<Output>>,
    moment1_outs: Vec<Option<Output>>,
    moment2_outs: Vec<Option<Output>>,
    largest_outs: Vec<Option<Output>>,
    power1_outs: Vec<Option<Output>>,
    power2_outs: Vec<Option<Output>>,
    master_outs: Vec<Option<Output>>,
) -> Result<()> {
    let lists = Lists {
        parameters,
        gradients,
        rates: vec![rate],
        moments: [moments1, moments2],
        largest,
        powers: [powers1, powers2],
        masters,
        outs,
        moment_outs: [moment1_outs, moment2_outs],
        largest_outs,
        power_outs: [power1_outs, power2_outs],
        master_outs,
    };
    if skip(context, skip_update.as_ref(), &lists.states())? == Skipped::Yes {
        return Ok(());
    }
    let decay = if adamw { f64::from(decay) } else { 0.0 };
    let betas = [beta1.f64(), beta2.f64()];
    lists.run(context, &Attributes { betas, epsilon: epsilon.f64(), decay, keep_powers, amsgrad })
}
