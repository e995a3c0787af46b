//! Every algorithm by what its result must satisfy.

use super::Algorithm::*;
use super::*;

fn of(rows: usize, columns: usize, values: &[f64]) -> Mat<f64> {
    Mat::from_fn(rows, columns, |i, j| values[(i * columns + j) % values.len()])
}

fn alone(algorithm: Algorithm, a: &Mat<f64>) -> Result<Vec<Mat<f64>>, String> {
    compute(algorithm, std::slice::from_ref(a))
}

fn assert_near(got: MatRef<f64>, expected: MatRef<f64>) {
    assert_eq!(got.shape(), expected.shape());
    let error = (got - expected).norm_max();
    assert!(error < 1e-11, "{got:?}, expected {expected:?}");
}

/// Whether columns are of length 1 and at right angles.
fn assert_orthogonal(q: MatRef<f64>) {
    assert_near((q.transpose() * q).as_ref(), Mat::identity(q.ncols(), q.ncols()).as_ref());
}

const NUMBERS: [f64; 7] = [0.3, -1.2, 2.5, 0.7, -0.4, 1.9, -2.2];

#[test]
fn decompositions_give_the_matrix_back() {
    for (rows, columns) in [(4, 4), (5, 3), (3, 6), (1, 1), (40, 33)] {
        let a =
            Mat::from_fn(rows, columns, |i, j| NUMBERS[(3 * i + 5 * j + i * j) % 7] + if i == j { 3.0 } else { 0.0 });
        for whole in [false, true] {
            let [u, s, vh] =
                <[_; 3]>::try_from(alone(SingularValueDecomposition { full: whole }, &a).unwrap()).unwrap();
            let middle = Mat::from_fn(u.ncols(), vh.nrows(), |i, j| if i == j { s[(i, 0)] } else { 0.0 });
            assert_near((&u * middle * &vh).as_ref(), a.as_ref());
            assert_orthogonal(u.as_ref());
            assert_orthogonal(vh.transpose());
            assert!((1..s.nrows()).all(|i| s[(i - 1, 0)] >= s[(i, 0)] && s[(i, 0)] >= 0.0));
            assert_near(alone(SingularValues, &a).unwrap()[0].as_ref(), s.as_ref());
            let [q, r] = <[_; 2]>::try_from(alone(Qr { complete: whole }, &a).unwrap()).unwrap();
            assert_near((&q * &r).as_ref(), a.as_ref());
            assert_orthogonal(q.as_ref());
            assert!((0..r.nrows()).all(|i| (0..r.ncols().min(i)).all(|j| r[(i, j)] == 0.0)));
        }
    }
}

#[test]
fn of_a_symmetric_matrix_one_triangle_is_read() {
    let a = of(3, 3, &[4.0, 1.0, 0.5, 1.0, 5.0, -1.0, 0.5, -1.0, 6.0]);
    for upper in [false, true] {
        let other = Mat::from_fn(3, 3, |i, j| if i == j || (i < j) == upper { a[(i, j)] } else { 99.0 });
        let [values, vectors] = <[_; 2]>::try_from(alone(SymmetricEigen { upper }, &other).unwrap()).unwrap();
        let scaled = Mat::from_fn(3, 3, |i, j| vectors[(i, j)] * values[(j, 0)]);
        assert_near((&a * &vectors).as_ref(), scaled.as_ref());
        assert!(values[(0, 0)] < values[(1, 0)] && values[(1, 0)] < values[(2, 0)]);
        let factor = alone(Cholesky { upper }, &other).unwrap().remove(0);
        let product = if upper { factor.transpose() * &factor } else { &factor * factor.transpose() };
        assert_near(product.as_ref(), a.as_ref());
    }
}

#[test]
fn inverse_solution_and_determinant_agree() {
    let a = of(3, 3, &[0.0, 2.0, 1.0, 1.0, 0.0, 3.0, 4.0, -1.0, 0.0]);
    let b = of(3, 2, &NUMBERS);
    let inverse = alone(Inverse, &a).unwrap().remove(0);
    assert_near((&a * &inverse).as_ref(), Mat::identity(3, 3).as_ref());
    assert_near(compute(Solve, &[a.clone(), b.clone()]).unwrap()[0].as_ref(), (&inverse * &b).as_ref());
    assert!((alone(Determinant, &a).unwrap()[0][(0, 0)] - 23.0).abs() < 1e-12);
    let parts = alone(LogDeterminant, &a).unwrap();
    assert!(parts[0][(0, 0)] == 1.0 && (parts[1][(0, 0)] - 23.0_f64.ln()).abs() < 1e-12);
    let swapped = of(2, 2, &[0.0, 1.0, 1.0, 0.0]);
    assert_eq!(alone(Determinant, &swapped).unwrap()[0][(0, 0)], -1.0);
}

#[test]
fn what_has_no_result_is_told() {
    let (flat, nan) = (of(2, 2, &[1.0, 2.0, 2.0, 4.0]), of(2, 2, &[f64::NAN, 1.0, 1.0, 1.0]));
    for (algorithm, matrix, text) in [
        (Inverse, &flat, "singular"),
        (Inverse, &nan, "singular"),
        (Cholesky { upper: false }, &flat, "positive definite"),
        (SingularValues, &nan, "NaN"),
    ] {
        assert!(alone(algorithm, matrix).unwrap_err().contains(text), "{algorithm:?}");
    }
    assert_eq!(alone(Determinant, &flat).unwrap()[0][(0, 0)], 0.0);
    let parts = alone(LogDeterminant, &flat).unwrap();
    assert_eq!([parts[0][(0, 0)], parts[1][(0, 0)]], [0.0, f64::NEG_INFINITY]);
    assert!(alone(Cholesky { upper: true }, &nan).unwrap()[0][(0, 1)].is_nan());
    assert!(alone(SymmetricEigen { upper: true }, &nan).unwrap()[0][(0, 0)].is_nan());
}
