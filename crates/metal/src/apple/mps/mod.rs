//! MPS: each checked call becomes its kernel's encoding. Kernels are made for each call; they are light, and not to be shared by threads.

mod linear;
mod product;
mod rows;
mod view;

pub use view::data_type;

use super::Buffer;
use super::raw::{RawCommandBuffer, RawDevice};
use crate::error::Result;
use crate::matrix::MatrixCall;

/// Encodes a call, whose operands were checked, into a command buffer without an open encoder.
pub fn encode(device: &RawDevice, commands: &RawCommandBuffer, call: &MatrixCall<Buffer>) -> Result<()> {
    match call {
        MatrixCall::Multiplication { .. } | MatrixCall::VectorMultiplication { .. } | MatrixCall::Sum { .. } => {
            product::encode(device, commands, call)
        }
        MatrixCall::SoftMax { .. }
        | MatrixCall::SoftMaxGradient { .. }
        | MatrixCall::TopK { .. }
        | MatrixCall::Random { .. } => rows::encode(device, commands, call),
        MatrixCall::DecompositionLu { .. }
        | MatrixCall::DecompositionCholesky { .. }
        | MatrixCall::SolveTriangular { .. }
        | MatrixCall::SolveLu { .. }
        | MatrixCall::SolveCholesky { .. } => linear::encode(device, commands, call),
    }
    Ok(())
}
