//! The trait [`Metal`]: everything that openmps says to an Apple GPU. Narrow on purpose: what is not here is not used.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::matrix::{MatrixCall, TensorView};
use openmps_tile::DType;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

/// Threadgroups or threads along x, y and z.
pub type Size = [usize; 3];

/// How much of a kernel a dispatch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// So many threadgroups, all of them whole (`dispatchThreadgroups:threadsPerThreadgroup:`).
    Threadgroups(Size),
    /// So many threads; threadgroups at the edges are cut off (`dispatchThreads:threadsPerThreadgroup:`).
    Threads(Size),
}

impl Grid {
    /// Threadgroups along each axis, of so many threads each, those counted that are cut off.
    pub fn threadgroups(self, threads: Size) -> Size {
        match self {
            Grid::Threadgroups(count) => count,
            Grid::Threads(count) => [0, 1, 2].map(|axis| count[axis].div_ceil(threads[axis].max(1))),
        }
    }

    /// Whether nothing is to be run.
    pub fn is_empty(self) -> bool {
        let (Grid::Threadgroups(count) | Grid::Threads(count)) = self;
        count.contains(&0)
    }
}

impl From<Size> for Grid {
    fn from(threadgroups: Size) -> Grid {
        Grid::Threadgroups(threadgroups)
    }
}

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The marketing name (`MTLDevice.name`), such as "Apple M2".
    pub name: String,
    /// Metal's number of the device, the same for as long as the machine is up (`registryID`).
    pub registry: u64,
    /// Whether the CPU and the GPU share memory (`hasUnifiedMemory`). openmps needs it.
    pub unified_memory: bool,
    /// Bytes that may be in use without the system paging (`recommendedMaxWorkingSetSize`).
    pub working_set: usize,
    /// The longest buffer in bytes (`maxBufferLength`).
    pub max_buffer: usize,
    /// Threads of a threadgroup at most (`maxThreadsPerThreadgroup`), per dimension.
    pub max_threads: Size,
    /// Threadgroup memory in bytes (`maxThreadgroupMemoryLength`).
    pub max_threadgroup_memory: usize,
    /// The GPU's cores, 0 where the system does not tell.
    pub cores: usize,
    /// The newest `MTLGPUFamilyApple` number, 0 where none is supported: 7 is the M1, 8 the M2, 9 the M3 and the M4.
    pub family: u32,
    /// The GPU's architecture (`MTLArchitecture.name`), such as "applegpu_g16s"; empty before macOS 14.
    pub architecture: String,
    /// Whether kernels may use `bfloat`: MSL 3.1, so macOS 14.
    pub bfloat: bool,
    /// Whether kernels may pass memory between threadgroups (`coherent(device)`): MSL 3.2, so macOS 15.
    pub coherence: bool,
    /// Whether MPSGraph takes tensors that begin inside a buffer (`MPSNDArray initWithBuffer:offset:descriptor:`), so macOS 15.
    pub tensor_offsets: bool,
    /// Whether MPSGraph has scaled dot product attention: macOS 15.
    pub attention: bool,
    /// Whether products of MPS and MPSGraph take dimensions above 32,768: macOS 14.4.
    pub long_products: bool,
    /// Whether convolutions of MPSGraph take dimensions above 65,536: macOS 15.1.
    pub long_convolutions: bool,
    /// Whether kernels may use tensor operations (`mpp::tensor_ops`) as openmps does: macOS 26.2. Whether they should is the GPU's matter, too
    /// (`openmps_metal::tensor_operations`).
    pub tensor_operations: bool,
    /// The build of macOS, such as 24B83 (`kern.osversion`); empty where there is none.
    pub os_build: String,
    /// Whether MPS and MPSGraph run on it (`MPSSupportsMTLDevice`).
    pub mps: bool,
}

/// How the compiler may treat floating-point arithmetic (`MTLMathMode`; before macOS 15 `fastMathEnabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathMode {
    /// IEEE 754 without contraction to be relied on; NaN and infinities are kept. What openmps uses.
    Safe,
    /// Reassociation, no NaN, no infinities.
    Fast,
}

/// The version of the Metal Shading Language (`MTLLanguageVersion`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Metal 3.0: macOS 13.
    Metal3_0,
    /// Metal 3.1: macOS 14; has `bfloat`.
    Metal3_1,
    /// Metal 3.2: macOS 15.
    Metal3_2,
    /// Metal 4.0: macOS 26; has tensors and their operations.
    Metal4_0,
}

impl Properties {
    /// The newest language that its compiler has, of those that openmps knows.
    pub fn language(&self) -> Language {
        match (self.tensor_operations, self.coherence, self.bfloat) {
            (true, ..) => Language::Metal4_0,
            (false, true, _) => Language::Metal3_2,
            (false, false, true) => Language::Metal3_1,
            (false, false, false) => Language::Metal3_0,
        }
    }
}

