//! What the tests share: dispatching with slices, schedules, numbers.

// Each test file uses a part.
#![allow(dead_code)]

use openmps_emulator::{Argument, Dispatch, Grid, Library, Report, Result, Schedule};
use std::ffi::c_void;

/// Every test runs in these.
pub const SCHEDULES: [Schedule; 4] =
    [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(1), Schedule::Shuffled(20_240_607)];

/// The library of a text; the test fails with the compiler's words where it is refused.
pub fn compile(text: &str) -> Library {
    Library::compile(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A buffer argument over a slice.
pub fn buffer<T>(slice: &mut [T]) -> Argument<'static> {
    Argument::Buffer(slice.as_mut_ptr().cast::<c_void>())
}

/// A dispatch without threadgroup memory arguments.
pub fn dispatch<'a>(grid: Grid, size: [u32; 3], arguments: &'a [Argument<'a>], schedule: Schedule) -> Dispatch<'a> {
    Dispatch { schedule, ..Dispatch::new(grid, size, arguments) }
}

/// Runs a kernel whose buffers are slices of the caller.
pub fn run(library: &Library, kernel: &str, dispatch: &Dispatch) -> Result<Report> {
    // SAFETY: every buffer of these tests is a slice that lives in the caller and is as long as the kernel uses.
    unsafe { library.function(kernel)?.dispatch(dispatch) }
}

/// Numbers between -1 and 1, the same in every run.
pub fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x2545_F491_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
