//! Limits of Apple GPUs, from Apple's "Metal Feature Set Tables" (families Apple7 and later) and the reference of
//! MTLComputeCommandEncoder.

/// Threads of a threadgroup.
pub const THREADS_PER_THREADGROUP: u32 = 1024;
/// Bytes of threadgroup memory, declared in the kernel and given at the dispatch together.
pub const THREADGROUP_MEMORY: usize = 32 * 1024;
/// Entries of the buffer argument table.
pub const BUFFERS: usize = 31;
/// Entries of the threadgroup memory argument table.
pub const THREADGROUP_ARGUMENTS: usize = 31;
/// Bytes of one `setBytes`.
pub const BYTES: usize = 4096;
/// What a threadgroup memory length is a multiple of.
pub const THREADGROUP_MEMORY_STEP: usize = 16;
/// The least alignment of an offset into a buffer that a kernel reads as `constant`.
pub const CONSTANT_ALIGNMENT: usize = 4;
/// Threads of a simdgroup.
pub const SIMD_WIDTH: u32 = 32;

/// A limit that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Limit {
    #[error("{given} threads a threadgroup are {} more than the {THREADS_PER_THREADGROUP} there can be", given - u64::from(THREADS_PER_THREADGROUP))]
    Threads { given: u64 },
    #[error("{given} threads a threadgroup are {} more than the {most} that the kernel declares", given - u64::from(*most))]
    DeclaredThreads { given: u64, most: u32 },
    #[error("a grid or threadgroup of {given:?} is empty in one dimension")]
    Empty { given: [u32; 3] },
    #[error(
        "{} bytes of threadgroup memory ({declared} declared, {given} given) are {} more than the {THREADGROUP_MEMORY} there are",
        declared + given, declared + given - THREADGROUP_MEMORY
    )]
    ThreadgroupMemory { declared: usize, given: usize },
    #[error("threadgroup({index}): a length of {given} bytes is not a multiple of {THREADGROUP_MEMORY_STEP}")]
    ThreadgroupMemoryStep { index: usize, given: usize },
    #[error("{given} buffers are {} more than the {BUFFERS} there can be", given - BUFFERS)]
    Buffers { given: usize },
    #[error("{given} threadgroup memory arguments are {} more than the {THREADGROUP_ARGUMENTS} there can be", given - THREADGROUP_ARGUMENTS)]
    ThreadgroupArguments { given: usize },
    #[error("buffer({index}): {given} bytes given in place are {} more than the {BYTES} there can be", given - BYTES)]
    Bytes { index: usize, given: usize },
    #[error("buffer({index}): address {address:#x} is not a multiple of {needed}, the alignment of what it points to")]
    Alignment { index: usize, address: usize, needed: usize },
}
