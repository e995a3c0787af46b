//! The queue that operators run on: the runtime's, in the hands of someone who vouches for every view.

use crate::error::{Error, Result};
use crate::view::{View, expect_dense};
use openmps_runtime::{Backend, Device};
use std::ops::Deref;

/// Whether a device is the CPU itself, which native kernels are for.
pub(crate) fn is_host_device(device: &Device) -> bool {
    device.properties().backend == Backend::Host
}

/// A queue that operators may be run on.
///
/// Views name memory by its address and borrow nothing, so an operator cannot know whether the memory is there. Whoever makes this queue
/// promises it, once, for every call that is given the queue: see [`Queue::vouched`]. Everything else of an operator's call (shapes, element
/// types, attributes, indices in the data) is checked by the operator, and wrong values of these are errors.
///
/// A program without `unsafe` cannot have one, and so cannot read or write through an address that it made up:
///
/// ```compile_fail,E0308
/// use openmps_graph::{DType, Operator, View, operators::copy::Copy};
/// let queue = openmps_runtime::Device::get(0).unwrap().queue();
/// let view = View::dense(16, DType::F32, &[4]).unwrap();
/// Copy.run(&queue, &[view.clone()], &[view]).unwrap();
/// ```
///
/// ```compile_fail,E0133
/// let queue = openmps_runtime::Device::get(0).unwrap().queue();
/// let queue = openmps_graph::Queue::vouched(&queue);
/// ```
///
/// Nor can it be given one, by an operator of its own:
///
/// ```compile_fail,E0277
/// use openmps_graph::{Array, Meta, Operator, Queue, Result, View};
/// #[derive(Debug)]
/// struct Mine;
/// impl Operator for Mine {
///     fn name(&self) -> &'static str { "mine" }
///     fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>> { Ok(vec![]) }
///     fn run(&self, _: &Queue, _: &[View], _: &[View]) -> Result<()> { Ok(()) }
///     fn reference(&self, _: &[Array]) -> Vec<Array> { vec![] }
/// }
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Queue(openmps_runtime::Queue);

impl Queue {
    /// Whether its device is the CPU itself.
    pub fn is_host(&self) -> bool {
        is_host_device(self.device())
    }

    /// The queue, for calls of operators.
    ///
    /// # Safety
    /// For every call that is given the queue, until the device has done the call's commands:
    /// * each view of an input names initialised memory that the queue's device reaches, and nobody writes it;
    /// * each view of an output names memory that the device may write, and nobody else reads or writes it; an output shares memory with an
    ///   input of the call only where the operator says that it may.
    ///
    /// So the queue stays with the code that makes the views: it is not handed on to a caller's own code.
    #[inline]
    pub unsafe fn vouched(queue: &openmps_runtime::Queue) -> &Queue {
        let queue: *const openmps_runtime::Queue = queue;
        // SAFETY: a transparent wrapper has the layout of what it wraps, and the reference lives as long.
        unsafe { &*queue.cast::<Queue>() }
    }

    /// Copies bytes into a dense tensor of as many bytes.
    pub fn write(&self, to: &View, bytes: &[u8]) -> Result<()> {
        check("write", to, bytes.len())?;
        // SAFETY: an output view, for which the queue's owner vouches.
        unsafe { self.0.write(to.address, bytes) }.map_err(failed("write"))
    }

    /// Copies a dense tensor of as many bytes to the host, after the queue's commands so far.
    pub fn read(&self, from: &View, bytes: &mut [u8]) -> Result<()> {
        check("read", from, bytes.len())?;
        // SAFETY: an input view, for which the queue's owner vouches.
        unsafe { self.0.read(bytes, from.address) }.map_err(failed("read"))
    }

    /// Writes one byte all over a dense tensor.
    pub fn fill(&self, to: &View, byte: u8) -> Result<()> {
        let bytes = to.len() * to.dtype.size();
        check("fill", to, bytes)?;
        // SAFETY: an output view, for which the queue's owner vouches.
        unsafe { self.0.fill(to.address, byte, bytes) }.map_err(failed("fill"))
    }
}

fn failed(operator: &'static str) -> impl FnOnce(openmps_runtime::Error) -> Error {
    move |source| Error::Device { operator, source }
}

fn check(operator: &'static str, view: &View, bytes: usize) -> Result<()> {
    expect_dense(operator, view)?;
    let expected = view.len() * view.dtype.size();
    if bytes == expected {
        return Ok(());
    }
    let expected = format!("{expected} for {:?} {}", view.shape, view.dtype);
    Err(Error::Attribute { operator, attribute: "number of bytes", got: bytes.to_string(), expected })
}

impl Deref for Queue {
    type Target = openmps_runtime::Queue;

    #[inline]
    fn deref(&self) -> &openmps_runtime::Queue {
        &self.0
    }
}
