//! Running a compiled graph from buffers.

use super::super::Buffer;
use super::super::mps::data_type;
use super::super::raw::RawCommandBuffer;
use super::{Executable, shape};
use crate::error::{Error, Result};
use crate::matrix::TensorView;
use objc2::rc::Retained;
use objc2::{AnyThread, available};
use objc2_foundation::NSArray;
use objc2_metal_performance_shaders::{MPSCommandBuffer, MPSNDArray, MPSNDArrayDescriptor};
use objc2_metal_performance_shaders_graph::{MPSGraphExecutableExecutionDescriptor, MPSGraphTensorData};

/// Encodes a run into a command buffer without an open encoder. MPSGraph may commit that one in between and go on in another, which is
/// returned.
pub fn encode(
    executable: &Executable,
    commands: &RawCommandBuffer,
    inputs: &[TensorView<Buffer>],
    outputs: &[TensorView<Buffer>],
) -> Result<Retained<RawCommandBuffer>> {
    let inputs = data(&executable.feeds, inputs)?;
    let outputs = data(&executable.targets, outputs)?;
    // SAFETY: the operands are as many as the executable has, and dense tensors within their buffers.
    unsafe {
        let wrapped = MPSCommandBuffer::commandBufferWithCommandBuffer(commands);
        let descriptor = MPSGraphExecutableExecutionDescriptor::new();
        descriptor.setWaitUntilCompleted(false);
        executable.raw.encodeToCommandBuffer_inputsArray_resultsArray_executionDescriptor(
            &wrapped,
            &inputs,
            Some(&outputs),
            Some(&descriptor),
        );
        Ok(wrapped.rootCommandBuffer())
    }
}

/// Operands in the executable's own order.
fn data(order: &[usize], views: &[TensorView<Buffer>]) -> Result<Retained<NSArray<MPSGraphTensorData>>> {
    if order.len() != views.len() {
        let (kernel, expected, given) = ("graph".to_string(), order.len(), views.len());
        return Err(Error::ArgumentCount { kernel, expected, given });
    }
    let data: Result<Vec<_>> = order.iter().map(|&index| tensor(&views[index])).collect();
    Ok(NSArray::from_retained_slice(&data?))
}

fn tensor(view: &TensorView<Buffer>) -> Result<Retained<MPSGraphTensorData>> {
    let (lengths, of) = (shape(&view.shape), data_type(view.dtype));
    if view.offset == 0 {
        // SAFETY: the tensor was checked to lie in the buffer.
        return Ok(unsafe {
            MPSGraphTensorData::initWithMTLBuffer_shape_dataType(
                MPSGraphTensorData::alloc(),
                view.buffer.raw(),
                &lengths,
                of,
            )
        });
    }
    if !available!(macos = 15.0) {
        return Err(Error::TooOld { what: "a tensor that begins inside a buffer", major: 15, minor: 0 });
    }
    // SAFETY: the tensor was checked to lie in the buffer from the offset on; rows are packed, as ours are.
    unsafe {
        let descriptor = MPSNDArrayDescriptor::descriptorWithDataType_shape(of, &lengths);
        descriptor.setPreferPackedRows(true);
        let array = MPSNDArray::initWithBuffer_offset_descriptor(
            MPSNDArray::alloc(),
            view.buffer.raw(),
            view.offset,
            &descriptor,
        );
        Ok(MPSGraphTensorData::initWithMPSNDArray(MPSGraphTensorData::alloc(), &array))
    }
}
