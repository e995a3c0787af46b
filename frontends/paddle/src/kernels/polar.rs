//! Complex numbers by size and angle, with gradients.

use super::complex_arithmetic::{Complex, is_infinite};
use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::{DType, View};

const SINGLE: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add_complex("abs", magnitude).strided().output_as_inferred(0);
    table.add_complex("abs_grad", magnitude_grad);
    table.add_complex("angle", angle).strided().output_as_inferred(0);
    table.add("angle", SINGLE, angle_of_real).strided();
    table.add_complex("angle_grad", angle_grad);
    table.add("angle_grad", SINGLE, angle_of_real_grad);
}

/// The magnitude, of parts that are first divided by the larger one; infinite where a part is, whatever the other one is (C's `hypot`).
fn size_of(c: &Compose, x: &Complex) -> Result<View> {
    let map = |operator, inputs: &[&View]| c.map(operator, inputs, &[]);
    let sizes = x.made(|part| map(Elementwise::Unary(Unary::Abs), &[part]))?;
    let largest = map(Elementwise::Binary(Binary::Fmax), &[&sizes.real, &sizes.imaginary])?;
    let is_zero = map(Elementwise::Unary(Unary::LogicalNot), &[&largest])?;
    // Nothing is divided by zero.
    let divisor = c.add(&largest, &c.cast(&is_zero, largest.dtype)?)?;
    let parts = sizes.made(|part| map(Elementwise::Binary(Binary::Divide), &[part, &divisor]))?;
    let square = c.add(&c.multiply(&parts.real, &parts.real)?, &c.multiply(&parts.imaginary, &parts.imaginary)?)?;
    let size = c.multiply(&map(Elementwise::Unary(Unary::Sqrt), &[&square])?, &largest)?;
    map(Elementwise::Binary(Binary::Where), &[&is_infinite(c, &largest)?, &largest, &size])
}

fn magnitude(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let size = size_of(&c, &Complex::of(&x)?)?;
    c.store_value(&out, size.dtype, &size)
}

/// The upstream gradient of a real result. Paddle converts it to the type that the kernel has.
fn real_of(upstream: &Tensor) -> Result<View> {
    if upstream.data_type().is_complex() { Ok(Complex::of(upstream)?.real) } else { upstream.view() }
}

/// The upstream gradient in the number's direction; of zero it is zero.
fn magnitude_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, x, upstream) = (Compose::new(context), Complex::of(&x)?, real_of(&upstream)?);
    let size = size_of(&c, &x)?;
    let is_zero = c.map(Elementwise::Unary(Unary::LogicalNot), &[&size], &[])?;
    let divisor = c.add(&size, &c.cast(&is_zero, size.dtype)?)?;
    let along =
        |part: &View| c.multiply(&c.map(Elementwise::Binary(Binary::Divide), &[part, &divisor], &[])?, &upstream);
    x.made(along)?.store(context, &c, Some(&dx))
}

fn angle(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), Complex::of(&x)?);
    c.store(&out, x.real.dtype, Elementwise::Binary(Binary::Atan2), &[&x.imaginary, &x.real], &[])
}

/// At right angles to the number, over its size; of zero it is zero.
fn angle_grad(context: &Context, x: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, x, upstream) = (Compose::new(context), Complex::of(&x)?, real_of(&upstream)?);
    let square = c.add(&c.multiply(&x.real, &x.real)?, &c.multiply(&x.imaginary, &x.imaginary)?)?;
    let is_zero = c.map(Elementwise::Unary(Unary::LogicalNot), &[&square], &[])?;
    let divisor = c.add(&square, &c.cast(&is_zero, square.dtype)?)?;
    let share = c.map(Elementwise::Binary(Binary::Divide), &[&upstream, &divisor], &[])?;
    let real = c.scale(&c.multiply(&x.imaginary, &share)?, -1.0, 0.0)?;
    Complex { real, imaginary: c.multiply(&x.real, &share)? }.store(context, &c, Some(&dx))
}

/// Half a turn of numbers below zero; NaN of NaN.
fn angle_of_real(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let zero = c.constant(x.dtype, &[], 0.0)?;
    let is_below = c.map(Elementwise::Binary(Binary::LessThan), &[&x, &zero], &[])?;
    let half = c.constant(x.dtype, &[], std::f64::consts::PI)?;
    let angle = c.multiply(&c.cast(&is_below, x.dtype)?, &half)?;
    let is_nan = c.map(Elementwise::Unary(Unary::IsNan), &[&x], &[])?;
    c.store(&out, x.dtype, Elementwise::Binary(Binary::Where), &[&is_nan, &x, &angle], &[])
}

/// It does not change but for a step.
fn angle_of_real_grad(context: &Context, x: Tensor, _upstream: Tensor, dx: Output) -> Result<()> {
    Compose::new(context).fill(&context.allocate(&dx, x.dtype()?)?, 0.0)
}
