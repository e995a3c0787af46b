//! Gradients of factorisations, determinants and triangular solutions, and what else is made of them: formulas of Giles (2008), "Collected
//! matrix derivative results for forward and reverse mode algorithmic differentiation", and for singular vectors of Townsend (2016).

use super::compose::Compose;
use super::linear_algebra::product;
use super::movement::many;
use crate::argument::Upstream;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::linear_algebra::{Algorithm, LinearAlgebra};
use openmps_graph::operators::sequence::Eye;
use openmps_graph::operators::triangle::Triangle;
use openmps_tile::DType;

const TYPES: &[DType] = &[DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("cholesky_grad", TYPES, cholesky_grad);
    table.add("determinant_grad", TYPES, determinant_grad);
    table.add("slogdet_grad", TYPES, slogdet_grad);
    table.add("eigh_grad", TYPES, eigh_grad);
    table.add("eigvalsh", TYPES, eigvalsh);
    table.add("eigvalsh_grad", TYPES, eigvalsh_grad);
    table.add("svd_grad", TYPES, svd_grad);
    table.add("svdvals_grad", TYPES, svdvals_grad);
    table.add("qr_grad", TYPES, qr_grad);
    table.add("triangular_solve", TYPES, triangular_solve);
    table.add("triangular_solve_grad", TYPES, triangular_solve_grad);
    table.add("cholesky_solve", TYPES, cholesky_solve);
    table.add("cholesky_solve_grad", TYPES, cholesky_solve_grad);
}

/// The matrices with rows and columns exchanged.
fn transposed(x: &View) -> View {
    let rank = x.rank();
    let axes: Vec<usize> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    x.permuted(&axes)
}

/// `x y`, of which one or the other is transposed.
fn times(c: &Compose, x: &View, y: &View) -> Result<View> {
    product(c, (x, false), (y, false))
}

fn transposed_times(c: &Compose, x: &View, y: &View) -> Result<View> {
    product(c, (x, true), (y, false))
}

fn times_transposed(c: &Compose, x: &View, y: &View) -> Result<View> {
    product(c, (x, false), (y, true))
}

/// One side of the matrices and their diagonal, or without it; the rest is zero.
fn triangle(c: &Compose, x: &View, upper: bool, with_diagonal: bool) -> Result<View> {
    let offset = match (upper, with_diagonal) {
        (_, true) => 0,
        (true, false) => 1,
        (false, false) => -1,
    };
    c.apply(&Triangle { lower: !upper, diagonal: offset }, std::slice::from_ref(x))
}

/// The identity, which broadcasts.
fn unit(c: &Compose, x: &View) -> Result<View> {
    let size = x.shape[x.rank() - 1];
    c.apply(&Eye { rows: size, columns: size, dtype: x.dtype }, &[])
}

/// Numbers of each matrix as a row or as a column.
fn row(c: &Compose, x: &View) -> Result<View> {
    let (leading, size) = x.shape.split_at(x.rank() - 1);
    c.shaped(x, &[leading, &[1], size].concat())
}

fn column(c: &Compose, x: &View) -> Result<View> {
    c.shaped(x, &[&x.shape[..], &[1]].concat())
}

/// A dense stack of the matrices, repeated to these leading dimensions.
fn stacked(c: &Compose, x: &View, leading: &[usize]) -> Result<View> {
    let dims = [leading, &x.shape[x.rank() - 2..]].concat();
    let repeated =
        x.broadcast_to(&dims).ok_or_else(|| refuse("shape of x", &x.shape, &format!("one that fits {dims:?}")))?;
    let dense = c.temporary(x.dtype, &dims)?;
    c.launch(&openmps_graph::operators::copy::Copy, &[repeated], std::slice::from_ref(&dense))?;
    Ok(dense)
}

/// The solution of equations whose sides have the same leading dimensions, or are repeated to them.
fn solved(c: &Compose, x: &View, y: &View) -> Result<View> {
    let (of_x, of_y) = (&x.shape[..x.rank() - 2], &y.shape[..y.rank() - 2]);
    let leading = openmps_graph::operators::elementwise::broadcast("solve", of_x, of_y)?;
    c.apply(&LinearAlgebra(Algorithm::Solve), &[stacked(c, x, &leading)?, stacked(c, y, &leading)?])
}

