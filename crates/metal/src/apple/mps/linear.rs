//! Decompositions and solves.

use super::super::raw::RawCommandBuffer;
use super::super::{Buffer, RawDevice};
use super::view::{indices, matrix};
use crate::matrix::{MatrixCall, Operand};
use objc2::AnyThread;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLBuffer;
use objc2_metal_performance_shaders::{
    MPSMatrixDecompositionCholesky, MPSMatrixDecompositionLU, MPSMatrixSolveCholesky, MPSMatrixSolveLU,
    MPSMatrixSolveTriangular,
};

/// Encodes a call of this file's classes; false where it is of another one.
pub fn encode(device: &RawDevice, commands: &RawCommandBuffer, call: &MatrixCall<Buffer>) -> bool {
    match call {
        MatrixCall::DecompositionLu { source, result, pivots, status } => {
            // SAFETY: shapes and types were checked.
            unsafe {
                let kernel = MPSMatrixDecompositionLU::initWithDevice_rows_columns(
                    MPSMatrixDecompositionLU::alloc(),
                    device,
                    source.rows,
                    source.columns,
                );
                kernel.encodeToCommandBuffer_sourceMatrix_resultMatrix_pivotIndices_status(
                    commands,
                    &matrix(source),
                    &matrix(result),
                    &indices(pivots),
                    buffer_of(status),
                );
            }
        }
        MatrixCall::DecompositionCholesky { source, result, lower, status } => {
            // SAFETY: shapes and types were checked.
            unsafe {
                let kernel = MPSMatrixDecompositionCholesky::initWithDevice_lower_order(
                    MPSMatrixDecompositionCholesky::alloc(),
                    device,
                    *lower,
                    source.rows,
                );
                kernel.encodeToCommandBuffer_sourceMatrix_resultMatrix_status(
                    commands,
                    &matrix(source),
                    &matrix(result),
                    buffer_of(status),
                );
            }
        }
        MatrixCall::SolveTriangular { source, right_hand_side, solution, upper, transpose, unit, alpha } => {
            // SAFETY: shapes and types were checked.
            unsafe {
                let kernel = MPSMatrixSolveTriangular::initWithDevice_right_upper_transpose_unit_order_numberOfRightHandSides_alpha(
                    MPSMatrixSolveTriangular::alloc(),
                    device,
                    false,
                    *upper,
                    *transpose,
                    *unit,
                    source.rows,
                    right_hand_side.columns,
                    *alpha,
                );
                kernel.encodeToCommandBuffer_sourceMatrix_rightHandSideMatrix_solutionMatrix(
                    commands,
                    &matrix(source),
                    &matrix(right_hand_side),
                    &matrix(solution),
                );
            }
        }
        MatrixCall::SolveLu { factors, pivots, right_hand_side, solution, transpose } => {
            // SAFETY: shapes and types were checked.
            unsafe {
                let kernel = MPSMatrixSolveLU::initWithDevice_transpose_order_numberOfRightHandSides(
                    MPSMatrixSolveLU::alloc(),
                    device,
                    *transpose,
                    factors.rows,
                    right_hand_side.columns,
                );
                kernel.encodeToCommandBuffer_sourceMatrix_rightHandSideMatrix_pivotIndices_solutionMatrix(
                    commands,
                    &matrix(factors),
                    &matrix(right_hand_side),
                    &indices(pivots),
                    &matrix(solution),
                );
            }
        }
        MatrixCall::SolveCholesky { factor, right_hand_side, solution, upper } => {
            // SAFETY: shapes and types were checked.
            unsafe {
                let kernel = MPSMatrixSolveCholesky::initWithDevice_upper_order_numberOfRightHandSides(
                    MPSMatrixSolveCholesky::alloc(),
                    device,
                    *upper,
                    factor.rows,
                    right_hand_side.columns,
                );
                kernel.encodeToCommandBuffer_sourceMatrix_rightHandSideMatrix_solutionMatrix(
                    commands,
                    &matrix(factor),
                    &matrix(right_hand_side),
                    &matrix(solution),
                );
            }
        }
        _ => return false,
    }
    true
}

/// The buffer into which MPS writes whether it succeeded, at its beginning.
fn buffer_of(status: &Option<Operand<Buffer>>) -> Option<&ProtocolObject<dyn MTLBuffer>> {
    status.as_ref().map(|status| status.buffer.raw())
}
