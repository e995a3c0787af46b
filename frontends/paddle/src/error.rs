//! What can go wrong in a kernel, and which Python exception it becomes.

use crate::abi::exception::Code;
use crate::dtype::DataType;

/// The result of a kernel.
pub type Result<T> = std::result::Result<T, Error>;

/// A kernel that could not do its work.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error(transparent)]
    Graph(#[from] openmps_graph::Error),
    #[error(transparent)]
    Device(#[from] openmps_runtime::Error),
    #[error("device mps has no element type {}", .0.name())]
    ElementType(DataType),
    #[error("{what} number {index} is missing")]
    Missing { what: &'static str, index: usize },
    #[error("attribute number {index} is held as alternative {alternative} of phi::Attribute, expected {expected}")]
    AttributeKind { index: usize, alternative: u64, expected: &'static str },
    #[error("attribute {attribute} is {got}, expected {expected}")]
    Attribute { attribute: &'static str, got: String, expected: String },
    #[error("{0}")]
    Plugin(String),
}

impl Error {
    /// Which Python exception this becomes.
    pub fn code(&self) -> Code {
        use openmps_graph::Error as Graph;
        match self {
            Error::Graph(Graph::Index { .. }) => Code::OutOfRange,
            Error::Graph(Graph::Device { source, .. }) | Error::Device(source) => device_code(source),
            Error::Graph(Graph::Kernel { .. }) | Error::Plugin(_) | Error::AttributeKind { .. } => Code::Fatal,
            Error::Graph(_) | Error::Missing { .. } | Error::Attribute { .. } => Code::InvalidArgument,
            Error::ElementType(_) => Code::Unimplemented,
        }
    }
}

fn device_code(error: &openmps_runtime::Error) -> Code {
    use openmps_runtime::Error as Device;
    match error {
        Device::OutOfMemory { .. } => Code::ResourceExhausted,
        Device::Unsupported { .. } => Code::Unimplemented,
        _ => Code::External,
    }
}
