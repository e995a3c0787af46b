//! `paddle/phi/backends/device_ext.h`: the structures that a plug-in fills when Paddle loads it.

use super::types::Status;
use std::os::raw::{c_char, c_int, c_void};

/// `C_Device_st`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CDevice {
    /// The device's number.
    pub id: c_int,
}

/// `C_Stream`: ours to define.
pub type CStream = *mut c_void;
/// `C_Event`: ours to define.
pub type CEvent = *mut c_void;
/// `C_Callback`.
pub type CCallback = unsafe extern "C-unwind" fn(*const CDevice, CStream, *mut c_void, *mut Status);
/// A member that openmps leaves empty.
pub type Unused = *const c_void;

type OnDevice = Option<unsafe extern "C-unwind" fn(*mut CDevice) -> Status>;
type OnStream = Option<unsafe extern "C-unwind" fn(*const CDevice, CStream) -> Status>;
type OnEvent = Option<unsafe extern "C-unwind" fn(*const CDevice, CEvent) -> Status>;
type Allocate = Option<unsafe extern "C-unwind" fn(*const CDevice, *mut *mut c_void, usize) -> Status>;
type Deallocate = Option<unsafe extern "C-unwind" fn(*const CDevice, *mut c_void, usize) -> Status>;
type CopyMemory = Option<unsafe extern "C-unwind" fn(*const CDevice, *mut c_void, *const c_void, usize) -> Status>;
type AsyncCopyMemory =
    Option<unsafe extern "C-unwind" fn(*const CDevice, CStream, *mut c_void, *const c_void, usize) -> Status>;
type Size = Option<unsafe extern "C-unwind" fn(*const CDevice, *mut usize) -> Status>;
type OnProfile = Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> Status>;
type Flag = Option<unsafe extern "C-unwind" fn(*const CDevice, *mut bool) -> Status>;

/// `C_CCLRootId`: memory of Paddle's for a unique id.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CRootId {
    pub bytes: usize,
    pub data: *mut c_void,
}

/// `C_CCLComm`: ours to define.
pub type CComm = *mut c_void;

type Gather = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, c_int, CComm, CStream) -> Status;
type Reduce = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, c_int, c_int, CComm, CStream) -> Status;
type ToOrFrom = unsafe extern "C-unwind" fn(*mut c_void, usize, c_int, usize, CComm, CStream) -> Status;

/// The members `xccl_*`: collective communication. Element types and reductions are numbers of `C_DataType` and `C_CCLReduceOp`.
#[repr(C)]
#[allow(missing_docs)]
pub struct Collectives {
    pub get_comm_name: Option<unsafe extern "C-unwind" fn(CComm, *mut c_char) -> Status>,
    pub get_unique_id_size: Option<unsafe extern "C-unwind" fn(*mut usize) -> Status>,
    pub get_unique_id: Option<unsafe extern "C-unwind" fn(*mut CRootId) -> Status>,
    pub comm_init_rank: Option<unsafe extern "C-unwind" fn(usize, *mut CRootId, usize, *mut CComm) -> Status>,
    pub destroy_comm: Option<unsafe extern "C-unwind" fn(CComm) -> Status>,
    pub all_reduce: Option<Reduce>,
    pub broadcast: Option<ToOrFrom>,
    pub reduce: Option<
        unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize, c_int, c_int, usize, CComm, CStream) -> Status,
    >,
    pub all_gather: Option<Gather>,
    pub reduce_scatter: Option<Reduce>,
    pub group_start: Option<unsafe extern "C-unwind" fn() -> Status>,
    pub group_end: Option<unsafe extern "C-unwind" fn() -> Status>,
    pub send: Option<ToOrFrom>,
    pub recv: Option<ToOrFrom>,
    pub all_to_all: Option<
        unsafe extern "C-unwind" fn(
            *mut *const c_void,
            *const usize,
            *const c_int,
            *mut *mut c_void,
            *const usize,
            *const c_int,
            usize,
            usize,
            CComm,
            CStream,
        ) -> Status,
    >,
}

