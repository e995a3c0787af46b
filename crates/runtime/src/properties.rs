//! What a device says about itself.

/// What executes a device's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// This machine's CPU.
    Host,
    /// An Apple GPU.
    Metal,
    /// An NVIDIA GPU.
    Cuda,
    /// Nothing: commands are noted down for tests.
    Recorder,
}

impl Backend {
    /// The name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Host => "host",
            Backend::Metal => "metal",
            Backend::Cuda => "cuda",
            Backend::Recorder => "recorder",
        }
    }
}

/// A device's fixed properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceProperties {
    /// The processor's model name.
    pub name: String,
    /// What executes the commands.
    pub backend: Backend,
    /// Physical cores.
    pub cores: usize,
    /// Threads that one kernel may use.
    pub threads: usize,
    /// The device's memory in bytes.
    pub total_memory: usize,
    /// The instructions in use, such as `avx512`, or `amx` where they include those of Intel's matrix unit.
    pub vector_level: &'static str,
    /// 32-bit lanes that run in step: a vector register's on a CPU, a simdgroup's on a GPU.
    pub simd_width: usize,
    /// Whether the host reads and writes the device's memory without a copy.
    pub unified_memory: bool,
    /// The largest buffer in bytes.
    pub max_buffer_length: usize,
}
