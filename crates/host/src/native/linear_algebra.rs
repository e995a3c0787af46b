//! Factorisations, inverses, determinants and solutions of stacks of matrices: each matrix by the crate `faer`, in float64.

mod elimination;

use super::memory::{Element, slice, slice_mut};
use crate::Error;
use crate::threads::parallel_for;
use faer::linalg::solvers::{DenseSolveCore, Eigen, PartialPivLu, SelfAdjointEigen, Solve, Svd};
use faer::{ColRef, Mat, MatRef, Side, c64};
use std::sync::{Mutex, PoisonError};

/// What is computed of a matrix A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// U, the singular values from the largest on, and V transposed; `full` makes U and V square.
    SingularValueDecomposition {
        /// U and V have as many columns as rows.
        full: bool,
    },
    /// The singular values alone.
    SingularValues,
    /// Q and R; `complete` makes Q square.
    Qr {
        /// Q has as many columns as rows.
        complete: bool,
    },
    /// Eigenvalues from the smallest on, and their vectors as columns, of a symmetric matrix of which one triangle is read.
    SymmetricEigen {
        /// The upper triangle is read.
        upper: bool,
    },
    /// The triangular L with A = L L', or its transpose.
    Cholesky {
        /// The transpose, of the upper triangle of A.
        upper: bool,
    },
    /// The inverse.
    Inverse,
    /// The determinant.
    Determinant,
    /// The determinant's sign, and the logarithm of its absolute value.
    LogDeterminant,
    /// The X with A X = B, where B is the second input.
    Solve,
    /// The factors of elimination in one matrix, which row was exchanged for each (from 1 on), and the number of the first pivot that is zero, or 0.
    Elimination,
    /// The permutation and the factors, of the first two results of [`Algorithm::Elimination`].
    EliminationFactors,
    /// The gradient of the first result, the third input, by the matrix; the first two inputs are those results.
    EliminationGradient,
    /// What is below the diagonal of A, and the rest of the second input.
    Packed,
    /// The X with A X = B, of the factors and pivots of A, and B.
    FactorsSolve {
        /// The transpose of A in place of it.
        transposed: bool,
    },
    /// Gradients by B and by the factors, of factors, pivots, X, and the gradient by X.
    FactorsSolveGradient {
        /// As of the solution.
        transposed: bool,
    },
    /// The smallest X that brings A X as near to B as possible, the squared distances by column where A has more rows than columns and as many
    /// independent ones, the rank, and the singular values.
    LeastSquares {
        /// Singular values below so much of the largest count as zero.
        threshold: f64,
    },
    /// Eigenvalues, and vectors of length 1 as columns; each number is two, its real and its imaginary part.
    Eigen,
    /// The eigenvalues alone.
    Eigenvalues,
}

/// A dense stack of row-major matrices in memory.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// Where the first one begins.
    pub address: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
}

impl Stack {
    fn place<T>(&self, number: usize) -> (usize, usize) {
        let len = self.rows * self.columns;
        (self.address + number * len * size_of::<T>(), len)
    }

    /// # Safety
    /// The stack holds more than `number` matrices of `T`, which nobody writes.
    unsafe fn read<T: Element>(&self, number: usize) -> Mat<f64> {
        let (address, len) = self.place::<T>(number);
        // SAFETY: promised by the caller.
        let elements = unsafe { slice::<T>(address, len) };
        Mat::from_fn(self.rows, self.columns, |i, j| elements[i * self.columns + j].to_f64())
    }

    /// # Safety
    /// The stack has room for more than `number` matrices of `T`, of which nobody else reads or writes this one.
    unsafe fn write<T: Element>(&self, number: usize, matrix: MatRef<f64>) {
        let (address, len) = self.place::<T>(number);
        // SAFETY: promised by the caller.
        let elements = unsafe { slice_mut::<T>(address, len) };
        for (at, element) in elements.iter_mut().enumerate() {
            *element = T::from_f64(matrix[(at / self.columns, at % self.columns)]);
        }
    }
}