/// Half the sum of the matrices and their transposes.
fn symmetric(c: &Compose, x: &View) -> Result<View> {
    c.scale(&c.add(x, &transposed(x))?, 0.5, 0.0)
}

/// `L'^-1 P(L' dL) L^-1`, made symmetric, where P takes the lower triangle and half of the diagonal.
fn cholesky_grad(context: &Context, out: Tensor, upstream: Tensor, upper: bool, dx: Output) -> Result<()> {
    let (c, out, upstream) = (Compose::new(context), out.view()?, upstream.view()?);
    let (l, dl) = if upper { (transposed(&out), transposed(&upstream)) } else { (out.clone(), upstream) };
    let inner = transposed_times(&c, &l, &dl)?;
    let halved =
        c.scale(&c.add(&triangle(&c, &inner, false, true)?, &triangle(&c, &inner, false, false)?)?, 0.5, 0.0)?;
    let inverse = c.apply(&LinearAlgebra(Algorithm::Inverse), &[l])?;
    let value = times(&c, &transposed_times(&c, &inverse, &halved)?, &inverse)?;
    c.store_value(&dx, out.dtype, &symmetric(&c, &value)?)
}

/// A number for each matrix, so that it broadcasts with them.
fn number(c: &Compose, x: &View, matrices: &View) -> Result<View> {
    c.shaped(x, &[&matrices.shape[..matrices.rank() - 2], &[1, 1]].concat())
}

/// The transposed inverses; the unit matrix of those that have none, whose number (a determinant or its sign) is 0 or NaN. And which those are.
fn transposed_inverses(c: &Compose, x: &View, numbers: &View) -> Result<(View, View)> {
    let is_zero = c.map(Elementwise::Unary(Unary::LogicalNot), &[numbers], &[])?;
    let is_nan = c.map(Elementwise::Unary(Unary::IsNan), &[numbers], &[])?;
    let have_none = c.map(Elementwise::Binary(Binary::LogicalOr), &[&is_zero, &is_nan], &[])?;
    let others = c.map(Elementwise::Binary(Binary::Where), &[&have_none, &unit(c, x)?, x], &[])?;
    let inverses = c.apply(&LinearAlgebra(Algorithm::Inverse), std::slice::from_ref(&others))?;
    Ok((transposed(&inverses), have_none))
}

/// `dy det(X) X'^-1`; of singular matrices 0, as Paddle has it.
fn determinant_grad(context: &Context, x: Tensor, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let out = number(&c, &out.view()?, &x)?;
    let factor = c.multiply(&out, &number(&c, &upstream.view()?, &x)?)?;
    let factor = c.map(Elementwise::Gradient(Gradient::Chosen), &[&out, &factor], &[])?;
    let (inverses, _) = transposed_inverses(&c, &x, &out)?;
    c.store(&dx, x.dtype, Elementwise::Binary(Binary::Multiply), &[&inverses, &factor], &[])
}

/// `dy X'^-1`, where dy is that of the logarithm, the second part of the result.
fn slogdet_grad(context: &Context, x: Tensor, out: Tensor, upstream: Tensor, dx: Output) -> Result<()> {
    let (c, x, out, upstream) = (Compose::new(context), x.view()?, out.view()?, upstream.view()?);
    log_determinant_grad(&c, &x, &out.narrowed(0, 0, 1, 1), &upstream.narrowed(0, 1, 1, 1), &dx)
}

/// The gradient of the logarithm of determinants with these signs; NaN of singular matrices, whose sign is 0.
pub(super) fn log_determinant_grad(c: &Compose, x: &View, signs: &View, upstream: &View, dx: &Output) -> Result<()> {
    let (inverses, have_none) = transposed_inverses(c, x, &number(c, signs, x)?)?;
    let nan = c.constant(x.dtype, &[], f64::NAN)?;
    let factor = c.map(Elementwise::Binary(Binary::Where), &[&have_none, &nan, &number(c, upstream, x)?], &[])?;
    c.store(dx, x.dtype, Elementwise::Binary(Binary::Multiply), &[&inverses, &factor], &[])
}

