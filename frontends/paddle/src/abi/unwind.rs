//! Catching Rust panics while letting C++ exceptions through.
//!
//! A kernel calls back into Paddle (to allocate, above all), and Paddle answers with C++ exceptions, for example when memory is out.
//! `std::panic::catch_unwind` aborts the process when a foreign exception reaches it, so it cannot surround a kernel. This module
//! surrounds it with one assembly frame whose personality stops Rust's own exceptions only; a panic caught there is handed to
//! `catch_unwind` to be counted off and opened.

use std::any::Any;

/// What a panic carried.
pub type Payload = Box<dyn Any + Send>;

/// Runs `work`. A panic becomes `Err`; a C++ exception passes through to the caller's caller, dropping what it passes.
#[inline]
pub fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, Payload> {
    imp::catch_panic(work)
}

/// The text of a panic.
pub fn payload_text(payload: &Payload) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a text".to_owned(),
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod imp {
    use super::Payload;
    use std::mem::{ManuallyDrop, MaybeUninit};
    use std::os::raw::{c_int, c_void};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The exception class of Rust's standard library, in the byte orders that its releases have used.
    const RUST_CLASSES: [u64; 2] = [u64::from_ne_bytes(*b"MOZ\0RUST"), u64::from_be_bytes(*b"MOZ\0RUST")];

    // Of the Itanium C++ ABI, level I.
    const SEARCH_PHASE: c_int = 1;
    const HANDLER_FRAME: c_int = 4;
    const HANDLER_FOUND: c_int = 6;
    const INSTALL_CONTEXT: c_int = 7;
    const CONTINUE_UNWIND: c_int = 8;

    unsafe extern "C" {
        fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
        fn _Unwind_SetIP(context: *mut c_void, address: usize);
        fn openmps_catch_landing();
    }

    unsafe extern "C-unwind" {
        fn _Unwind_RaiseException(exception: *mut c_void) -> c_int;
        /// Calls `work(data)`; the exception that stopped it, or null.
        fn openmps_catch(work: unsafe extern "C-unwind" fn(*mut c_void), data: *mut c_void) -> *mut c_void;
    }

    // A frame that saves rbp only. A caught exception resumes at `openmps_catch_landing` with the exception in rax.
    std::arch::global_asm!(
        ".text",
        ".p2align 4",
        ".hidden openmps_catch",
        ".globl openmps_catch",
        ".type openmps_catch, @function",
        "openmps_catch:",
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor eax, eax",
        "pop rbp",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_restore_state",
        ".hidden openmps_catch_landing",
        ".globl openmps_catch_landing",
        "openmps_catch_landing:",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        ".size openmps_catch, . - openmps_catch",
        personality = sym personality,
    );

    /// Stops Rust's exceptions at [`openmps_catch`] and lets all others pass.
    extern "C" fn personality(
        version: c_int,
        actions: c_int,
        class: u64,
        exception: *mut c_void,
        context: *mut c_void,
    ) -> c_int {
        if version != 1 || !RUST_CLASSES.contains(&class) {
            return CONTINUE_UNWIND;
        }
        if actions & SEARCH_PHASE != 0 {
            return HANDLER_FOUND;
        }
        if actions & HANDLER_FRAME == 0 {
            return CONTINUE_UNWIND;
        }
        // SAFETY: the unwinder handed this context over for the frame of `openmps_catch`; register 0 is rax in DWARF's numbering for
        // x86-64, and the landing place lies in the same function and expects the exception there.
        unsafe {
            _Unwind_SetGR(context, 0, exception as usize);
            _Unwind_SetIP(context, openmps_catch_landing as *const () as usize);
        }
        INSTALL_CONTEXT
    }

    struct Call<F, R> {
        work: ManuallyDrop<F>,
        result: MaybeUninit<R>,
    }

    #[inline]
    pub fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, Payload> {
        unsafe extern "C-unwind" fn call<F: FnOnce() -> R, R>(data: *mut c_void) {
            // SAFETY: `data` is the `Call` below, used by nobody else while this runs; `work` is taken once.
            unsafe {
                let call = &mut *data.cast::<Call<F, R>>();
                let work = ManuallyDrop::take(&mut call.work);
                call.result.write(work());
            }
        }
        fn entry<F: FnOnce() -> R, R>(_: &Call<F, R>) -> unsafe extern "C-unwind" fn(*mut c_void) {
            call::<F, R>
        }
        let mut state = Call { work: ManuallyDrop::new(work), result: MaybeUninit::uninit() };
        let function = entry(&state);
        // SAFETY: the frame calls `function(&state)` once.
        let exception = unsafe { openmps_catch(function, (&raw mut state).cast()) };
        if exception.is_null() {
            // SAFETY: `call` returned, so it wrote the result.
            return Ok(unsafe { state.result.assume_init() });
        }
        // SAFETY: the personality stopped a live exception of Rust's; raised again here, it is caught where std knows how to open it.
        Err(open(|| unsafe {
            _Unwind_RaiseException(exception);
        }))
    }

    #[cold]
    fn open(raise: impl FnOnce()) -> Payload {
        match catch_unwind(AssertUnwindSafe(raise)) {
            Err(payload) => payload,
            Ok(()) => Box::new("a panic that could not be opened"),
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod imp {
    use super::Payload;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Elsewhere the standard library's: an exception of Paddle's own inside a kernel ends the process there, with its text.
    pub fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, Payload> {
        catch_unwind(AssertUnwindSafe(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count<'a>(&'a std::cell::Cell<u32>);

    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn results_pass() {
        assert_eq!(catch_panic(|| vec![1, 2, 3]).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn panics_are_caught_opened_and_counted_off() {
        let drops = std::cell::Cell::new(0);
        for round in 1..=3 {
            let payload = catch_panic(|| {
                let _count = Count(&drops);
                if round > 0 {
                    panic!("round {round}");
                }
            })
            .unwrap_err();
            assert_eq!(payload_text(&payload), format!("round {round}"));
            assert_eq!(drops.get(), round);
            assert!(!std::thread::panicking());
        }
    }

    #[test]
    fn nested_catches_work() {
        let outer = catch_panic(|| {
            let inner = catch_panic(|| panic!("inner"));
            assert_eq!(payload_text(&inner.unwrap_err()), "inner");
            7
        });
        assert_eq!(outer.unwrap(), 7);
    }
}
