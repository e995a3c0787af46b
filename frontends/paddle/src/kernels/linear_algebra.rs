//! Kernels of linear algebra: factorisations, inverses, determinants, solutions, and gradients of what has one result.

use super::compose::Compose;
use super::movement::many;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::{DType, Shape, View};

const TYPES: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("svd", TYPES, svd).strided();
    table.add("svdvals", TYPES, svdvals).strided();
    table.add("qr", TYPES, qr).strided();
    table.add("eigh", TYPES, eigh).strided();
    table.add("cholesky", TYPES, cholesky).strided();
    table.add("inverse", TYPES, inverse).strided();
    table.add("inverse_grad", TYPES, inverse_grad).strided();
    table.add("determinant", TYPES, determinant).strided();
    table.add("slogdet", TYPES, slogdet).strided();
    table.add("solve", TYPES, solve);
    table.add("solve_grad", TYPES, solve_grad);
}

/// `left * right`, of which one or the other is transposed.
pub(super) fn product(c: &Compose, left: (&View, bool), right: (&View, bool)) -> Result<View> {
    let operator = Matmul { transpose_left: left.1, transpose_right: right.1 };
    c.apply(&operator, &[left.0.clone(), right.0.clone()])
}

fn svd(context: &Context, x: Tensor, full: bool, u: Output, s: Output, vh: Output) -> Result<()> {
    let operator = LinearAlgebra(Algorithm::SingularValueDecomposition { full });
    many(context, &operator, &[x.view()?], &[Some(&u), Some(&s), Some(&vh)])
}

fn svdvals(context: &Context, x: Tensor, s: Output) -> Result<()> {
    many(context, &LinearAlgebra(Algorithm::SingularValues), &[x.view()?], &[Some(&s)])
}

/// Of mode `r` only R is wanted.
fn qr(context: &Context, x: Tensor, mode: String, q: Output, r: Output) -> Result<()> {
    let operator = LinearAlgebra(Algorithm::Qr { complete: mode == "complete" });
    many(context, &operator, &[x.view()?], &[Some(&q).filter(|_| mode != "r"), Some(&r)])
}

fn eigh(context: &Context, x: Tensor, triangle: String, values: Output, vectors: Output) -> Result<()> {
    let operator = LinearAlgebra(Algorithm::SymmetricEigen { upper: triangle == "U" });
    many(context, &operator, &[x.view()?], &[Some(&values), Some(&vectors)])
}

fn cholesky(context: &Context, x: Tensor, upper: bool, out: Output) -> Result<()> {
    many(context, &LinearAlgebra(Algorithm::Cholesky { upper }), &[x.view()?], &[Some(&out)])
}

fn inverse(context: &Context, x: Tensor, out: Output) -> Result<()> {
    many(context, &LinearAlgebra(Algorithm::Inverse), &[x.view()?], &[Some(&out)])
}

/// `-Y' dY Y'`
fn inverse_grad(context: &Context, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let c = Compose::new(context);
    let (y, upstream) = (out.view()?, upstream.view()?);
    let right = product(&c, (&upstream, false), (&y, true))?;
    let value = c.scale(&product(&c, (&y, true), (&right, false))?, -1.0, 0.0)?;
    c.store_value(&dx, y.dtype, &value)
}

fn determinant(context: &Context, x: Tensor, out: Output) -> Result<()> {
    many(context, &LinearAlgebra(Algorithm::Determinant), &[x.view()?], &[Some(&out)])
}

/// Signs and logarithms one after the other in one tensor.
fn slogdet(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let x = x.view()?;
    out.set_dims(&[&[2], &x.shape[..x.rank().saturating_sub(2)]].concat());
    let to = context.allocate(&out, x.dtype)?;
    let parts = [0, 1].map(|part| to.narrowed(0, part, 1, 1).without_axis(0));
    let operator = LinearAlgebra(Algorithm::LogDeterminant);
    Ok(openmps_graph::Operator::run(&operator, context.queue(), &[x], &parts)?)
}

/// Equations of one stack: vectors are columns, and leading dimensions are repeated until both sides have the same.
struct Equations<'c> {
    c: Compose<'c>,
    x: View,
    y: View,
    leading: Shape,
    is_vector: bool,
}

impl<'c> Equations<'c> {
    fn new(context: &'c Context, x: &Tensor, y: &Tensor) -> Result<Equations<'c>> {
        let (c, x, mut y) = (Compose::new(context), x.view()?, y.view()?);
        let is_vector = y.rank() == 1 || (y.rank() + 1 == x.rank() && y.shape[..] == x.shape[..y.rank()]);
        if is_vector {
            y = c.shaped(&y, &[&y.shape[..], &[1]].concat())?;
        }
        let (of_x, of_y) = (&x.shape[..x.rank().saturating_sub(2)], &y.shape[..y.rank() - 2]);
        let leading = openmps_graph::operators::elementwise::broadcast("solve", of_x, of_y)?;
        Ok(Equations { x, y, leading, is_vector, c })
    }

    /// A dense stack of these matrices.
    fn repeated(&self, matrices: &View) -> Result<View> {
        let own = matrices.rank().saturating_sub(2);
        let dims = [&self.leading[..], &matrices.shape[own..]].concat();
        if matrices.shape[..] == dims[..] {
            return Ok(matrices.clone());
        }
        let operator =
            openmps_graph::operators::expand::Expand { dims: dims.iter().map(|&size| size as i64).collect() };
        self.c.apply(&operator, std::slice::from_ref(matrices))
    }

    fn solved(&self, x: &View, y: &View) -> Result<View> {
        self.c.apply(&LinearAlgebra(Algorithm::Solve), &[self.repeated(x)?, self.repeated(y)?])
    }
}

fn solve(context: &Context, x: Tensor, y: Tensor, out: Output) -> Result<()> {
    let equations = Equations::new(context, &x, &y)?;
    let value = equations.solved(&equations.x, &equations.y)?;
    // Paddle infers the shape without repeating.
    out.set_dims(&value.shape[..value.rank() - usize::from(equations.is_vector)]);
    equations.c.store_value(&out, value.dtype, &value)
}

/// The gradient of y solves the transposed equations; that of x is minus its product with the transposed solution.
fn solve_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let equations = Equations::new(context, &x, &y)?;
    let (c, x, y) = (&equations.c, &equations.x, &equations.y);
    let as_matrices = |tensor: &Tensor| -> Result<View> {
        let view = tensor.view()?;
        if equations.is_vector { c.shaped(&view, &[&view.shape[..], &[1]].concat()) } else { Ok(view) }
    };
    let (out, upstream) = (as_matrices(&out)?, as_matrices(&upstream)?);
    let rank = x.rank();
    let axes: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let of_y = equations.solved(&x.permuted(&axes), &upstream)?;
    if let Some(dx) = &dx {
        let value = c.scale(&product(c, (&of_y, false), (&out, true))?, -1.0, 0.0)?;
        c.store_value(dx, x.dtype, &c.summed_to(&value, &x.shape)?)?;
    }
    if let Some(dy) = &dy {
        c.store_value(dy, y.dtype, &c.summed_to(&of_y, &y.shape)?)?;
    }
    Ok(())
}
