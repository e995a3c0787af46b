//! What text is written for: a language, a number of threads, and the limits of the devices that will run it.

use crate::dialect::Dialect;

/// Threads that run in step and exchange registers: Apple's simdgroups and NVIDIA's warps have as many.
pub const SIMD_WIDTH: usize = 32;

/// What a kernel is written for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The language.
    pub dialect: Dialect,
    /// Threads of a threadgroup: a power of two from 32 on.
    pub threads: usize,
    /// Iterations of a loop of products whose factors are in flight at once: 1 loads them when they are needed, 2 one iteration ahead.
    pub stages: usize,
    /// What must not be exceeded.
    pub limits: Limits,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Threads of a threadgroup.
    pub threads: usize,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: usize,
    /// Buffers that a function takes.
    pub buffers: usize,
    /// Bytes of numbers that a function takes.
    pub numbers: usize,
    /// Registers of 32 bits that one thread's part of a tile may take.
    pub registers: usize,
}

impl Target {
    /// Apple's GPUs from the M1 on: 1024 threads, 32 KiB of threadgroup memory, 31 buffers, 4 KiB of numbers.
    pub fn metal(threads: usize) -> Target {
        let limits =
            Limits { threads: 1024, threadgroup_memory: 32 << 10, buffers: 31, numbers: 4 << 10, registers: 1024 };
        Target { dialect: Dialect::Metal, threads, stages: 1, limits }
    }

    /// NVIDIA's GPUs: 1024 threads, 48 KiB of shared memory without a request, 4 KiB of arguments.
    pub fn cuda(threads: usize) -> Target {
        let limits =
            Limits { threads: 1024, threadgroup_memory: 48 << 10, buffers: 512, numbers: 4 << 10, registers: 1024 };
        Target { dialect: Dialect::Cuda, threads, stages: 2, limits }
    }

    /// How many bits a thread's index has.
    pub(crate) fn thread_bits(&self) -> usize {
        self.threads.trailing_zeros() as usize
    }
}