impl Language {
    /// The oldest that has what a text uses, so that it compiles on the oldest macOS that can: `newest` at most, as a text may have parts for newer
    /// ones (`#if __METAL_VERSION__ >= 400`).
    pub fn of(source: &str, newest: Language) -> Language {
        let uses = |words: &[&str]| words.iter().any(|word| source.contains(word));
        let oldest = match () {
            () if uses(&["metal_tensor", "MetalPerformancePrimitives"]) => Language::Metal4_0,
            () if uses(&["coherent(device)"]) => Language::Metal3_2,
            () if uses(&["bfloat"]) => Language::Metal3_1,
            () => Language::Metal3_0,
        };
        oldest.min(newest)
    }
}

/// All that a pipeline depends on, compared for equality as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineKey {
    /// The library's text.
    pub source: std::sync::Arc<str>,
    /// The kernel's name in it.
    pub entry: String,
    /// How it is compiled.
    pub math: MathMode,
    /// The language that it is written in.
    pub language: Language,
    /// Threads of its threadgroups at most (`maxTotalThreadsPerThreadgroup` of the descriptor), so that the compiler spares registers; 0 leaves
    /// it to the compiler, and [`PipelineLimits`] says how many there may be.
    pub threads: usize,
    /// Values of the text's function constants (`MTLFunctionConstantValues`).
    pub constants: Vec<FunctionConstant>,
}

/// The value of a function constant: `constant float x [[function_constant(index)]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionConstant {
    /// Its number in the text.
    pub index: u32,
    /// Its type, which is not float64, nor bfloat16: Metal has no constants of these.
    pub dtype: DType,
    /// The element as it lies in memory, the bytes after its size zero.
    pub element: [u8; 8],
}

impl std::hash::Hash for PipelineKey {
    /// Without the text: it is long, looked for at every launch, and mostly the same memory when it is compared.
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.source.len(), &self.entry, self.math, self.language, self.threads, &self.constants).hash(state);
    }
}

/// What a compiled pipeline allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineLimits {
    /// Threads a threadgroup (`maxTotalThreadsPerThreadgroup`); fewer than the device's where the kernel needs many registers.
    pub max_threads: usize,
    /// Threads of a simdgroup (`threadExecutionWidth`).
    pub simd_width: usize,
    /// Threadgroup memory that the kernel declares itself, in bytes (`staticThreadgroupMemoryLength`).
    pub static_threadgroup_memory: usize,
}

/// How a command buffer ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The command buffer's error; none where it completed.
    pub error: Option<Error>,
    /// When the GPU began with it, in seconds on the system's clock.
    pub gpu_start: f64,
    /// When the GPU was done.
    pub gpu_end: f64,
}

/// Called once, on a thread of Metal's, when a command buffer has ended.
pub type Completed = Box<dyn FnOnce(Completion) + Send>;