/// `C_DeviceInterface`.
#[repr(C)]
#[allow(missing_docs)]
pub struct DeviceInterface {
    pub size: usize,
    pub initialize: Option<unsafe extern "C-unwind" fn() -> Status>,
    pub finalize: Option<unsafe extern "C-unwind" fn() -> Status>,
    pub init_device: OnDevice,
    pub set_device: OnDevice,
    pub get_device: OnDevice,
    pub deinit_device: OnDevice,
    pub create_stream: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut CStream) -> Status>,
    pub destroy_stream: OnStream,
    pub query_stream: OnStream,
    pub stream_add_callback:
        Option<unsafe extern "C-unwind" fn(*const CDevice, CStream, CCallback, *mut c_void) -> Status>,
    pub create_event: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut CEvent) -> Status>,
    pub record_event: Option<unsafe extern "C-unwind" fn(*const CDevice, CStream, CEvent) -> Status>,
    pub destroy_event: OnEvent,
    pub query_event: OnEvent,
    pub synchronize_device: OnDevice,
    pub synchronize_stream: OnStream,
    pub synchronize_event: OnEvent,
    pub stream_wait_event: Option<unsafe extern "C-unwind" fn(*const CDevice, CStream, CEvent) -> Status>,
    pub reserved_device: [Unused; 8],
    pub device_memory_allocate: Allocate,
    pub device_memory_deallocate: Deallocate,
    pub device_memory_set: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut c_void, u8, usize) -> Status>,
    pub host_memory_allocate: Allocate,
    pub host_memory_deallocate: Deallocate,
    pub unified_memory_allocate: Unused,
    pub unified_memory_deallocate: Unused,
    pub memory_copy_h2d: CopyMemory,
    pub memory_copy_d2h: CopyMemory,
    pub memory_copy_d2d: CopyMemory,
    pub memory_copy_p2p: Option<
        unsafe extern "C-unwind" fn(*const CDevice, *const CDevice, *mut c_void, *const c_void, usize) -> Status,
    >,
    pub async_memory_copy_h2d: AsyncCopyMemory,
    pub async_memory_copy_d2h: AsyncCopyMemory,
    pub async_memory_copy_d2d: AsyncCopyMemory,
    pub async_memory_copy_p2p: Option<
        unsafe extern "C-unwind" fn(
            *const CDevice,
            *const CDevice,
            CStream,
            *mut c_void,
            *const c_void,
            usize,
        ) -> Status,
    >,
    pub reserved_memory: [Unused; 8],
    pub get_device_count: Option<unsafe extern "C-unwind" fn(*mut usize) -> Status>,
    pub get_device_list: Option<unsafe extern "C-unwind" fn(*mut usize) -> Status>,
    pub device_memory_stats: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut usize, *mut usize) -> Status>,
    pub device_min_chunk_size: Size,
    pub device_max_chunk_size: Size,
    pub device_max_alloc_size: Size,
    pub device_extra_padding_size: Size,
    pub device_init_alloc_size: Size,
    pub device_realloc_size: Size,
    pub get_compute_capability: Size,
    pub get_device_properties: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut c_void) -> Status>,
    pub get_runtime_version: Size,
    pub get_driver_version: Size,
    pub get_multi_process: Size,
    pub get_max_threads_per_mp: Size,
    pub get_max_threads_per_block: Size,
    pub get_max_grid_dim_size: Option<unsafe extern "C-unwind" fn(*const CDevice, *mut [u32; 3]) -> Status>,
    pub is_float16_supported: Flag,
    pub is_bfloat16_supported: Flag,
    pub is_dnn_supported: Flag,
    pub init_eigen_device: Unused,
    pub destroy_eigen_device: Unused,
    pub reserved_information: [Unused; 8],
    pub collectives: Collectives,
    pub reserved_collectives: [Unused; 8],
    pub profiler_initialize: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_void) -> Status>,
    pub profiler_finalize: OnProfile,
    pub profiler_prepare_tracing: OnProfile,
    pub profiler_start_tracing: OnProfile,
    pub profiler_stop_tracing: OnProfile,
    pub profiler_collect_trace_data: Option<unsafe extern "C-unwind" fn(*mut c_void, u64, *mut c_void) -> Status>,
    pub reserved_profiler: [Unused; 8],
    /// Handles of a BLAS library, 5 members, and captured graphs, 11 members.
    pub blas_and_graphs: [Unused; 16],
    pub blas_axpby: Unused,
    pub reserved_other: [Unused; 7],
}

/// `CustomRuntimeVersion`: of the interface, not of Paddle.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Version {
    pub major: usize,
    pub minor: usize,
    pub patch: usize,
}

/// The version of the interface that this file transcribes.
pub const VERSION: Version = Version { major: 0, minor: 1, patch: 1 };

/// `CustomRuntimeParams`.
#[repr(C)]
pub struct CustomRuntimeParams {
    /// Its size, by Paddle's compiler.
    pub size: usize,
    /// The interface to fill.
    pub interface: *mut DeviceInterface,
    /// The plug-in writes the version that it was made for.
    pub version: Version,
    /// The plug-in writes the device type, here `mps`.
    pub device_type: *const c_char,
    /// The plug-in writes what it likes.
    pub sub_device_type: *const c_char,
    /// Passes of the new IR, or null.
    pub pir_default_passes: *mut c_void,
    /// Unused.
    pub reserved: [c_char; 32],
}

/// The sizes that Paddle 3.3 has; checked against Paddle's own words when it loads the plug-in.
const _: () = assert!(size_of::<CustomRuntimeParams>() == 96 && size_of::<DeviceInterface>() == 1128);

/// Whether Paddle's structures are the ones of this file, or what differs.
///
/// # Safety
/// `params` is what Paddle handed to `InitPlugin`.
pub unsafe fn check(params: *const CustomRuntimeParams) -> Result<(), String> {
    // SAFETY: `size` is the first member of the structure in every version of Paddle.
    let size = unsafe { (*params).size };
    if size != size_of::<CustomRuntimeParams>() {
        return Err(format!(
            "CustomRuntimeParams has {size} bytes, openmps knows the one of {} bytes (PaddlePaddle 3.3)",
            size_of::<CustomRuntimeParams>()
        ));
    }
    // SAFETY: with that size the second member is the interface, whose first member is its size.
    let size = unsafe { (*(*params).interface).size };
    if size != size_of::<DeviceInterface>() {
        return Err(format!(
            "C_DeviceInterface has {size} bytes, openmps knows the one of {} bytes (PaddlePaddle 3.3)",
            size_of::<DeviceInterface>()
        ));
    }
    Ok(())
}
