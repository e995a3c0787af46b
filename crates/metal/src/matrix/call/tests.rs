//! Each rule with a call that keeps it and one that breaks it. The "buffer" is its own length.

use super::*;
use openmps_tile::DType::{BF16, F16, F32, F64, I32};

const LENGTH: usize = 1 << 20;

fn view(at: usize, dtype: DType, rows: usize, columns: usize) -> MatrixView<usize> {
    MatrixView::dense(LENGTH, at, dtype, 1, rows, columns)
}

fn text(call: &MatrixCall<usize>) -> String {
    call.check(|&length| length).map_or_else(|error| error.to_string(), |()| "fine".to_string())
}

fn product(left: MatrixView<usize>, right: MatrixView<usize>, result: MatrixView<usize>) -> MatrixCall<usize> {
    Multiplication { left, right, result, transpose_left: false, transpose_right: false, alpha: 1.0, beta: 0.0 }
}

#[test]
fn products_need_matching_shapes() {
    let (left, right) = (view(0, F32, 3, 5), view(4096, F32, 5, 7));
    assert_eq!(text(&product(left.clone(), right.clone(), view(8192, F32, 3, 7))), "fine");
    assert_eq!(
        text(&product(left.clone(), right.clone(), view(8192, F32, 7, 3))),
        "MPSMatrixMultiplication: result is 7x3, where 3x7 is needed"
    );
    assert_eq!(
        text(&product(left, view(4096, F32, 7, 5), view(8192, F32, 3, 7))),
        "MPSMatrixMultiplication: the left matrix's columns and the right matrix's rows are 5 and 7, which must be the same"
    );
}

#[test]
fn transposed_operands_exchange_their_shapes() {
    for (transpose_left, transpose_right) in [(false, false), (false, true), (true, false), (true, true)] {
        let shape = |transposed, rows, columns| if transposed { (columns, rows) } else { (rows, columns) };
        let ((lr, lc), (rr, rc)) = (shape(transpose_left, 3, 5), shape(transpose_right, 5, 7));
        let (left, right) = (view(0, F32, lr, lc), view(4096, F32, rr, rc));
        let result = view(8192, F32, 3, 7);
        let call = Multiplication { left, right, result, transpose_left, transpose_right, alpha: 2.0, beta: 1.0 };
        assert_eq!(text(&call), "fine");
    }
}

#[test]
fn products_need_a_type_of_mps() {
    let of = |dtype, result| product(view(0, dtype, 2, 2), view(4096, dtype, 2, 2), view(8192, result, 2, 2));
    assert_eq!(text(&of(F16, F16)), "fine");
    assert_eq!(text(&of(F16, F32)), "fine");
    assert_eq!(text(&of(F32, F16)), "MPSMatrixMultiplication does not compute in float16 on MPS");
    assert_eq!(text(&of(BF16, BF16)), "MPSMatrixMultiplication does not compute in bfloat16 on MPS");
    assert_eq!(text(&of(F64, F64)), "MPSMatrixMultiplication does not compute in float64 on MPS");
}

#[test]
fn descriptors_need_rows_that_fit_and_are_aligned() {
    let with = |change: fn(&mut MatrixView<usize>)| {
        let mut left = view(0, F32, 3, 5);
        change(&mut left);
        text(&product(left, view(4096, F32, 5, 7), view(8192, F32, 3, 7)))
    };
    assert_eq!(with(|view| view.row_bytes = 24), "fine");
    assert_eq!(
        with(|view| view.row_bytes = 16),
        "MPSMatrixMultiplication: left has rows of 16 bytes, which 5 elements of 4 bytes do not fit"
    );
    assert_eq!(
        with(|view| view.row_bytes = 22),
        "MPSMatrixMultiplication: row bytes of left is 22, which is no multiple of 4"
    );
    assert_eq!(
        with(|view| view.offset = 2),
        "MPSMatrixMultiplication: the offset of left is 2, which is no multiple of 4"
    );
    assert_eq!(
        with(|view| view.offset = LENGTH - 56),
        "MPSMatrixMultiplication: the range 1048520..1048580 leaves a buffer of 1048576 bytes"
    );
    assert_eq!(with(|view| view.rows = 0), "MPSMatrixMultiplication: left is empty: 1 matrices of 0x5");
}

#[test]
fn batches_need_as_many_matrices_everywhere() {
    let batch = |at, matrices, rows, columns| MatrixView::dense(LENGTH, at, F32, matrices, rows, columns);
    assert_eq!(text(&product(batch(0, 4, 3, 5), batch(4096, 4, 5, 7), batch(8192, 4, 3, 7))), "fine");
    assert_eq!(
        text(&product(batch(0, 4, 3, 5), batch(4096, 3, 5, 7), batch(8192, 4, 3, 7))),
        "MPSMatrixMultiplication: the matrices of right and result are 3 and 4, which must be the same"
    );
    let narrow = MatrixView { matrix_bytes: 40, ..batch(0, 4, 3, 5) };
    assert_eq!(
        text(&product(narrow, batch(4096, 4, 5, 7), batch(8192, 4, 3, 7))),
        "MPSMatrixMultiplication: left has matrices of 40 bytes, which 3 rows do not fit"
    );
}

#[test]
fn results_must_not_overlap_sources() {
    let call = product(view(0, F32, 4, 4), view(4096, F32, 4, 4), view(60, F32, 4, 4));
    assert_eq!(
        text(&call),
        "MPSMatrixMultiplication: a result at the bytes 60..124 of its buffer overlaps another operand"
    );
    let solve = SolveCholesky {
        factor: view(0, F32, 4, 4),
        right_hand_side: view(4096, F32, 4, 2),
        solution: view(4096, F32, 4, 2),
        upper: false,
    };
    assert_eq!(text(&solve), "fine");
}

