//! What the host refuses.

/// A program or native kernel that the host cannot execute.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("{kernel}: {what} is not supported by {by}")]
    Unsupported { kernel: String, what: String, by: &'static str },
    #[error("{kernel}: {got} arguments were given, {expected} are declared")]
    Arguments { kernel: String, got: usize, expected: usize },
    #[error("index {index} at position {position} is outside {lowest}..{size}")]
    Index { index: i64, position: usize, lowest: i64, size: usize },
    #[error("{what} {value} at position {position} is outside 0..=1")]
    Value { what: &'static str, value: f64, position: usize },
    #[error("{kernel}: interrupted")]
    Interrupted { kernel: String },
    #[error("{kernel}: a grid of {grid:?} is more than 2^64 programs")]
    Grid { kernel: String, grid: [usize; 3] },
    #[error("{0}")]
    Invalid(String),
}
