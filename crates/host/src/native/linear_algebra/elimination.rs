//! The factors of elimination, with rows in LAPACK's order: what they are, what they solve, and gradients.

use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_unit_lower_triangular_in_place, solve_unit_upper_triangular_in_place,
    solve_upper_triangular_in_place,
};
use faer::{Mat, MatRef, Par};

/// A matrix' factors in one matrix, which row was exchanged for each (from 1 on), and the number of the first pivot that is zero, or 0.
pub(super) fn factors(a: MatRef<f64>) -> Vec<Mat<f64>> {
    let (mut a, rank) = (a.to_owned(), a.nrows().min(a.ncols()));
    let (mut pivots, mut first_zero) = (Mat::zeros(rank, 1), 0);
    for k in 0..rank {
        let size = |row: usize| a[(row, k)].abs();
        let largest = (k + 1..a.nrows()).fold(k, |best, row| if size(row) > size(best) { row } else { best });
        pivots[(k, 0)] = (largest + 1) as f64;
        exchange(&mut a, k, largest);
        let pivot = a[(k, k)];
        if pivot == 0.0 {
            first_zero = if first_zero == 0 { k + 1 } else { first_zero };
            continue;
        }
        for row in k + 1..a.nrows() {
            a[(row, k)] /= pivot;
        }
        for column in k + 1..a.ncols() {
            let above = a[(k, column)];
            for row in k + 1..a.nrows() {
                let factor = a[(row, k)];
                a[(row, column)] -= factor * above;
            }
        }
    }
    vec![a, pivots, Mat::from_fn(1, 1, |_, _| first_zero as f64)]
}

fn exchange(a: &mut Mat<f64>, first: usize, second: usize) {
    for column in 0..a.ncols() {
        let kept = a[(first, column)];
        a[(first, column)] = a[(second, column)];
        a[(second, column)] = kept;
    }
}

/// Which row of the matrix became each row, of so many.
fn order(pivots: MatRef<f64>, rows: usize) -> Result<Vec<usize>, String> {
    let mut order: Vec<usize> = (0..rows).collect();
    for k in 0..pivots.nrows() {
        let pivot = pivots[(k, 0)];
        if !(1.0..=rows as f64).contains(&pivot) || k >= rows {
            return Err(format!("has pivot {pivot} at position {k}, expected one of 1 to {rows}"));
        }
        order.swap(k, pivot as usize - 1);
    }
    Ok(order)
}

/// The lower factor with ones on its diagonal, of so many columns.
fn lower(packed: MatRef<f64>) -> Mat<f64> {
    let rank = packed.nrows().min(packed.ncols());
    Mat::from_fn(packed.nrows(), rank, |i, j| if i > j { packed[(i, j)] } else { f64::from(u8::from(i == j)) })
}

fn upper(packed: MatRef<f64>) -> Mat<f64> {
    let rank = packed.nrows().min(packed.ncols());
    Mat::from_fn(rank, packed.ncols(), |i, j| if i <= j { packed[(i, j)] } else { 0.0 })
}

/// The permutation and both factors, whose product is the matrix.
pub(super) fn unpacked(packed: MatRef<f64>, pivots: MatRef<f64>) -> Result<Vec<Mat<f64>>, String> {
    let rows = packed.nrows();
    let order = order(pivots, rows)?;
    let permutation = Mat::from_fn(rows, rows, |i, j| f64::from(u8::from(order[j] == i)));
    Ok(vec![permutation, lower(packed), upper(packed)])
}

/// Below the diagonal the first matrix, else the second: factors, or their gradients, in one matrix.
pub(super) fn packed(lower: MatRef<f64>, upper: MatRef<f64>) -> Mat<f64> {
    Mat::from_fn(lower.nrows(), upper.ncols(), |i, j| if i > j { lower[(i, j)] } else { upper[(i, j)] })
}

/// The rows as they stood before they were exchanged.
fn put_back(a: MatRef<f64>, order: &[usize]) -> Mat<f64> {
    let mut back = Mat::zeros(a.nrows(), a.ncols());
    for (row, &from) in order.iter().enumerate() {
        back.row_mut(from).copy_from(a.row(row));
    }
    back
}

