//! What has one result, by elimination in float64. What has free signs is tested by its properties instead.

use super::Algorithm;
use crate::reference::Array;

/// Rows of a matrix.
type Rows = Vec<Vec<f64>>;

pub(super) fn of(algorithm: Algorithm, inputs: &[Array]) -> Vec<Array> {
    let a = &inputs[0];
    let leading = a.shape.len() - 2;
    let (count, n) = (a.shape[..leading].iter().product::<usize>(), a.shape[leading]);
    let rows = |array: &Array, number: usize| -> Rows {
        let columns = array.shape[leading + 1];
        let matrix = &array.data[number * n * columns..][..n * columns];
        (0..n).map(|i| matrix[i * columns..][..columns].to_vec()).collect()
    };
    let identity = || -> Rows { (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect() };
    let each = |dims: &[usize], result: &dyn Fn(usize) -> Vec<f64>| {
        let data = (0..count).flat_map(result).collect();
        Array::new(&[&a.shape[..leading], dims].concat(), data, a.dtype)
    };
    let determinant = |number: usize| eliminated(rows(a, number), identity()).0;
    match algorithm {
        Algorithm::Inverse => vec![each(&[n, n], &|number| eliminated(rows(a, number), identity()).1.concat())],
        Algorithm::Solve => {
            let columns = inputs[1].shape[leading + 1];
            vec![each(&[n, columns], &|number| eliminated(rows(a, number), rows(&inputs[1], number)).1.concat())]
        }
        Algorithm::Determinant => vec![each(&[], &|number| vec![determinant(number)])],
        Algorithm::LogDeterminant => vec![
            each(&[], &|number| vec![determinant(number).signum()]),
            each(&[], &|number| vec![determinant(number).abs().ln()]),
        ],
        Algorithm::Cholesky { upper: false } => vec![each(&[n, n], &|number| cholesky(&rows(a, number)).concat())],
        other => unreachable!("{other:?} has free signs and is not in the list that references are used for"),
    }
}

/// The determinant, and the right hand sides solved for.
fn eliminated(mut a: Rows, mut right: Rows) -> (f64, Rows) {
    let mut determinant = 1.0;
    for k in 0..a.len() {
        let largest = (k..a.len()).max_by(|&i, &j| a[i][k].abs().total_cmp(&a[j][k].abs())).expect("k is one");
        a.swap(k, largest);
        right.swap(k, largest);
        determinant *= if largest == k { a[k][k] } else { -a[k][k] };
        let (pivot, row, side) = (a[k][k], a[k].clone(), right[k].clone());
        for i in (0..a.len()).filter(|&i| i != k) {
            let factor = a[i][k] / pivot;
            a[i].iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            right[i].iter_mut().zip(&side).for_each(|(x, y)| *x -= factor * y);
        }
    }
    // Rows were left as they are until nothing is subtracted from them any more.
    for (k, side) in right.iter_mut().enumerate() {
        side.iter_mut().for_each(|x| *x /= a[k][k]);
    }
    (determinant, right)
}

fn cholesky(a: &Rows) -> Rows {
    let mut l = vec![vec![0.0; a.len()]; a.len()];
    for j in 0..a.len() {
        for i in j..a.len() {
            let rest: f64 = a[i][j] - (0..j).map(|k| l[i][k] * l[j][k]).sum::<f64>();
            l[i][j] = if i == j { rest.sqrt() } else { rest / l[j][j] };
        }
    }
    l
}
