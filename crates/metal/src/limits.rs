//! Apple's limits, checked before a dispatch: on the GPU a violation is an assertion, a silent nothing, or a lost device.

use crate::error::{Error, Result};
use crate::interface::{Grid, PipelineLimits, Properties, Size};

/// Bytes of threadgroup memory on every GPU since the A11 and the M1.
pub const THREADGROUP_MEMORY: usize = 32 << 10;
/// Threads of a threadgroup.
pub const THREADS: usize = 1024;
/// Entries of the buffer argument table.
pub const BUFFERS: usize = 31;
/// Bytes that `setBytes` takes.
pub const BYTES: usize = 4096;
/// Threads of a simdgroup.
pub const SIMD_WIDTH: usize = 32;
/// `setThreadgroupMemoryLength` takes multiples of this.
pub const THREADGROUP_MEMORY_ALIGNMENT: usize = 16;
/// `fillBuffer` and `copyFromBuffer` take offsets and lengths that are multiples of this on macOS.
pub const BLIT_ALIGNMENT: usize = 4;
/// Bytes that one command moves at most: copies of 4 GiB and more did nothing on some versions of macOS (pytorch#124335).
pub const PIECE: usize = 1 << 30;
/// Pages of Apple Silicon: no-copy buffers begin and end at multiples of it.
pub const PAGE: usize = 16 << 10;

/// What a pipeline's descriptor is told of the most threads of its threadgroups; 0, Apple's default, leaves it to the compiler. One simdgroup
/// fits wherever a kernel runs, and kernels that are bounded to it are on record to be compiled wrongly for the M5 (tracel-ai/cubek#645).
pub fn thread_bound(threads: usize) -> usize {
    if threads > SIMD_WIDTH { threads } else { 0 }
}

/// The bound of a pipeline's threads where nothing but what it was compiled for limits them.
pub fn most_threads(bound: usize) -> usize {
    if bound == 0 { THREADS } else { bound }
}

/// Holds a dispatch to the limits of the device and of its pipeline.
pub fn check_dispatch(
    kernel: &str,
    device: &Properties,
    pipeline: &PipelineLimits,
    grid: Grid,
    threads: Size,
    threadgroup_memory: usize,
) -> Result<()> {
    const AXES: [&str; 3] = ["threads along x", "threads along y", "threads along z"];
    const THREADGROUPS: [&str; 3] = ["threadgroups along x", "threadgroups along y", "threadgroups along z"];
    const ALL_THREADS: [&str; 3] = ["all threads along x", "all threads along y", "all threads along z"];
    let (what, count) = match grid {
        Grid::Threadgroups(count) => (THREADGROUPS, count),
        Grid::Threads(count) => (ALL_THREADS, count),
    };
    for axis in 0..3 {
        at_most(kernel, AXES[axis], threads[axis], device.max_threads[axis])?;
        at_most(kernel, what[axis], count[axis], u32::MAX as usize)?;
    }
    let total = threads.iter().product();
    at_most(kernel, "threads a threadgroup", total, THREADS)?;
    at_most(kernel, "threads a threadgroup of this pipeline", total, pipeline.max_threads)?;
    let memory = threadgroup_memory.saturating_add(pipeline.static_threadgroup_memory);
    at_most(kernel, "threadgroup memory", memory, device.max_threadgroup_memory.min(THREADGROUP_MEMORY))
}

/// Holds an argument table to its size.
pub fn check_arguments(kernel: &str, arguments: usize) -> Result<()> {
    at_most(kernel, "bound arguments", arguments, BUFFERS)
}

/// Holds bytes that are bound in place to their size.
pub fn check_bytes(kernel: &str, bytes: usize) -> Result<()> {
    at_most(kernel, "bytes bound in place", bytes, BYTES)
}

/// Holds a value to a multiple.
pub fn check_multiple(kernel: &str, what: &'static str, value: usize, multiple: usize) -> Result<()> {
    if value.is_multiple_of(multiple) {
        return Ok(());
    }
    Err(Error::Alignment { kernel: kernel.to_string(), what, value, multiple })
}

fn at_most(kernel: &str, what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value <= limit {
        return Ok(());
    }
    Err(Error::Limit { kernel: kernel.to_string(), what, value, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_simdgroup_is_no_bound() {
        assert_eq!([1, 32, 33, 64, 1024].map(thread_bound), [0, 0, 33, 64, 1024]);
    }
    use crate::recorder;

    const PIPELINE: PipelineLimits =
        PipelineLimits { max_threads: 512, simd_width: SIMD_WIDTH, static_threadgroup_memory: 1024 };

    fn check(grid: impl Into<Grid>, threads: Size, memory: usize) -> std::result::Result<(), String> {
        check_dispatch("k", &recorder::properties(), &PIPELINE, grid.into(), threads, memory)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_fits_passes() {
        assert_eq!(check([1, 1, 1], [512, 1, 1], 31 << 10), Ok(()));
        assert_eq!(check([u32::MAX as usize, 1, 1], [8, 8, 8], 0), Ok(()));
    }

    #[test]
    fn errors_say_which_limit_and_by_how_much() {
        let error = |result: std::result::Result<(), String>| result.unwrap_err();
        assert_eq!(
            error(check([1, 1, 1], [513, 1, 1], 0)),
            "k: threads a threadgroup of this pipeline is 513, 1 more than the limit of 512"
        );
        assert_eq!(
            error(check([1, 1, 1], [64, 32, 1], 0)),
            "k: threads a threadgroup is 2048, 1024 more than the limit of 1024"
        );
        assert_eq!(
            error(check([1, 1, 1], [1, 1, 1], 32 << 10)),
            "k: threadgroup memory is 33792, 1024 more than the limit of 32768"
        );
        assert_eq!(
            error(check([1, 1 << 32, 1], [1, 1, 1], 0)),
            "k: threadgroups along y is 4294967296, 1 more than the limit of 4294967295"
        );
        assert_eq!(
            error(check(Grid::Threads([1, 1, 1 << 32]), [1, 1, 1], 0)),
            "k: all threads along z is 4294967296, 1 more than the limit of 4294967295"
        );
        assert!(check_arguments("k", 31).is_ok() && check_arguments("k", 32).is_err());
        assert!(check_bytes("k", 4096).is_ok() && check_bytes("k", 4097).is_err());
        assert!(check_multiple("k", "offset", 8, 4).is_ok() && check_multiple("k", "offset", 6, 4).is_err());
    }
}
