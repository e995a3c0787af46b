//! Special functions: gamma and its relatives, the inverse error function, modified Bessel functions, with gradients.

use super::compose::Compose;
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::special::{Function, Special};
use openmps_tile::DType;
use openmps_tile::dtype::FLOATS;

const SINGLE: &[DType] = &[DType::F32, DType::F64];
const DIGAMMA: Function = Function::Polygamma { order: 0 };

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("lgamma", FLOATS, log_gamma).strided();
    table.add("lgamma_grad", FLOATS, log_gamma_grad).strided();
    table.add("gammaln", FLOATS, log_gamma).strided();
    table.add("gammaln_grad", FLOATS, log_gamma_grad).strided();
    table.add("digamma", FLOATS, digamma).strided();
    table.add("digamma_grad", FLOATS, digamma_grad).strided();
    table.add("polygamma", SINGLE, polygamma).strided();
    table.add("polygamma_grad", SINGLE, polygamma_grad).strided();
    table.add("gammaincc", FLOATS, upper_gamma);
    table.add("gammaincc_grad", FLOATS, upper_gamma_grad);
    table.add("erfinv", FLOATS, inverse_erf).strided();
    table.add("erfinv_grad", FLOATS, inverse_erf_grad).strided();
    table.add("i0", SINGLE, i0).strided();
    table.add("i0e", SINGLE, i0e).strided();
    table.add("i1", SINGLE, i1).strided();
    table.add("i1e", SINGLE, i1e).strided();
    table.add("i0_grad", SINGLE, i0_grad).strided();
    table.add("i0e_grad", SINGLE, i0e_grad).strided();
    table.add("i1_grad", SINGLE, i1_grad).strided();
    table.add("i1e_grad", SINGLE, i1e_grad).strided();
}

const fn bessel(first: bool, scaled: bool) -> Function {
    Function::Bessel { first, scaled }
}

macro_rules! functions {
    ($($name:ident $function:expr;)*) => { $(
        fn $name(context: &Context, x: Tensor, out: Output) -> Result<()> {
            many(context, &Special($function), &[x.view()?], &[Some(&out)])
        }
    )* };
}

functions! {
    log_gamma Function::LogGamma;
    digamma DIGAMMA;
    inverse_erf Function::InverseErf;
    i0 bessel(false, false);
    i0e bessel(false, true);
    i1 bessel(true, false);
    i1e bessel(true, true);
}

fn polygamma(context: &Context, x: Tensor, order: i32, out: Output) -> Result<()> {
    let order = order.max(0) as u32;
    many(context, &Special(Function::Polygamma { order }), &[x.view()?], &[Some(&out)])
}

fn upper_gamma(context: &Context, a: Tensor, x: Tensor, out: Output) -> Result<()> {
    many(context, &Special(Function::UpperGamma), &[a.view()?, x.view()?], &[Some(&out)])
}

/// `dy f(x)`, where f is the slope.
fn scaled_by(context: &Context, slope: Function, x: &Tensor, upstream: &Tensor, dx: &Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let slope = c.apply(&Special(slope), &[c.input(x)?])?;
    c.store(dx, dtype, Elementwise::Binary(Binary::Multiply), &[&c.input(upstream)?, &slope], &[])
}

fn log_gamma_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    scaled_by(context, DIGAMMA, &x, &upstream, &dx)
}

fn digamma_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    scaled_by(context, Function::Polygamma { order: 1 }, &x, &upstream, &dx)
}

fn polygamma_grad(context: &Context, x: Tensor, upstream: Tensor, order: i32, dx: Output) -> Result<()> {
    scaled_by(context, Function::Polygamma { order: order.max(0) as u32 + 1 }, &x, &upstream, &dx)
}

fn exp(c: &Compose, x: &View) -> Result<View> {
    c.map(Elementwise::Unary(Unary::Exp), &[x], &[])
}

/// `-dy e^((a - 1) log(x) - x - log(gamma(a)))`; by a there is no gradient.
fn upper_gamma_grad(context: &Context, a: Tensor, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (a, x, upstream) = (c.input(&a)?, c.input(&x)?, c.input(&upstream)?);
    let logarithm = c.map(Elementwise::Unary(Unary::Log), &[&x], &[])?;
    let power = c.multiply(&c.scale(&a, 1.0, -1.0)?, &logarithm)?;
    let rest = c.add(&x, &c.apply(&Special(Function::LogGamma), &[a])?)?;
    let density = exp(&c, &c.subtract(&power, &rest)?)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Multiply), &[&c.scale(&upstream, -1.0, 0.0)?, &density], &[])
}

/// `dy sqrt(pi) / 2 e^(y^2)`
fn inverse_erf_grad(context: &Context, y: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), y.dtype()?);
    let (y, upstream) = (c.input(&y)?, c.input(&upstream)?);
    let power = exp(&c, &c.multiply(&y, &y)?)?;
    let half = c.scale(&upstream, 1.0 / std::f64::consts::FRAC_2_SQRT_PI, 0.0)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Multiply), &[&half, &power], &[])
}

fn i0_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    scaled_by(context, bessel(true, false), &x, &upstream, &dx)
}

/// What multiplying with e^-|x| adds to a slope: `dy (slope - sign(x) y)`.
fn stored_scaled(c: &Compose, slope: &View, [x, y, upstream]: [&View; 3], dx: &Output, dtype: DType) -> Result<()> {
    let sign = c.map(Elementwise::Unary(Unary::Sign), &[x], &[])?;
    let slope = c.subtract(slope, &c.multiply(&sign, y)?)?;
    c.store(dx, dtype, Elementwise::Binary(Binary::Multiply), &[upstream, &slope], &[])
}

fn i0e_grad(context: &Context, x: Tensor, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let slope = c.apply(&Special(bessel(true, true)), std::slice::from_ref(&x))?;
    stored_scaled(&c, &slope, [&x, &y, &upstream], &dx, dtype)
}

/// `I0(x) - I1(x) / x`, at zero a half, times e^-|x| or not.
fn slope_of_first(c: &Compose, x: &View, y: &View, scaled: bool) -> Result<View> {
    let whole = c.apply(&Special(bessel(false, scaled)), std::slice::from_ref(x))?;
    let zero = c.scale(x, 0.0, 0.0)?;
    let is_zero = c.map(Elementwise::Binary(Binary::Equal), &[x, &zero], &[])?;
    let share = c.map(Elementwise::Binary(Binary::Divide), &[y, x], &[])?;
    let half = c.constant(x.dtype, &x.shape, 0.5)?;
    c.subtract(&whole, &c.map(Elementwise::Binary(Binary::Where), &[&is_zero, &half, &share], &[])?)
}

fn i1_grad(context: &Context, x: Tensor, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let slope = slope_of_first(&c, &x, &y, false)?;
    c.store(&dx, dtype, Elementwise::Binary(Binary::Multiply), &[&upstream, &slope], &[])
}

fn i1e_grad(context: &Context, x: Tensor, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let (x, y, upstream) = (c.input(&x)?, c.input(&out)?, c.input(&upstream)?);
    let slope = slope_of_first(&c, &x, &y, true)?;
    stored_scaled(&c, &slope, [&x, &y, &upstream], &dx, dtype)
}
