//! The kernel language of openmps, at Triton's level: programs over tiles of elements. Opens no device, knows no operator.

pub mod dtype;

pub use dtype::DType;
pub use half::{bf16, f16};
