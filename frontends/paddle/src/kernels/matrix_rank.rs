//! Ranks of matrices, and weights divided by their largest singular value.

use super::compose::Compose;
use super::linear_algebra::product;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::reduce::Reduction;
use openmps_tile::DType;

const TYPES: &[DType] = &[DType::F32, DType::F64];
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("matrix_rank", TYPES, matrix_rank).output(0, DType::I64);
    table.add("matrix_rank_tol", TYPES, matrix_rank_tol).output(0, DType::I64);
    table.add("matrix_rank_atol_rtol", TYPES, matrix_rank_atol_rtol).output(0, DType::I64);
    table.add("spectral_norm", TYPES, spectral_norm);
    table.add("spectral_norm_grad", TYPES, spectral_norm_grad);
}

/// The singular values of matrices, and the largest of each; of symmetric ones they are the eigenvalues' magnitudes.
fn singular_values(c: &Compose, x: &View, is_symmetric: bool) -> Result<[View; 2]> {
    let (leading, sizes) = x.shape.split_at(x.rank() - 2);
    let values = if is_symmetric {
        let parts = [c.temporary(x.dtype, &[leading, &sizes[..1]].concat())?, c.temporary(x.dtype, &x.shape)?];
        c.launch(&LinearAlgebra(Algorithm::SymmetricEigen { upper: false }), std::slice::from_ref(x), &parts)?;
        c.map(Elementwise::Unary(Unary::Abs), &[&parts[0]], &[])?
    } else {
        c.apply(&LinearAlgebra(Algorithm::SingularValues), std::slice::from_ref(x))?
    };
    let largest = c.reduce(Reduction::Maximum, &values, &[-1])?;
    Ok([values, largest])
}

/// How many of the values are above the bound.
fn store_rank(c: &Compose, values: &View, bound: &View, out: &Output) -> Result<()> {
    let above = c.map(Elementwise::Binary(Binary::GreaterThan), &[values, bound], &[])?;
    let count = c.reduce(Reduction::Sum, &c.cast(&above, DType::I64)?, &[-1])?;
    c.store_value(out, DType::I64, &count)
}

/// The rounding of the largest value, times the larger of the matrix' sizes.
fn rounding(c: &Compose, x: &View, largest: &View) -> Result<View> {
    let unit = if x.dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let size = x.shape[x.rank() - 2].max(x.shape[x.rank() - 1]);
    c.scale(largest, unit * size as f64, 0.0)
}

fn matrix_rank(
    context: &Context,
    x: Tensor,
    tolerance: f32,
    is_default: bool,
    is_symmetric: bool,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let [values, largest] = singular_values(&c, &x, is_symmetric)?;
    let bound = if is_default { rounding(&c, &x, &largest)? } else { c.constant(x.dtype, &[1], tolerance.into())? };
    store_rank(&c, &values, &bound, &out)
}

/// A bound for each matrix, or one for all, as a column.
fn column(c: &Compose, bound: &Tensor, dtype: DType) -> Result<View> {
    let bound = c.cast(&bound.view()?, dtype)?;
    c.shaped(&bound, &[&bound.shape[..], &[1]].concat())
}

fn matrix_rank_tol(
    context: &Context,
    x: Tensor,
    tolerance: Tensor,
    is_default: bool,
    is_symmetric: bool,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let [values, largest] = singular_values(&c, &x, is_symmetric)?;
    let mut bound = column(&c, &tolerance, x.dtype)?;
    if is_default {
        bound = c.map(Elementwise::Binary(Binary::Maximum), &[&bound, &rounding(&c, &x, &largest)?], &[])?;
    }
    store_rank(&c, &values, &bound, &out)
}

/// The larger of an absolute bound and of a share of the largest value. Without a share, what rounding leaves is the
/// bound of each matrix that has no absolute one.
fn matrix_rank_atol_rtol(
    context: &Context,
    x: Tensor,
    absolute: Tensor,
    relative: Option<Tensor>,
    is_symmetric: bool,
    out: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let [values, largest] = singular_values(&c, &x, is_symmetric)?;
    let absolute = column(&c, &absolute, x.dtype)?;
    let bound = if let Some(relative) = relative {
        let share = c.multiply(&column(&c, &relative, x.dtype)?, &largest)?;
        c.map(Elementwise::Binary(Binary::Maximum), &[&absolute, &share], &[])?
    } else {
        let zero = c.constant(x.dtype, &[1], 0.0)?;
        let missing = c.map(Elementwise::Binary(Binary::LessEqual), &[&absolute, &zero], &[])?;
        c.map(Elementwise::Binary(Binary::Where), &[&missing, &rounding(&c, &x, &largest)?, &absolute], &[])?
    };
    store_rank(&c, &values, &bound, &out)
}

