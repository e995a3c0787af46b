//! Optimizers with a rate for each number: Adagrad, Adadelta, RMSProp, Adamax, NAdam and RAdam.

use super::Parameter;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Optimizer, Unary};
use openmps_tile::dtype::FLOATS;

/// Adds these optimizers.
pub fn register(table: &mut Table) {
    table.add("adagrad", FLOATS, adagrad);
    table.add("decayed_adagrad", FLOATS, decayed_adagrad);
    table.add("adadelta", FLOATS, adadelta);
    table.add("rmsprop", FLOATS, rmsprop);
    table.add("adamax", FLOATS, adamax);
    table.add("nadam", FLOATS, nadam);
    table.add("radam", FLOATS, radam);
}

fn adagrad(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    moment: Tensor,
    rate: Tensor,
    master: Option<Tensor>,
    epsilon: f32,
    _multi_precision: bool,
    out: Output,
    moment_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let next = p.step(Optimizer::AccumulateSquare, &[&p.read(&moment)?, &p.gradient], &[])?;
    p.keep(&moment_out, &moment, &next)?;
    p.finish(Optimizer::RootStep, &[&p.value, &p.gradient, &next, &p.rate], &[epsilon.into()])
}

fn decayed_adagrad(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    moment: Tensor,
    rate: Tensor,
    decay: f32,
    epsilon: f32,
    out: Output,
    moment_out: Output,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, None, (out, None))?;
    let next = p.step(Optimizer::SquareMoment, &[&p.read(&moment)?, &p.gradient], &[decay.into()])?;
    p.keep(&moment_out, &moment, &next)?;
    p.finish(Optimizer::RootStep, &[&p.value, &p.gradient, &next, &p.rate], &[epsilon.into()])
}

fn adadelta(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    squares: Tensor,
    changes: Tensor,
    rate: Tensor,
    master: Option<Tensor>,
    rho: f32,
    epsilon: f32,
    _multi_precision: bool,
    out: Output,
    squares_out: Output,
    changes_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let (rho, epsilon) = (f64::from(rho), f64::from(epsilon));
    let next = p.step(Optimizer::SquareMoment, &[&p.read(&squares)?, &p.gradient], &[rho])?;
    let before = p.read(&changes)?;
    let change = p.step(Optimizer::AdadeltaChange, &[&before, &next, &p.gradient], &[epsilon])?;
    let after = p.step(Optimizer::SquareMoment, &[&before, &change], &[rho])?;
    p.keep(&squares_out, &squares, &next)?;
    p.keep(&changes_out, &changes, &after)?;
    p.finish(Optimizer::Sgd, &[&p.value, &change, &p.rate], &[])
}

fn rmsprop(
    context: &Context,
    parameter: Tensor,
    square: Tensor,
    gradient: Tensor,
    moment: Tensor,
    rate: Tensor,
    mean: Option<Tensor>,
    master: Option<Tensor>,
    epsilon: f32,
    decay: f32,
    momentum: f32,
    centered: bool,
    _multi_precision: bool,
    out: Output,
    moment_out: Output,
    square_out: Output,
    mean_out: Option<Output>,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let decay = [f64::from(decay)];
    let mut next = p.step(Optimizer::SquareMoment, &[&p.read(&square)?, &p.gradient], &decay)?;
    p.keep(&square_out, &square, &next)?;
    if let (true, Some(mean), Some(mean_out)) = (centered, &mean, &mean_out) {
        let average = p.step(Optimizer::Moment, &[&p.read(mean)?, &p.gradient], &decay)?;
        p.keep(mean_out, mean, &average)?;
        next = p.step(Optimizer::Variance, &[&next, &average], &[])?;
    }
    let inputs = [&p.read(&moment)?, &p.gradient, &next, &p.rate];
    let change = p.step(Optimizer::RootMoment, &inputs, &[momentum.into(), epsilon.into()])?;
    p.keep(&moment_out, &moment, &change)?;
    p.finish_with(Elementwise::Binary(Binary::Subtract), &[&p.value, &change], &[])
}

fn adamax(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    moment: Tensor,
    norm: Tensor,
    power: Tensor,
    master: Option<Tensor>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    _multi_precision: bool,
    out: Output,
    moment_out: Output,
    norm_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let average = p.step(Optimizer::Moment, &[&p.read(&moment)?, &p.gradient], &[beta1.into()])?;
    let numbers = [beta2.into(), epsilon.into()];
    let largest = p.step(Optimizer::LargestMoment, &[&p.read(&norm)?, &p.gradient], &numbers)?;
    let rate = p.step(Optimizer::UnbiasedRate, &[&p.rate, &p.read(&power)?], &[])?;
    p.keep(&moment_out, &moment, &average)?;
    p.keep(&norm_out, &norm, &largest)?;
    p.finish(Optimizer::QuotientStep, &[&p.value, &average, &largest, &rate], &[])
}

