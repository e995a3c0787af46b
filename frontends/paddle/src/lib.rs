//! PaddlePaddle's device `mps`: the plug-in. Speaks Paddle's C interface, does no arithmetic.
//!
//! Paddle finds the native module that contains this crate, opens it and calls its `InitPlugin`, which calls [`init_plugin`]. That fills
//! the device interface ([`mod@device`]) and registers the table of kernels ([`kernels`]). The private parts of Paddle's ABI stand in
//! [`abi`] alone, are probed there, and are refused with a reason ([`state`]) where they are not as expected.

pub mod abi;
pub mod argument;
pub mod context;
pub mod device;
pub mod dtype;
pub mod error;
pub mod handler;
pub mod kernels;
pub mod numbers;
pub mod scalar;
pub mod table;
pub mod tensor;

pub use context::Context;
pub use dtype::DataType;
pub use error::{Error, Result};
pub use scalar::{IntArray, Scalar};
pub use tensor::{Output, Tensor};

use abi::device_ext::{self, CustomRuntimeParams};
use std::ffi::CStr;
use std::sync::OnceLock;

/// The name of the device type in Paddle.
pub const DEVICE_TYPE: &CStr = c"mps";

/// How the meeting with Paddle went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Paddle has not opened the module.
    NotLoaded,
    /// The device and its kernels are registered.
    Registered,
    /// This Paddle is not one that openmps knows: the reason.
    Refused(String),
}

static STATE: OnceLock<State> = OnceLock::new();

/// How the meeting with Paddle went.
pub fn state() -> State {
    STATE.get().cloned().unwrap_or(State::NotLoaded)
}

/// The body of `InitPlugin`: registers the device, or refuses and says why on stderr and in [`state`].
///
/// # Safety
/// `params` is what Paddle handed to `InitPlugin`.
pub unsafe fn init_plugin(params: *mut CustomRuntimeParams) {
    // SAFETY: the caller's promise.
    let result = abi::unwind::catch_panic(|| unsafe { register(params) })
        .unwrap_or_else(|payload| Err(format!("the plug-in panicked: {}", abi::unwind::payload_text(&payload))));
    let state = match result {
        Ok(()) => State::Registered,
        Err(reason) => {
            eprintln!("openmps: device mps is not available: {reason}");
            State::Refused(reason)
        }
    };
    // A second call of InitPlugin finds the first one's word.
    let _ = STATE.set(state);
}

/// # Safety
/// As for [`init_plugin`].
unsafe fn register(params: *mut CustomRuntimeParams) -> std::result::Result<(), String> {
    // SAFETY: the caller's promise.
    unsafe { device_ext::check(params) }?;
    if let Some(reason) = openmps_settings::PADDLE_REFUSE.get() {
        return Err(format!("OPENMPS_PADDLE_REFUSE={reason}"));
    }
    // Paddle ends the process where a registered device has no devices.
    openmps_runtime::Device::get(0).map_err(|error| error.to_string())?;
    let symbols = abi::symbols::load().map_err(|error| error.to_string())?;
    abi::tensor_layout::probe(symbols);
    // SAFETY: the sizes were checked, so both structures are the ones of `device_ext`.
    unsafe {
        let params = &mut *params;
        params.version = device_ext::VERSION;
        params.device_type = DEVICE_TYPE.as_ptr();
        params.sub_device_type = c"openmps".as_ptr();
        device::fill(&mut *params.interface);
    }
    kernels::table().register();
    Ok(())
}
