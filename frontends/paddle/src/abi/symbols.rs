//! Every symbol of Paddle and of the C++ runtime that the plug-in calls, looked up once when Paddle loads it.
//!
//! Nothing here is linked: the same native module also loads where Paddle is absent. Python loads Paddle's libraries RTLD_LOCAL, so
//! each is found again by its SONAME, among the libraries that the process has loaded already.

use super::types::*;
use libloading::os::unix::{Library, RTLD_LAZY};
use std::os::raw::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// dlopen's flag for "only if the process has it already".
const RTLD_NOLOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };

/// Where the symbols live, in the order in which they are searched.
#[cfg(not(target_os = "macos"))]
const LIBRARIES: &[&str] = &["libphi_core.so", "libphi.so", "libcommon.so", "libpaddle.so", "libstdc++.so.6"];
#[cfg(target_os = "macos")]
const LIBRARIES: &[&str] = &["libphi_core.dylib", "libphi.dylib", "libcommon.dylib", "libpaddle.so", "libc++.1.dylib"];

/// Why the symbols could not be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SymbolError {
    #[error("none of {LIBRARIES:?} is loaded in this process")]
    NoLibrary,
    #[error("the symbol {name} is in none of the libraries {found:?}: this PaddlePaddle is not one that openmps knows")]
    Missing { name: &'static str, found: Vec<&'static str> },
}

