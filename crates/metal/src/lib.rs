//! Metal, MPS and MPSGraph: what openmps says to an Apple GPU, behind the trait [`Metal`], and the encoder over that trait.
//!
//! Three things speak the trait: `apple` (Metal itself, compiled for macOS only), [`recorder`] (runs nothing, notes everything down and
//! holds the encoder to its promises) and an emulator that executes the kernels' text on a CPU. All that decides something (when to commit,
//! what to keep alive, which buffer an address lies in, which engine computes an operator, which shapes MPS takes) is plain Rust over the
//! trait and is tested without a Mac.

pub mod answers;
#[cfg(all(feature = "apple", target_vendor = "apple"))]
pub mod apple;
pub mod arguments;
pub mod bytes;
pub mod cache;
pub mod completions;
pub mod defects;
#[cfg(all(feature = "emulated", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub mod emulated;
pub mod encode;
pub mod engine;
pub mod error;
mod folder;
pub mod graph;
pub mod hazards;
pub mod interface;
pub mod limits;
pub mod matrix;
mod numbers;
pub mod pipelines;
pub mod recorder;
pub mod stream;
pub mod tensor_operations;

pub use cache::{Cache, CacheStatistics};
pub use error::{Error, Result};
pub use interface::{CommandBuffer, Completion, MathMode, Metal, PipelineKey, PipelineLimits, Properties};
pub use pipelines::{Executables, Pipelines};
pub use recorder::Recorder;
pub use stream::{CommitPolicy, Launch, Stream};
