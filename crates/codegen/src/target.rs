//! What text is written for: a language, a number of threads, and the limits of the devices that will run it.

use crate::dialect::Dialect;

/// Threads that run in step and exchange registers: Apple's simdgroups and NVIDIA's warps have as many.
pub const SIMD_WIDTH: usize = 32;

/// The units that multiply matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixUnit {
    /// Apple's `simdgroup_matrix` of 8 x 8.
    Simdgroup,
    /// Metal 4's tensor operations (`matmul2d`) by a simdgroup, which read factors from threadgroup memory: GPUs of Apple's generation 17 on.
    TensorOps,
    /// NVIDIA's `mma` of 16 x 8 x 16, of a warp.
    Warp,
    /// `wgmma` of 64 x 8..256 x 16, of four warps, which reads factors from shared memory: GPUs of compute capability 9 alone.
    Warpgroup,
}

/// What a kernel is written for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The language.
    pub dialect: Dialect,
    /// Threads of a threadgroup: a power of two from 32 on.
    pub threads: usize,
    /// What multiplies matrices.
    pub matrix_unit: MatrixUnit,
    /// Iterations of a loop of products whose factors are in flight at once: 1 loads them when they are needed, 2 one iteration ahead.
    pub stages: usize,
    /// Threadgroups for which one of NVIDIA's multiprocessors is to have room, so that one computes while another waits: the compiler spares registers for
    /// them. 1 leaves it free.
    pub residents: usize,
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
        Target { dialect: Dialect::Metal, threads, matrix_unit: MatrixUnit::Simdgroup, stages: 1, residents: 1, limits }
    }

    /// Those that multiply half types by tensor operations, where the system has them too: MSL 4.0.
    pub fn metal_with_tensor_operations(threads: usize) -> Target {
        Target { matrix_unit: MatrixUnit::TensorOps, ..Target::metal(threads) }
    }

    /// NVIDIA's GPUs from compute capability 8 on: 1024 threads, 48 KiB of shared memory without a request, 4 KiB of arguments.
    pub fn cuda(threads: usize) -> Target {
        let limits =
            Limits { threads: 1024, threadgroup_memory: 48 << 10, buffers: 512, numbers: 4 << 10, registers: 1024 };
        Target { dialect: Dialect::Cuda, threads, matrix_unit: MatrixUnit::Warp, stages: 2, residents: 1, limits }
    }

    /// Those of a major compute capability: 9 has units of its own.
    pub fn cuda_of_capability(threads: usize, major: i32) -> Target {
        let matrix_unit = if major == 9 { MatrixUnit::Warpgroup } else { MatrixUnit::Warp };
        Target { matrix_unit, ..Target::cuda(threads) }
    }

    /// How many bits a thread's index has.
    pub(crate) fn thread_bits(&self) -> usize {
        self.threads.trailing_zeros() as usize
    }
}