/// The solution of equations whose matrix, or its transpose, has these factors.
pub(super) fn solved(
    factors: MatRef<f64>,
    pivots: MatRef<f64>,
    right: MatRef<f64>,
    transposed: bool,
) -> Result<Mat<f64>, String> {
    let order = order(pivots, factors.nrows())?;
    if transposed {
        let mut x = right.to_owned();
        solve_lower_triangular_in_place(factors.transpose(), x.as_mut(), Par::Seq);
        solve_unit_upper_triangular_in_place(factors.transpose(), x.as_mut(), Par::Seq);
        return Ok(put_back(x.as_ref(), &order));
    }
    let mut x = Mat::from_fn(right.nrows(), right.ncols(), |i, j| right[(order[i], j)]);
    solve_unit_lower_triangular_in_place(factors, x.as_mut(), Par::Seq);
    solve_upper_triangular_in_place(factors, x.as_mut(), Par::Seq);
    Ok(x)
}

/// Gradients by the right side and by the factors, of a solution.
pub(super) fn solution_gradient(
    factors: MatRef<f64>,
    pivots: MatRef<f64>,
    x: MatRef<f64>,
    upstream: MatRef<f64>,
    transposed: bool,
) -> Result<Vec<Mat<f64>>, String> {
    let of_right = solved(factors, pivots, upstream, !transposed)?;
    let of_matrix = if transposed { x * of_right.transpose() } else { &of_right * x.transpose() };
    let order = order(pivots, factors.nrows())?;
    let exchanged = Mat::from_fn(factors.nrows(), factors.nrows(), |i, j| -of_matrix[(order[i], j)]);
    let (l, u) = (lower(factors), upper(factors));
    let (of_lower, of_upper) = (&exchanged * u.transpose(), l.transpose() * &exchanged);
    Ok(vec![of_right, packed(of_lower.as_ref(), of_upper.as_ref())])
}

