//! The CPU as an openmps device: vector primitives chosen at run time, tile programs executed through them, and
//! native kernels, each with its own algorithm (matrix product, convolution, ...). Works on slices and raw addresses; knows no queue and no operator.

pub mod error;
pub mod fork;
pub mod interrupt;
// Elsewhere nothing is compiled, and what a loop is made of is not read.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod jit;
pub mod level;
pub mod native;
mod plan;
pub mod threads;
pub mod vector;

pub use error::Error;
#[doc(hidden)]
pub use half;
pub use level::{Level, level};
#[doc(hidden)]
pub use openmps_tile::DType;
pub use plan::Program;
pub use threads::parallel_for;
