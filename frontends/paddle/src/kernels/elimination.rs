//! Kernels of elimination (lu and what goes with it), least squares, eigenvalues, and the logarithm of determinants in two tensors.

use super::algebra_gradient::log_determinant_grad;
use super::complex::allocate_pairs;
use super::complex_arithmetic::Complex;
use super::compose::Compose;
use super::linear_algebra::product;
use super::matmul::with_axis;
use super::movement::many;
use crate::argument::Upstream;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::sequence::Eye;
use openmps_graph::{DType, View};

const TYPES: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("lu", TYPES, lu).output(1, DType::I32).output(2, DType::I32);
    table.add("lu_grad", TYPES, lu_grad);
    table.add("lu_unpack", TYPES, lu_unpack);
    table.add("lu_unpack_grad", TYPES, lu_unpack_grad);
    table.add("lu_solve", TYPES, lu_solve);
    table.add("lu_solve_grad", TYPES, lu_solve_grad);
    table.add("lstsq", TYPES, lstsq).output(2, DType::I32);
    table.add("eig", TYPES, eig).output_as_inferred(0).output_as_inferred(1);
    table.add_complex("eig_grad", eig_grad).output_as_inferred(0);
    table.add("eigvals", TYPES, eigvals).output_as_inferred(0);
    table.add("slogdet_v2", TYPES, slogdet_v2).strided();
    table.add("slogdet_v2_grad", TYPES, slogdet_v2_grad).strided();
}

/// Memory for the operator's results, which it then has computed.
fn results(c: &Compose, algorithm: Algorithm, inputs: &[View], dims: &[&[usize]]) -> Result<Vec<View>> {
    let made = dims.iter().map(|dims| c.temporary(inputs[0].dtype, dims)).collect::<Result<Vec<View>>>()?;
    c.launch(&LinearAlgebra(algorithm), inputs, &made)?;
    Ok(made)
}

/// Leading dimensions, rows, columns.
fn matrix(x: &View) -> Result<(&[usize], usize, usize)> {
    match &x.shape[..] {
        [leading @ .., rows, columns] => Ok((leading, *rows, *columns)),
        _ => Err(refuse("rank of x", x.rank(), "2 or more")),
    }
}

fn lu(context: &Context, x: Tensor, pivot: bool, out: Output, pivots: Output, infos: Output) -> Result<()> {
    if !pivot {
        return Err(refuse("pivot", pivot, "true"));
    }
    let (c, x) = (Compose::new(context), x.view()?);
    let (leading, rows, columns) = matrix(&x)?;
    let of_pivots = [leading, &[rows.min(columns)]].concat();
    let found = results(&c, Algorithm::Elimination, std::slice::from_ref(&x), &[&x.shape, &of_pivots, leading])?;
    pivots.set_dims(&of_pivots);
    c.store_value(&pivots, DType::I32, &found[1])?;
    c.store_value(&infos, DType::I32, &found[2])?;
    c.store_value(&out, x.dtype, &found[0])
}

/// A tensor of whole numbers in the matrices' type.
fn pivots_of(c: &Compose, pivots: &Tensor, dtype: DType) -> Result<View> {
    c.cast(&pivots.view()?, dtype)
}

fn lu_grad(
    context: &Context,
    _x: Tensor,
    out: Tensor,
    pivots: Tensor,
    upstream: Tensor,
    _pivot: bool,
    dx: Output,
) -> Result<()> {
    let (c, out) = (Compose::new(context), out.view()?);
    let pivots = pivots_of(&c, &pivots, out.dtype)?;
    many(context, &LinearAlgebra(Algorithm::EliminationGradient), &[out, pivots, upstream.view()?], &[Some(&dx)])
}

