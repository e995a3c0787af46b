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

mod argument;
mod buffer;
mod command_buffer;
mod data_type;
mod device;
mod encode;
mod error;
mod event;
pub mod graph;
mod interop;
mod kernel;
mod kernel_text;
mod matrix;
mod multiplication;
mod norm;
mod queue;
mod random;
mod softmax;
mod top_k;
mod vector;
mod vector_multiplication;

pub use argument::Argument;
pub use buffer::{Access, Buffer, Mapped, MappedMut};
pub use command_buffer::{CommandBuffer, Completion};
pub use data_type::{Element, mps_data_type};
pub use device::Device;
pub use error::{Error, Result};
pub use event::Event;
pub use graph::{Graph, GraphOptimizer, OptimizationLevel, TensorData};
#[cfg(feature = "safetensors")]
pub use interop::StoredView;
pub use kernel::{Kernel, Parameter};
pub use kernel_text::FunctionConstant;
pub use matrix::{Matrix, MatrixDescriptor, MatrixDescriptorBuilder};
pub use multiplication::{MatrixMultiplication, MatrixMultiplicationBuilder, Origin};
pub use norm::{LayerNorm, RmsNorm};
pub use openmps_runtime::metal::interface::Grid;
pub use queue::CommandQueue;
pub use random::{Distribution, MatrixRandom};
pub use softmax::{MatrixLogSoftMax, MatrixSoftMax};
pub use top_k::MatrixFindTopK;
pub use vector::{Vector, VectorDescriptor};
pub use vector_multiplication::MatrixVectorMultiplication;

/// Many processes, one job: communicators, and what goes between their ranks.
#[cfg(feature = "collective")]
pub use openmps_collective as collective;

/// The type of an element: `MPSDataType`.
///
/// ```
/// assert_eq!(openmps::DataType::BF16.size(), 2);
/// ```
pub use openmps_tile::DType as DataType;

/// How far a command buffer has come: `MTLCommandBufferStatus`.
///
/// ```
/// use openmps::{CommandBufferStatus, Device};
/// let command_buffer = Device::get(0)?.queue().command_buffer();
/// assert_eq!(command_buffer.status(), CommandBufferStatus::NotEnqueued);
/// # Ok::<(), openmps::Error>(())
/// ```
pub use openmps_runtime::Status as CommandBufferStatus;

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
