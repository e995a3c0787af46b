//! Faults of kernels, and kernels that do not end: signals that arrive while a coroutine runs kernel code end that coroutine with a value.
//! Signals that arrive elsewhere go to whoever handled them before.

use corosensei::trap::{CoroutineTrapHandler, TrapHandlerRegs};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::cell::Cell;
use std::sync::OnceLock;

/// How a thread of a kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It returned.
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
#[derive(Clone, Copy)]
pub(crate) struct Running {
    pub handler: CoroutineTrapHandler<Outcome>,
    /// Whether it runs kernel code, which can be left at any instruction, and not the host's.
    pub in_kernel: bool,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
    static STACK: Cell<bool> = const { Cell::new(false) };
}

static EARLIER: OnceLock<[libc::sigaction; 5]> = OnceLock::new();

/// The coroutine about to be resumed, or none.
pub(crate) fn set_running(running: Option<Running>) {
    RUNNING.set(running);
}

/// The running coroutine enters or leaves kernel code.
pub(crate) fn set_in_kernel(in_kernel: bool) {
    if let Some(running) = RUNNING.get() {
        RUNNING.set(Some(Running { in_kernel, ..running }));
    }
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
    let running = RUNNING.get().filter(|running| running.handler.stack_ptr_in_bounds(stack_pointer));
    let outcome = match (signal, running) {
        // The watchdog asks again.
        (EXPIRED, Some(running)) if !running.in_kernel => return,
        (EXPIRED, Some(_)) => Outcome::Expired,
        (libc::SIGFPE, Some(_)) => Outcome::Division,
        (libc::SIGILL, Some(_)) => Outcome::Undefined,
        (_, Some(_)) => Outcome::Memory { address },
        (_, None) => return pass_on(signal, information, context.cast()),
    };
    if let Some(running) = running {
        // SAFETY: the stack pointer lies in the coroutine, which lives; kernel code keeps nothing that must be dropped. The registers are
        // set as asked.
        unsafe { set_registers(&mut *context, running.handler.setup_trap_handler(move || outcome)) };
    }
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