/// A weight as a matrix whose rows are one of its axes, with the vectors that power iteration has come to (Miyato et al., 2018).
struct Spectral<'c> {
    c: Compose<'c>,
    matrix: View,
    u: View,
    v: View,
    /// `u' W v`
    largest: View,
    order: Vec<usize>,
}

impl<'c> Spectral<'c> {
    fn new(
        context: &'c Context,
        [weight, u, v]: [&Tensor; 3],
        (axis, iterations, epsilon): (i32, i32, f32),
    ) -> Result<Spectral<'c>> {
        let (c, weight) = (Compose::new(context), weight.view()?);
        let axis = openmps_graph::layout::axis_of("spectral_norm", axis.into(), weight.rank())?;
        let order: Vec<usize> =
            std::iter::once(axis).chain((0..weight.rank()).filter(|&other| other != axis)).collect();
        let matrix = rows(&c, &weight, &order)?;
        let single = |vector: View| c.shaped(&vector, &[vector.len(), 1]);
        let (mut u, mut v) = (single(u.view()?)?, single(v.view()?)?);
        let unit = |x: &View| -> Result<View> {
            let length = c.scale(&c.reduce(Reduction::Norm, x, &[0])?, 1.0, epsilon.into())?;
            c.map(DIVIDE, &[x, &length], &[])
        };
        for _ in 0..iterations {
            v = unit(&product(&c, (&matrix, true), (&u, false))?)?;
            u = unit(&product(&c, (&matrix, false), (&v, false))?)?;
        }
        let largest = product(&c, (&u, true), (&product(&c, (&matrix, false), (&v, false))?, false))?;
        Ok(Spectral { c, matrix, u, v, largest, order })
    }
}

/// The tensor's axes in this order, all but the first as one.
fn rows(c: &Compose, x: &View, order: &[usize]) -> Result<View> {
    let moved = x.permuted(order);
    let dense = c.temporary(x.dtype, &moved.shape)?;
    c.launch(&Copy, std::slice::from_ref(&moved), std::slice::from_ref(&dense))?;
    c.shaped(&dense, &[moved.shape[0], moved.shape[1..].iter().product()])
}

fn spectral_norm(
    context: &Context,
    weight: Tensor,
    u: Tensor,
    v: Tensor,
    axis: i32,
    iterations: i32,
    epsilon: f32,
    out: Output,
) -> Result<()> {
    let of = Spectral::new(context, [&weight, &u, &v], (axis, iterations, epsilon))?;
    let number = of.c.shaped(&of.largest, &[1])?;
    of.c.store(&out, of.matrix.dtype, DIVIDE, &[&weight.view()?, &number], &[])
}

/// `(dW - (sum(dW W) / s) u v') / s`, where the vectors count as constants.
fn spectral_norm_grad(
    context: &Context,
    weight: Tensor,
    u: Tensor,
    v: Tensor,
    upstream: Tensor,
    axis: i32,
    iterations: i32,
    epsilon: f32,
    dweight: Output,
) -> Result<()> {
    let of = Spectral::new(context, [&weight, &u, &v], (axis, iterations, epsilon))?;
    let (c, shape) = (&of.c, weight.shape());
    let upstream = rows(c, &upstream.view()?, &of.order)?;
    let along = c.reduce(Reduction::Sum, &c.multiply(&upstream, &of.matrix)?, &[0, 1])?;
    let share =
        c.multiply(&c.map(DIVIDE, &[&along, &of.largest], &[])?, &product(c, (&of.u, false), (&of.v, true))?)?;
    let value = c.map(DIVIDE, &[&c.subtract(&upstream, &share)?, &of.largest], &[])?;
    let dims: Vec<usize> = of.order.iter().map(|&axis| shape[axis]).collect();
    c.store_as(&dweight, value.dtype, &c.shaped(&value, &dims)?, |to| to.permuted(&of.order))
}