fn lu_unpack(
    context: &Context,
    x: Tensor,
    pivots: Tensor,
    factors: bool,
    permutation: bool,
    p: Option<Output>,
    l: Option<Output>,
    u: Option<Output>,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let pivots = pivots_of(&c, &pivots, x.dtype)?;
    let (p, [l, u]) = (p.filter(|_| permutation), [l, u].map(|part| part.filter(|_| factors)));
    let operator = LinearAlgebra(Algorithm::EliminationFactors);
    many(context, &operator, &[x, pivots], &[p.as_ref(), l.as_ref(), u.as_ref()])
}

fn lu_unpack_grad(
    context: &Context,
    _x: Tensor,
    _pivots: Tensor,
    lower: Tensor,
    upper: Tensor,
    _p: Tensor,
    of_lower: Upstream,
    of_upper: Upstream,
    _factors: bool,
    _permutation: bool,
    dx: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let of_lower = c.or_zeros(of_lower.0.as_ref(), &lower.view()?)?;
    let of_upper = c.or_zeros(of_upper.0.as_ref(), &upper.view()?)?;
    many(context, &LinearAlgebra(Algorithm::Packed), &[of_lower, of_upper], &[Some(&dx)])
}

/// Paddle's letters: N as it is, T and C transposed, which of real numbers are the same.
fn transposed(letter: &str) -> Result<bool> {
    match letter {
        "N" => Ok(false),
        "T" | "C" => Ok(true),
        _ => Err(refuse("trans", letter, "N, T or C")),
    }
}

fn lu_solve(
    context: &Context,
    right: Tensor,
    factors: Tensor,
    pivots: Tensor,
    letter: String,
    out: Output,
) -> Result<()> {
    let (c, factors) = (Compose::new(context), factors.view()?);
    let pivots = pivots_of(&c, &pivots, factors.dtype)?;
    let operator = LinearAlgebra(Algorithm::FactorsSolve { transposed: transposed(&letter)? });
    many(context, &operator, &[factors, pivots, right.view()?], &[Some(&out)])
}

fn lu_solve_grad(
    context: &Context,
    _right: Tensor,
    factors: Tensor,
    pivots: Tensor,
    out: Tensor,
    upstream: Tensor,
    letter: String,
    of_right: Option<Output>,
    of_factors: Option<Output>,
) -> Result<()> {
    let (c, factors) = (Compose::new(context), factors.view()?);
    let pivots = pivots_of(&c, &pivots, factors.dtype)?;
    let operator = LinearAlgebra(Algorithm::FactorsSolveGradient { transposed: transposed(&letter)? });
    let inputs = [factors, pivots, out.view()?, upstream.view()?];
    many(context, &operator, &inputs, &[of_right.as_ref(), of_factors.as_ref()])
}

/// Residuals where there are more equations than unknowns and all of these count, but for driver `gelsy`. Rank and singular values are there
/// whatever the driver: Paddle's CPU leaves them unwritten where it has none.
fn lstsq(
    context: &Context,
    x: Tensor,
    y: Tensor,
    threshold: Scalar,
    driver: String,
    solution: Output,
    residuals: Output,
    rank: Output,
    singular_values: Output,
) -> Result<()> {
    let (c, x, y) = (Compose::new(context), x.view()?, y.view()?);
    let (leading, rows, columns) = matrix(&x)?;
    let (_, _, sides) = matrix(&y)?;
    let dims = |own: &[usize]| [leading, own].concat();
    let (of_solution, of_residuals, of_values) = (dims(&[columns, sides]), dims(&[sides]), dims(&[rows.min(columns)]));
    let algorithm = Algorithm::LeastSquares { threshold: threshold.f64() };
    let inputs = [x.clone(), y];
    let found = results(&c, algorithm, &inputs, &[&of_solution, &of_residuals, leading, &of_values])?;
    let is_full = context.integers(&found[2])?.into_iter().all(|rank| rank == columns as i64);
    let with_residuals = rows > columns && is_full && driver != "gelsy";
    let store = |out: &Output, dims: &[usize], dtype, value: &View| -> Result<()> {
        out.set_dims(dims);
        c.store_value(out, dtype, value)
    };
    store(&solution, &of_solution, x.dtype, &found[0])?;
    store(&rank, leading, DType::I32, &found[2])?;
    store(&singular_values, &of_values, x.dtype, &found[3])?;
    if with_residuals {
        return store(&residuals, &of_residuals, x.dtype, &found[1]);
    }
    residuals.set_dims(&[0]);
    c.place(&residuals, x.dtype).map(|_| ())
}

