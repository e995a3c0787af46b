//! The frame that the host and compiled kernels share: `msl/frame.h` in Rust.

use crate::limits::{BUFFERS, THREADGROUP_ARGUMENTS};
use std::ffi::c_char;

/// Why a thread stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// threadgroup_barrier.
    Barrier,
    /// simdgroup_barrier.
    SimdgroupBarrier,
    /// An operation of those lanes of a simdgroup that come.
    Collective,
    /// An operation of all lanes of a simdgroup.
    Everyone,
}

impl Stop {
    /// The kind by its number in `msl/frame.h`.
    pub(crate) fn from_number(number: u32) -> Stop {
        [Stop::Barrier, Stop::SimdgroupBarrier, Stop::Collective, Stop::Everyone][number as usize & 3]
    }
}

/// Runs once for all lanes that came; the argument is their mask.
pub(crate) type Resolve = unsafe extern "C" fn(u32);
/// Lets the running thread wait: kind, line, address of the place, resolver.
pub(crate) type StopFunction = extern "C" fn(u32, u32, u64, Option<Resolve>);

/// Notes an access of a counted text: address, bytes, kind (`msl/count.h`), address of the place.
pub(crate) type AccessFunction = extern "C" fn(u64, u32, u32, u64);

/// One threadgroup that runs. Sizes and positions are in threads or threadgroups, x first.
#[repr(C)]
pub(crate) struct Frame {
    pub buffers: [u64; BUFFERS],
    pub threadgroup_memory: [u64; THREADGROUP_ARGUMENTS],
    pub threads_per_grid: [u32; 3],
    pub threadgroups_per_grid: [u32; 3],
    pub threads_per_threadgroup: [u32; 3],
    pub dispatch_threads_per_threadgroup: [u32; 3],
    pub threadgroup_position_in_grid: [u32; 3],
    pub origin: [u32; 3],
    pub threads: u32,
    pub running: u32,
    pub next: u32,
    pub end: u32,
    pub active: u32,
    pub padding: u32,
    pub order: *const u32,
    pub positions: *const [u32; 4],
    pub stop: Option<StopFunction>,
    pub access: Option<AccessFunction>,
    pub fault: *const c_char,
    pub deposits: Lanes,
    pub results: Lanes,
}

/// 32 bytes a lane.
#[repr(C, align(64))]
pub(crate) struct Lanes(pub [[u8; 32]; 32]);
