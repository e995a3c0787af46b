//! Tile kernels as text: Metal Shading Language and CUDA C++. Opens no device.
//!
//! A program of the grid becomes a threadgroup. Each tile gets a [`Layout`]: which thread, and which of its registers, holds each element.
//! `assign` chooses layouts, `emit` writes statements in one C-like language, and a [`Dialect`] is the small record of what differs
//! between the two targets. [`compile`] takes what the verifier has passed, and gives text with all that a device needs to launch it.

mod arrangement;
mod assign;
mod axis;
mod coalescing;
mod coherence;
mod dialect;
mod dot_operands;
mod emit;
mod error;
mod helpers;
mod layout;
mod mma;
mod names;
mod prefetch;
mod target;

pub use arrangement::{has_products, threads_for};
pub use coherence::passes_memory;
pub use dialect::Dialect;
pub use error::CodegenError;
pub use layout::{IndexBit, Layout};
pub use target::{Limits, MatrixUnit, SIMD_WIDTH, Target};

use openmps_tile::Verified;

/// The text of one kernel, and how it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The whole text, ready for the target's compiler.
    pub text: String,
    /// The name of the kernel's function.
    pub entry: String,
    /// Threads of a threadgroup; a program of the grid is one threadgroup.
    pub threads: usize,
    /// Bytes of threadgroup memory that the text declares.
    pub threadgroup_memory: usize,
    /// What the function takes, in the order of the kernel's parameters.
    pub parameters: Vec<Parameter>,
    /// Bytes of the structure of numbers, which follows the buffers; 0 when there is none.
    pub numbers_size: usize,
    /// Whether threadgroups pass memory to each other: Metal's text is MSL 3.2 then.
    pub coherent: bool,
    /// Whether it multiplies by tensor operations: Metal's text is MSL 4.0 then.
    pub tensors: bool,
}

/// How a parameter reaches the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Device memory: on Metal a buffer with an offset at this index, in CUDA a pointer.
    Buffer(usize),
    /// A number: on Metal at this offset of the structure of numbers, which is bound behind the last buffer; in CUDA an argument of this size.
    Number {
        /// Bytes from the structure's beginning.
        offset: usize,
        /// Bytes.
        size: usize,
    },
}

impl Source {
    /// How many buffers there are; the structure of numbers has this index on Metal.
    pub fn buffers(&self) -> usize {
        self.parameters.iter().filter(|parameter| matches!(parameter, Parameter::Buffer(_))).count()
    }
}

/// Writes a kernel for a target.
pub fn compile(kernel: Verified<'_>, target: &Target) -> Result<Source, CodegenError> {
    if target.stages < 2 {
        return emit::kernel(kernel.kernel(), target);
    }
    let ahead = prefetch::prefetch(kernel.kernel());
    debug_assert!(openmps_tile::verify(&ahead).is_ok(), "{ahead}");
    emit::kernel(&ahead, target)
}
