//! The native module of the wheel. Python imports it, and Paddle opens it as a plug-in: there is one copy of the runtime either way.

mod collective;
mod inference;
mod log;
mod paddle;
mod settings;
mod shaders;
mod tools;
mod triton;

use openmps_paddle::abi::device_ext::CustomRuntimeParams;
use pyo3::prelude::*;

/// Paddle's entry point: called when `import paddle` finds this module in `site-packages/paddle_custom_device`.
///
/// # Safety
/// Paddle passes the structure that `device_ext.h` describes.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C-unwind" fn InitPlugin(params: *mut CustomRuntimeParams) {
    log::start();
    // SAFETY: the caller's promise.
    unsafe { openmps_paddle::init_plugin(params) }
}

/// The native half of the package `openmps`.
#[pymodule]
fn openmps_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::start();
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    openmps_emulator::interpreter_in(module.py().import("sys")?.getattr("prefix")?.extract()?);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    collective::register(module)?;
    inference::register(module)?;
    paddle::register(module)?;
    settings::register(module)?;
    shaders::register(module)?;
    tools::register(module)?;
    triton::register(module)
}
