//! What MPS computes, in place of it: products by the host's library, the rest in float64. Operands were checked by MPS's rules before.

use super::{EmulatedBuffer, linear, numbers};
use crate::error::{Error, Result};
use crate::matrix::{Distribution, MatrixCall, MatrixView, VectorView};
use openmps_host::native::matmul::{Matrices, MatrixProduct, matmul};
use openmps_tile::DType;

pub(super) type View = MatrixView<EmulatedBuffer>;

/// One matrix of a view as float64, row by row.
pub(super) fn read(view: &View, matrix: usize) -> Vec<f64> {
    // SAFETY: the call was checked: every element lies in the buffer, aligned.
    unsafe { numbers::read(view.dtype, addresses(view, matrix)) }
}

/// Writes one matrix of a view.
pub(super) fn write(view: &View, matrix: usize, values: &[f64]) {
    // SAFETY: as above; commands that share memory run one after the other.
    unsafe { numbers::write(view.dtype, addresses(view, matrix), values) };
}

fn addresses(view: &View, matrix: usize) -> impl Iterator<Item = usize> {
    let first = view.buffer.contents().0 + view.offset + matrix * view.matrix_bytes;
    let (rows, columns, row_bytes, size) = (view.rows, view.columns, view.row_bytes, view.dtype.size());
    (0..rows).flat_map(move |row| (0..columns).map(move |column| first + row * row_bytes + column * size))
}

/// Runs a call.
pub(super) fn run(call: &MatrixCall<EmulatedBuffer>) -> Result<()> {
    match call {
        MatrixCall::Multiplication { left, right, result, transpose_left, transpose_right, alpha, beta } => {
            product([left, right, result], [*transpose_left, *transpose_right], [*alpha, *beta])
        }
        MatrixCall::VectorMultiplication { matrix, vector, result, transpose, alpha, beta } => {
            product([matrix, &column(vector), &column(result)], [*transpose, false], [*alpha, *beta])
        }
        MatrixCall::SoftMax { input, result, logarithm } => {
            each_row(input, result, |row| softmax(row, *logarithm));
            Ok(())
        }
        MatrixCall::SoftMaxGradient { gradient, output, result, logarithm } => {
            for matrix in 0..result.matrices {
                let (gradient, output) = (read(gradient, matrix), read(output, matrix));
                let rows = gradient.chunks(result.columns).zip(output.chunks(result.columns));
                let values: Vec<f64> = rows.flat_map(|(g, y)| softmax_gradient(g, y, *logarithm)).collect();
                write(result, matrix, &values);
            }
            Ok(())
        }
        MatrixCall::TopK { input, indices, values } => {
            top_k(input, indices, values);
            Ok(())
        }
        MatrixCall::Sum { sources, result } => {
            let mut sums = vec![0.0; result.rows * result.columns];
            for source in sources {
                sums.iter_mut().zip(read(source, 0)).for_each(|(sum, value)| *sum += value);
            }
            write(result, 0, &sums);
            Ok(())
        }
        MatrixCall::Random { result, distribution, seed, .. } => {
            for matrix in 0..result.matrices {
                let count = result.rows * result.columns;
                write(result, matrix, &random(*distribution, seed ^ matrix as u64, count));
            }
            Ok(())
        }
        other => linear::run(other),
    }
}

fn column(vector: &VectorView<EmulatedBuffer>) -> View {
    let size = vector.dtype.size();
    MatrixView {
        buffer: vector.buffer.clone(),
        offset: vector.offset,
        rows: vector.length,
        columns: 1,
        row_bytes: size,
        matrices: vector.vectors,
        matrix_bytes: vector.vector_bytes,
        dtype: vector.dtype,
    }
}

