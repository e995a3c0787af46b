//! MPS's own objects for operands, and its names of element types.

use super::super::Buffer;
use crate::matrix::{MatrixView, VectorView};
use objc2::AnyThread;
use objc2::rc::Retained;
use objc2_metal_performance_shaders::{MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSVector, MPSVectorDescriptor};
use openmps_tile::DType;

/// Apple's number of an element type. MPS has no float64; the checks before have refused it, and `Invalid` is refused by MPS itself.
pub fn data_type(dtype: DType) -> MPSDataType {
    match dtype {
        DType::Bool => MPSDataType::Bool,
        DType::U8 => MPSDataType::UInt8,
        DType::I8 => MPSDataType::Int8,
        DType::U16 => MPSDataType::UInt16,
        DType::U32 => MPSDataType::UInt32,
        DType::U64 => MPSDataType::UInt64,
        DType::I16 => MPSDataType::Int16,
        DType::I32 => MPSDataType::Int32,
        DType::I64 => MPSDataType::Int64,
        DType::F16 => MPSDataType::Float16,
        DType::BF16 => MPSDataType::BFloat16,
        DType::F32 => MPSDataType::Float32,
        DType::F64 => MPSDataType::Invalid,
    }
}

/// A matrix, or several, of the view's own element type.
pub fn matrix(view: &MatrixView<Buffer>) -> Retained<MPSMatrix> {
    typed_matrix(view, data_type(view.dtype))
}

/// A matrix of indices or pivots: the same 32 bits, which MPS wants without a sign.
pub fn indices(view: &MatrixView<Buffer>) -> Retained<MPSMatrix> {
    typed_matrix(view, MPSDataType::UInt32)
}

fn typed_matrix(view: &MatrixView<Buffer>, data_type: MPSDataType) -> Retained<MPSMatrix> {
    // SAFETY: shapes, row bytes, matrix bytes and the range in the buffer were checked by `MatrixCall::check`.
    unsafe {
        let descriptor = MPSMatrixDescriptor::matrixDescriptorWithRows_columns_matrices_rowBytes_matrixBytes_dataType(
            view.rows,
            view.columns,
            view.matrices,
            view.row_bytes,
            view.matrix_bytes,
            data_type,
        );
        MPSMatrix::initWithBuffer_offset_descriptor(MPSMatrix::alloc(), view.buffer.raw(), view.offset, &descriptor)
    }
}

/// A vector, or several.
pub fn vector(view: &VectorView<Buffer>) -> Retained<MPSVector> {
    // SAFETY: length, vector bytes and the range in the buffer were checked by `MatrixCall::check`.
    unsafe {
        let descriptor = MPSVectorDescriptor::vectorDescriptorWithLength_vectors_vectorBytes_dataType(
            view.length,
            view.vectors,
            view.vector_bytes,
            data_type(view.dtype),
        );
        MPSVector::initWithBuffer_offset_descriptor(MPSVector::alloc(), view.buffer.raw(), view.offset, &descriptor)
    }
}
