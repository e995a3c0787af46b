//! Kernels that draw numbers by laws that a tensor names: poisson, standard_gamma, binomial, dirichlet, class_center_sample.

use super::compose::Compose;
use super::movement::many;
use super::random::source;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::DType;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::random::{Law, Random};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::sampled::{Sampled, Sampling};
use openmps_graph::view::shape_of;
use openmps_tile::dtype::FLOATS;
use std::collections::BTreeSet;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("poisson", FLOATS, poisson).strided();
    table.add("standard_gamma", FLOATS, standard_gamma).strided();
    table.add("binomial", FLOATS, binomial).strided().output(0, DType::I64);
    table.add("dirichlet", FLOATS, dirichlet).strided();
    table.add("class_center_sample", &[DType::I32, DType::I64], class_center_sample);
}

fn of(context: &Context, law: Sampled) -> Sampling {
    Sampling { law, source: source(context, 0) }
}

/// Where the rate is below zero nothing is counted, as where it is zero.
fn poisson(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let rates = c.map(Elementwise::Unary(Unary::Clip), &[&x.view()?], &[0.0, f64::INFINITY])?;
    many(context, &of(context, Sampled::Poisson), &[rates], &[Some(&out)])
}

fn standard_gamma(context: &Context, x: Tensor, out: Output) -> Result<()> {
    many(context, &of(context, Sampled::Gamma), &[x.view()?], &[Some(&out)])
}

fn binomial(context: &Context, count: Tensor, chance: Tensor, out: Output) -> Result<()> {
    many(context, &of(context, Sampled::Binomial), &[count.view()?, chance.view()?], &[Some(&out)])
}

/// Gamma numbers over their sum, in float64: small ones would all be zero.
fn dirichlet(context: &Context, alpha: Tensor, out: Output) -> Result<()> {
    let (c, alpha) = (Compose::new(context), alpha.view()?);
    if alpha.rank() == 0 {
        return Err(refuse("rank of alpha", 0, "1 or more"));
    }
    let numbers = c.apply(&of(context, Sampled::Gamma), &[c.cast(&alpha, DType::F64)?])?;
    let smallest = c.constant(DType::F64, &[], f64::MIN_POSITIVE)?;
    let numbers = c.map(Elementwise::Binary(Binary::Maximum), &[&numbers, &smallest], &[])?;
    let sum = c.reduce(Reduction::Sum, &numbers, &[-1])?;
    c.store_value(&out, alpha.dtype, &c.map(Elementwise::Binary(Binary::Divide), &[&numbers, &sum], &[])?)
}

/// Classes that a label names and, where these are fewer than wanted, others at random, in order; and each label's place among them.
fn class_center_sample(
    context: &Context,
    labels: Tensor,
    classes: i32,
    wanted: i32,
    _ring: i32,
    _rank: i32,
    ranks: i32,
    fixed: bool,
    seed: i32,
    remapped: Output,
    sampled: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let dtype = labels.dtype()?;
    if ranks > 1 {
        return Err(refuse("nranks", ranks, "1: device mps has all classes in one process"));
    }
    let count = usize::try_from(classes).ok().filter(|_| wanted <= classes);
    let count = count.ok_or_else(|| refuse("num_samples", wanted, &format!("at most num_classes, {classes}")))?;
    let labels = context.integers(&labels.view()?)?;
    if let Some(wrong) = labels.iter().find(|&&label| label < 0 || label >= classes.into()) {
        return Err(refuse("label", wrong, &format!("one of {classes} classes")));
    }
    // The labels' own classes come first, ascending, then others as they are drawn; a label's place is that among the former.
    let own: BTreeSet<i64> = labels.iter().copied().collect();
    let places = labels.iter().map(|label| own.range(..label).count() as i64).collect();
    let mut chosen: Vec<i64> = own.iter().copied().collect();
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if chosen.len() < wanted {
        let source = source(context, if fixed { seed.max(1) } else { 0 });
        let order = Random { law: Law::Permutation, source, dims: shape_of(&[count])?, dtype: DType::I64 };
        let mut others = context.integers(&c.apply(&order, &[])?)?;
        others.retain(|class| !own.contains(class));
        others.truncate(wanted - own.len());
        chosen.extend(others);
    }
    write(context, &c, &remapped, dtype, places)?;
    sampled.set_dims(&[chosen.len()]);
    write(context, &c, &sampled, dtype, chosen)
}

fn write(context: &Context, c: &Compose, out: &Output, dtype: DType, numbers: Vec<i64>) -> Result<()> {
    let elements: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let temporary = context.upload(DType::I64, &[numbers.len()], &elements)?;
    c.store_value(out, dtype, &temporary.view)
}
