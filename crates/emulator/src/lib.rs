//! Executes unchanged Metal Shading Language text on a CPU, to check kernels where there is no Apple GPU.
//!
//! ```
//! use openmps_emulator::{Argument, Dispatch, Grid, Library, Schedule};
//!
//! let library = Library::compile(
//!     "#include <metal_stdlib>
//!      using namespace metal;
//!      kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2.0f; }",
//! )?;
//! let mut x = [1.0_f32, 2.0, 3.0];
//! let arguments = [Argument::Buffer(x.as_mut_ptr().cast())];
//! let dispatch = Dispatch::new(Grid::Threads([3, 1, 1]), [32, 1, 1], &arguments);
//! // SAFETY: the buffer is as long as the grid, and lives.
//! unsafe { library.function("twice")?.dispatch(&Dispatch { schedule: Schedule::Shuffled(1), ..dispatch })? };
//! assert_eq!(x, [2.0, 4.0, 6.0]);
//! # Ok::<(), openmps_emulator::Error>(())
//! ```
//!
//! # How it works
//!
//! clang's "C++ for OpenCL" mode is nearly a front end for the language: `kernel`, address spaces and attributes are there. The headers under
//! `msl/` are a stand-in for `metal_stdlib`, written here; a text is compiled after them, unchanged, into a shared object, with one entry
//! function a kernel that runs the kernel for thread after thread. Threads that wait for each other are coroutines. Compiled objects are kept
//! in a folder of the user's by content (`OPENMPS_EMULATOR_CACHE` names another one).
//!
//! What clang takes otherwise than Metal is rewritten first, line by line: macros are expanded, kernel templates and their instantiations
//! become functions and entries, function constants get their values ([`Options`]), threadgroup variables in blocks and templates become
//! references. So published kernels run too; docs/emulator.md says which.
//!
//! clang comes from the PyPI package `ziglang`, which `cargo xtask setup` installs into `.venv`; `OPENMPS_CLANG` names another one, 19 or newer.
//!
//! # What it shows
//!
//! * Results, with each operation rounded to its own type and none fused.
//! * **Missing barriers.** A simdgroup runs until all its lanes wait at a threadgroup barrier or are over, then the next, and lanes run one
//!   after the other between operations that involve others: the worst order that Metal allows. A kernel that lacks a barrier is wrong in at
//!   least one of a few schedules, so tests run [`Schedule::Ascending`], [`Schedule::Descending`] and a shuffled one or more.
//! * Threadgroup memory read before it is written: it holds other poison in each schedule.
//! * Barriers and matrix operations that not all threads reach, accesses to memory that is not there, integer division by zero, kernels that
//!   do not end: each is an [`Error`] that names kernel, threadgroup and thread or line.
//! * Apple's [`limits`], as errors that say which and by how much.
//! * Most of what Apple's compiler refuses: mixed address spaces, pointers without one, writes to constants, `double`, functions that the
//!   language lacks (`erf`), functions of `bfloat`, atomic operations that a type lacks. Diagnostics count the lines of the text.
//!
//! # What it does not show
//!
//! * That Apple's compiler takes the text. It has rules that clang lacks, such as those on recursion and on methods of objects in `device`
//!   memory; nothing here has run on Apple hardware.
//! * Apple's rounding. Functions of numbers are those of the C library, of about one unit in the last place; `fast` and `precise` compute
//!   alike, the default math mode's freedoms (fused operations, flushed subnormals, no NaN) are not taken, and sums over a simdgroup and in
//!   matrix products have an order of their own.
//! * The memory model. Threads of a threadgroup run one at a time, in program order. Races between threadgroups show only by chance.
//! * Speed, registers and occupancy. What decides them is counted where that is asked for ([`Options::counted`], [`Counters`]).
//! * Textures, function tables, ray tracing, tessellation and arrays of arguments: refused by name.
//! * Lanes that part and meet again: an operation waits for those lanes of its simdgroup that are behind it in the compiled code. That is what
//!   hardware does for structured branches and loops; other code may group lanes otherwise.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod address_space;
mod cache;
mod compile;
mod count;
mod dispatch;
mod error;
mod folder;
mod frame;
mod grid;
mod image;
mod library;
pub mod limits;
mod options;
mod prelude;
mod preprocess;
mod rewrite;
mod source;
mod stack;
mod threadgroup;
mod token;
mod toolchain;
mod trap;
mod watchdog;

pub use count::{Counters, DeviceAccesses, GPUS, Gpu, ThreadgroupAccesses};
pub use dispatch::{Argument, Dispatch, Report};
pub use error::{Error, Result};
pub use grid::{Grid, Schedule};
pub use library::{Function, Library};
pub use options::{Optimisation, Options, Value};
pub use toolchain::interpreter_in;