/// `1 / (b - a)` of every two numbers, 0 on the diagonal.
fn inverse_differences(c: &Compose, numbers: &View) -> Result<View> {
    let difference = c.subtract(&row(c, numbers)?, &column(c, numbers)?)?;
    let inverse = c.map(Elementwise::Unary(Unary::Reciprocal), &[&difference], &[])?;
    c.map(Elementwise::Gradient(Gradient::NotChosen), &[&unit(c, &difference)?, &inverse], &[])
}

/// `V (diag(dw) + F * V' dV) V'`, where F holds the inverse differences of eigenvalues; made symmetric, as the matrices are.
fn eigh_grad(
    context: &Context,
    values: Tensor,
    vectors: Tensor,
    dvalues: Tensor,
    dvectors: Tensor,
    dx: Output,
) -> Result<()> {
    let (c, values, vectors) = (Compose::new(context), values.view()?, vectors.view()?);
    // A legacy program's rule gives it the values' shape.
    dx.set_dims(&vectors.shape);
    let inner = transposed_times(&c, &vectors, &dvectors.view()?)?;
    let inner = c.multiply(&inverse_differences(&c, &values)?, &inner)?;
    let diagonal = c.multiply(&unit(&c, &vectors)?, &row(&c, &dvalues.view()?)?)?;
    let inner = c.add(&inner, &diagonal)?;
    let value = times_transposed(&c, &times(&c, &vectors, &inner)?, &vectors)?;
    c.store_value(&dx, values.dtype, &symmetric(&c, &value)?)
}

fn eigvalsh(
    context: &Context,
    x: Tensor,
    triangle: String,
    _is_test: bool,
    values: Output,
    vectors: Option<Output>,
) -> Result<()> {
    let operator = LinearAlgebra(Algorithm::SymmetricEigen { upper: triangle == "U" });
    many(context, &operator, &[x.view()?], &[Some(&values), vectors.as_ref()])
}

/// `V diag(dw) V'`
fn eigvalsh_grad(
    context: &Context,
    vectors: Tensor,
    dvalues: Tensor,
    _triangle: String,
    _is_test: bool,
    dx: Output,
) -> Result<()> {
    let (c, vectors) = (Compose::new(context), vectors.view()?);
    let weighed = c.multiply(&vectors, &row(&c, &dvalues.view()?)?)?;
    c.store_value(&dx, vectors.dtype, &times_transposed(&c, &weighed, &vectors)?)
}

/// The gradient of `U diag(s) V'`, of as many columns as there are singular values.
fn svd_grad(
    context: &Context,
    x: Tensor,
    u: Tensor,
    vh: Tensor,
    s: Tensor,
    du: Option<Tensor>,
    dvh: Option<Tensor>,
    ds: Option<Tensor>,
    _full: bool,
    dx: Output,
) -> Result<()> {
    let (c, s, shape) = (Compose::new(context), s.view()?, x.shape());
    let count = s.shape[s.rank() - 1];
    let columns = |view: View| view.narrowed(view.rank() - 1, 0, 1, count);
    let (u, v) = (columns(u.view()?), columns(transposed(&vh.view()?)));
    let (short, dtype) = (row(&c, &s)?, s.dtype);
    let over = |x: &View| c.map(Elementwise::Binary(Binary::Divide), &[x, &short], &[]);
    // F holds 1 / (s_j^2 - s_i^2).
    let squares = c.multiply(&s, &s)?;
    let f = inverse_differences(&c, &squares)?;
    let mut inner = match ds {
        Some(ds) => c.multiply(&unit(&c, &f)?, &row(&c, &ds.view()?)?)?,
        None => c.scale(&f, 0.0, 0.0)?,
    };
    // What of the vectors' gradients lies in their own space, and what does not.
    let own = |vectors: &View, gradient: &View| -> Result<[View; 2]> {
        let inside = transposed_times(&c, vectors, gradient)?;
        let skew = c.multiply(&f, &c.subtract(&inside, &transposed(&inside))?)?;
        let rest = c.subtract(gradient, &times(&c, vectors, &inside)?)?;
        Ok([skew, over(&rest)?])
    };
    let mut outer = None::<View>;
    if let Some(du) = du {
        let [skew, rest] = own(&u, &columns(du.view()?))?;
        inner = c.add(&inner, &c.multiply(&skew, &short)?)?;
        outer = Some(times_transposed(&c, &rest, &v)?);
    }
    if let Some(dvh) = dvh {
        let [skew, rest] = own(&v, &columns(transposed(&dvh.view()?)))?;
        inner = c.add(&inner, &c.multiply(&column(&c, &s)?, &skew)?)?;
        let rest = times_transposed(&c, &u, &rest)?;
        outer = Some(match outer {
            None => rest,
            Some(other) => c.add(&other, &rest)?,
        });
    }
    let mut value = times_transposed(&c, &times(&c, &u, &inner)?, &v)?;
    if let Some(outer) = outer {
        value = c.add(&value, &outer)?;
    }
    c.store_value(&dx, dtype, &c.shaped(&value, &shape)?)
}

