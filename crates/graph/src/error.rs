//! What can be wrong with a call of an operator; every message names the operator and the offending values.

use crate::view::Shape;
use openmps_tile::DType;

/// The result of an operator.
pub type Result<T> = std::result::Result<T, Error>;

/// A call of an operator that cannot be carried out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    #[error("{operator}: shapes {left:?} and {right:?} do not broadcast")]
    Broadcast { operator: &'static str, left: Shape, right: Shape },
    #[error("{operator}: {what} has shape {got:?}, expected {expected}")]
    Shape { operator: &'static str, what: &'static str, got: Shape, expected: String },
    #[error("{operator}: {what} has dtype {got}, expected {expected}")]
    DType { operator: &'static str, what: &'static str, got: DType, expected: String },
    #[error("{operator}: attribute {attribute} is {got}, expected {expected}")]
    Attribute { operator: &'static str, attribute: &'static str, got: String, expected: String },
    #[error("{operator}: index {index} at position {position} is outside {lowest}..{size}")]
    Index { operator: &'static str, index: i64, position: usize, lowest: i64, size: usize },
    #[error("{operator}: {what} {value} at position {position} is outside 0..=1")]
    Value { operator: &'static str, what: &'static str, value: f64, position: usize },
    #[error("{operator} has no gradient")]
    NoGradient { operator: &'static str },
    #[error("a gradient cannot be recorded: {0}")]
    Recorder(Box<dyn std::error::Error + Send + Sync>),
    #[error("a tensor of rank {0} has more than {max} dimensions", max = crate::view::MAX_RANK)]
    Rank(usize),
    #[error("a tensor of {rank} dimensions has {strides} strides")]
    Strides { rank: usize, strides: usize },
    #[error("a tensor of shape {dims:?} has more than {max} elements", max = crate::view::MAX_ELEMENTS)]
    Elements { dims: Vec<usize> },
    #[error("{operator}: {source}")]
    Device { operator: &'static str, source: openmps_runtime::Error },
    #[error("{operator}: its kernel is refused: {source}")]
    Kernel { operator: &'static str, source: openmps_host::Error },
    #[error("{operator}: its kernel is malformed: {source}")]
    Unverified { operator: &'static str, source: openmps_tile::VerifyError },
}

impl Error {
    /// What a device has said to an operator's command. An index that names nothing and a number without meaning are the
    /// caller's data, not the device's fault.
    pub(crate) fn of_device(operator: &'static str, source: openmps_runtime::Error) -> Error {
        use openmps_host::Error as Host;
        match source {
            openmps_runtime::Error::Kernel { source: Host::Index { index, position, lowest, size }, .. } => {
                Error::Index { operator, index, position, lowest, size }
            }
            openmps_runtime::Error::Kernel { source: Host::Value { what, value, position }, .. } => {
                Error::Value { operator, what, value, position }
            }
            source => Error::Device { operator, source },
        }
    }
}
