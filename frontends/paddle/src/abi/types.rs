//! The opaque types of Paddle's C interface and its enumerations.

use std::os::raw::{c_int, c_void};

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name { _private: [u8; 0] }
    )* };
}

opaque! {
    /// `phi::DenseTensor`.
    PdTensor
    /// `phi::DeviceContext`.
    PdDeviceContext
    /// `phi::KernelContext`.
    PdKernelContext
    /// `phi::KernelKey`.
    PdKernelKey
    /// `phi::Kernel`.
    PdKernel
    /// `phi::Scalar`.
    PdScalar
    /// `phi::IntArray`.
    PdIntArray
    /// `phi::Place`.
    PdPlace
}

/// A list handed over by the C interface; who frees it depends on the function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PdList {
    /// How many elements.
    pub size: usize,
    /// The first element.
    pub data: *mut c_void,
}

impl PdList {
    /// The elements.
    ///
    /// # Safety
    /// The list holds elements of type `T` that outlive `'a`.
    pub unsafe fn as_slice<'a, T>(&self) -> &'a [T] {
        if self.size == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller's promise; an empty list, whose pointer may be anything, was handled above.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

/// `C_Status`.
pub type Status = c_int;
/// The call did what it should.
pub const SUCCESS: Status = 0;
/// Resources are exhausted, or a query says "not yet".
pub const FAILED: Status = 2;
/// The plug-in itself failed.
pub const INTERNAL_ERROR: Status = 4;

/// `PD_KernelArgumentType`: the kinds of arguments that kernels are registered with.
#[allow(missing_docs)]
pub mod kind {
    use std::os::raw::c_int;
    pub const TENSOR: c_int = 1;
    pub const BOOL: c_int = 2;
    pub const FLOAT32: c_int = 5;
    pub const FLOAT64: c_int = 6;
    pub const INT32: c_int = 7;
    pub const INT64: c_int = 8;
    pub const STRING: c_int = 9;
    pub const SCALAR: c_int = 10;
    pub const INT_ARRAY: c_int = 11;
    pub const DATA_TYPE: c_int = 12;
    pub const DATA_LAYOUT: c_int = 13;
    pub const PLACE: c_int = 14;
    pub const LIST_BOOL: c_int = 15;
    pub const LIST_INT32: c_int = 16;
    pub const LIST_INT64: c_int = 17;
    pub const LIST_FLOAT32: c_int = 20;
    pub const LIST_FLOAT64: c_int = 21;
    pub const LIST_STRING: c_int = 22;
    pub const LIST_SCALAR: c_int = 23;
    pub const OPTIONAL_TENSOR: c_int = 24;
    pub const LIST_TENSOR: c_int = 25;
    pub const OPTIONAL_LIST_TENSOR: c_int = 26;
}