#[test]
fn vectors_need_matching_lengths() {
    let call = |transpose, from, to| VectorMultiplication {
        matrix: view(0, F32, 3, 5),
        vector: VectorView::dense(LENGTH, 4096, F32, from),
        result: VectorView::dense(LENGTH, 8192, F32, to),
        transpose,
        alpha: 1.0,
        beta: 0.0,
    };
    assert_eq!(text(&call(false, 5, 3)), "fine");
    assert_eq!(text(&call(true, 3, 5)), "fine");
    assert_eq!(
        text(&call(false, 3, 3)),
        "MPSMatrixVectorMultiplication: the matrix's columns and the vector's length are 5 and 3, which must be the same"
    );
    assert_eq!(text(&call(false, 5, 0)), "MPSMatrixVectorMultiplication: result is empty: 1 vectors of 0");
}

#[test]
fn top_k_is_bounded_and_has_integer_indices() {
    let call = |count, dtype| TopK {
        input: view(0, F32, 6, 40),
        indices: view(4096, dtype, 6, count),
        values: view(8192, F32, 6, count),
    };
    assert_eq!(text(&call(16, I32)), "fine");
    assert_eq!(text(&call(17, I32)), "MPSMatrixFindTopK: 17 of 40 values are asked for; 16 is the most");
    assert_eq!(text(&call(4, F32)), "MPSMatrixFindTopK does not compute in float32 on MPS");
}

#[test]
fn sums_softmax_and_random_numbers_are_checked() {
    let sum = |sources| Sum { sources, result: view(8192, F32, 2, 3) };
    assert_eq!(text(&sum(vec![view(0, F32, 2, 3), view(4096, F32, 2, 3)])), "fine");
    assert_eq!(text(&sum(Vec::new())), "MPSMatrixSum: there is no source");
    assert_eq!(text(&sum(vec![view(0, F32, 3, 2)])), "MPSMatrixSum: source is 3x2, where 2x3 is needed");

    let softmax =
        |dtype, logarithm| SoftMax { input: view(0, dtype, 2, 3), result: view(4096, dtype, 2, 3), logarithm };
    assert_eq!(text(&softmax(F16, true)), "fine");
    assert_eq!(text(&softmax(F64, false)), "MPSMatrixSoftMax does not compute in float64 on MPS");
    let gradient = SoftMaxGradient {
        gradient: view(0, F32, 2, 3),
        output: view(4096, F32, 2, 3),
        result: view(8192, F32, 2, 4),
        logarithm: true,
    };
    assert_eq!(text(&gradient), "MPSMatrixLogSoftMaxGradient: result is 2x4, where 2x3 is needed");

    let random = |distribution| Random { result: view(0, F32, 2, 3), distribution, seed: 1, philox: true };
    assert_eq!(text(&random(Distribution::Uniform(0.0, 1.0))), "fine");
    assert_eq!(
        text(&random(Distribution::Uniform(1.0, 1.0))),
        "MPSMatrixRandomPhilox: Uniform(1.0, 1.0) is no distribution"
    );
    assert_eq!(
        text(&random(Distribution::Normal(0.0, f32::NAN))),
        "MPSMatrixRandomPhilox: Normal(0.0, NaN) is no distribution"
    );
}

#[test]
fn decompositions_and_solves_are_checked() {
    let lu_with = |pivots, offset| DecompositionLu {
        source: view(0, F32, 4, 6),
        result: view(4096, F32, 4, 6),
        pivots: view(8192, I32, 1, pivots),
        status: Some(Operand { buffer: LENGTH, offset, span: 4, written: true }),
    };
    let lu = |pivots| lu_with(pivots, 0);
    assert_eq!(
        text(&lu_with(4, 8)),
        "MPSMatrixDecompositionLU: the offset of the status and 0 are 8 and 0, which must be the same"
    );
    assert_eq!(text(&lu(4)), "fine");
    assert_eq!(lu(4).operands().len(), 4);
    assert_eq!(text(&lu(6)), "MPSMatrixDecompositionLU: pivots is 1x6, where 1x4 is needed");
    let cholesky = |rows, columns| DecompositionCholesky {
        source: view(0, F32, rows, columns),
        result: view(4096, F32, rows, columns),
        lower: true,
        status: None,
    };
    assert_eq!(text(&cholesky(4, 4)), "fine");
    assert_eq!(text(&cholesky(4, 5)), "MPSMatrixDecompositionCholesky: source is 4x5, where 4x4 is needed");
    let solve = SolveLu {
        factors: view(0, F32, 4, 4),
        pivots: view(4096, I32, 1, 4),
        right_hand_side: view(8192, F32, 3, 2),
        solution: view(16384, F32, 3, 2),
        transpose: false,
    };
    assert_eq!(
        text(&solve),
        "MPSMatrixSolveLU: the rows of coefficients and right-hand side are 4 and 3, which must be the same"
    );
    let triangular = SolveTriangular {
        source: view(0, F32, 4, 4),
        right_hand_side: view(8192, F32, 4, 2),
        solution: view(16384, F32, 4, 3),
        upper: true,
        transpose: false,
        unit: false,
        alpha: 1.0,
    };
    assert_eq!(text(&triangular), "MPSMatrixSolveTriangular: solution is 4x3, where 4x2 is needed");
}
