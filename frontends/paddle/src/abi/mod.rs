//! Paddle's C interface, and the few places of its C++ ABI that have no C interface: everything here is looked up or probed when the
//! plug-in loads, and refused with its reason where it is not as expected.

pub mod arguments;
pub mod device_ext;
pub mod exception;
pub mod kernel_context;
pub mod strided;
pub mod symbols;
pub mod tensor_layout;
pub mod types;
pub mod unwind;
