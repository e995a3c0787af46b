//! NVIDIA's run-time compiler, found at run time: CUDA C++ to code for one GPU. Needs no GPU itself.

use super::library::functions;
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

type Status = c_int;
type Handle = *mut c_void;

functions! {
    /// The compiler's functions.
    pub struct Nvrtc;
    create = b"nvrtcCreateProgram\0"(*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
    compile = b"nvrtcCompileProgram\0"(Handle, c_int, *const *const c_char) -> Status;
    log_size = b"nvrtcGetProgramLogSize\0"(Handle, *mut usize) -> Status;
    log = b"nvrtcGetProgramLog\0"(Handle, *mut c_char) -> Status;
    code_size = b"nvrtcGetCUBINSize\0"(Handle, *mut usize) -> Status;
    code = b"nvrtcGetCUBIN\0"(Handle, *mut c_char) -> Status;
    destroy = b"nvrtcDestroyProgram\0"(*mut Handle) -> Status;
    version = b"nvrtcVersion\0"(*mut c_int, *mut c_int) -> Status;
    error_string = b"nvrtcGetErrorString\0"(Status) -> *const c_char;
}

/// Where the library may be: what `OPENMPS_NVRTC` names, then the system's versions.
const NAMES: [&str; 5] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "nvrtc64_120_0.dll"];

impl Nvrtc {
    /// The compiler, once per process.
    pub fn get() -> Result<&'static Nvrtc> {
        static NVRTC: OnceLock<std::result::Result<Nvrtc, String>> = OnceLock::new();
        let found = NVRTC.get_or_init(|| {
            let given = openmps_settings::NVRTC.get().map(|path| path.to_string_lossy().into_owned());
            let names: Vec<&str> = given.as_deref().into_iter().chain(NAMES).collect();
            // SAFETY: the compiler's library has no initialiser that does harm; it is never unloaded.
            let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
            let library = library.ok_or_else(|| format!("none of {} was found", names.join(", ")))?;
            Nvrtc::load(library).map_err(|error| error.to_string())
        });
        found.as_ref().map_err(|message| Error::Driver { device: "nvrtc", message: message.clone() })
    }

    /// The compiler's version such as "13.0".
    pub fn version(&self) -> String {
        let (major, minor) = self.numbers();
        format!("{major}.{minor}")
    }

    fn numbers(&self) -> (c_int, c_int) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two numbers; where it fails they stay 0.
        let _ = unsafe { (self.version)(&mut major, &mut minor) };
        (major, minor)
    }

    /// The compute capability whose instructions a text for this GPU may use. From 9 on some are in an architecture's own set only, `wgmma` among
    /// them, which compilers before 12 do not know.
    pub fn capability(&self, (major, minor): (i32, i32)) -> (i32, i32) {
        if major >= 9 && self.numbers().0 < 12 { (8, 9) } else { (major, minor) }
    }

    /// With what texts for such GPUs are compiled.
    pub fn options(&self, (major, minor): (i32, i32)) -> Vec<String> {
        let own = if self.capability((major, minor)).0 >= 9 { "a" } else { "" };
        let architecture = format!("--gpu-architecture=sm_{major}{minor}{own}");
        // Every operation is rounded by itself, as the interpreter and Metal do it; products say `fma` where they mean it.
        [&architecture, "--std=c++17", "-default-device", "--fmad=false"].map(str::to_owned).into()
    }

    /// Compiles a text for GPUs of a compute capability such as (9, 0).
    pub fn compile(&self, name: &str, text: &str, capability: (i32, i32)) -> Result<Vec<u8>> {
        let broken = |log: String| Error::Compile { kernel: name.to_owned(), log };
        let source = CString::new(text).map_err(|error| broken(error.to_string()))?;
        let options: Vec<CString> =
            self.options(capability).into_iter().map(|option| CString::new(option).unwrap_or_default()).collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: all pointers are to live, terminated strings; the program is destroyed once, below.
        unsafe {
            let none = std::ptr::null();
            let status = (self.create)(&mut program, source.as_ptr(), c"kernel.cu".as_ptr(), 0, none, none);
            self.check(status).map_err(broken)?;
            let status = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let result = match self.check(status) {
                Ok(()) => self.bytes(program, self.code_size, self.code).map_err(broken),
                Err(what) => {
                    let log = self.bytes(program, self.log_size, self.log).unwrap_or_default();
                    Err(broken(format!("{what}\n{}", String::from_utf8_lossy(&log).trim_end_matches('\0'))))
                }
            };
            (self.destroy)(&mut program);
            result
        }
    }

    /// A result whose size is asked for first.
    unsafe fn bytes(
        &self,
        program: Handle,
        size: unsafe extern "C" fn(Handle, *mut usize) -> Status,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> Status,
    ) -> std::result::Result<Vec<u8>, String> {
        let mut count = 0;
        // SAFETY: the buffer is as large as the library says.
        unsafe {
            self.check(size(program, &mut count))?;
            let mut bytes = vec![0_u8; count];
            self.check(get(program, bytes.as_mut_ptr().cast()))?;
            Ok(bytes)
        }
    }

    fn check(&self, status: Status) -> std::result::Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: gives a static string for every number.
        Err(unsafe { CStr::from_ptr((self.error_string)(status)) }.to_string_lossy().into_owned())
    }
}