fn eig(context: &Context, x: Tensor, values: Output, vectors: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (leading, rows, _) = matrix(&x)?;
    let dims = [[leading, &[rows, 2]].concat(), [leading, &[rows, rows, 2]].concat()];
    let found = results(&c, Algorithm::Eigen, std::slice::from_ref(&x), &[&dims[0], &dims[1]])?;
    for (value, out) in found.into_iter().zip([values, vectors]) {
        let to = allocate_pairs(context, &out, x.dtype)?;
        c.launch(&Copy, &[value], &[to])?;
    }
    Ok(())
}

/// `V^-H (diag(gL) + (V^H gV - V^H V diag(Re(V^H gV))) / E) V^H`, where E has the differences of conjugate eigenvalues (Boeddeker et al., 2019).
fn eig_grad(
    context: &Context,
    values: Tensor,
    vectors: Tensor,
    of_values: Option<Tensor>,
    of_vectors: Option<Tensor>,
    dx: Output,
) -> Result<()> {
    let (c, l, v) = (Compose::new(context), Complex::of(&values)?, Complex::of(&vectors)?);
    let (rank, dtype, size) = (v.real.rank(), v.real.dtype, v.real.shape[v.real.rank() - 1]);
    if v.real.is_empty() {
        return allocate_pairs(context, &dx, dtype).map(|_| ());
    }
    let given = |given: Option<Tensor>, like: &Complex| match given {
        Some(given) => Complex::of(&given),
        None => like.made(|part| c.constant(dtype, &part.shape, 0.0)),
    };
    let (of_l, of_v) = (given(of_values, &l)?, given(of_vectors, &v)?);
    let multiplied = |x: &Complex, y: &Complex| x.product(&c, y, |x, y| product(&c, (x, false), (y, false)));
    let axes: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let turned = v.conjugate(&c)?.made(|part| c.apply(&Copy, &[part.permuted(&axes)]))?;
    let row = |x: &Complex| x.made(|part| with_axis(part, rank - 2));
    let column = |x: &Complex| x.made(|part| with_axis(part, rank - 1));
    let conjugate = l.conjugate(&c)?.made(|part| c.apply(&Copy, std::slice::from_ref(part)))?;
    let differences = row(&conjugate)?.minus(&c, &column(&conjugate)?)?;
    let both = multiplied(&turned, &of_v)?;
    let eye = c.apply(&Eye { rows: size, columns: size, dtype: DType::Bool }, &[])?;
    let chosen = |yes: &View, no: &View| c.map(Elementwise::Binary(Binary::Where), &[&eye, yes, no], &[]);
    let zero = c.constant(dtype, &[1], 0.0)?;
    let diagonal = c.reduce(Reduction::Sum, &chosen(&both.real, &zero)?, &[rank as i64 - 2])?;
    let scaled = v.made(|part| c.multiply(part, &diagonal))?;
    let rest = both.minus(&c, &multiplied(&turned, &scaled)?)?.over(&c, &differences)?;
    let of_l = row(&of_l)?;
    let inner = Complex { real: chosen(&of_l.real, &rest.real)?, imaginary: chosen(&of_l.imaginary, &rest.imaginary)? };
    let found = solved(&c, &turned, &multiplied(&inner, &turned)?)?;
    // Paddle takes the real part of the gradient of a real matrix, but has no cast for it on devices of plug-ins.
    if is_of_real_matrix(context, &c, &v, &l)? {
        let real = c.apply(&Copy, std::slice::from_ref(&found.real))?;
        return c.store_value(&dx, dtype, &real);
    }
    found.store(context, &c, Some(&dx))
}

