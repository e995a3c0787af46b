//! The part of NVIDIA's collectives library that is used, found at run time: names and types are those of its public header `nccl.h`.

use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// `ncclResult_t`: 0 is success.
pub(super) type Status = c_int;
/// `ncclComm_t`, `cudaStream_t`.
pub(super) type Handle = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Id(pub [u8; 128]);

macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions.
        pub(super) struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            _library: Library,
        }

        impl Api {
            fn load(library: Library) -> std::result::Result<Api, libloading::Error> {
                // SAFETY: the types are those of nccl.h for these symbols; the library lives as long as the functions.
                unsafe { Ok(Api { $($name: *library.get($symbol)?,)* _library: library }) }
            }
        }
    };
}

functions! {
    unique_id = b"ncclGetUniqueId\0"(*mut Id) -> Status;
    init = b"ncclCommInitRank\0"(*mut Handle, c_int, Id, c_int) -> Status;
    destroy = b"ncclCommDestroy\0"(Handle) -> Status;
    abort = b"ncclCommAbort\0"(Handle) -> Status;
    asynchronous_error = b"ncclCommGetAsyncError\0"(Handle, *mut Status) -> Status;
    error_string = b"ncclGetErrorString\0"(Status) -> *const c_char;
    last_error = b"ncclGetLastError\0"(Handle) -> *const c_char;
    group_start = b"ncclGroupStart\0"() -> Status;
    group_end = b"ncclGroupEnd\0"() -> Status;
    all_reduce = b"ncclAllReduce\0"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    broadcast = b"ncclBroadcast\0"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    reduce = b"ncclReduce\0"(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Handle, Handle) -> Status;
    all_gather = b"ncclAllGather\0"(*const c_void, *mut c_void, usize, c_int, Handle, Handle) -> Status;
    reduce_scatter = b"ncclReduceScatter\0"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    send = b"ncclSend\0"(*const c_void, usize, c_int, c_int, Handle, Handle) -> Status;
    receive = b"ncclRecv\0"(*mut c_void, usize, c_int, c_int, Handle, Handle) -> Status;
}

/// Where the library may be: what `OPENMPS_NCCL` names, then the system's.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

impl Api {
    /// The library, once per process; an error says why there is none.
    pub fn get() -> Result<&'static Api> {
        static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
        let found = API.get_or_init(|| {
            let given = openmps_settings::NCCL.get().map(|path| path.to_string_lossy().into_owned());
            let names: Vec<&str> = given.as_deref().into_iter().chain(NAMES).collect();
            // SAFETY: the library has no initialiser that does harm; it is never unloaded.
            let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
            let library = library.ok_or_else(|| format!("none of {} was found", names.join(", ")))?;
            Api::load(library).map_err(|error| error.to_string())
        });
        found.as_ref().map_err(|reason| Error::Transport { name: "nccl", reason: reason.clone() })
    }

    /// An error that names the function, where it failed. `of` may be null: before there is a communicator.
    pub fn check(&self, function: &str, status: Status, of: Handle) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: both give static strings, or the communicator's last message, which is copied here; it may be null.
        let [what, last] = unsafe { [(self.error_string)(status), (self.last_error)(of)] }.map(|text| {
            // SAFETY: as above.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        });
        let reason = format!("{function}: {what}: {}", last.trim_end());
        Err(Error::Transport { name: "nccl", reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library needs no GPU to be loaded: where it is installed, it has every function under its name.
    #[test]
    fn the_functions_are_there() {
        match Api::get() {
            Ok(api) => {
                let error = api.check("ncclSend", 4, std::ptr::null_mut()).unwrap_err().to_string();
                assert!(error.starts_with("transport nccl: ncclSend: invalid argument"), "{error}");
            }
            Err(error) if openmps_settings::NCCL.get().is_some() => panic!("{error}"),
            Err(error) => assert!(error.to_string().contains("none of libnccl.so.2"), "{error}"),
        }
    }
}
