//! What the public API refuses; every message names the operation and the values concerned.

use openmps_tile::DType;

/// The result of a call of this crate.
///
/// ```
/// fn double(x: f32) -> openmps::Result<f32> { Ok(2.0 * x) }
/// assert_eq!(double(2.0)?, 4.0);
/// # Ok::<(), openmps::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// A call that cannot be carried out. Every call of this crate gives this type; `?` makes it of the errors of [`openmps::runtime`](crate::runtime),
/// [`openmps::operators`](crate::operators), `openmps::collective` and [`openmps::tile::parse`](fn@crate::tile::parse), too.
///
/// ```
/// use openmps::{DataType, Error, MatrixDescriptor};
/// let error = MatrixDescriptor::new(2, 3, 8, DataType::F32).unwrap_err();
/// assert!(matches!(error, Error::RowBytes { row_bytes: 8, .. }));
/// assert_eq!(error.to_string(), "8 row bytes for 3 columns of float32: at least 12 and a multiple of 4 are needed");
/// ```
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    #[error("{row_bytes} row bytes for {columns} columns of {data_type}: at least {needed} and a multiple of {size} are needed", size = .data_type.size())]
    RowBytes { row_bytes: usize, columns: usize, data_type: DType, needed: usize },
    #[error(
        "{matrix_bytes} matrix bytes for {rows} rows of {row_bytes} bytes: at least {needed} and a multiple of {size} are needed"
    )]
    MatrixBytes { matrix_bytes: usize, rows: usize, row_bytes: usize, needed: usize, size: usize },
    #[error("the buffer has {length} bytes, {needed} are needed from offset {offset} on")]
    BufferTooSmall { length: usize, offset: usize, needed: usize },
    #[error(
        "no element of {size} bytes may begin at byte {offset} of the buffer: its address is not a multiple of that"
    )]
    Offset { offset: usize, size: usize },
    #[error("sizes overflow: {what}")]
    Overflow { what: String },
    #[error("{operation}: {what} is {got}, expected {expected}")]
    Shape { operation: &'static str, what: &'static str, got: String, expected: String },
    #[error("{operation}: {what} has {got} elements, expected {expected}")]
    DataType { operation: &'static str, what: &'static str, got: DType, expected: String },
    #[error("{operation}: {what} belongs to {got}, the command buffer to {expected}")]
    Device { operation: &'static str, what: &'static str, got: String, expected: String },
    #[error("{operation}: the buffer of {what} was freed")]
    Freed { operation: &'static str, what: &'static str },
    #[error("{operation}: {what} is mapped by this thread: drop the mapped slice first")]
    Mapped { operation: &'static str, what: &'static str },
    #[error("{operation}: the buffer's memory is lent for a call, beyond which a slice of it could be kept")]
    Lent { operation: &'static str },
    #[error("{operation}: {what} may only be read")]
    ReadOnly { operation: &'static str, what: &'static str },
    #[error("{operation}: the result shares memory with {what}")]
    Overlap { operation: &'static str, what: &'static str },
    #[error("{operation}: {attribute} is {got}, expected {expected}")]
    Attribute { operation: &'static str, attribute: &'static str, got: String, expected: String },
    #[error("placeholder {name:?}: {what}")]
    Feed { name: String, what: &'static str },
    #[error("a stored constant of {data_type} {shape:?} cannot be read: {source}")]
    Stored { shape: Vec<usize>, data_type: DType, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("tensor {index} belongs to another graph")]
    ForeignTensor { index: usize },
    #[error("kernel {kernel} is malformed: {source}")]
    Unverified { kernel: String, source: openmps_tile::VerifyError },
    #[error("kernel {kernel} cannot be compiled for this device: {source}")]
    Compile { kernel: String, source: openmps_host::Error },
    #[error("kernel {kernel} is written in Metal's language, which {device} does not run")]
    NotMetal { kernel: String, device: String },
    #[error("kernel {kernel} is refused by Metal's compiler: {message}")]
    Msl { kernel: String, message: String },
    #[error("kernel {kernel} is text, whose accesses nobody checks: it is encoded with encode_unchecked")]
    Unchecked { kernel: String },
    #[error(transparent)]
    Interpret(#[from] openmps_tile::InterpretError),
    #[error("kernel {kernel}: argument {index} ({name}) is {got}, expected {expected}")]
    Argument { kernel: String, index: usize, name: String, got: String, expected: String },
    #[error(transparent)]
    Runtime(#[from] openmps_runtime::Error),
    #[error(transparent)]
    Operator(#[from] openmps_graph::Error),
    #[error(transparent)]
    Parse(#[from] openmps_tile::ParseError),
    #[cfg(feature = "collective")]
    #[error(transparent)]
    Collective(#[from] openmps_collective::Error),
}

impl From<Error> for openmps_host::Error {
    /// For commands, whose errors a command buffer keeps as text.
    fn from(error: Error) -> openmps_host::Error {
        openmps_host::Error::Invalid(error.to_string())
    }
}
