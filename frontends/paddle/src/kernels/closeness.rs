//! Whether tensors are equal or close, element by element or as a whole.

use super::compose::Compose;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;
use openmps_tile::dtype::{ALL, FLOATS};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("isclose", FLOATS, isclose).output(0, DType::Bool);
    table.add("allclose", ALL, allclose).output(0, DType::Bool);
    table.add("accuracy_check", FLOATS, accuracy_check).output(0, DType::Bool);
    table.add("equal_all", ALL, equal_all).output(0, DType::Bool);
}

/// `|x - y| <= atol + rtol |y|`, or equal (infinities), or both NaN where these count as equal.
fn close(c: &Compose, [x, y]: [&Tensor; 2], [rtol, atol]: [f64; 2], equal_nan: bool) -> Result<View> {
    // Distances of integers in float64, in which a tolerance is a fraction.
    let number = |x: &Tensor| if x.dtype()?.is_float() { c.input(x) } else { c.cast(&x.view()?, DType::F64) };
    let (x, y) = (number(x)?, number(y)?);
    let binary = |operator, x: &View, y: &View| c.map(Elementwise::Binary(operator), &[x, y], &[]);
    let unary = |operator, x: &View| c.map(Elementwise::Unary(operator), &[x], &[]);
    let bound = c.scale(&unary(Unary::Abs, &y)?, rtol, atol)?;
    let distance = unary(Unary::Abs, &c.subtract(&x, &y)?)?;
    // An infinite y has an infinite bound, within which everything would lie.
    let near = binary(Binary::LessEqual, &distance, &bound)?;
    let near = binary(Binary::LogicalAnd, &near, &unary(Unary::IsFinite, &y)?)?;
    let mut result = binary(Binary::LogicalOr, &near, &binary(Binary::Equal, &x, &y)?)?;
    if equal_nan {
        let both = binary(Binary::LogicalAnd, &unary(Unary::IsNan, &x)?, &unary(Unary::IsNan, &y)?)?;
        result = binary(Binary::LogicalOr, &result, &both)?;
    }
    Ok(result)
}

fn isclose(
    context: &Context,
    x: Tensor,
    y: Tensor,
    rtol: Scalar,
    atol: Scalar,
    equal_nan: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let result = close(&c, [&x, &y], [rtol.f64(), atol.f64()], equal_nan)?;
    c.store_value(&out, DType::Bool, &result)
}

fn allclose(
    context: &Context,
    x: Tensor,
    y: Tensor,
    rtol: Scalar,
    atol: Scalar,
    equal_nan: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let result = close(&c, [&x, &y], [rtol.f64(), atol.f64()], equal_nan)?;
    let all = c.reduce(Reduction::All, &result, &[])?;
    c.store_value(&out, DType::Bool, &all)
}

/// As [`isclose`], and an error where something is not.
fn accuracy_check(
    context: &Context,
    x: Tensor,
    y: Tensor,
    kernel: String,
    rtol: f64,
    atol: f64,
    equal_nan: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    super::values::expect("y", &y, &x.shape())?;
    let result = close(&c, [&x, &y], [rtol, atol], equal_nan)?;
    c.store_value(&out, DType::Bool, &result)?;
    let far = context.integers(&result)?.into_iter().filter(|&close| close == 0).count();
    if far > 0 {
        let got = format!("{far} of {} results of {kernel} that are not close", result.len());
        return Err(refuse("x, y", got, &format!("differences within {atol} + {rtol} |y|")));
    }
    Ok(())
}

/// False, rather than an error, where the shapes differ.
fn equal_all(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let (x, y) = (x.view()?, y.view()?);
    if x.shape != y.shape {
        let to = context.allocate(&out, DType::Bool)?;
        return c.fill(&to, 0.0);
    }
    let equal = c.map(Elementwise::Binary(Binary::Equal), &[&x, &y], &[])?;
    let all = c.reduce(Reduction::All, &equal, &[])?;
    c.store_value(&out, DType::Bool, &all)
}
