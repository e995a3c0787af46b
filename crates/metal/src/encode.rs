//! One kernel onto one encoder, whoever owns it: the encoder of openmps's own command buffers, or that of the program that owns the GPU.

use crate::arguments::{Kernel, Table};
use crate::error::Result;
use crate::interface::{CommandBuffer, Grid, Metal, PipelineLimits, Properties, Size};
use crate::limits;

/// What a compute command encoder must be able to do so that a kernel can be put onto it.
pub trait Encoder {
    /// Memory.
    type Buffer;
    /// A compiled kernel.
    type Pipeline;

    /// Chooses the kernel of the next dispatch.
    fn set_pipeline(&mut self, pipeline: &Self::Pipeline) -> Result<()>;

    /// Binds memory to `[[buffer(index)]]`; `written` says whether the kernel may write it, for encoders that order dispatches by that.
    fn set_buffer(&mut self, index: usize, buffer: &Self::Buffer, offset: usize, written: bool) -> Result<()>;

    /// Binds a copy of some bytes to `[[buffer(index)]]`, 4096 at most.
    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()>;

    /// Gives `[[threadgroup(index)]]` its length, a multiple of 16.
    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()>;

    /// Runs the kernel, in threadgroups of so many threads.
    ///
    /// # Safety
    /// As for [`CommandBuffer::dispatch`].
    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()>;
}

/// As [`kernel`], after the dispatch was held to the limits of the device and of its pipeline.
///
/// # Safety
/// As for [`CommandBuffer::dispatch`].
pub unsafe fn checked<E: Encoder>(
    encoder: &mut E,
    device: &Properties,
    limits: &PipelineLimits,
    kernel: &Kernel,
    pipeline: &E::Pipeline,
    table: &Table<E::Buffer>,
    grid: Grid,
) -> Result<()> {
    let memory = kernel.given_threadgroup_memory();
    limits::check_dispatch(kernel.name(), device, limits, grid, kernel.threads, memory)?;
    // SAFETY: passed on to the caller.
    unsafe { self::kernel(encoder, kernel, pipeline, table, grid) }
}

/// Encodes one run of a kernel: its pipeline, its argument table, its threadgroup memory, the dispatch. The caller has held it to the limits.
///
/// # Safety
/// As for [`CommandBuffer::dispatch`].
pub unsafe fn kernel<E: Encoder>(
    encoder: &mut E,
    kernel: &Kernel,
    pipeline: &E::Pipeline,
    table: &Table<E::Buffer>,
    grid: Grid,
) -> Result<()> {
    encoder.set_pipeline(pipeline)?;
    for (index, found, written) in &table.buffers {
        encoder.set_buffer(*index, &found.buffer, found.offset, *written)?;
    }
    for (index, bytes) in &table.bytes {
        encoder.set_bytes(*index, bytes)?;
    }
    for (index, bytes) in kernel.threadgroup_memory.iter().enumerate() {
        encoder.set_threadgroup_memory(index, bytes.next_multiple_of(limits::THREADGROUP_MEMORY_ALIGNMENT))?;
    }
    // SAFETY: passed on to the caller.
    unsafe { encoder.dispatch(grid, kernel.threads) }
}

/// A command buffer of this interface as an encoder. The order of its dispatches is kept by whoever puts barriers between them.
pub struct Seam<'a, M: Metal>(pub &'a mut M::CommandBuffer);

impl<M: Metal> Encoder for Seam<'_, M> {
    type Buffer = M::Buffer;
    type Pipeline = M::Pipeline;

    fn set_pipeline(&mut self, pipeline: &M::Pipeline) -> Result<()> {
        self.0.set_pipeline(pipeline)
    }

    fn set_buffer(&mut self, index: usize, buffer: &M::Buffer, offset: usize, _written: bool) -> Result<()> {
        self.0.set_buffer(index, buffer, offset)
    }

    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        self.0.set_bytes(index, bytes)
    }

    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()> {
        self.0.set_threadgroup_memory(index, bytes)
    }

    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.0.dispatch(grid, threads) }
    }
}
