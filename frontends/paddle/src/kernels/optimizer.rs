//! Optimizers: stochastic gradient descent, momentum, Adam and AdamW. With a master copy the step is taken on its float32 numbers.
//!
//! Paddle gives an output the memory of its input here, and its fallback to the CPU does not: every optimizer needs a kernel.

mod adaptive;
mod average;
mod compressed;
mod layerwise;
mod merged;
mod signs;

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::numbers::Element;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Optimizer, Unary};
use openmps_graph::operators::optimizer as steps;
use openmps_graph::{Operator, View};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("sgd", FLOATS, sgd);
    table.add("momentum", FLOATS, momentum);
    table.add("adam", FLOATS, adam);
    table.add("adamw", FLOATS, adamw);
    adaptive::register(table);
    layerwise::register(table);
    signs::register(table);
    merged::register(table);
    average::register(table);
    compressed::register(table);
}

/// A parameter during a step.
struct Parameter<'c> {
    c: Compose<'c>,
    /// In the type of the step: the master copy's, or the parameter's own (float32 for halves).
    value: View,
    gradient: View,
    /// The learning rate, one element.
    rate: View,
    out: Output,
    dtype: DType,
    master_out: Option<Output>,
}

impl<'c> Parameter<'c> {
    fn new(
        context: &'c Context,
        parameter: &Tensor,
        gradient: &Tensor,
        rate: &Tensor,
        master: Option<&Tensor>,
        (out, master_out): (Output, Option<Output>),
    ) -> Result<Parameter<'c>> {
        let c = Compose::new(context);
        let value = c.input(master.unwrap_or(parameter))?;
        let gradient = c.cast(&gradient.view()?, value.dtype)?;
        let rate = c.cast(&c.resident(rate)?, value.dtype)?;
        let master_out = master_out.filter(|_| master.is_some());
        Ok(Parameter { c, value, gradient, rate, out, dtype: parameter.dtype()?, master_out })
    }

    fn step(&self, operator: Optimizer, inputs: &[&View], numbers: &[f64]) -> Result<View> {
        self.c.map(Elementwise::Optimizer(operator), inputs, numbers)
    }

    /// A state in the type of the step.
    fn read(&self, state: &Tensor) -> Result<View> {
        self.c.cast(&self.c.resident(state)?, self.value.dtype)
    }

    /// A state's next value in its output's memory, in the type of the step.
    fn state(&self, out: &Output, operator: Optimizer, inputs: &[&View], numbers: &[f64]) -> Result<View> {
        let next = self.step(operator, inputs, numbers)?;
        self.c.store_value(out, self.value.dtype, &next)?;
        Ok(next)
    }

    /// A new value for a state's output, in the type that the state has.
    fn keep(&self, out: &Output, state: &Tensor, next: &View) -> Result<()> {
        self.c.store_value(out, state.dtype()?, next)
    }

    /// A step that reads and writes the value and its states: each state with its output, and the numbers that it needs.
    fn advance(&self, step: &dyn Operator, states: &[(View, &Output)], numbers: &[&View]) -> Result<()> {
        let (c, dtype) = (&self.c, self.value.dtype);
        let flat = |view: &View| c.shaped(view, &[self.value.len()]);
        let mut inputs = vec![flat(&self.value)?, flat(&self.gradient)?];
        for (state, _) in states {
            inputs.push(flat(state)?);
        }
        inputs.extend(numbers.iter().copied().cloned());
        let next = match &self.master_out {
            Some(master_out) => c.place(master_out, dtype)?,
            None if self.dtype == dtype => c.place(&self.out, dtype)?,
            None => c.temporary(dtype, &self.value.shape)?,
        };
        let mut outputs = vec![flat(&next)?];
        for (_, out) in states {
            outputs.push(flat(&c.place(out, dtype)?)?);
        }
        c.launch(step, &inputs, &outputs)?;
        if self.master_out.is_some() || self.dtype != dtype {
            c.store_value(&self.out, self.dtype, &next)?;
        }
        Ok(())
    }

    fn finish(&self, operator: Optimizer, inputs: &[&View], numbers: &[f64]) -> Result<()> {
        self.finish_with(Elementwise::Optimizer(operator), inputs, numbers)
    }

    fn finish_with(&self, operator: Elementwise, inputs: &[&View], numbers: &[f64]) -> Result<()> {
        let Some(master_out) = &self.master_out else {
            return self.c.store(&self.out, self.dtype, operator, inputs, numbers);
        };
        let next = self.c.map(operator, inputs, numbers)?;
        self.c.store_value(&self.out, self.dtype, &next)?;
        self.c.store_value(master_out, next.dtype, &next)
    }
}

