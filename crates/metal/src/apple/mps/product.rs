//! Products and sums: `MPSMatrixMultiplication`, `MPSMatrixVectorMultiplication`, `MPSMatrixSum`.

use super::super::raw::RawCommandBuffer;
use super::super::{Buffer, RawDevice};
use super::view::{matrix, vector};
use crate::matrix::MatrixCall;
use objc2::AnyThread;
use objc2_foundation::NSArray;
use objc2_metal_performance_shaders::{MPSMatrixMultiplication, MPSMatrixSum, MPSMatrixVectorMultiplication};

/// Encodes a call of this file's classes; false where it is of another one.
pub fn encode(device: &RawDevice, commands: &RawCommandBuffer, call: &MatrixCall<Buffer>) -> bool {
    match call {
        MatrixCall::Multiplication { left, right, result, transpose_left, transpose_right, alpha, beta } => {
            let interior = left.shape(*transpose_left).1;
            // SAFETY: the operands were checked to match these dimensions.
            unsafe {
                let kernel = MPSMatrixMultiplication::initWithDevice_transposeLeft_transposeRight_resultRows_resultColumns_interiorColumns_alpha_beta(
                    MPSMatrixMultiplication::alloc(),
                    device,
                    *transpose_left,
                    *transpose_right,
                    result.rows,
                    result.columns,
                    interior,
                    *alpha,
                    *beta,
                );
                kernel.setBatchSize(result.matrices);
                kernel.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(
                    commands,
                    &matrix(left),
                    &matrix(right),
                    &matrix(result),
                );
            }
        }
        MatrixCall::VectorMultiplication { matrix: view, vector: from, result, transpose, alpha, beta } => {
            // MPS counts the rows and columns of the product, so those of the transposed matrix.
            let (rows, columns) = view.shape(*transpose);
            // SAFETY: the operands were checked to match these dimensions.
            unsafe {
                let kernel = MPSMatrixVectorMultiplication::initWithDevice_transpose_rows_columns_alpha_beta(
                    MPSMatrixVectorMultiplication::alloc(),
                    device,
                    *transpose,
                    rows,
                    columns,
                    *alpha,
                    *beta,
                );
                kernel.encodeToCommandBuffer_inputMatrix_inputVector_resultVector(
                    commands,
                    &matrix(view),
                    &vector(from),
                    &vector(result),
                );
            }
        }
        MatrixCall::Sum { sources, result } => {
            let matrices: Vec<_> = sources.iter().map(matrix).collect();
            // SAFETY: every source was checked to have the result's shape and type.
            unsafe {
                let kernel = MPSMatrixSum::initWithDevice_count_rows_columns_transpose(
                    MPSMatrixSum::alloc(),
                    device,
                    sources.len(),
                    result.rows,
                    result.columns,
                    false,
                );
                kernel
                    .encodeToCommandBuffer_sourceMatrices_resultMatrix_scaleVector_offsetVector_biasVector_startIndex(
                        commands,
                        &NSArray::from_retained_slice(&matrices),
                        &matrix(result),
                        None,
                        None,
                        None,
                        0,
                    );
            }
        }
        _ => return false,
    }
    true
}
