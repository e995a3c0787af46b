//! Kernels with their own algorithm, the host's counterpart of MPS: one file each, plain slices in and out, threads inside.

pub mod arg_reduce;
pub mod attention;
pub mod axis_sum;
pub mod batch_norm;
pub mod ceiling;
pub mod convolution;
pub mod copy;
pub mod detection;
pub mod epilogue;
pub mod gather;
pub mod interpolation;
mod lanes;
pub mod layer_norm;
pub mod linear_algebra;
pub mod matmul;
pub mod memory;
mod microkernel;
pub mod multinomial;
mod non_temporal;
pub mod nonzero;
mod normal_distribution;
pub mod optimizer;
pub mod pooling;
pub mod random;
pub mod rope;
pub mod scan;
pub mod scatter;
mod scratch;
pub mod sequence;
mod shared;
pub mod softmax;
pub mod sort;
mod transpose;
pub mod triangle;

pub use epilogue::{Activation, Epilogue};
pub(crate) use shared::Shared;
