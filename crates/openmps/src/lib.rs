//! Deep learning on Metal Performance Shaders, without lock-in: the public Rust API.
//!
//! Apple's objects in safe Rust: matrices over buffers, kernels that are encoded to command buffers, graphs that are compiled once. On
//! the host device they run on the CPU's vector instructions; shapes, batches, strides and errors are the same on every device.
//!
//! ```
//! use openmps::{DataType, Device, Matrix, MatrixDescriptor, MatrixMultiplication};
//!
//! let device = Device::get(0)?;
//! let left = Matrix::from_slice(&device, 2, 3, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let right = Matrix::from_slice(&device, 3, 1, &[1.0f32, 0.0, -1.0])?;
//! let result = Matrix::zeros(&device, &MatrixDescriptor::dense(2, 1, DataType::F32)?)?;
//!
//! let multiplication = MatrixMultiplication::new(&device, false, false, 2, 1, 3, 1.0, 0.0)?;
//! let command_buffer = device.queue().command_buffer();
//! multiplication.encode(&command_buffer, &left, &right, &result)?;
//! command_buffer.commit()?;
//! command_buffer.wait_until_completed()?;
//! assert_eq!(result.read::<f32>()?, [-2.0, -2.0]);
//! # Ok::<(), openmps::Error>(())
//! ```

mod buffer;
mod data_type;
mod encode;
mod error;
pub mod graph;
mod interop;
mod kernel;
mod kernel_text;
mod matrix;
mod multiplication;
mod norm;
mod random;
mod softmax;
mod top_k;
mod vector;

pub use buffer::{Buffer, Mapped, MappedMut};
pub use data_type::{Element, mps_data_type};
pub use error::{Error, Result};
pub use graph::{Graph, GraphOptimizer, OptimizationLevel, TensorData};
#[cfg(feature = "safetensors")]
pub use interop::StoredView;
pub use kernel::{Argument, Kernel, Parameter};
pub use kernel_text::FunctionConstant;
pub use matrix::{Matrix, MatrixDescriptor, MatrixDescriptorBuilder};
pub use multiplication::{MatrixMultiplication, MatrixMultiplicationBuilder, MatrixVectorMultiplication, Origin};
pub use norm::{LayerNorm, RmsNorm};
pub use random::{Distribution, MatrixRandom};
pub use softmax::{MatrixLogSoftMax, MatrixSoftMax};
pub use top_k::MatrixFindTopK;
pub use vector::{Vector, VectorDescriptor};

/// Many processes, one job: communicators, and what goes between their ranks.
#[cfg(feature = "collective")]
pub use openmps_collective as collective;

/// The type of an element: `MPSDataType`.
///
/// ```
/// assert_eq!(openmps::DataType::BF16.size(), 2);
/// ```
pub use openmps_tile::DType as DataType;

/// A device: `MTLDevice`. Clones are the same device. [`Device::get`] is of the kind that `OPENMPS_DEVICE` names; [`Device::host`],
/// [`Device::metal`] and [`Device::cuda`] are of their own, and a process may use all of them.
///
/// ```
/// let device = openmps::Device::get(0)?;
/// assert!(device.properties().unified_memory);
/// assert_eq!(openmps::Device::host(0)?.properties().backend.name(), "host");
/// assert!(openmps::Device::of_every_kind().contains(&openmps::Device::host(0)?));
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::Device;

/// An ordered stream of work on a device: `MTLCommandQueue`.
///
/// ```
/// let queue: openmps::CommandQueue = openmps::Device::get(0)?.new_queue();
/// queue.synchronize()?;
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::Queue as CommandQueue;

/// Commands that run together: `MTLCommandBuffer`, with its rules. Encode, commit once, wait; buffers of a queue run in the order in
/// which they were enqueued.
///
/// ```
/// use openmps::{CommandBufferStatus, Device};
/// let command_buffer = Device::get(0)?.queue().command_buffer();
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(command_buffer.status(), CommandBufferStatus::Completed);
/// assert!(command_buffer.gpu_end_time() >= command_buffer.gpu_start_time());
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::CommandBuffer;

/// A command buffer as a future, for any executor: `command_buffer.await`.
///
/// ```
/// # use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Wake}, thread::{self, Thread}};
/// # struct Parked(Thread);
/// # impl Wake for Parked { fn wake(self: Arc<Self>) { self.0.unpark() } }
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let (mut future, waker) = (pin!(future), Arc::new(Parked(thread::current())).into());
/// #     loop {
/// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
/// #             Poll::Ready(output) => return output,
/// #             Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// let command_buffer = openmps::Device::get(0)?.queue().command_buffer();
/// command_buffer.commit()?;
/// block_on(async { command_buffer.await })?;
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::command_buffer::Completion;

/// How far a command buffer has come: `MTLCommandBufferStatus`.
///
/// ```
/// use openmps::{CommandBufferStatus, Device};
/// let command_buffer = Device::get(0)?.queue().command_buffer();
/// assert_eq!(command_buffer.status(), CommandBufferStatus::NotEnqueued);
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::Status as CommandBufferStatus;

/// A point in a queue's order: `MTLSharedEvent`.
///
/// ```
/// use openmps::{Device, Event};
/// let (event, queue) = (Event::new(), Device::get(0)?.queue());
/// assert!(!event.query());
/// queue.record(&event)?;
/// event.synchronize()?;
/// assert!(event.query());
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::Event;

/// Half precision element types, as the crate `half` has them.
///
/// ```
/// assert_eq!(openmps::f16::from_f32(0.5).to_f32(), 0.5);
/// ```
pub use half::{bf16, f16};

/// The operators below the objects of this crate, for those who write a frontend.
///
/// ```
/// assert!(openmps::operators::operators::ENTRIES.iter().flat_map(|family| family.iter()).any(|entry| entry.name == "matmul"));
/// ```
pub use openmps_graph as operators;

/// Devices, queues, tracing and statistics in full.
///
/// ```
/// assert!(openmps::runtime::Device::all().len() >= 1);
/// ```
pub use openmps_runtime as runtime;

/// The kernel language of [`Kernel`].
///
/// ```
/// let kernel = openmps::tile::Builder::new("empty").finish();
/// assert!(openmps::tile::verify(&kernel).is_ok());
/// ```
pub use openmps_tile as tile;