/// The gradient by the matrix, of that by its factors in one matrix.
///
/// With the parts of both factors that are square, it is `P L^-T (tril(L^T dL, -1) + triu(dU U^T)) U^-T`. What of a tall or wide matrix lies beyond
/// the square has gradients of its own, and what it takes from the square's.
pub(super) fn gradient(factors: MatRef<f64>, pivots: MatRef<f64>, upstream: MatRef<f64>) -> Result<Mat<f64>, String> {
    let (rows, columns) = (factors.nrows(), factors.ncols());
    let (order, rank) = (order(pivots, rows)?, rows.min(columns));
    let square = factors.submatrix(0, 0, rank, rank);
    let (l, u) = (lower(square), upper(square));
    let given = upstream.submatrix(0, 0, rank, rank);
    let of_lower = Mat::from_fn(rank, rank, |i, j| if i > j { given[(i, j)] } else { 0.0 });
    let of_upper = Mat::from_fn(rank, rank, |i, j| if i <= j { given[(i, j)] } else { 0.0 });
    let mut below = l.transpose() * of_lower;
    let mut above = of_upper * u.transpose();
    if columns > rank {
        let rest = |of: MatRef<f64>| of.submatrix(0, rank, rank, columns - rank).to_owned();
        below -= rest(upstream) * rest(factors).transpose();
    }
    if rows > rank {
        let rest = |of: MatRef<f64>| of.submatrix(rank, 0, rows - rank, rank).to_owned();
        above -= rest(factors).transpose() * rest(upstream);
    }
    let middle = packed(below.as_ref(), above.as_ref());
    // The square's part times U^-T, beside or above what lies beyond it.
    let from_right = |matrix: Mat<f64>| {
        let mut flipped = matrix.transpose().to_owned();
        solve_upper_triangular_in_place(square, flipped.as_mut(), Par::Seq);
        flipped.transpose().to_owned()
    };
    let from_left = |mut matrix: Mat<f64>| {
        solve_unit_upper_triangular_in_place(square.transpose(), matrix.as_mut(), Par::Seq);
        matrix
    };
    let exchanged = if rows > columns {
        let top = from_left(middle);
        from_right(Mat::from_fn(rows, rank, |i, j| if i < rank { top[(i, j)] } else { upstream[(i, j)] }))
    } else {
        let left = from_right(middle);
        from_left(Mat::from_fn(rank, columns, |i, j| if j < rank { left[(i, j)] } else { upstream[(i, j)] }))
    };
    Ok(put_back(exchanged.as_ref(), &order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize, seed: usize) -> Mat<f64> {
        Mat::from_fn(rows, columns, |i, j| (((i * 7 + j * 3 + seed) * 2654435761) % 1000) as f64 / 500.0 - 1.0)
    }

    fn product(a: MatRef<f64>, b: MatRef<f64>) -> f64 {
        (0..a.nrows()).map(|i| (0..a.ncols()).map(|j| a[(i, j)] * b[(i, j)]).sum::<f64>()).sum()
    }

    /// How a sum of the results' elements changes along a direction, by differences and by a gradient.
    fn assert_gradient(at: &Mat<f64>, along: &Mat<f64>, value: impl Fn(&Mat<f64>) -> f64, gradient: MatRef<f64>) {
        let moved = |step: f64| value(&Mat::from_fn(at.nrows(), at.ncols(), |i, j| at[(i, j)] + step * along[(i, j)]));
        let (difference, expected) = ((moved(1e-6) - moved(-1e-6)) / 2e-6, product(gradient, along.as_ref()));
        assert!(
            (difference - expected).abs() < 1e-6 * expected.abs().max(1.0),
            "{expected}, by differences {difference}"
        );
    }

    #[test]
    fn factors_give_the_matrix_back_and_have_gradients() {
        for (rows, columns) in [(1, 1), (4, 4), (6, 3), (3, 6)] {
            let a = matrix(rows, columns, 1);
            let [packed, pivots, info] = <[_; 3]>::try_from(factors(a.as_ref())).unwrap();
            let [p, l, u] = <[_; 3]>::try_from(unpacked(packed.as_ref(), pivots.as_ref()).unwrap()).unwrap();
            assert!((&p * &l * &u - &a).norm_max() < 1e-12 && info[(0, 0)] == 0.0);
            let (weights, along) = (matrix(rows, columns, 5), matrix(rows, columns, 9));
            let value = |a: &Mat<f64>| product(factors(a.as_ref())[0].as_ref(), weights.as_ref());
            let found = gradient(packed.as_ref(), pivots.as_ref(), weights.as_ref()).unwrap();
            assert_gradient(&a, &along, value, found.as_ref());
        }
    }

    #[test]
    fn factors_solve_equations_and_the_solutions_have_gradients() {
        let (a, right) = (matrix(4, 4, 2), matrix(4, 2, 3));
        let [lu, pivots, _] = <[_; 3]>::try_from(factors(a.as_ref())).unwrap();
        let (weights, along) = (matrix(4, 2, 6), [matrix(4, 2, 8), matrix(4, 4, 9)]);
        for transposed in [false, true] {
            let solve =
                |lu: &Mat<f64>, b: &Mat<f64>| solved(lu.as_ref(), pivots.as_ref(), b.as_ref(), transposed).unwrap();
            let x = solve(&lu, &right);
            let back = if transposed { a.transpose() * &x } else { &a * &x };
            assert!((back - &right).norm_max() < 1e-12);
            let gradients =
                solution_gradient(lu.as_ref(), pivots.as_ref(), x.as_ref(), weights.as_ref(), transposed).unwrap();
            let value = |lu: &Mat<f64>, b: &Mat<f64>| product(solve(lu, b).as_ref(), weights.as_ref());
            assert_gradient(&right, &along[0], |b| value(&lu, b), gradients[0].as_ref());
            assert_gradient(&lu, &along[1], |lu| value(lu, &right), gradients[1].as_ref());
        }
    }

    #[test]
    fn a_singular_matrix_has_factors_and_wrong_pivots_are_told() {
        let flat = Mat::from_fn(3, 3, |_, j| j as f64);
        let [packed, pivots, info] = <[_; 3]>::try_from(factors(flat.as_ref())).unwrap();
        assert_eq!(info[(0, 0)], 1.0);
        assert!((0..9).all(|at| packed[(at / 3, at % 3)].is_finite()));
        for wrong in [0.0, 4.0, f64::NAN] {
            let mut pivots = pivots.clone();
            pivots[(1, 0)] = wrong;
            assert!(unpacked(packed.as_ref(), pivots.as_ref()).unwrap_err().contains("pivot"));
        }
    }
}
