//! Decompositions and solves of MPS, in float64.

use super::matrix::{View, read, write};
use super::{EmulatedBuffer, numbers};
use crate::error::{Error, Result};
use crate::matrix::{MatrixCall, Operand};
use openmps_tile::DType;

/// `MPSMatrixDecompositionStatus`.
const SUCCESS: f64 = 0.0;
const SINGULAR: f64 = -2.0;
const NOT_POSITIVE: f64 = -3.0;

/// Runs a decomposition or a solve.
pub(super) fn run(call: &MatrixCall<EmulatedBuffer>) -> Result<()> {
    match call {
        MatrixCall::DecompositionLu { source, result, pivots, status } => {
            let mut a = read(source, 0);
            let (order, singular) = lu(&mut a, source.rows, source.columns);
            write(result, 0, &a);
            write(pivots, 0, &order);
            tell(status.as_ref(), if singular { SINGULAR } else { SUCCESS });
        }
        MatrixCall::DecompositionCholesky { source, result, lower, status } => {
            let n = source.rows;
            let a = read(source, 0);
            let found = cholesky(&a, n);
            tell(status.as_ref(), if found.is_some() { SUCCESS } else { NOT_POSITIVE });
            if let Some(factor) = found {
                let place = |i: usize, j: usize| if *lower { factor[i * n + j] } else { factor[j * n + i] };
                let values: Vec<f64> = (0..n * n).map(|at| place(at / n, at % n)).collect();
                write(result, 0, &values);
            }
        }
        MatrixCall::SolveTriangular { source, right_hand_side, solution, upper, transpose, unit, alpha } => {
            each(source, right_hand_side, solution, |a, x, columns| {
                x.iter_mut().for_each(|value| *value *= alpha);
                triangular(a, x, columns, Triangle { upper: *upper, transpose: *transpose, unit: *unit });
            });
        }
        MatrixCall::SolveLu { factors, pivots, right_hand_side, solution, transpose } => {
            let pivots: Vec<usize> = read(pivots, 0).iter().map(|&row| row as usize).collect();
            each(factors, right_hand_side, solution, |a, x, columns| solve_lu(a, &pivots, x, columns, *transpose));
        }
        MatrixCall::SolveCholesky { factor, right_hand_side, solution, upper } => {
            each(factor, right_hand_side, solution, |a, x, columns| {
                // L L' x = b, or U' U x = b.
                triangular(a, x, columns, Triangle { upper: *upper, transpose: *upper, unit: false });
                triangular(a, x, columns, Triangle { upper: *upper, transpose: !*upper, unit: false });
            });
        }
        other => return Err(Error::NotMade { what: other.name() }),
    }
    Ok(())
}

fn each(source: &View, right: &View, solution: &View, solve: impl Fn(&[f64], &mut [f64], usize)) {
    for matrix in 0..solution.matrices {
        let (a, mut x) = (read(source, matrix), read(right, matrix));
        solve(&a, &mut x, right.columns);
        write(solution, matrix, &x);
    }
}

fn tell(status: Option<&Operand<EmulatedBuffer>>, value: f64) {
    if let Some(place) = status {
        let address = place.buffer.contents().0 + place.offset;
        // SAFETY: the call was checked: an int32 lies there.
        unsafe { numbers::write(DType::I32, std::iter::once(address), &[value]) };
    }
}

/// In place, with the largest pivot of each column; the row exchanged at each step, and whether a pivot was zero.
fn lu(a: &mut [f64], rows: usize, columns: usize) -> (Vec<f64>, bool) {
    let (mut order, mut singular) = (Vec::new(), false);
    for k in 0..rows.min(columns) {
        let largest = (k..rows).max_by(|&i, &j| a[i * columns + k].abs().total_cmp(&a[j * columns + k].abs()));
        let pivot = largest.unwrap_or(k);
        order.push(pivot as f64);
        (0..columns).for_each(|j| a.swap(k * columns + j, pivot * columns + j));
        if a[k * columns + k] == 0.0 {
            singular = true;
            continue;
        }
        for i in k + 1..rows {
            let factor = a[i * columns + k] / a[k * columns + k];
            a[i * columns + k] = factor;
            (k + 1..columns).for_each(|j| a[i * columns + j] -= factor * a[k * columns + j]);
        }
    }
    (order, singular)
}

/// The lower factor; none where the matrix is not positive definite.
fn cholesky(a: &[f64], n: usize) -> Option<Vec<f64>> {
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| l[i * n + k] * l[j * n + k]).sum();
            let rest = a[i * n + j] - dot;
            l[i * n + j] = if i == j { rest.sqrt() } else { rest / l[j * n + j] };
            if i == j && (rest <= 0.0 || rest.is_nan()) {
                return None;
            }
        }
    }
    Some(l)
}

#[derive(Clone, Copy)]
struct Triangle {
    upper: bool,
    transpose: bool,
    unit: bool,
}

/// Solves op(a) x = x in place, for each column of `x`.
fn triangular(a: &[f64], x: &mut [f64], columns: usize, kind: Triangle) {
    let n = x.len() / columns.max(1);
    let at = |i: usize, j: usize| if kind.transpose { a[j * n + i] } else { a[i * n + j] };
    let backwards = kind.upper != kind.transpose;
    for step in 0..n {
        let i = if backwards { n - 1 - step } else { step };
        let known = if backwards { i + 1..n } else { 0..i };
        for column in 0..columns {
            let dot: f64 = known.clone().map(|j| at(i, j) * x[j * columns + column]).sum();
            let rest = x[i * columns + column] - dot;
            x[i * columns + column] = if kind.unit { rest } else { rest / at(i, i) };
        }
    }
}

fn solve_lu(a: &[f64], pivots: &[usize], x: &mut [f64], columns: usize, transpose: bool) {
    let (lower, upper) =
        (Triangle { upper: false, transpose, unit: true }, Triangle { upper: true, transpose, unit: false });
    let exchange = |x: &mut [f64], step: usize| {
        (0..columns).for_each(|column| x.swap(step * columns + column, pivots[step] * columns + column));
    };
    if transpose {
        triangular(a, x, columns, upper);
        triangular(a, x, columns, lower);
        (0..pivots.len()).rev().for_each(|step| exchange(x, step));
    } else {
        (0..pivots.len()).for_each(|step| exchange(x, step));
        triangular(a, x, columns, lower);
        triangular(a, x, columns, upper);
    }
}
