//! The single rules: ranges, alignment, element types, shapes.

use super::{MatrixView, VectorView, refuse};
use crate::error::{Error, Result};
use openmps_tile::DType;

/// Whether `bytes` bytes from `offset` on lie in a buffer of `length`.
pub fn range(operation: &'static str, offset: usize, bytes: usize, length: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= length) {
        return Ok(());
    }
    Err(Error::OutOfRange { what: operation, offset, bytes, length })
}

/// Whether a value is a multiple.
pub fn aligned(operation: &'static str, what: &str, value: usize, multiple: usize) -> Result<()> {
    if value.is_multiple_of(multiple) {
        return Ok(());
    }
    Err(refuse(operation, format!("{what} is {value}, which is no multiple of {multiple}")))
}

/// Whether the element type is one of those that MPS computes in.
pub fn one_of(operation: &'static str, dtype: DType, allowed: &[DType]) -> Result<()> {
    if allowed.contains(&dtype) { Ok(()) } else { Err(Error::Type { operation, dtype, engine: "MPS" }) }
}

/// Two values that must be the same.
pub fn same(operation: &'static str, what: &str, left: usize, right: usize) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(refuse(operation, format!("{what} are {left} and {right}, which must be the same")))
}

/// A shape, (rows, columns).
pub fn shape<B: Clone>(
    operation: &'static str,
    name: &str,
    view: &MatrixView<B>,
    (rows, columns): (usize, usize),
) -> Result<()> {
    if (view.rows, view.columns) == (rows, columns) {
        return Ok(());
    }
    Err(refuse(operation, format!("{name} is {}x{}, where {rows}x{columns} is needed", view.rows, view.columns)))
}

/// The descriptor's own rules, for a matrix in a buffer of `length` bytes.
pub fn matrix<B: Clone>(operation: &'static str, name: &str, view: &MatrixView<B>, length: usize) -> Result<()> {
    let size = view.dtype.size();
    if view.rows == 0 || view.columns == 0 || view.matrices == 0 {
        let (matrices, rows, columns) = (view.matrices, view.rows, view.columns);
        return Err(refuse(operation, format!("{name} is empty: {matrices} matrices of {rows}x{columns}")));
    }
    let row = view.columns * size;
    if view.row_bytes < row {
        let why = format!(
            "{name} has rows of {} bytes, which {} elements of {} bytes do not fit",
            view.row_bytes, view.columns, size
        );
        return Err(refuse(operation, why));
    }
    aligned(operation, &format!("row bytes of {name}"), view.row_bytes, size)?;
    aligned(operation, &format!("the offset of {name}"), view.offset, size)?;
    if view.matrices > 1 {
        if view.matrix_bytes < view.rows * view.row_bytes {
            let why =
                format!("{name} has matrices of {} bytes, which {} rows do not fit", view.matrix_bytes, view.rows);
            return Err(refuse(operation, why));
        }
        aligned(operation, &format!("matrix bytes of {name}"), view.matrix_bytes, view.row_bytes)?;
    }
    range(operation, view.offset, view.span(), length)
}

/// The same for a vector.
pub fn vector<B: Clone>(operation: &'static str, name: &str, view: &VectorView<B>, length: usize) -> Result<()> {
    let size = view.dtype.size();
    if view.length == 0 || view.vectors == 0 {
        return Err(refuse(operation, format!("{name} is empty: {} vectors of {}", view.vectors, view.length)));
    }
    aligned(operation, &format!("the offset of {name}"), view.offset, size)?;
    if view.vectors > 1 {
        aligned(operation, &format!("vector bytes of {name}"), view.vector_bytes, size)?;
        if view.vector_bytes < view.length * size {
            let why =
                format!("{name} has vectors of {} bytes, which {} elements do not fit", view.vector_bytes, view.length);
            return Err(refuse(operation, why));
        }
    }
    range(operation, view.offset, view.span(), length)
}