/// Computes `count` matrices; vectors are matrices of one column, numbers of one element. The first matrix for which there is no result
/// is an error.
///
/// # Safety
/// Inputs hold `count` matrices of `T` that nobody writes; outputs have room for as many of the algorithm's results, and are nobody else's.
pub unsafe fn linear_algebra<T: Element>(
    algorithm: Algorithm,
    count: usize,
    inputs: &[Stack],
    outputs: &[Stack],
) -> Result<(), Error> {
    let first_error = Mutex::new(None::<(usize, String)>);
    let size = inputs[0].rows.max(inputs[0].columns);
    parallel_for(count, 100 + 4 * size * size * size, |begin, end| {
        for number in begin..end {
            // SAFETY: promised by the caller.
            let matrices: Vec<Mat<f64>> = inputs.iter().map(|input| unsafe { input.read::<T>(number) }).collect();
            match compute(algorithm, &matrices) {
                Ok(results) => {
                    for (output, result) in outputs.iter().zip(&results) {
                        // SAFETY: promised by the caller; this task alone has this matrix.
                        unsafe { output.write::<T>(number, result.as_ref()) };
                    }
                }
                Err(error) => {
                    let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|(before, _)| number < *before) {
                        *first = Some((number, error));
                    }
                }
            }
        }
    });
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(()),
        Some((number, error)) => Err(Error::Invalid(format!("matrix {number} {error}"))),
    }
}

