//! Errors for Python: `common::enforce::EnforceNotMet`, the only C++ exception that Paddle turns into a Python one, thrown from Rust.

use super::symbols::symbols;
use std::ffi::CString;
use std::os::raw::c_int;

/// `common::ErrorCode`: decides which Python exception is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// ValueError.
    InvalidArgument = 1,
    /// IndexError.
    OutOfRange = 3,
    /// MemoryError.
    ResourceExhausted = 5,
    /// RuntimeError.
    PreconditionNotMet = 6,
    /// NotImplementedError.
    Unimplemented = 9,
    /// SystemError: a defect of the plug-in.
    Fatal = 11,
    /// OSError: the device failed.
    External = 12,
}

/// Room for an `EnforceNotMet` (three strings, an int and a vtable) with plenty to spare.
const EXCEPTION_BYTES: usize = 512;

/// `common::ErrorSummary`: a code and a string of the C++ library, which is 32 bytes.
#[repr(C)]
struct ErrorSummary {
    code: c_int,
    message: [u64; 4],
}

/// Throws `message` at the C++ caller.
///
/// # Safety
/// Every frame up to the C++ caller must let foreign exceptions pass (`extern "C-unwind"`).
pub unsafe fn throw(code: Code, message: &str) -> ! {
    let symbols = symbols();
    let exception = {
        let text = CString::new(message.replace('\0', " ")).expect("zero bytes were replaced");
        let mut summary = ErrorSummary { code: code as c_int, message: [0; 4] };
        let string = (&raw mut summary.message).cast();
        // SAFETY: the layouts are those of libstdc++'s ABI, and the constructors were found under exactly these mangled names. The
        // allocator argument of the string is an empty object, for which any address does.
        unsafe {
            (symbols.string_construct)(string, text.as_ptr(), string);
            let exception = (symbols.allocate_exception)(EXCEPTION_BYTES);
            (symbols.enforce_construct)(exception, (&raw const summary).cast(), c"openmps".as_ptr(), 0);
            (symbols.string_destroy)(string);
            exception
        }
    };
    // SAFETY: the exception is constructed; nothing of this frame is left to drop.
    unsafe { (symbols.throw)(exception, symbols.enforce_typeinfo, symbols.enforce_destroy) }
}
