//! The part of CUDA's driver interface that the device uses, found in `libcuda` at run time.

use super::library::functions;
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `CUresult`: 0 is success.
pub type Status = c_int;
/// `CUcontext`, `CUstream`, `CUevent`, `CUmodule`, `CUfunction`.
pub type Handle = *mut c_void;
/// `CUdeviceptr`.
pub type Pointer = u64;

functions! {
    /// The functions, under their names without `cu`.
    pub struct Api;
    init = b"cuInit\0"(c_uint) -> Status;
    device_count = b"cuDeviceGetCount\0"(*mut c_int) -> Status;
    device_get = b"cuDeviceGet\0"(*mut c_int, c_int) -> Status;
    device_name = b"cuDeviceGetName\0"(*mut c_char, c_int, c_int) -> Status;
    device_memory = b"cuDeviceTotalMem_v2\0"(*mut usize, c_int) -> Status;
    device_attribute = b"cuDeviceGetAttribute\0"(*mut c_int, c_int, c_int) -> Status;
    context_retain = b"cuDevicePrimaryCtxRetain\0"(*mut Handle, c_int) -> Status;
    context_set = b"cuCtxSetCurrent\0"(Handle) -> Status;
    allocate_managed = b"cuMemAllocManaged\0"(*mut Pointer, usize, c_uint) -> Status;
    free = b"cuMemFree_v2\0"(Pointer) -> Status;
    copy_async = b"cuMemcpyAsync\0"(Pointer, Pointer, usize, Handle) -> Status;
    fill_async = b"cuMemsetD8Async\0"(Pointer, u8, usize, Handle) -> Status;
    stream_create = b"cuStreamCreate\0"(*mut Handle, c_uint) -> Status;
    stream_synchronize = b"cuStreamSynchronize\0"(Handle) -> Status;
    host_function = b"cuLaunchHostFunc\0"(Handle, unsafe extern "C" fn(*mut c_void), *mut c_void) -> Status;
    event_create = b"cuEventCreate\0"(*mut Handle, c_uint) -> Status;
    event_destroy = b"cuEventDestroy_v2\0"(Handle) -> Status;
    event_record = b"cuEventRecord\0"(Handle, Handle) -> Status;
    event_elapsed = b"cuEventElapsedTime\0"(*mut f32, Handle, Handle) -> Status;
    module_load = b"cuModuleLoadData\0"(*mut Handle, *const c_void) -> Status;
    module_unload = b"cuModuleUnload\0"(Handle) -> Status;
    module_function = b"cuModuleGetFunction\0"(*mut Handle, Handle, *const c_char) -> Status;
    function_attribute = b"cuFuncGetAttribute\0"(*mut c_int, c_int, Handle) -> Status;
    residents = b"cuOccupancyMaxActiveBlocksPerMultiprocessor\0"(*mut c_int, Handle, c_int, usize) -> Status;
    launch = b"cuLaunchKernel\0"(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *const *const c_void, *const *const c_void) -> Status;
    error_name = b"cuGetErrorName\0"(Status, *mut *const c_char) -> Status;
    error_string = b"cuGetErrorString\0"(Status, *mut *const c_char) -> Status;
}

impl Api {
    /// The interface, once per process; an error says why there is none.
    pub fn get() -> Result<&'static Api> {
        static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
        let api = API.get_or_init(|| {
            // SAFETY: the driver's library has no initialiser that does harm; it is never unloaded.
            let library = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
            let api = Api::load(library).map_err(|error| error.to_string())?;
            // SAFETY: takes no pointers.
            api.check("cuInit", unsafe { (api.init)(0) }).map_err(|error| error.to_string())?;
            Ok(api)
        });
        api.as_ref().map_err(|message| Error::Driver { device: "cuda", message: message.clone() })
    }

    /// An error that names the function, where it failed.
    pub fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: writes a pointer to a static string, or fails and leaves null.
            unsafe { function(status, &mut text) };
            // SAFETY: a string without end of life, when there is one.
            if text.is_null() { "?".into() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy() }
        };
        let message = format!("{function}: {} ({})", text(self.error_string), text(self.error_name));
        Err(Error::Driver { device: "cuda", message })
    }
}