fn sgd(
    context: &Context,
    parameter: Tensor,
    rate: Tensor,
    gradient: Tensor,
    master: Option<Tensor>,
    _multi_precision: bool,
    out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    p.finish(Optimizer::Sgd, &[&p.value, &p.gradient, &p.rate], &[])
}

fn momentum(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    velocity: Tensor,
    rate: Tensor,
    master: Option<Tensor>,
    mu: f32,
    nesterov: bool,
    regularization: String,
    coefficient: f32,
    _multi_precision: bool,
    rescale: f32,
    out: Output,
    velocity_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let decay = if regularization == "l2_decay" { coefficient } else { 0.0 };
    Momentum { mu, nesterov, decay, rescale }.run(&p, &velocity, &velocity_out)
}

/// The attributes of a step with momentum.
struct Momentum {
    mu: f32,
    nesterov: bool,
    decay: f32,
    rescale: f32,
}

impl Momentum {
    fn run(&self, p: &Parameter, velocity: &Tensor, velocity_out: &Output) -> Result<()> {
        let step = steps::Momentum {
            mu: self.mu.into(),
            nesterov: self.nesterov,
            rescale: self.rescale.into(),
            decay: self.decay.into(),
        };
        p.advance(&step, &[(p.read(velocity)?, velocity_out)], &[&p.rate])
    }
}

/// Tensors and attributes that Adam and AdamW share.
struct Adam {
    moments: [Tensor; 2],
    largest: Option<Tensor>,
    powers: [Tensor; 2],
    betas: [f64; 2],
    epsilon: f64,
    /// AdamW's, 0 for Adam.
    decay: f64,
    moments_out: [Output; 2],
    largest_out: Option<Output>,
    powers_out: [Option<Output>; 2],
    amsgrad: bool,
    keep_powers: bool,
}

impl Adam {
    /// As [`skip`], for the step's own states and these others.
    fn skip(&self, context: &Context, flag: Option<&Tensor>, others: [State<'_>; 2]) -> Result<Skipped> {
        let [moment1, moment2] = &self.moments;
        let [power1, power2] = &self.powers;
        let states = [
            others[0],
            (Some(moment1), Some(&self.moments_out[0])),
            (Some(moment2), Some(&self.moments_out[1])),
            (self.largest.as_ref(), self.largest_out.as_ref()),
            (Some(power1), self.powers_out[0].as_ref()),
            (Some(power2), self.powers_out[1].as_ref()),
            others[1],
        ];
        skip(context, flag, &states)
    }

    /// One step of a parameter.
    fn run(&self, p: &Parameter) -> Result<()> {
        let (power1, power2) = (p.read(&self.powers[0])?, p.read(&self.powers[1])?);
        let (moment, square) = (p.read(&self.moments[0])?, p.read(&self.moments[1])?);
        match (self.amsgrad, &self.largest, &self.largest_out) {
            (true, Some(largest), Some(out)) => {
                let numbers = [&p.rate, &power1, &power2];
                self.run_by_largest(p, [&moment, &square, &p.read(largest)?], numbers, out)?;
            }
            _ => {
                let step = steps::Adam { betas: self.betas, epsilon: self.epsilon, decay: self.decay };
                let states = [(moment, &self.moments_out[0]), (square, &self.moments_out[1])];
                p.advance(&step, &states, &[&p.rate, &power1, &power2])?;
            }
        }
        if self.keep_powers {
            return Ok(());
        }
        for ((out, power), beta) in self.powers_out.iter().zip([&power1, &power2]).zip(self.betas) {
            if let Some(out) = out {
                p.c.store(out, p.value.dtype, Elementwise::Unary(Unary::Scale), &[power], &[beta, 0.0])?;
            }
        }
        Ok(())
    }

    /// The step by the largest second moment so far (Reddi, Kale and Kumar, 2018).
    fn run_by_largest(
        &self,
        p: &Parameter,
        [moment, square, largest]: [&View; 3],
        [rate, power1, power2]: [&View; 3],
        out: &Output,
    ) -> Result<()> {
        let value = match self.decay {
            0.0 => p.value.clone(),
            decay => p.step(Optimizer::Decay, &[&p.value, rate], &[decay])?,
        };
        let moment = p.state(&self.moments_out[0], Optimizer::Moment, &[moment, &p.gradient], &self.betas[..1])?;
        let square =
            p.state(&self.moments_out[1], Optimizer::SquareMoment, &[square, &p.gradient], &self.betas[1..])?;
        let square = p.c.map(Elementwise::Binary(Binary::Maximum), &[largest, &square], &[])?;
        p.c.store_value(out, p.value.dtype, &square)?;
        let rate = p.step(Optimizer::AdamRate, &[rate, power1, power2], &[])?;
        let floor = p.step(Optimizer::AdamFloor, &[power2], &[self.epsilon])?;
        p.finish(Optimizer::AdamStep, &[&value, &moment, &square, &rate, &floor], &[])
    }
}

/// Whether a step was called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skipped {
    Yes,
    No,
}

