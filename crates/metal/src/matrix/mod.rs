//! Operands of MPS and MPSGraph with their shapes, row bytes and alignment checked before Apple's frameworks see them: there a wrong value
//! is an assertion that ends the process. Plain Rust, the same on every system.

mod call;
mod check;

pub use call::{Distribution, MatrixCall};

use crate::error::{Error, Result};
use openmps_tile::DType;

/// Memory that a call reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand<B> {
    /// The buffer.
    pub buffer: B,
    /// Bytes from its beginning.
    pub offset: usize,
    /// Bytes from the first to the last that may be touched.
    pub span: usize,
    /// Whether it is written.
    pub written: bool,
}

/// Matrices of one shape in a buffer, row by row (`MPSMatrix` with its `MPSMatrixDescriptor`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixView<B> {
    /// The buffer.
    pub buffer: B,
    /// Bytes from its beginning to the first element.
    pub offset: usize,
    /// Rows of each matrix.
    pub rows: usize,
    /// Columns of each matrix.
    pub columns: usize,
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// How many matrices there are.
    pub matrices: usize,
    /// Bytes from one matrix to the next.
    pub matrix_bytes: usize,
    /// The element type.
    pub dtype: DType,
}

impl<B: Clone> MatrixView<B> {
    /// Matrices without gaps.
    pub fn dense(buffer: B, offset: usize, dtype: DType, matrices: usize, rows: usize, columns: usize) -> Self {
        let row_bytes = columns * dtype.size();
        MatrixView { buffer, offset, rows, columns, row_bytes, matrices, matrix_bytes: rows * row_bytes, dtype }
    }

    /// Bytes from the first element's beginning to the last row's end, whole rows counted, as MPS counts them.
    pub fn span(&self) -> usize {
        if self.matrices == 0 { 0 } else { (self.matrices - 1) * self.matrix_bytes + self.rows * self.row_bytes }
    }

    /// The memory of it.
    pub fn operand(&self, written: bool) -> Operand<B> {
        Operand { buffer: self.buffer.clone(), offset: self.offset, span: self.span(), written }
    }

    /// (rows, columns), exchanged where it is read transposed.
    pub fn shape(&self, transposed: bool) -> (usize, usize) {
        if transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }
}

/// Vectors of one length in a buffer, without gaps inside each (`MPSVector`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorView<B> {
    /// The buffer.
    pub buffer: B,
    /// Bytes from its beginning to the first element.
    pub offset: usize,
    /// Elements of each vector.
    pub length: usize,
    /// How many vectors there are.
    pub vectors: usize,
    /// Bytes from one vector to the next.
    pub vector_bytes: usize,
    /// The element type.
    pub dtype: DType,
}

impl<B: Clone> VectorView<B> {
    /// One vector.
    pub fn dense(buffer: B, offset: usize, dtype: DType, length: usize) -> Self {
        VectorView { buffer, offset, length, vectors: 1, vector_bytes: length * dtype.size(), dtype }
    }

    /// Bytes from the first to the last.
    pub fn span(&self) -> usize {
        if self.vectors == 0 { 0 } else { (self.vectors - 1) * self.vector_bytes + self.length * self.dtype.size() }
    }

    /// The memory of it.
    pub fn operand(&self, written: bool) -> Operand<B> {
        Operand { buffer: self.buffer.clone(), offset: self.offset, span: self.span(), written }
    }
}

/// A dense tensor in a buffer (`MPSGraphTensorData`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorView<B> {
    /// The buffer.
    pub buffer: B,
    /// Bytes from its beginning to the first element.
    pub offset: usize,
    /// Lengths, the outermost first.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
}

impl<B: Clone> TensorView<B> {
    /// The bytes from the first element to the last one's end, gaps of padded rows included.
    pub fn span(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// The memory of it.
    pub fn operand(&self, written: bool) -> Operand<B> {
        Operand { buffer: self.buffer.clone(), offset: self.offset, span: self.span(), written }
    }

    /// Whether it lies in a buffer of `length` bytes and is aligned to its elements.
    pub fn check(&self, operation: &'static str, length: usize) -> Result<()> {
        check::range(operation, self.offset, self.span(), length)?;
        check::aligned(operation, "the offset", self.offset, self.dtype.size())
    }
}

/// A refusal in words.
pub(crate) fn refuse(operation: &'static str, why: String) -> Error {
    Error::Shape { operation, why }
}
