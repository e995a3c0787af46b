//! What Metal, or a check before it, can refuse; every message carries the values concerned.

use openmps_tile::DType;

/// The result of a call to Metal.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that Metal, or a check before it, refused. Cloned when one error concerns several waiting callers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("this machine has no Metal device")]
    NoDevice,
    #[error("Metal made no {what}")]
    NotMade { what: &'static str },
    #[error("Metal has no memory for {bytes} bytes; the largest buffer is {limit}")]
    OutOfMemory { bytes: usize, limit: usize },
    #[error(
        "host memory at {address:#x} with {bytes} bytes cannot be used without a copy: both must be multiples of {page}"
    )]
    NotPageAligned { address: usize, bytes: usize, page: usize },
    #[error("the library of {entry} was not compiled: {message}")]
    Library { entry: String, message: String },
    #[error("the library was not compiled: {message}")]
    Text { message: String },
    #[error("the library has no kernel {entry}")]
    NoSuchKernel { entry: String },
    #[error("the pipeline of {entry} was not made: {message}")]
    Pipeline { entry: String, message: String },
    /// A limit of Apple's GPUs or of a pipeline.
    #[error("{kernel}: {what} is {value}, {} more than the limit of {limit}", value - limit)]
    Limit { kernel: String, what: &'static str, value: usize, limit: usize },
    #[error("{kernel}: {what} is {value}, which is no multiple of {multiple}")]
    Alignment { kernel: String, what: &'static str, value: usize, multiple: usize },
    #[error("{kernel} takes {expected} arguments, {given} were given")]
    ArgumentCount { kernel: String, expected: usize, given: usize },
    #[error("{kernel}: argument {index} is the address {address:#x}, which lies in no buffer of the device")]
    UnknownAddress { kernel: String, index: usize, address: usize },
    #[error("{what}: the range {offset}..{} leaves a buffer of {length} bytes", offset + bytes)]
    OutOfRange { what: &'static str, offset: usize, bytes: usize, length: usize },
    /// A command buffer ended with an error: `MTLCommandBufferError` in words, and Metal's own text.
    #[error("the command buffer {label} failed ({kind}): {message}")]
    CommandBuffer { label: String, kind: &'static str, message: String },
    #[error("{operation}: {why}")]
    Shape { operation: &'static str, why: String },
    #[error("{operation} does not compute in {dtype} on {engine}")]
    Type { operation: &'static str, dtype: DType, engine: &'static str },
    #[error("{what} needs macOS {major}.{minor}")]
    TooOld { what: &'static str, major: u32, minor: u32 },
    #[error("{what} is not there on {device}")]
    Unsupported { what: &'static str, device: String },
    #[error("{what}: {message}")]
    System { what: &'static str, message: String },
}
