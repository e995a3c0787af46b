//! What Paddle knows of the inputs and outputs of a kernel that is being registered.

use super::symbols::symbols;
use super::types::{PdKernel, PdKernelKey, PdList};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

// Of `phi::Backend`, a byte.
const ALL_BACKEND: u8 = 0;
const CPU: u8 = 1;

/// Whether results that are said to be made in the CPU's memory may be: Paddle knows of all of them.
static ON_HOST: AtomicBool = AtomicBool::new(true);

/// Whether [`made_on_host`] could say so of every output.
pub fn is_host_known() -> bool {
    ON_HOST.load(Ordering::Relaxed)
}

/// The definitions of the inputs, `phi::TensorArgDef`s each.
///
/// # Safety
/// The kernel is the one being registered.
pub unsafe fn with_inputs(kernel: *mut PdKernel, work: impl FnOnce(&[*mut c_void])) {
    // SAFETY: the caller's promise.
    unsafe { with(kernel, symbols().kernel_args_def_get_input_arg_defs, work) }
}

/// The definitions of the outputs.
///
/// # Safety
/// The kernel is the one being registered.
pub unsafe fn with_outputs(kernel: *mut PdKernel, work: impl FnOnce(&[*mut c_void])) {
    // SAFETY: the caller's promise.
    unsafe { with(kernel, symbols().kernel_args_def_get_output_arg_defs, work) }
}

/// # Safety
/// The kernel is the one being registered.
unsafe fn with(
    kernel: *mut PdKernel,
    list: unsafe extern "C-unwind" fn(*mut c_void, *mut c_int) -> PdList,
    work: impl FnOnce(&[*mut c_void]),
) {
    // SAFETY: the list is an array of pointers to the definitions, ours to delete, and holds as many as were registered.
    unsafe {
        let definitions = list((symbols().kernel_get_args_def)(kernel, &mut 0), &mut 0);
        work(definitions.as_slice::<*mut c_void>());
        (symbols().delete_pointer_list)(definitions);
    }
}

/// Lets an input stay where it is.
///
/// # Safety
/// The definition is one of an input of the kernel that is being registered under this key.
pub unsafe fn read_anywhere(definition: *mut c_void, key: *const PdKernelKey) {
    // SAFETY: passed on to the caller.
    unsafe { set_backend(definition, key, ALL_BACKEND) };
}

/// Says that an output is made in the CPU's memory.
///
/// # Safety
/// The definition is one of an output of the kernel that is being registered under this key.
pub unsafe fn made_on_host(definition: *mut c_void, key: *const PdKernelKey) {
    // SAFETY: passed on to the caller.
    if !unsafe { set_backend(definition, key, CPU) } {
        ON_HOST.store(false, Ordering::Relaxed);
    }
}

/// A definition begins with its backend, for which the C interface has no word. One that does not begin with the key's is left alone, and this is false: Paddle
/// then copies tensors to and fro, which is correct and slower.
///
/// # Safety
/// The definition is one of the kernel that is being registered under this key.
unsafe fn set_backend(definition: *mut c_void, key: *const PdKernelKey, to: u8) -> bool {
    // SAFETY: both begin with a `phi::Backend` (`paddle/phi/core/kernel_factory.h`), and are alive during the registration.
    unsafe {
        let (backend, of_key) = (definition.cast::<u8>(), key.cast::<u8>());
        let is_as_expected = *backend == *of_key;
        if is_as_expected {
            *backend = to;
        }
        is_as_expected
    }
}
