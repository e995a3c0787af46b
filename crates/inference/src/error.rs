//! What can be wrong with a model or a run of it; every message names the file, the operation or the value concerned.

use std::path::PathBuf;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A model that cannot be read or run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the program is malformed: {0}")]
    Program(String),
    #[error("the program has version {got} of its format, known are {known}")]
    Version { got: i64, known: &'static str },
    #[error("the parameters: {what} at byte {at}")]
    Parameters { what: String, at: usize },
    #[error("the parameter {name} has {got}, the program says {expected}")]
    Parameter { name: String, got: String, expected: String },
    #[error("the program has operations that openmps cannot run: {}", .0.join(", "))]
    Unsupported(Vec<String>),
    #[error("{operation}: {what}")]
    Operation { operation: String, what: String },
    #[error("the input {name}: {what}")]
    Input { name: String, what: String },
    #[error("{operation}: {source}")]
    Lowering { operation: String, source: openmps::Error },
    #[error(transparent)]
    Run(#[from] openmps::Error),
}

impl From<openmps::runtime::Error> for Error {
    fn from(error: openmps::runtime::Error) -> Error {
        Error::Run(error.into())
    }
}

impl From<openmps::operators::Error> for Error {
    fn from(error: openmps::operators::Error) -> Error {
        Error::Run(error.into())
    }
}

impl Error {
    pub(crate) fn program(what: impl Into<String>) -> Error {
        Error::Program(what.into())
    }
}
