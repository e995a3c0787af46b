//! A custom operator on an external GPU: its owner's buffers become views, the operator's kernels go onto the owner's encoder,
//! and nothing is copied. On a Mac the owner is Candle; tests on Linux have one that executes the kernels' text on the CPU.

use crate::forward::Forward;
use candle_core::{DType, Error, Layout, Result, Shape};
use openmps::operators::{Queue, View};
use openmps::runtime::external::{ExternalDevice, ExternalGpu};

/// A tensor in the external GPU's memory.
pub(crate) struct Given<'a, B> {
    pub buffer: B,
    /// The buffer's length in bytes.
    pub bytes: usize,
    pub dtype: DType,
    pub layout: &'a Layout,
}

/// The result: the handle on a fresh buffer of the owner's, its elements and their type, and its dimensions.
pub(crate) struct Made<H> {
    pub handle: H,
    pub count: usize,
    pub dtype: DType,
    pub shape: Shape,
}

/// Encodes an operator; its held tensors are the last of `inputs`. `make` gives a fresh buffer for so many elements, and what
/// the owner holds it by.
pub(crate) fn forward<E: ExternalGpu, H>(
    device: &ExternalDevice<E>,
    op: &dyn Forward,
    inputs: &[Given<E::Buffer>],
    make: impl FnOnce(usize, DType) -> Result<(E::Buffer, H)>,
) -> Result<Made<H>> {
    let borrowed: Vec<_> = inputs.iter().map(|input| device.borrow(input.buffer.clone(), input.bytes, false)).collect();
    let views = inputs
        .iter()
        .zip(&borrowed)
        .map(|(input, buffer)| view(input, buffer.address()))
        .collect::<Result<Vec<_>>>()?;
    let result = op.result(&views)?;
    let count = openmps::operators::view::elements(&result.shape).map_err(Error::wrap)?;
    let dtype = crate::operand::candle_type(result.dtype)?;
    let (buffer, handle) = make(count, dtype)?;
    let fresh = device.borrow(buffer, count * result.dtype.size(), true);
    let out = View::dense(fresh.address(), result.dtype, &result.shape).map_err(Error::wrap)?;
    let queue = device.device().queue();
    // SAFETY: the views are of buffers that are borrowed until the end of this function; the owner's encoder, on which the kernels are then, keeps
    // them, and orders the kernels behind whatever wrote them.
    op.submit(unsafe { Queue::vouched(&queue) }, &views, &out)?;
    Ok(Made { handle, count, dtype, shape: Shape::from_dims(&op.dims(&result)) })
}

fn view<B>(input: &Given<B>, address: usize) -> Result<View> {
    let dtype = crate::operand::data_type(input.dtype);
    let dtype = dtype.ok_or_else(|| Error::msg(format!("openmps has no element type for {:?}", input.dtype)))?;
    let strides: Vec<isize> = input.layout.stride().iter().map(|&stride| stride as isize).collect();
    let first = address + input.layout.start_offset() * dtype.size();
    View::strided(first, dtype, input.layout.dims(), &strides).map_err(Error::wrap)
}

/// How an operator's file adds its cases to the test: a name, the operator, the shapes of its operands.
#[cfg(test)]
pub(crate) type AddCase<'a> = dyn FnMut(&'static str, Box<dyn Forward>, &'static [&'static [usize]]) + 'a;

#[cfg(all(test, target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
