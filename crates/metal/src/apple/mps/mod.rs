//! MPS: each checked call becomes its kernel's encoding. Kernels are made for each call; they are light, and not to be shared by threads.

mod linear;
mod product;
mod rows;
mod view;

pub use view::data_type;

use super::Buffer;
use super::raw::{RawCommandBuffer, RawDevice};
use crate::error::{Error, Result};
use crate::matrix::MatrixCall;

/// Encodes a call, whose operands were checked, into a command buffer without an open encoder.
pub fn encode(device: &RawDevice, commands: &RawCommandBuffer, call: &MatrixCall<Buffer>) -> Result<()> {
    let encoders = [product::encode, rows::encode, linear::encode];
    if encoders.iter().any(|encode| encode(device, commands, call)) {
        return Ok(());
    }
    Err(Error::Unsupported { what: call.name(), device: "Metal Performance Shaders".to_string() })
}