fn compute(algorithm: Algorithm, inputs: &[Mat<f64>]) -> Result<Vec<Mat<f64>>, String> {
    let a = inputs[0].as_ref();
    let is_finite = (0..a.ncols()).all(|j| a.col(j).iter().all(|x| x.is_finite()));
    let has_nan = || (0..a.ncols()).any(|j| a.col(j).iter().any(|x| x.is_nan()));
    match algorithm {
        Algorithm::SingularValueDecomposition { .. } | Algorithm::SingularValues if !is_finite && has_nan() => {
            Err("holds NaN, and has no singular values".to_owned())
        }
        Algorithm::SingularValueDecomposition { .. } | Algorithm::SingularValues if !is_finite => {
            Ok(singular(algorithm, a.nrows(), a.ncols())
                .map(|[rows, columns]| Mat::full(rows, columns, f64::NAN))
                .collect())
        }
        Algorithm::SingularValueDecomposition { full } => {
            let svd = if full { Svd::new(a) } else { Svd::new_thin(a) }.map_err(|_| DIVERGES.to_owned())?;
            Ok(vec![svd.U().to_owned(), column(svd.S().column_vector().iter()), svd.V().transpose().to_owned()])
        }
        Algorithm::SingularValues => Ok(vec![column(a.singular_values().map_err(|_| DIVERGES.to_owned())?.iter())]),
        Algorithm::Qr { complete } => {
            let qr = a.qr();
            let (q, upper) = (if complete { qr.compute_Q() } else { qr.compute_thin_Q() }, qr.thin_R());
            // Below the rows that the factorisation keeps there are zeros.
            let r = |i, j| if i <= j && i < upper.nrows() { upper[(i, j)] } else { 0.0 };
            let r = Mat::from_fn(q.ncols(), a.ncols(), r);
            Ok(vec![q, r])
        }
        Algorithm::SymmetricEigen { .. } if !is_finite => {
            Ok([1, a.ncols()].map(|columns| Mat::full(a.nrows(), columns, f64::NAN)).to_vec())
        }
        Algorithm::SymmetricEigen { upper } => {
            let eigen = SelfAdjointEigen::new(a, side(upper)).map_err(|_| DIVERGES.to_owned())?;
            Ok(vec![column(eigen.S().column_vector().iter()), eigen.U().to_owned()])
        }
        Algorithm::Cholesky { upper } => cholesky(a, upper, is_finite).map(|factor| vec![factor]),
        Algorithm::Inverse => Ok(vec![invertible(a)?.inverse()]),
        Algorithm::Solve => Ok(vec![invertible(a)?.solve(&inputs[1])]),
        Algorithm::Elimination => Ok(elimination::factors(a)),
        Algorithm::EliminationFactors => elimination::unpacked(a, inputs[1].as_ref()),
        Algorithm::EliminationGradient => Ok(vec![elimination::gradient(a, inputs[1].as_ref(), inputs[2].as_ref())?]),
        Algorithm::Packed => Ok(vec![elimination::packed(a, inputs[1].as_ref())]),
        Algorithm::FactorsSolve { transposed } => {
            Ok(vec![elimination::solved(a, inputs[1].as_ref(), inputs[2].as_ref(), transposed)?])
        }
        Algorithm::FactorsSolveGradient { transposed } => {
            let [pivots, x, upstream] = [1, 2, 3].map(|at| inputs[at].as_ref());
            elimination::solution_gradient(a, pivots, x, upstream, transposed)
        }
        Algorithm::LeastSquares { .. } | Algorithm::Eigen | Algorithm::Eigenvalues if !is_finite => {
            Err("holds infinity or NaN".to_owned())
        }
        Algorithm::LeastSquares { threshold } => least_squares(a, inputs[1].as_ref(), threshold),
        Algorithm::Eigen => {
            let eigen = Eigen::new_from_real(a).map_err(|_| DIVERGES.to_owned())?;
            let (values, vectors) = (eigen.S().column_vector(), eigen.U());
            let scales: Vec<c64> = (0..a.ncols()).map(|j| to_unit(vectors.col(j))).collect();
            Ok(vec![
                parts(a.nrows(), 1, |i, _| values[i]),
                parts(a.nrows(), a.ncols(), |i, j| vectors[(i, j)] * scales[j]),
            ])
        }
        Algorithm::Eigenvalues => {
            let values = a.eigenvalues().map_err(|_| DIVERGES.to_owned())?;
            Ok(vec![parts(a.nrows(), 1, |i, _| values[i])])
        }
        Algorithm::Determinant => {
            let (sign, pivots) = pivots(&a.partial_piv_lu(), is_finite);
            Ok(vec![column([pivots.iter().product::<f64>() * sign].iter())])
        }
        Algorithm::LogDeterminant => {
            let (sign, pivots) = pivots(&a.partial_piv_lu(), is_finite);
            // The sign of zero and of NaN is 0, as Paddle has it.
            let signs = pivots.iter().map(|&pivot| if pivot == 0.0 || pivot.is_nan() { 0.0 } else { pivot.signum() });
            let sign = sign * signs.product::<f64>();
            let logarithm: f64 = pivots.iter().map(|pivot| pivot.abs().ln()).sum();
            Ok(vec![column([sign].iter()), column([logarithm].iter())])
        }
    }
}

/// What makes an eigenvector the one of length 1 that LAPACK gives (`dgeev`): its largest component is real.
fn to_unit(vector: ColRef<'_, c64>) -> c64 {
    // Of equal ones the first.
    let largest = vector.iter().rev().max_by(|x, y| x.norm_sqr().total_cmp(&y.norm_sqr()));
    let turn = match largest {
        Some(x) if x.im != 0.0 => x.conj() * (x.re.signum() / x.norm()),
        _ => c64::new(1.0, 0.0),
    };
    turn * (1.0 / vector.norm_l2())
}

/// Rows and columns of the results of a decomposition into singular values, or of these alone.
fn singular(algorithm: Algorithm, rows: usize, columns: usize) -> impl Iterator<Item = [usize; 2]> {
    let rank = rows.min(columns);
    let values = [rank, 1];
    let (left, right) = match algorithm {
        Algorithm::SingularValues => (None, None),
        Algorithm::SingularValueDecomposition { full: true } => (Some([rows, rows]), Some([columns, columns])),
        _ => (Some([rows, rank]), Some([rank, columns])),
    };
    [left, Some(values), right].into_iter().flatten()
}