/// One GPU, as openmps uses it. Implementations are Metal, the recorder and the emulator.
///
/// # Safety
/// What the methods say of memory is true: a buffer has the length that was asked for, and its contents, where there are any, are that many
/// bytes until the last handle on it goes. Callers follow these addresses.
pub unsafe trait Metal: Send + Sync + Sized + 'static {
    /// Memory in shared storage (`MTLBuffer`). Clones are the same memory, which goes with the last; equal are those that are the same memory.
    type Buffer: Clone + PartialEq + Send + Sync + 'static;
    /// A compiled kernel (`MTLComputePipelineState`).
    type Pipeline: Clone + Send + Sync + 'static;
    /// `MTLCommandQueue`.
    type Queue: Send + Sync + 'static;
    /// A command buffer that takes commands.
    type CommandBuffer: CommandBuffer<Self>;
    /// A command buffer on its way, to be waited for.
    type Committed: Send + Sync + 'static;
    /// `MTLSharedEvent`: a number that only grows, set and awaited by any queue and by the host.
    type Event: Clone + Send + Sync + 'static;
    /// A compiled graph (`MPSGraphExecutable`).
    type Executable: Clone + Send + Sync + 'static;

    /// What the device says about itself.
    fn properties(&self) -> &Properties;

    /// Runs `work` within an autorelease pool: whatever Metal hands out for the moment goes at its end. Every other call of this trait and of
    /// [`CommandBuffer`] must be made within one.
    fn autorelease_pool<R>(&self, work: impl FnOnce() -> R) -> R;

    /// New memory in shared storage, in a heap of its own where the device has them. Its contents are undefined.
    fn allocate(&self, bytes: usize) -> Result<Self::Buffer>;

    /// The host's memory as a buffer, without a copy.
    ///
    /// # Safety
    /// `bytes` bytes at `address` stay valid for reading and writing until the last clone of the buffer has gone and every command that uses
    /// it has ended.
    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<Self::Buffer>;

    /// The first address of a buffer in the host's memory, and its length in bytes.
    fn contents(&self, buffer: &Self::Buffer) -> (usize, usize);

    /// Compiles a library and makes the pipeline of one kernel.
    fn pipeline(&self, key: &PipelineKey) -> Result<Self::Pipeline>;

    /// Compiles a library, and gives the names of its kernels.
    fn kernel_names(&self, source: &str, language: Language) -> Result<Vec<String>>;

    /// What a pipeline allows.
    fn pipeline_limits(&self, pipeline: &Self::Pipeline) -> PipelineLimits;

    /// Compiles a graph.
    fn executable(&self, graph: &Graph) -> Result<Self::Executable>;

    /// A queue with room for `in_flight` command buffers.
    fn queue(&self, label: &str, in_flight: usize) -> Result<Self::Queue>;

    /// A command buffer on a queue.
    fn command_buffer(&self, queue: &Self::Queue, label: &str) -> Result<Self::CommandBuffer>;

    /// Whether committed command buffers end without anybody waiting for them; the recorder's do not.
    fn ends_by_itself(&self) -> bool {
        true
    }

    /// Blocks until a committed command buffer has ended and its handler was called.
    fn wait(&self, committed: &Self::Committed);

    /// A new event at 0.
    fn event(&self) -> Result<Self::Event>;

    /// The value that an event has reached.
    fn event_value(&self, event: &Self::Event) -> u64;

    /// Blocks until an event has reached a value; false when the time was over first.
    fn wait_event(&self, event: &Self::Event, value: u64, timeout: Duration) -> bool;

    /// Keeps the compiled pipelines of this process on disk for the next one.
    fn save_pipelines(&self) -> Result<()>;

    /// Begins a capture of the queue's commands into a file for Xcode. The process needs `MTL_CAPTURE_ENABLED=1`.
    fn begin_capture(&self, queue: &Self::Queue, file: &Path) -> Result<()>;

    /// Ends the capture.
    fn end_capture(&self);
}

/// A command buffer that takes commands, which run in this order except that dispatches between two barriers may overlap. One that is dropped
/// without being committed never runs.
pub trait CommandBuffer<M: Metal>: Send {
    /// Chooses the kernel of the next dispatches; what was bound before stays bound.
    fn set_pipeline(&mut self, pipeline: &M::Pipeline) -> Result<()>;

    /// Binds memory to `[[buffer(index)]]`.
    fn set_buffer(&mut self, index: usize, buffer: &M::Buffer, offset: usize) -> Result<()>;

    /// Binds a copy of some bytes to `[[buffer(index)]]`, 4096 at most.
    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<()>;

    /// Gives `[[threadgroup(index)]]` its length, a multiple of 16.
    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> Result<()>;

    /// Runs the kernel, in threadgroups of so many threads.
    ///
    /// # Safety
    /// The kernel reads and writes nothing but what is bound, inside its length, and what memory that is bound leads to.
    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> Result<()>;

    /// What was dispatched before is done, and seen, before what is dispatched after begins.
    fn barrier(&mut self) -> Result<()>;

    /// Writes one byte all over a range.
    ///
    /// # Safety
    /// The range lies in the buffer.
    unsafe fn fill(&mut self, buffer: &M::Buffer, range: Range<usize>, byte: u8) -> Result<()>;

    /// Copies between buffers.
    ///
    /// # Safety
    /// Both ranges lie in their buffers, and do not overlap.
    unsafe fn copy(
        &mut self,
        destination: (&M::Buffer, usize),
        source: (&M::Buffer, usize),
        bytes: usize,
    ) -> Result<()>;

    /// A call of MPS.
    ///
    /// # Safety
    /// It has passed [`MatrixCall::check`].
    unsafe fn matrix(&mut self, call: &MatrixCall<M::Buffer>) -> Result<()>;

    /// Runs a compiled graph; operands in the order of the graph's inputs and outputs, dense.
    ///
    /// # Safety
    /// Each of them has passed [`TensorView::check`].
    unsafe fn graph(
        &mut self,
        executable: &M::Executable,
        inputs: &[TensorView<M::Buffer>],
        outputs: &[TensorView<M::Buffer>],
    ) -> Result<()>;

    /// Sets an event when the commands so far have ended.
    fn signal(&mut self, event: &M::Event, value: u64) -> Result<()>;

    /// Holds the commands that follow until an event has reached a value.
    fn wait(&mut self, event: &M::Event, value: u64) -> Result<()>;

    /// Begins a group of commands that Xcode and Instruments show under this name.
    fn push_group(&mut self, name: &str);

    /// Ends it.
    fn pop_group(&mut self);

    /// Hands the commands to the GPU; `completed` is called when they have ended, in the order in which a queue's buffers were committed.
    fn commit(self, completed: Completed) -> M::Committed;
}