/// What a step reads and where it writes the next, as far as they are there.
type State<'t> = (Option<&'t Tensor>, Option<&'t Output>);

/// A step that a loss scaler has called off leaves everything as it is: outputs that are not their inputs become copies.
fn skip(context: &Context, flag: Option<&Tensor>, states: &[State<'_>]) -> Result<Skipped> {
    let Some(flag) = flag else { return Ok(Skipped::No) };
    match context.elements(&flag.view()?)?[..] {
        [Element { integer: 0, .. }] => return Ok(Skipped::No),
        [_] => {}
        _ => return Err(refuse("skip_update", flag.shape(), "one number")),
    }
    let c = Compose::new(context);
    for (state, out) in states {
        let (Some(state), Some(out)) = (state, out) else { continue };
        let from = c.resident(state)?;
        if context.allocate(out, from.dtype)?.address != from.address {
            c.store_value(out, from.dtype, &from)?;
        }
    }
    Ok(Skipped::Yes)
}

fn adam(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    largest: Option<Tensor>,
    power1: Tensor,
    power2: Tensor,
    master: Option<Tensor>,
    skip_update: Option<Tensor>,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    _lazy_mode: bool,
    _min_rows: i64,
    _multi_precision: bool,
    keep_powers: bool,
    amsgrad: bool,
    out: Output,
    moment1_out: Output,
    moment2_out: Output,
    largest_out: Option<Output>,
    power1_out: Option<Output>,
    power2_out: Option<Output>,
    master_out: Option<Output>,
) -> Result<()> {
    let adam = Adam {
        moments: [moment1, moment2],
        largest,
        powers: [power1, power2],
        betas: [beta1.f64(), beta2.f64()],
        epsilon: epsilon.f64(),
        decay: 0.0,
        moments_out: [moment1_out, moment2_out],
        largest_out,
        powers_out: [power1_out, power2_out],
        amsgrad,
        keep_powers,
    };
    let others = [(Some(&parameter), Some(&out)), (master.as_ref(), master_out.as_ref())];
    if adam.skip(context, skip_update.as_ref(), others)? == Skipped::Yes {
        return Ok(());
    }
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    adam.run(&p)
}

fn adamw(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    largest: Option<Tensor>,
    power1: Tensor,
    power2: Tensor,
    master: Option<Tensor>,
    skip_update: Option<Tensor>,
    beta1: Scalar,
    beta2: Scalar,
    epsilon: Scalar,
    rate_ratio: f32,
    decay: f32,
    with_decay: bool,
    _lazy_mode: bool,
    _min_rows: i64,
    _multi_precision: bool,
    keep_powers: bool,
    amsgrad: bool,
    out: Output,
    moment1_out: Output,
    moment2_out: Output,
    largest_out: Option<Output>,
    power1_out: Option<Output>,
    power2_out: Option<Output>,
    master_out: Option<Output>,
) -> Result<()> {
    let adam = Adam {
        moments: [moment1, moment2],
        largest,
        powers: [power1, power2],
        betas: [beta1.f64(), beta2.f64()],
        epsilon: epsilon.f64(),
        decay: if with_decay { decay.into() } else { 0.0 },
        moments_out: [moment1_out, moment2_out],
        largest_out,
        powers_out: [power1_out, power2_out],
        amsgrad,
        keep_powers,
    };
    let others = [(Some(&parameter), Some(&out)), (master.as_ref(), master_out.as_ref())];
    if adam.skip(context, skip_update.as_ref(), others)? == Skipped::Yes {
        return Ok(());
    }
    let mut p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    if rate_ratio != 1.0 {
        p.rate = p.c.scale(&p.rate, rate_ratio.into(), 0.0)?;
    }
    adam.run(&p)
}