/// `U diag(ds) V'`
fn svdvals_grad(context: &Context, x: Tensor, ds: Tensor, dx: Output) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    let (leading, sizes) = x.shape.split_at(x.rank() - 2);
    let count = sizes[0].min(sizes[1]);
    let make = |dims: &[usize]| c.temporary(x.dtype, &[leading, dims].concat());
    let parts = [make(&[sizes[0], count])?, make(&[count])?, make(&[count, sizes[1]])?];
    c.launch(&LinearAlgebra(Algorithm::SingularValueDecomposition { full: false }), std::slice::from_ref(&x), &parts)?;
    let [u, _, vh] = parts;
    let weighed = c.multiply(&u, &row(&c, &ds.view()?)?)?;
    c.store_value(&dx, x.dtype, &times(&c, &weighed, &vh)?)
}

/// `(dQ + Q copyltu(R dR' - dQ' Q)) R'^-1` of matrices that are not wider than high; copyltu repeats the lower triangle above the diagonal.
fn qr_grad(
    context: &Context,
    x: Tensor,
    q: Tensor,
    r: Tensor,
    of_q: Upstream,
    of_r: Upstream,
    mode: String,
    dx: Output,
) -> Result<()> {
    let (c, shape) = (Compose::new(context), x.shape());
    let (q, r) = (q.view()?, r.view()?);
    let (dq, dr) = (c.or_zeros(of_q.0.as_ref(), &q)?, c.or_zeros(of_r.0.as_ref(), &r)?);
    let [.., rows, columns] = shape[..] else { return Err(refuse("rank of x", shape.len(), "2 or more")) };
    if mode == "r" || mode == "complete" && rows > columns {
        return Err(refuse("mode", mode, "reduced, where gradients are wanted"));
    }
    // Of a wide matrix the first columns are a square one with the same Q, and the others are Q times what stands in R.
    let count = rows.min(columns);
    let part = |x: &View, begin: usize, count: usize| x.narrowed(x.rank() - 1, begin, 1, count);
    let (square, dsquare) = (part(&r, 0, count), part(&dr, 0, count));
    let mut dq = dq;
    let rest = columns - count;
    if rest > 0 {
        let other = part(&x.view()?, count, rest);
        dq = c.add(&dq, &times_transposed(&c, &other, &part(&dr, count, rest))?)?;
    }
    let inner = c.subtract(&times_transposed(&c, &square, &dsquare)?, &transposed_times(&c, &dq, &q)?)?;
    let lower = triangle(&c, &inner, false, false)?;
    let diagonal = c.subtract(&triangle(&c, &inner, false, true)?, &lower)?;
    let copied = c.add(&c.add(&lower, &transposed(&lower))?, &diagonal)?;
    let sum = c.add(&dq, &times(&c, &q, &copied)?)?;
    // Y R' = S is R Y' = S'.
    let value = transposed(&solved(&c, &square, &transposed(&sum))?);
    let to = c.place(&dx, r.dtype)?;
    let copy = openmps_graph::operators::copy::Copy;
    c.launch(&copy, &[value], &[part(&to, 0, count)])?;
    if rest > 0 {
        c.launch(&copy, &[times(&c, &q, &part(&dr, count, rest))?], &[part(&to, count, rest)])?;
    }
    Ok(())
}

