//! Faults of kernels, and kernels that do not end: signals that arrive while a coroutine runs kernel code end that coroutine with a value.
//! Signals that arrive elsewhere go to whoever handled them before.

use corosensei::trap::{CoroutineTrapHandler, TrapHandlerRegs};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::cell::Cell;
use std::sync::OnceLock;

/// How a thread of a kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The kernel ran to its end.
    Finished,
    /// It touched an address that is not mapped, or may not be written.
    Memory { address: usize },
    /// An integer was divided by zero, or the most negative one by -1.
    Division,
    /// An instruction that the processor refuses; clang puts one where the behaviour is undefined.
    Undefined,
    /// The time was over.
    Expired,
}

/// Sent by the watchdog to a thread whose time is over. By default, and for nearly every program, it does nothing.
pub(crate) const EXPIRED: c_int = libc::SIGURG;
const HANDLED: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, EXPIRED];

/// The coroutine that runs on this operating system thread.
pub(crate) struct Running {
    pub handler: Option<CoroutineTrapHandler<Outcome>>,
    /// Whether it runs kernel code, which can be left at any instruction, and not the host's.
    pub in_kernel: bool,
}

thread_local! {
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
    static STACK: Cell<bool> = const { Cell::new(false) };
}

static EARLIER: OnceLock<[libc::sigaction; 5]> = OnceLock::new();

/// Where this thread keeps what runs; null while it runs no kernel.
pub(crate) fn watch(running: *const Running) {
    RUNNING.set(running);
}

/// Takes the signals, once a process, and sees that this thread has a stack for their handler: that of the coroutine may be what overflowed.
pub(crate) fn install() {
    EARLIER.get_or_init(|| HANDLED.map(take));
    if !STACK.replace(true) {
        give_signal_stack();
    }
}

fn take(signal: c_int) -> libc::sigaction {
    // SAFETY: both structures are plain data of the C library; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut earlier: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(signal, &action, &mut earlier);
        earlier
    }
}

fn give_signal_stack() {
    const SIZE: usize = 64 * 1024;
    // SAFETY: the new stack is leaked, so that it lives as long as the thread; only where there was none.
    unsafe {
        let mut present: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut present);
        if present.ss_flags & libc::SS_DISABLE != 0 {
            let memory = Box::leak(vec![0_u8; SIZE].into_boxed_slice());
            let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: SIZE };
            libc::sigaltstack(&stack, std::ptr::null_mut());
        }
    }
}

extern "C" fn handle(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let context = context.cast::<ucontext_t>();
    // SAFETY: the kernel hands valid pointers to a handler of SA_SIGINFO.
    let (stack_pointer, address) = unsafe { (stack_pointer(&*context), (*information).si_addr() as usize) };
    // SAFETY: valid or null; only this thread writes it, and it was interrupted. Volatile, since it was interrupted anywhere.
    let running = unsafe { RUNNING.get().as_ref().map(|running| std::ptr::read_volatile(running)) };
    let here = |handler: &CoroutineTrapHandler<Outcome>| handler.stack_ptr_in_bounds(stack_pointer);
    let Some((handler, in_kernel)) =
        running.and_then(|running| Some((running.handler.filter(here)?, running.in_kernel)))
    else {
        return pass_on(signal, information, context.cast());
    };
    let outcome = match signal {
        // The watchdog asks again.
        EXPIRED if !in_kernel => return,
        EXPIRED => Outcome::Expired,
        libc::SIGFPE => Outcome::Division,
        libc::SIGILL => Outcome::Undefined,
        _ => Outcome::Memory { address },
    };
    // SAFETY: the stack pointer lies in the coroutine, which lives; kernel code keeps nothing that must be dropped. The registers are set as
    // asked.
    unsafe { set_registers(&mut *context, handler.setup_trap_handler(move || outcome)) };
}

/// Calls the earlier handler.
fn pass_on(signal: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let place = HANDLED.iter().position(|handled| *handled == signal);
    let Some(earlier) = place.zip(EARLIER.get()).map(|(place, earlier)| earlier[place]) else { return };
    match earlier.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL if signal == EXPIRED => {}
        // SAFETY: puts the default back; the instruction faults again and the process ends as it would have.
        libc::SIG_DFL => unsafe {
            libc::sigaction(signal, &earlier, std::ptr::null_mut());
        },
        function if earlier.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: SA_SIGINFO says that the function has this signature.
            let function: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = unsafe { std::mem::transmute(function) };
            function(signal, information, context);
        }
        function => {
            // SAFETY: without SA_SIGINFO the function has this signature.
            let function: extern "C" fn(c_int) = unsafe { std::mem::transmute(function) };
            function(signal);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

#[cfg(target_arch = "x86_64")]
fn set_registers(context: &mut ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = registers;
    let places = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP, libc::REG_RDI, libc::REG_RSI];
    for (place, value) in places.into_iter().zip([rip, rsp, rbp, rdi, rsi]) {
        context.uc_mcontext.gregs[place as usize] = value as i64;
    }
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.sp as usize
}

#[cfg(target_arch = "aarch64")]
fn set_registers(context: &mut ucontext_t, registers: TrapHandlerRegs) {
    let TrapHandlerRegs { pc, sp, x0, x1, x29, lr } = registers;
    let machine = &mut context.uc_mcontext;
    (machine.pc, machine.sp) = (pc, sp);
    for (register, value) in [(0, x0), (1, x1), (29, x29), (30, lr)] {
        machine.regs[register] = value;
    }
}
