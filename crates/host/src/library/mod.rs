//! Kernels with their own algorithm, the host's counterpart of MPS: one file each, plain slices in and out, threads inside.

pub mod copy;
pub mod memory;
mod stream;
mod transpose;
pub mod arg_reduce;
pub mod gather;
pub mod nonzero;
pub mod random;
pub mod scan;
pub mod scatter;
pub mod sequence;
pub mod sort;
pub mod total;
pub mod triangle;
mod normal_law;
pub mod convolution;
pub mod epilogue;
mod lanes;
pub mod interpolation;
pub mod matmul;
pub mod pooling;
mod microkernel;
mod scratch;
mod shared;

pub use epilogue::{Activation, Epilogue};
pub(crate) use shared::Shared;