macro_rules! symbols {
    ($($(#[$doc:meta])* $field:ident = $name:literal: $type:ty;)*) => {
        /// The table of symbols. The names of the fields are those of Paddle without `PD_`.
        #[allow(missing_docs)]
        pub struct Symbols { $($(#[$doc])* pub $field: $type,)* }

        impl Symbols {
            fn load(libraries: &[(&'static str, Library)]) -> Result<Symbols, SymbolError> {
                Ok(Symbols { $($field: find(libraries, $name)?,)* })
            }
        }
    };
}

type Getter<T> = unsafe extern "C-unwind" fn(*const PdTensor, *mut c_int) -> T;
type AttributeGetter<T> = unsafe extern "C-unwind" fn(*mut PdKernelContext, usize) -> T;

symbols! {
    register_phi_kernel = "PD_RegisterPhiKernel": unsafe extern "C-unwind" fn(
        *const c_char, *const c_char, c_int, c_int, usize, *const c_int, usize, *const c_int, usize, *const c_int,
        unsafe extern "C-unwind" fn(*mut PdKernelKey, *mut PdKernel), unsafe extern "C-unwind" fn(*mut PdKernelContext), *const c_void,
    );
    kernel_get_args_def = "PD_KernelGetArgsDef": unsafe extern "C-unwind" fn(*mut PdKernel, *mut c_int) -> *mut c_void;
    kernel_args_def_get_input_arg_defs = "PD_KernelArgsDefGetInputArgDefs": unsafe extern "C-unwind" fn(*mut c_void, *mut c_int) -> PdList;
    kernel_args_def_get_output_arg_defs = "PD_KernelArgsDefGetOutputArgDefs": unsafe extern "C-unwind" fn(*mut c_void, *mut c_int) -> PdList;
    tensor_arg_def_set_data_type = "PD_TensorArgDefSetDataType": unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_int);

    tensor_get_data_pointer = "PD_TensorGetDataPointer": Getter<*mut c_void>;
    tensor_is_initialized = "PD_TensorIsInitialized": Getter<bool>;
    tensor_get_num_dims = "PD_TensorGetNumDims": Getter<i64>;
    tensor_get_dim = "PD_TensorGetDim": unsafe extern "C-unwind" fn(*const PdTensor, usize, *mut c_int) -> i64;
    tensor_get_num_strides = "PD_TensorGetNumStrides": Getter<i64>;
    tensor_get_stride = "PD_TensorGetStride": unsafe extern "C-unwind" fn(*const PdTensor, usize, *mut c_int) -> i64;
    tensor_get_data_type = "PD_TensorGetPDDataType": Getter<c_int>;
    tensor_set_dims = "PD_TensorSetDims": unsafe extern "C-unwind" fn(*mut PdTensor, i64, *const i64, *mut c_int);
    tensor_set_strides = "PD_TensorSetStrides": unsafe extern "C-unwind" fn(*mut PdTensor, i64, *const i64, *mut c_int);
    tensor_set_offset = "PD_TensorSetOffset": unsafe extern "C-unwind" fn(*mut PdTensor, i64, *mut c_int);
    tensor_set_data_type = "PD_TensorSetDataType": unsafe extern "C-unwind" fn(*mut PdTensor, c_int, *mut c_int);
    tensor_share_data_with = "PD_TensorShareDataWith": unsafe extern "C-unwind" fn(*mut PdTensor, *const PdTensor, *mut c_int);
    new_tensor = "PD_NewTensor": unsafe extern "C-unwind" fn() -> *mut PdTensor;
    delete_tensor = "PD_DeleteTensor": unsafe extern "C-unwind" fn(*mut PdTensor);
    optional_tensor_get_pointer = "PD_OptionalTensorGetPointer": unsafe extern "C-unwind" fn(*mut c_void) -> *mut PdTensor;
    tensor_vector_to_list = "PD_TensorVectorToList": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;

    device_context_get_stream = "PD_DeviceContextGetStream": unsafe extern "C-unwind" fn(*const PdDeviceContext, *mut c_int) -> *mut c_void;
    device_context_allocate_tensor = "PD_DeviceContextAllocateTensor":
        unsafe extern "C-unwind" fn(*const PdDeviceContext, *mut PdTensor, usize, c_int, *mut c_int) -> *mut c_void;
    device_context_get_random = "PD_DeviceContextGetRandom": unsafe extern "C-unwind" fn(*const PdDeviceContext, *mut c_int) -> u64;

    scalar_get_bool = "PD_ScalarGetBoolData": unsafe extern "C-unwind" fn(*mut PdScalar) -> bool;
    scalar_get_i64 = "PD_ScalarGetInt64Data": unsafe extern "C-unwind" fn(*mut PdScalar) -> i64;
    scalar_get_f64 = "PD_ScalarGetFloat64Data": unsafe extern "C-unwind" fn(*mut PdScalar) -> f64;
    int_array_get_data_pointer = "PD_IntArrayGetDataPointer": unsafe extern "C-unwind" fn(*mut PdIntArray) -> PdList;
    place_get_device_id = "PD_PlaceGetDeviceId": unsafe extern "C-unwind" fn(*mut PdPlace) -> i8;
    place_is_host = "PD_PlaceIsHost": unsafe extern "C-unwind" fn(*mut PdPlace) -> bool;

    string_attr = "PD_StringAttr": unsafe extern "C-unwind" fn(*mut c_void) -> *const c_char;
    list_bool_attr = "PD_ListBoolAttr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_i32_attr = "PD_ListInt32Attr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_i64_attr = "PD_ListInt64Attr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_f32_attr = "PD_ListFloatAttr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_f64_attr = "PD_ListDoubleAttr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_string_attr = "PD_ListStringAttr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    list_scalar_attr = "PD_ListScalarAttr": unsafe extern "C-unwind" fn(*mut c_void) -> PdList;
    delete_pointer_list = "PD_DeletePointerList": unsafe extern "C-unwind" fn(PdList);
    delete_u8_list = "PD_DeleteUInt8List": unsafe extern "C-unwind" fn(PdList);

    context_device_context = "PD_KernelContextGetDeviceContext": unsafe extern "C-unwind" fn(*mut PdKernelContext) -> *mut PdDeviceContext;
    context_input = "PD_KernelContextInputAt": AttributeGetter<*mut PdTensor>;
    context_multi_input = "PD_KernelContextMultiInputAt": AttributeGetter<PdList>;
    context_output = "PD_KernelContextOutputAt": AttributeGetter<*mut PdTensor>;
    context_multi_output = "PD_KernelContextMultiOutputAt": AttributeGetter<PdList>;
    context_bool = "PD_KernelContextBoolAttrAt": AttributeGetter<bool>;
    context_i32 = "PD_KernelContextInt32AttrAt": AttributeGetter<i32>;
    context_i64 = "PD_KernelContextInt64AttrAt": AttributeGetter<i64>;
    context_f32 = "PD_KernelContextFloatAttrAt": AttributeGetter<f32>;
    context_f64 = "PD_KernelContextDoubleAttrAt": AttributeGetter<f64>;
    context_scalar = "PD_KernelContextScalarAttrAt": AttributeGetter<*mut PdScalar>;
    context_int_array = "PD_KernelContextIntArrayAttrAt": AttributeGetter<*mut PdIntArray>;
    context_data_type = "PD_KernelContextDataTypeAttrAt": AttributeGetter<c_int>;
    context_data_layout = "PD_KernelContextDataLayoutAttrAt": AttributeGetter<c_int>;
    context_string = "PD_KernelContextStringAttrAt": AttributeGetter<*const c_char>;
    context_list_bool = "PD_KernelContextListBoolAttrAt": AttributeGetter<PdList>;
    context_list_i32 = "PD_KernelContextListInt32AttrAt": AttributeGetter<PdList>;
    context_list_i64 = "PD_KernelContextListInt64AttrAt": AttributeGetter<PdList>;
    context_list_f32 = "PD_KernelContextListFloatAttrAt": AttributeGetter<PdList>;
    context_list_f64 = "PD_KernelContextListDoubleAttrAt": AttributeGetter<PdList>;
    context_list_string = "PD_KernelContextListStringAttrAt": AttributeGetter<PdList>;
    context_list_scalar = "PD_KernelContextListScalarAttrAt": AttributeGetter<PdList>;
    context_place = "PD_KernelContextPlaceAttrAt": AttributeGetter<*mut PdPlace>;

    /// `phi::KernelContext::AttrAt(size_t) const`: the attribute as the variant that holds it.
    context_attribute = "_ZNK3phi13KernelContext6AttrAtB5cxx11Em": unsafe extern "C-unwind" fn(*const PdKernelContext, usize) -> *const u8;
    /// `phi::DeviceContext::HostAlloc(phi::TensorBase*, phi::DataType, size_t, bool) const`.
    device_context_host_allocate = "_ZNK3phi13DeviceContext9HostAllocEPNS_10TensorBaseENS_8DataTypeEmb":
        unsafe extern "C-unwind" fn(*const PdDeviceContext, *mut PdTensor, c_int, usize, bool) -> *mut c_void;
    /// `phi::CustomContext::GetPlace() const`: a reference that lives as long as the context.
    device_context_get_place = "_ZNK3phi13CustomContext8GetPlaceEv": unsafe extern "C-unwind" fn(*const PdDeviceContext) -> *const c_void;
    /// `paddle::memory::Release(phi::Place const&)`: gives what Paddle caches of a device back to it.
    memory_release = "_ZN6paddle6memory7ReleaseERKN3phi5PlaceE": unsafe extern "C-unwind" fn(*const c_void) -> u64;
    /// `common::enforce::EnforceNotMet::EnforceNotMet(ErrorSummary const&, char const*, int)`.
    enforce_construct = "_ZN6common7enforce13EnforceNotMetC1ERKNS_12ErrorSummaryEPKci":
        unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_char, c_int);
    enforce_destroy = "_ZN6common7enforce13EnforceNotMetD1Ev": unsafe extern "C-unwind" fn(*mut c_void);
    enforce_typeinfo = "_ZTIN6common7enforce13EnforceNotMetE": *const c_void;
    string_construct = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_":
        unsafe extern "C-unwind" fn(*mut c_void, *const c_char, *const c_void);
    string_destroy = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev": unsafe extern "C-unwind" fn(*mut c_void);
    allocate_exception = "__cxa_allocate_exception": unsafe extern "C-unwind" fn(usize) -> *mut c_void;
    throw = "__cxa_throw":
        unsafe extern "C-unwind" fn(*mut c_void, *const c_void, unsafe extern "C-unwind" fn(*mut c_void)) -> !;
}

// SAFETY: the table holds addresses of functions and of one constant object; nothing in it is written after it is made.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}

fn find<T: Copy>(libraries: &[(&'static str, Library)], name: &'static str) -> Result<T, SymbolError> {
    for (_, library) in libraries {
        // SAFETY: the type written beside each name in the table is the symbol's type in Paddle's headers (or mangled name).
        if let Ok(symbol) = unsafe { library.get::<T>(name) } {
            return Ok(*symbol);
        }
    }
    Err(SymbolError::Missing { name, found: libraries.iter().map(|(name, _)| *name).collect() })
}

/// The libraries of [`LIBRARIES`] that the process has loaded.
fn loaded() -> Vec<(&'static str, Library)> {
    // SAFETY: RTLD_NOLOAD runs no initialiser: it only finds what the process has loaded.
    let open = |name| unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_NOLOAD) };
    LIBRARIES.iter().filter_map(|&name| Some((name, open(name).ok()?))).collect()
}

/// A symbol that not every Paddle has. Paddle stays loaded, so it is good for as long as the process lives.
///
/// # Safety
/// `T` is the symbol's type.
pub unsafe fn optional<T: Copy>(name: &'static str) -> Option<T> {
    find(&loaded(), name).ok()
}

static SYMBOLS: OnceLock<Symbols> = OnceLock::new();

/// Looks every symbol up; later calls do nothing. Names the first symbol that is missing.
pub fn load() -> Result<&'static Symbols, SymbolError> {
    if let Some(symbols) = SYMBOLS.get() {
        return Ok(symbols);
    }
    let libraries = loaded();
    if libraries.is_empty() {
        return Err(SymbolError::NoLibrary);
    }
    let symbols = Symbols::load(&libraries)?;
    // Paddle stays loaded as long as the process lives; the handles are kept with it.
    libraries.into_iter().for_each(|(_, library)| std::mem::forget(library));
    Ok(SYMBOLS.get_or_init(|| symbols))
}

/// The table. Kernels run only after [`load`] has succeeded, since registration needs it.
#[inline]
pub fn symbols() -> &'static Symbols {
    SYMBOLS.get().expect("a kernel of device mps runs before Paddle's symbols were found")
}
