//! Kernels as plain functions: `fn softmax(context: &Context, x: Tensor, axis: i32, out: Output) -> Result<()>` becomes both of Paddle's
//! entry points, made for that function when it is compiled.

use crate::abi::exception::{self, Code};
use crate::abi::symbols::symbols;
use crate::abi::types::{PdDeviceContext, PdKernelContext};
use crate::abi::unwind::{Payload, catch_panic, payload_text};
use crate::argument::{Argument, Cursor, Kind};
use crate::context::Context;
use crate::error::{Error, Result};
use std::any::{TypeId, type_name};
use std::collections::HashMap;
use std::os::raw::c_void;
use std::sync::OnceLock;

/// The entry point of static programs.
pub type ContextEntry = unsafe extern "C-unwind" fn(*mut PdKernelContext);

/// A function that can be a kernel; implemented for functions of up to 30 parameters that are [`Argument`]s.
pub trait Handler<Arguments>: Copy + 'static {
    /// What its parameters are registered as.
    const KINDS: &'static [Kind];

    /// The entry point of eager programs, by the C++ convention.
    fn variadic_entry() -> *const c_void;

    /// The entry point of static programs.
    fn context_entry() -> ContextEntry;
}

/// What Paddle calls the kernels that are a function each; known once the table is registered.
pub(crate) static NAMES: OnceLock<HashMap<TypeId, &'static str>> = OnceLock::new();

/// A function item as a value: it has no bytes.
#[inline]
fn item<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "a kernel is a function, or a closure that captures nothing") };
    // SAFETY: the type has no bytes, so that there is nothing to be invalid; it is Copy, so that a value of it was handed to
    // `Table::add` and may be had again.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

/// Runs a kernel; its error and its panic become the C++ exception that Paddle turns into a Python one.
///
/// # Safety
/// Called from C++ by way of `extern "C-unwind"`.
#[inline]
unsafe fn guard<F: 'static>(work: impl FnOnce() -> Result<()>) {
    match catch_panic(work) {
        Ok(Ok(())) => {}
        // SAFETY: the caller's promise.
        Ok(Err(error)) => unsafe { fail(Failure::Error(error), TypeId::of::<F>(), type_name::<F>()) },
        // SAFETY: as above.
        Err(payload) => unsafe { fail(Failure::Panic(payload), TypeId::of::<F>(), type_name::<F>()) },
    }
}

/// How a kernel failed.
enum Failure {
    Error(Error),
    Panic(Payload),
}

/// Throws the failure of the kernel that is this function. Once for all kernels: in each of them it was a third of what the compiler had to do.
///
/// # Safety
/// As [`guard`].
#[cold]
#[inline(never)]
unsafe fn fail(failure: Failure, function: TypeId, path: &'static str) {
    let (code, text) = match failure {
        // An operator's own error names the operator already.
        Failure::Error(error @ Error::Graph(_)) => (error.code(), format!("mps: {error}")),
        Failure::Error(error) => (error.code(), message((function, path), &error.to_string())),
        Failure::Panic(payload) => {
            (Code::Fatal, message((function, path), &format!("panicked: {}", payload_text(&payload))))
        }
    };
    // SAFETY: the caller's promise.
    unsafe { exception::throw(code, &text) }
}

/// The error with the kernel's name before it, or, where one function is several kernels, the function's.
fn message((function, path): (TypeId, &'static str), error: &str) -> String {
    let last = || path.rsplit("::").find(|part| !part.starts_with('{')).unwrap_or(path);
    let name = NAMES.get().and_then(|names| names.get(&function).copied()).unwrap_or_else(last);
    format!("mps: {name}: {error}")
}

macro_rules! handler {
    ($($name:ident)*) => {
        #[allow(non_snake_case, unused_mut, unused_variables)]
        impl<Function, $($name),*> Handler<($($name,)*)> for Function
        where
            Function: Fn(&Context, $($name),*) -> Result<()> + Copy + 'static,
            $($name: Argument + 'static,)*
        {
            const KINDS: &'static [Kind] = &[$($name::KIND),*];

            fn variadic_entry() -> *const c_void {
                #[allow(improper_ctypes_definitions)]
                unsafe extern "C-unwind" fn entry<Function, $($name),*>(
                    context: *const PdDeviceContext,
                    $($name: <$name as Argument>::Abi),*
                )
                where
                    Function: Fn(&Context, $($name),*) -> Result<()> + Copy + 'static,
                    $($name: Argument + 'static,)*
                {
                    // SAFETY: Paddle calls this with the arguments of the kernel's C++ signature, alive until it returns.
                    unsafe {
                        guard::<Function>(|| {
                            let context = Context::new(context)?;
                            $(let $name = $name::from_abi($name)?;)*
                            context.run(|| item::<Function>()(&context, $($name),*))
                        })
                    }
                }
                entry::<Function, $($name),*> as unsafe extern "C-unwind" fn(*const PdDeviceContext, $(<$name as Argument>::Abi),*)
                    as *const c_void
            }

            fn context_entry() -> ContextEntry {
                unsafe extern "C-unwind" fn entry<Function, $($name),*>(raw: *mut PdKernelContext)
                where
                    Function: Fn(&Context, $($name),*) -> Result<()> + Copy + 'static,
                    $($name: Argument + 'static,)*
                {
                    // SAFETY: Paddle calls this with the context of the running kernel, whose parameters were registered in this order.
                    unsafe {
                        guard::<Function>(|| {
                            let context = Context::new((symbols().context_device_context)(raw))?;
                            let mut cursor = Cursor::new(raw, &context);
                            $(let $name = $name::from_context(&mut cursor)?;)*
                            context.run(|| item::<Function>()(&context, $($name),*))
                        })
                    }
                }
                entry::<Function, $($name),*>
            }
        }
    };
}

macro_rules! handlers {
    ($first:ident) => { handler!($first); };
    ($first:ident $($rest:ident)*) => { handler!($first $($rest)*); handlers!($($rest)*); };
}

handlers!(A B C D E F G H I J K L M N O P Q R S T U V W X Y Z AA AB AC AD);
