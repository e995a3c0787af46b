//! Why a kernel cannot be written for a target.

use thiserror::Error;

/// A kernel that a target cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodegenError {
    /// An operation or type that the emitter has no text for.
    #[error("kernel `{kernel}`: {what} is not covered for {target}")]
    Unsupported {
        /// The kernel's name.
        kernel: String,
        /// The operation or type that the target's language has no words for.
        what: String,
        /// The target's name.
        target: &'static str,
    },
    /// A limit of the target.
    #[error("kernel `{kernel}` needs {needed} {what}, {target} has {limit}")]
    Limit {
        /// The kernel's name.
        kernel: String,
        /// What there is too little of.
        what: &'static str,
        /// How much the kernel needs.
        needed: usize,
        /// How much there is.
        limit: usize,
        /// The target's name.
        target: &'static str,
    },
}
