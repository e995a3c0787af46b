//! A command buffer and its encoder: one is open at a time, of compute or of copies, and calls of MPS end it.

use super::raw::{RawCommandBuffer, RawDevice};
use super::{AppleMetal, Buffer, Event, Executable, Pipeline, graph, mps, text};
use crate::error::{Error, Result};
use crate::interface::{CommandBuffer, Completed, Completion, Grid, Size};
use crate::matrix::{MatrixCall, TensorView};
use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSRange, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandBufferError, MTLCommandEncoder,
    MTLComputeCommandEncoder, MTLDispatchType, MTLSize,
};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

enum Encoder {
    None,
    Compute(Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>),
    Blit(Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>),
}

/// A command buffer that takes commands.
pub struct Commands {
    device: Retained<RawDevice>,
    raw: Retained<RawCommandBuffer>,
    encoder: Encoder,
    label: String,
    /// Errors of command buffers that MPSGraph committed in the middle of its encoding, in place of which `raw` goes on.
    earlier: Arc<Mutex<Option<Error>>>,
}

// SAFETY: Metal lets any thread encode, one at a time; `&mut self` sees to that.
unsafe impl Send for Commands {}

/// A command buffer on its way.
pub struct Committed {
    raw: Retained<RawCommandBuffer>,
}

// SAFETY: a committed command buffer is only waited for, which Metal allows from any thread.
unsafe impl Send for Committed {}
// SAFETY: as above.
unsafe impl Sync for Committed {}

impl Committed {
    /// Blocks until it has ended and its handlers have been called.
    pub fn wait(&self) {
        self.raw.waitUntilCompleted();
    }
}

impl Commands {
    pub(super) fn new(device: Retained<RawDevice>, raw: Retained<RawCommandBuffer>, label: &str) -> Commands {
        Commands { device, raw, encoder: Encoder::None, label: label.to_string(), earlier: Arc::default() }
    }