/// Complex numbers, each as two columns.
fn parts(rows: usize, columns: usize, number: impl Fn(usize, usize) -> c64) -> Mat<f64> {
    Mat::from_fn(rows, 2 * columns, |i, j| {
        let number = number(i, j / 2);
        if j % 2 == 0 { number.re } else { number.im }
    })
}

fn least_squares(a: MatRef<f64>, b: MatRef<f64>, threshold: f64) -> Result<Vec<Mat<f64>>, String> {
    let svd = Svd::new_thin(a).map_err(|_| DIVERGES.to_owned())?;
    let values = column(svd.S().column_vector().iter());
    let least = threshold * values.col(0).iter().copied().fold(0.0, f64::max);
    let rank = values.col(0).iter().filter(|&&value| value > least).count();
    let projected = svd.U().transpose() * b;
    let divided = Mat::from_fn(values.nrows(), b.ncols(), |i, j| {
        if values[(i, 0)] > least { projected[(i, j)] / values[(i, 0)] } else { 0.0 }
    });
    let x = svd.V() * divided;
    let rest = a * &x - b;
    let residuals = Mat::from_fn(b.ncols(), 1, |j, _| rest.col(j).squared_norm_l2());
    Ok(vec![x, residuals, column([rank as f64].iter()), values])
}

const DIVERGES: &str = "has no decomposition that the iteration finds";

fn side(upper: bool) -> Side {
    if upper { Side::Upper } else { Side::Lower }
}

fn column<'a>(values: impl Iterator<Item = &'a f64>) -> Mat<f64> {
    let values: Vec<f64> = values.copied().collect();
    Mat::from_fn(values.len(), 1, |i, _| values[i])
}

fn cholesky(a: MatRef<f64>, upper: bool, is_finite: bool) -> Result<Mat<f64>, String> {
    let in_triangle = |i: usize, j: usize| if upper { i <= j } else { i >= j };
    if !is_finite {
        // A NaN must be seen.
        return Ok(Mat::from_fn(a.nrows(), a.ncols(), |i, j| if in_triangle(i, j) { f64::NAN } else { 0.0 }));
    }
    let factor = a.llt(side(upper)).map_err(|_| "is not positive definite".to_owned())?;
    Ok(if upper { factor.L().transpose().to_owned() } else { factor.L().to_owned() })
}

/// The sign of the permutation and the diagonal of U. Where a zero is in that of a matrix of numbers, that alone: it divided what comes behind it.
fn pivots(lu: &PartialPivLu<f64>, is_finite: bool) -> (f64, Vec<f64>) {
    let (forward, _) = lu.P().arrays();
    let mut seen = vec![false; forward.len()];
    let mut sign = 1.0;
    for start in 0..forward.len() {
        // A cycle of an even length is odd.
        let (mut at, mut length) = (start, 0);
        while !std::mem::replace(&mut seen[at], true) {
            at = forward[at];
            length += 1;
        }
        if length > 0 && length % 2 == 0 {
            sign = -sign;
        }
    }
    let pivots: Vec<f64> = (0..forward.len()).map(|i| lu.U()[(i, i)]).collect();
    let is_singular = is_finite && pivots.contains(&0.0);
    (sign, if is_singular { vec![0.0] } else { pivots })
}

fn invertible(a: MatRef<f64>) -> Result<PartialPivLu<f64>, String> {
    let lu = a.partial_piv_lu();
    let (_, pivots) = pivots(&lu, false);
    match pivots.iter().find(|pivot| pivot.is_nan() || **pivot == 0.0) {
        None => Ok(lu),
        Some(pivot) => Err(format!("is singular: a pivot is {pivot}")),
    }
}

#[cfg(test)]
mod tests;
