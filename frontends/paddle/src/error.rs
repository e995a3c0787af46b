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
    /// An index that names nothing, as the kernel of Paddle's that was called tells it.
    #[error("{what} {index} at position {position} is outside {lowest}..{size}")]
    Index { what: &'static str, index: i64, position: usize, lowest: i64, size: usize, code: Code },
    /// What an operator says, under the code that the kernel of Paddle's that was called has for it.
    #[error("{source}")]
    Told { source: openmps_graph::Error, code: Code },
    #[error("shape {0:?} has a negative size")]
    NegativeSize(Vec<i64>),
    #[error(transparent)]
    Collective(#[from] openmps_collective::Error),
    #[error("{0}")]
    Plugin(String),
}

/// An attribute that a kernel does not take.
pub(crate) fn refuse(attribute: &'static str, got: impl std::fmt::Debug, expected: &str) -> Error {
    Error::Attribute { attribute, got: format!("{got:?}"), expected: expected.to_owned() }
}

impl Error {
    /// Which Python exception this becomes.
    pub fn code(&self) -> Code {
        use openmps_graph::Error as Graph;
        match self {
            Error::Graph(Graph::Index { .. } | Graph::Value { .. }) => Code::OutOfRange,
            Error::Graph(Graph::Elements { .. }) => Code::ResourceExhausted,
            Error::Index { code, .. } | Error::Told { code, .. } => *code,
            // What Paddle's own kernels say of such a shape when they allocate it.
            Error::NegativeSize(_) => Code::PreconditionNotMet,
            Error::Graph(Graph::Device { source, .. }) | Error::Device(source) => device_code(source),
            Error::Graph(Graph::Kernel { .. }) | Error::Plugin(_) | Error::AttributeKind { .. } => Code::Fatal,
            Error::Graph(_) | Error::Missing { .. } | Error::Attribute { .. } => Code::InvalidArgument,
            Error::ElementType(_) => Code::Unimplemented,
            Error::Collective(error) => crate::device::collective::code(error),
        }
    }

    /// What an operator says of an index, as the kernel tells it: Paddle's CPU raises ValueError here and IndexError there.
    pub fn with_index_as(self, what: &'static str, code: Code) -> Error {
        match self {
            Error::Graph(openmps_graph::Error::Index { index, position, lowest, size, .. }) => {
                Error::Index { what, index, position, lowest, size, code }
            }
            other => other,
        }
    }
}

fn device_code(error: &openmps_runtime::Error) -> Code {
    use openmps_runtime::Error as Device;
    match error {
        Device::OutOfMemory { .. } => Code::ResourceExhausted,
        Device::Unsupported { .. } => Code::Unimplemented,
        Device::Kernel { source, .. } => host_code(source),
        _ => Code::External,
    }
}

fn host_code(error: &openmps_host::Error) -> Code {
    use openmps_host::Error as Host;
    match error {
        Host::Index { .. } | Host::Value { .. } => Code::OutOfRange,
        Host::Invalid(_) | Host::Grid { .. } => Code::InvalidArgument,
        Host::Interrupted { .. } => Code::External,
        Host::Unsupported { .. } => Code::Unimplemented,
        Host::Arguments { .. } => Code::Fatal,
    }
}