/// By the host's library; a float16 product with a float32 result goes through float64 copies.
fn product([left, right, out]: [&View; 3], [flip_left, flip_right]: [bool; 2], [alpha, beta]: [f64; 2]) -> Result<()> {
    let step = |view: &View, flip: bool| {
        let row = (view.row_bytes / view.dtype.size()) as isize;
        if flip { [1, row] } else { [row, 1] }
    };
    let ((rows, depth), columns) = (left.shape(flip_left), out.columns);
    let of = MatrixProduct { alpha, beta, ..MatrixProduct::dense(rows, depth, columns) };
    let failed =
        |error: openmps_host::Error| Error::System { what: "the host's matrix product", message: error.to_string() };
    for matrix in 0..out.matrices {
        if left.dtype == out.dtype {
            let at = |view: &View| view.buffer.contents().0 + view.offset + matrix * view.matrix_bytes;
            let at = Matrices { left: at(left), right: at(right), out: at(out) };
            let of = MatrixProduct {
                left: step(left, flip_left),
                right: step(right, flip_right),
                out: step(out, false),
                ..of
            };
            // SAFETY: the call was checked: the matrices lie in their buffers and the result overlaps neither operand.
            unsafe { matmul(&of, out.dtype, at, &[[0, 0, 0]]) }.map_err(failed)?;
            continue;
        }
        let (a, b, mut c) = (read(left, matrix), read(right, matrix), read(out, matrix));
        let flipped = |flip: bool, columns: usize| if flip { [1, columns as isize] } else { [columns as isize, 1] };
        let of =
            MatrixProduct { left: flipped(flip_left, left.columns), right: flipped(flip_right, right.columns), ..of };
        let address = |values: &[f64]| values.as_ptr() as usize;
        let at = Matrices { left: address(&a), right: address(&b), out: c.as_mut_ptr() as usize };
        // SAFETY: dense vectors of these sizes.
        unsafe { matmul(&of, DType::F64, at, &[[0, 0, 0]]) }.map_err(failed)?;
        write(out, matrix, &c);
    }
    Ok(())
}

fn each_row(input: &View, result: &View, row: impl Fn(&[f64]) -> Vec<f64>) {
    for matrix in 0..result.matrices {
        let values: Vec<f64> = read(input, matrix).chunks(input.columns).flat_map(&row).collect();
        write(result, matrix, &values);
    }
}

/// Softmax of a row, or its logarithm.
pub(super) fn softmax(row: &[f64], logarithm: bool) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
    row.iter().map(|x| if logarithm { x - largest - sum.ln() } else { (x - largest).exp() / sum }).collect()
}

fn softmax_gradient(gradient: &[f64], output: &[f64], logarithm: bool) -> Vec<f64> {
    let pairs = || gradient.iter().zip(output);
    if logarithm {
        let sum: f64 = gradient.iter().sum();
        return pairs().map(|(g, y)| g - y.exp() * sum).collect();
    }
    let sum: f64 = pairs().map(|(g, y)| g * y).sum();
    pairs().map(|(g, y)| y * (g - sum)).collect()
}

fn top_k(input: &View, indices: &View, values: &View) {
    for matrix in 0..values.matrices {
        let (mut places, mut found) = (Vec::new(), Vec::new());
        for row in read(input, matrix).chunks(input.columns) {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
            order.truncate(values.columns);
            places.extend(order.iter().map(|&place| place as f64));
            found.extend(order.iter().map(|&place| row[place]));
        }
        write(indices, matrix, &places);
        write(values, matrix, &found);
    }
}

/// Numbers of this law; not those that Apple's generators give.
fn random(law: Distribution, seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut unit = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let one = |_| match law {
        Distribution::Uniform(low, high) => f64::from(low) + unit() * f64::from(high - low),
        Distribution::Normal(mean, deviation) => {
            let (radius, angle) = ((-2.0 * (1.0 - unit()).ln()).sqrt(), std::f64::consts::TAU * unit());
            f64::from(mean) + f64::from(deviation) * radius * angle.cos()
        }
    };
    (0..count).map(one).collect()
}