/// How much NAdam's momentum loses in each step (Dozat, 2016).
const NADAM_DECAY: f64 = 0.96;

fn nadam(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    decay_power: Tensor,
    power2: Tensor,
    product: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    master: Option<Tensor>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    momentum_decay: f32,
    _multi_precision: bool,
    out: Output,
    decay_power_out: Output,
    power2_out: Output,
    product_out: Output,
    moment1_out: Output,
    moment2_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let (beta1, beta2, decay) = (f64::from(beta1), f64::from(beta2), f64::from(momentum_decay));
    // Tensors of one element: the momentum of this step and of the next, and their products with all before.
    let decayed = p.c.scale(&p.read(&decay_power)?, NADAM_DECAY, 0.0)?;
    let after2 = p.c.scale(&p.read(&power2)?, beta2, 0.0)?;
    let weight = p.c.map(Elementwise::Unary(Unary::PowScalar), &[&decayed], &[decay])?;
    let now = p.c.scale(&weight, -0.5 * beta1, beta1)?;
    let then = p.c.scale(&weight, -0.5 * beta1 * NADAM_DECAY.powf(decay), beta1)?;
    let so_far = p.c.multiply(&p.read(&product)?, &now)?;
    let of_moment = p.step(Optimizer::UnbiasedRate, &[&then, &p.c.multiply(&so_far, &then)?], &[])?;
    let of_gradient = p.step(Optimizer::UnbiasedRate, &[&p.c.scale(&now, -1.0, 1.0)?, &so_far], &[])?;
    let average = p.step(Optimizer::Moment, &[&p.read(&moment1)?, &p.gradient], &[beta1])?;
    let square = p.step(Optimizer::SquareMoment, &[&p.read(&moment2)?, &p.gradient], &[beta2])?;
    let direction = p.step(Optimizer::Blend, &[&average, &p.gradient, &of_moment, &of_gradient], &[])?;
    let unbiased = p.step(Optimizer::UnbiasedRate, &[&square, &after2], &[])?;
    p.keep(&decay_power_out, &decay_power, &decayed)?;
    p.keep(&power2_out, &power2, &after2)?;
    p.keep(&product_out, &product, &so_far)?;
    p.keep(&moment1_out, &moment1, &average)?;
    p.keep(&moment2_out, &moment2, &square)?;
    p.finish(Optimizer::RootStep, &[&p.value, &direction, &unbiased, &p.rate], &[epsilon.into()])
}

fn radam(
    context: &Context,
    parameter: Tensor,
    gradient: Tensor,
    rate: Tensor,
    power1: Tensor,
    power2: Tensor,
    length: Tensor,
    moment1: Tensor,
    moment2: Tensor,
    master: Option<Tensor>,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    _multi_precision: bool,
    out: Output,
    power1_out: Output,
    power2_out: Output,
    length_out: Output,
    moment1_out: Output,
    moment2_out: Output,
    master_out: Option<Output>,
) -> Result<()> {
    let p = Parameter::new(context, &parameter, &gradient, &rate, master.as_ref(), (out, master_out))?;
    let (beta1, beta2) = (f64::from(beta1), f64::from(beta2));
    let after1 = p.c.scale(&p.read(&power1)?, beta1, 0.0)?;
    let after2 = p.c.scale(&p.read(&power2)?, beta2, 0.0)?;
    let longer = p.step(Optimizer::RectifiedLength, &[&p.read(&length)?, &after2], &[beta2])?;
    let average = p.step(Optimizer::Moment, &[&p.read(&moment1)?, &p.gradient], &[beta1])?;
    let square = p.step(Optimizer::SquareMoment, &[&p.read(&moment2)?, &p.gradient], &[beta2])?;
    let factor = p.step(Optimizer::Rectification, &[&longer, &after2], &[2.0 / (1.0 - beta2) - 1.0])?;
    let rate = p.step(Optimizer::UnbiasedRate, &[&p.rate, &after1], &[])?;
    p.keep(&power1_out, &power1, &after1)?;
    p.keep(&power2_out, &power2, &after2)?;
    p.keep(&length_out, &length, &longer)?;
    p.keep(&moment1_out, &moment1, &average)?;
    p.keep(&moment2_out, &moment2, &square)?;
    p.finish(Optimizer::RectifiedStep, &[&p.value, &average, &square, &rate, &factor], &[epsilon.into()])
}