/// The triangular matrices that are meant: one side, with ones on the diagonal where it is not to be read.
fn meant(c: &Compose, x: &View, upper: bool, is_unit: bool) -> Result<View> {
    let side = triangle(c, x, upper, !is_unit)?;
    if is_unit { c.add(&side, &unit(c, x)?) } else { Ok(side) }
}

fn triangular_solve(
    context: &Context,
    x: Tensor,
    y: Tensor,
    upper: bool,
    transpose: bool,
    is_unit: bool,
    out: Output,
) -> Result<()> {
    let (c, x, y) = (Compose::new(context), x.view()?, y.view()?);
    let matrix = meant(&c, &x, upper, is_unit)?;
    let matrix = if transpose { transposed(&matrix) } else { matrix };
    c.store_value(&out, x.dtype, &solved(&c, &matrix, &y)?)
}

fn triangular_solve_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    upstream: Tensor,
    upper: bool,
    transpose: bool,
    is_unit: bool,
    dx: Option<Output>,
    dy: Option<Output>,
) -> Result<()> {
    let (c, x, out) = (Compose::new(context), x.view()?, out.view()?);
    let matrix = meant(&c, &x, upper, is_unit)?;
    let matrix = if transpose { matrix } else { transposed(&matrix) };
    let of_y = solved(&c, &matrix, &upstream.view()?)?;
    if let Some(dx) = dx {
        let outer = if transpose { times_transposed(&c, &out, &of_y)? } else { times_transposed(&c, &of_y, &out)? };
        let outer = c.scale(&c.summed_to(&outer, &x.shape)?, -1.0, 0.0)?;
        c.store_value(&dx, x.dtype, &triangle(&c, &outer, upper, !is_unit)?)?;
    }
    match dy {
        Some(dy) => c.store_value(&dy, x.dtype, &c.summed_to(&of_y, &y.shape())?),
        None => Ok(()),
    }
}

/// Solves two triangular systems: with the factor, and with its transpose.
fn twice(c: &Compose, factor: &View, y: &View, upper: bool) -> Result<View> {
    let factor = triangle(c, factor, upper, true)?;
    let lower = if upper { transposed(&factor) } else { factor };
    solved(c, &transposed(&lower), &solved(c, &lower, y)?)
}

fn cholesky_solve(context: &Context, x: Tensor, factor: Tensor, upper: bool, out: Output) -> Result<()> {
    let (c, x, factor) = (Compose::new(context), x.view()?, factor.view()?);
    c.store_value(&out, x.dtype, &twice(&c, &factor, &x, upper)?)
}

/// With `A = L L'` and the solution's gradient S of the right hand sides: `-(S out' + out S') L`.
fn cholesky_solve_grad(
    context: &Context,
    x: Tensor,
    factor: Tensor,
    out: Tensor,
    upstream: Tensor,
    upper: bool,
    dx: Option<Output>,
    dfactor: Option<Output>,
) -> Result<()> {
    let (c, factor, out) = (Compose::new(context), factor.view()?, out.view()?);
    let of_x = twice(&c, &factor, &upstream.view()?, upper)?;
    if let Some(dfactor) = dfactor {
        let outer = times_transposed(&c, &of_x, &out)?;
        let both = c.scale(&c.add(&outer, &transposed(&outer))?, -1.0, 0.0)?;
        let own = triangle(&c, &factor, upper, true)?;
        let value = if upper { times(&c, &own, &both)? } else { times(&c, &both, &own)? };
        c.store_value(&dfactor, out.dtype, &triangle(&c, &c.summed_to(&value, &factor.shape)?, upper, true)?)?;
    }
    match dx {
        Some(dx) => c.store_value(&dx, out.dtype, &c.summed_to(&of_x, &x.shape())?),
        None => Ok(()),
    }
}