    fn compute(&mut self) -> Result<&ProtocolObject<dyn MTLComputeCommandEncoder>> {
        if !matches!(self.encoder, Encoder::Compute(_)) {
            self.end_encoding();
            let encoder = self.raw.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent);
            self.encoder = Encoder::Compute(encoder.ok_or(Error::NotMade { what: "compute command encoder" })?);
        }
        match &self.encoder {
            Encoder::Compute(encoder) => Ok(encoder),
            _ => Err(Error::NotMade { what: "compute command encoder" }),
        }
    }

    fn blit(&mut self) -> Result<&ProtocolObject<dyn MTLBlitCommandEncoder>> {
        if !matches!(self.encoder, Encoder::Blit(_)) {
            self.end_encoding();
            let encoder = self.raw.blitCommandEncoder();
            self.encoder = Encoder::Blit(encoder.ok_or(Error::NotMade { what: "blit command encoder" })?);
        }
        match &self.encoder {
            Encoder::Blit(encoder) => Ok(encoder),
            _ => Err(Error::NotMade { what: "blit command encoder" }),
        }
    }

    fn end_encoding(&mut self) {
        match std::mem::replace(&mut self.encoder, Encoder::None) {
            Encoder::None => {}
            Encoder::Compute(encoder) => encoder.endEncoding(),
            Encoder::Blit(encoder) => encoder.endEncoding(),
        }
    }

    /// Notes the error of the present command buffer, should MPSGraph commit it on its own and go on with another.
    fn watch(&self) {
        let (earlier, label) = (self.earlier.clone(), self.label.clone());
        on_completed(&self.raw, move |raw| {
            if let Some(error) = error_of(raw, &label) {
                earlier.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
    }
}

impl CommandBuffer<AppleMetal> for Commands {
    fn set_pipeline(&mut self, pipeline: &Pipeline) -> Result<()> {
        self.compute()?.setComputePipelineState(&pipeline.raw);
        Ok(())
    }

    fn set_buffer(&mut self, index: usize, buffer: &Buffer, offset: usize) -> Result<()> {
        // SAFETY: the encoder above checked that the offset lies in the buffer and the index in the table.
        unsafe { self.compute()?.setBuffer_offset_atIndex(Some(buffer.raw()), offset, index) };
        Ok(())
    }

    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let pointer = NonNull::from(bytes).cast();
        // SAFETY: the pointer and the length are those of a slice, which Metal copies at once.
        unsafe { self.compute()?.setBytes_length_atIndex(pointer, bytes.len(), index) };
        Ok(())
    }

    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()> {
        // SAFETY: the length was checked against the device's limit and is a multiple of 16.
        unsafe { self.compute()?.setThreadgroupMemoryLength_atIndex(bytes, index) };
        Ok(())
    }

    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()> {
        let encoder = self.compute()?;
        match grid {
            Grid::Threadgroups(count) => encoder.dispatchThreadgroups_threadsPerThreadgroup(size(count), size(threads)),
            Grid::Threads(count) => encoder.dispatchThreads_threadsPerThreadgroup(size(count), size(threads)),
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<()> {
        self.compute()?.memoryBarrierWithScope(MTLBarrierScope::Buffers);
        Ok(())
    }

    unsafe fn fill(&mut self, buffer: &Buffer, range: Range<usize>, byte: u8) -> Result<()> {
        let range = NSRange::new(range.start, range.len());
        self.blit()?.fillBuffer_range_value(buffer.raw(), range, byte);
        Ok(())
    }

    unsafe fn copy(&mut self, destination: (&Buffer, usize), source: (&Buffer, usize), bytes: usize) -> Result<()> {
        // SAFETY: the caller's ranges lie in their buffers and do not overlap.
        unsafe {
            self.blit()?.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                source.0.raw(),
                source.1,
                destination.0.raw(),
                destination.1,
                bytes,
            );
        }
        Ok(())
    }

    /// The kernels of MPS's matrices make an encoder of their own, each: they have `encodeToCommandBuffer:` alone, other than those of MPS's
    /// arrays, which also take an encoder.
    unsafe fn matrix(&mut self, call: &MatrixCall<Buffer>) -> Result<()> {
        self.end_encoding();
        mps::encode(&self.device, &self.raw, call)
    }

    unsafe fn graph(
        &mut self,
        executable: &Executable,
        inputs: &[TensorView<Buffer>],
        outputs: &[TensorView<Buffer>],
    ) -> Result<()> {
        self.end_encoding();
        self.watch();
        self.raw = graph::encode(executable, &self.raw, inputs, outputs)?;
        Ok(())
    }

    fn signal(&mut self, event: &Event, value: u64) -> Result<()> {
        self.end_encoding();
        self.raw.encodeSignalEvent_value(ProtocolObject::from_ref(&*event.raw), value);
        Ok(())
    }

    fn wait(&mut self, event: &Event, value: u64) -> Result<()> {
        self.end_encoding();
        self.raw.encodeWaitForEvent_value(ProtocolObject::from_ref(&*event.raw), value);
        Ok(())
    }

    fn push_group(&mut self, name: &str) {
        // A group of the command buffer holds whole encoders, and these stay open over many dispatches: the encoder has groups of its own.
        if let Encoder::Compute(encoder) = &self.encoder {
            encoder.insertDebugSignpost(&NSString::from_str(name));
        }
    }

    fn pop_group(&mut self) {}

    fn commit(mut self, completed: Completed) -> Committed {
        self.end_encoding();
        let once = Mutex::new(Some(completed));
        let (earlier, label) = (self.earlier.clone(), self.label.clone());
        on_completed(&self.raw, move |raw| {
            let before = earlier.lock().unwrap_or_else(PoisonError::into_inner).take();
            let error = before.or_else(|| error_of(raw, &label));
            let completion = Completion { error, gpu_start: raw.GPUStartTime(), gpu_end: raw.GPUEndTime() };
            let completed = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(completed) = completed {
                completed(completion);
            }
        });
        self.raw.commit();
        Committed { raw: self.raw.clone() }
    }
}

impl Drop for Commands {
    /// Metal ends the process over an encoder that goes before it was ended.
    fn drop(&mut self) {
        self.end_encoding();
    }
}

fn size([width, height, depth]: Size) -> MTLSize {
    MTLSize { width, height, depth }
}

/// Calls a function on a thread of Metal's when a command buffer has ended. No panic leaves it.
fn on_completed(raw: &RawCommandBuffer, handler: impl Fn(&RawCommandBuffer) + Send + Sync + 'static) {
    let block = RcBlock::new(move |raw: NonNull<RawCommandBuffer>| {
        autoreleasepool(|_| {
            // SAFETY: Metal hands over the command buffer, which lives through the call.
            let raw = unsafe { raw.as_ref() };
            // The panic hook has reported it; unwinding into Metal would end the process without a word.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(raw)));
        });
    });
    // SAFETY: the block is of the type that Metal calls, and Metal copies it.
    unsafe { raw.addCompletedHandler(RcBlock::as_ptr(&block)) };
}

fn error_of(raw: &RawCommandBuffer, label: &str) -> Option<Error> {
    let error = raw.error()?;
    Some(Error::CommandBuffer { label: label.to_string(), kind: kind_of(&error), message: text(&error) })
}

/// `MTLCommandBufferError` in words.
fn kind_of(error: &NSError) -> &'static str {
    match MTLCommandBufferError(error.code() as usize) {
        MTLCommandBufferError::Timeout => "timeout",
        MTLCommandBufferError::PageFault => "page fault",
        MTLCommandBufferError::AccessRevoked => "access revoked",
        MTLCommandBufferError::NotPermitted => "not permitted",
        MTLCommandBufferError::OutOfMemory => "out of memory",
        MTLCommandBufferError::InvalidResource => "invalid resource",
        MTLCommandBufferError::Memoryless => "memoryless resource",
        MTLCommandBufferError::DeviceRemoved => "device removed",
        MTLCommandBufferError::StackOverflow => "stack overflow",
        _ => "internal error",
    }
}