/// Whether these are vectors and values of a matrix of real numbers: `V L V^-1`, turned.
fn is_of_real_matrix(context: &Context, c: &Compose, v: &Complex, l: &Complex) -> Result<bool> {
    let rank = v.real.rank();
    let axes: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let turned = |x: &Complex| x.made(|part| c.apply(&Copy, &[part.permuted(&axes)]));
    let scaled = v.times(c, &l.made(|part| with_axis(part, rank - 2))?)?;
    let matrix = solved(c, &turned(v)?, &turned(&scaled)?)?;
    let largest = |part: &View| -> Result<f64> {
        let numbers = context.elements(&c.apply(&Copy, std::slice::from_ref(part))?)?;
        Ok(numbers.into_iter().fold(0.0, |most: f64, number| most.max(number.float.abs())))
    };
    Ok(largest(&matrix.imaginary)? <= 1e-3 * largest(&matrix.real)?)
}

/// The solution of complex equations, by real ones of twice the size.
fn solved(c: &Compose, left: &Complex, right: &Complex) -> Result<Complex> {
    let (rank, size) = (left.real.rank(), left.real.shape[left.real.rank() - 1]);
    let mut dims = left.real.shape.clone();
    (dims[rank - 2], dims[rank - 1]) = (2 * size, 2 * size);
    let matrix = c.temporary(left.real.dtype, &dims)?;
    dims[rank - 1] = right.real.shape[rank - 1];
    let sides = c.temporary(left.real.dtype, &dims)?;
    let part = |x: &View, axis: usize, number: usize| x.narrowed(axis, number * size, 1, size);
    let negative = c.scale(&left.imaginary, -1.0, 0.0)?;
    let blocks = [(0, 0, &left.real), (0, 1, &negative), (1, 0, &left.imaginary), (1, 1, &left.real)];
    for (row, column, block) in blocks {
        let to = part(&part(&matrix, rank - 2, row), rank - 1, column);
        c.launch(&Copy, std::slice::from_ref(block), &[to])?;
    }
    for (row, block) in [&right.real, &right.imaginary].into_iter().enumerate() {
        c.launch(&Copy, std::slice::from_ref(block), &[part(&sides, rank - 2, row)])?;
    }
    let found = c.apply(&LinearAlgebra(Algorithm::Solve), &[matrix, sides])?;
    Ok(Complex { real: part(&found, rank - 2, 0), imaginary: part(&found, rank - 2, 1) })
}

fn eigvals(context: &Context, x: Tensor, values: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (leading, rows, _) = matrix(&x)?;
    let dims = [leading, &[rows, 2]].concat();
    let found = results(&c, Algorithm::Eigenvalues, std::slice::from_ref(&x), &[&dims])?.remove(0);
    c.launch(&Copy, &[found], &[allocate_pairs(context, &values, x.dtype)?])
}

fn slogdet_v2(context: &Context, x: Tensor, sign: Output, logarithm: Output) -> Result<()> {
    many(context, &LinearAlgebra(Algorithm::LogDeterminant), &[x.view()?], &[Some(&sign), Some(&logarithm)])
}

/// The logarithm's; the sign is a step.
fn slogdet_v2_grad(
    context: &Context,
    x: Tensor,
    sign: Tensor,
    _logarithm: Tensor,
    _of_sign: Upstream,
    upstream: Upstream,
    dx: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    // The sign is a step: by it alone the gradient is zero.
    let Upstream(Some(upstream)) = upstream else {
        return c.store_value(&dx, x.dtype, &c.constant(x.dtype, &x.shape, 0.0)?);
    };
    log_determinant_grad(&c, &x, &sign.view()?, &upstream.view()?, &dx)
}
