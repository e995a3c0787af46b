//! The kernel language of openmps, at Triton's level: programs over tiles of elements. Opens no device, knows no operator.
//!
//! A [`Kernel`] is made by a [`Builder`] or read from TTIR by [`parse()`], checked by [`verify()`], shown by `Display` and defined by [`interpret()`].

pub mod builder;
pub mod dtype;
pub mod interpret;
pub mod kernel;
pub mod location;
mod memory_effects;
mod number;
pub mod parse;
pub mod print;
#[cfg(test)]
mod samples;
pub mod types;
pub mod verify;

pub use builder::Builder;
pub use dtype::DType;
pub use half::{bf16, f16};
pub use interpret::{HostMemory, InterpretError, Memory, MemoryError, RawMemory, interpret};
pub use kernel::{Binary, Block, Cast, Combine, Compare, Instruction, Kernel, Number, Operation, Unary, Value};
pub use location::Location;
pub use parse::{ParseError, parse};
pub use types::{Dims, Element, Scalar, Type};
pub use verify::{Verified, VerifiedKernel, VerifyError, verify};
