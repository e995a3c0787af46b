//! A Metal that executes the kernels' own text on this machine's CPU, on a thread of its own, as a GPU would: commands run later than they
//! are said, and dispatches without a barrier between them run in an order that is not theirs. In place of MPS and MPSGraph their calls are
//! computed in float64 and by the host's library, operands held to Apple's rules.
//!
//! `OPENMPS_EMULATOR_GPU` chooses the GPU that it stands in for, `m2` or `m5`, which has tensor operations.
//! `OPENMPS_EMULATOR_SCHEDULE` chooses the order of threads and of such dispatches: `ascending`, `descending`, or a number that it is shuffled
//! by. `OPENMPS_EMULATOR_COUNT` names a file to which each dispatch adds a line with what it did.

mod commands;
mod count;
mod graph;
mod linear;
mod matrix;
mod memory;
mod numbers;
mod worker;

pub use commands::EmulatedCommands;
pub use count::{Observer, observe};
pub use memory::EmulatedBuffer;
pub use openmps_emulator::{Counters, GPUS};
pub use worker::{EmulatedCommit, EmulatedEvent, EmulatedQueue};

use crate::answers::Class;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interface::{FunctionConstant, Language, Metal, PipelineKey, PipelineLimits, Properties};
use crate::limits;
use openmps_emulator::{Function, Library, Options, Schedule, Value};
use openmps_settings::Order;
use openmps_tile::{DType, f16};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// The emulated GPU.
pub struct Emulated {
    properties: Properties,
    schedule: Schedule,
    fault: Option<Fault>,
}

/// A fault that is on no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Some elements of large results of the stand-ins for MPS and MPSGraph are zero.
    Library {
        /// Whose results.
        class: Class,
        /// From this many bytes of a result on.
        bytes: usize,
    },
    /// Some elements of what kernels with tensor operations write are zero.
    TensorOperations,
    /// Texts with tensor operations are refused.
    Compiler,
}

/// A compiled kernel.
#[derive(Clone)]
pub struct EmulatedPipeline {
    pub(crate) function: Arc<Function>,
    threads: usize,
    /// Whether its text is one of MSL 4.0.
    metal4: bool,
}

impl Emulated {
    /// The GPU and the schedule of the environment.
    pub fn of_environment() -> Emulated {
        let emulated = Emulated::with_schedule(match openmps_settings::EMULATOR_SCHEDULE.get() {
            None | Some(Order::Ascending) => Schedule::Ascending,
            Some(Order::Descending) => Schedule::Descending,
            Some(Order::Shuffled(number)) => Schedule::Shuffled(number),
        });
        match openmps_settings::EMULATOR_GPU.get() {
            Some("m5") => Emulated { properties: m5(emulated.properties), ..emulated },
            _ => emulated,
        }
    }

    /// The GPU with a schedule.
    pub fn with_schedule(schedule: Schedule) -> Emulated {
        Emulated { properties: properties(), schedule, fault: None }
    }

    /// The GPU as one of another family, or under another macOS: it has the defects of that one.
    pub fn like(change: impl FnOnce(Properties) -> Properties) -> Emulated {
        Emulated { properties: change(properties()), schedule: Schedule::Ascending, fault: None }
    }

    /// The same GPU with a fault.
    pub fn with_fault(self, fault: Fault) -> Emulated {
        Emulated { fault: Some(fault), ..self }
    }
}

/// These properties as those of an M5 under macOS 26.2, for [`Emulated::like`].
pub fn m5(properties: Properties) -> Properties {
    Properties { family: 10, architecture: "applegpu_g17g".to_string(), tensor_operations: true, ..properties }
}

/// The limits of an Apple GPU, the memory of this machine.
fn properties() -> Properties {
    Properties {
        name: "emulated Apple GPU".to_string(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        working_set: memory::of_machine(),
        max_buffer: memory::of_machine(),
        ..crate::recorder::properties()
    }
}

// SAFETY: buffers are memory of the host, owned by their handles.
unsafe impl Metal for Emulated {
    type Buffer = EmulatedBuffer;
    type Pipeline = EmulatedPipeline;
    type Queue = EmulatedQueue;
    type CommandBuffer = EmulatedCommands;
    type Committed = EmulatedCommit;
    type Event = EmulatedEvent;
    type Executable = Arc<Graph>;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn autorelease_pool<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    fn allocate(&self, bytes: usize) -> Result<EmulatedBuffer> {
        let limit = self.properties.max_buffer;
        let buffer = if bytes <= limit { EmulatedBuffer::allocate(bytes) } else { None };
        buffer.ok_or(Error::OutOfMemory { bytes, limit })
    }

    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<EmulatedBuffer> {
        let page = limits::PAGE;
        if bytes == 0 || !bytes.is_multiple_of(page) || !address.addr().get().is_multiple_of(page) {
            return Err(Error::NotPageAligned { address: address.addr().get(), bytes, page });
        }
        // SAFETY: passed on to the caller.
        Ok(unsafe { EmulatedBuffer::import(address.addr().get(), bytes) })
    }

    fn contents(&self, buffer: &EmulatedBuffer) -> (usize, usize) {
        buffer.contents()
    }

    fn pipeline(&self, key: &PipelineKey) -> Result<EmulatedPipeline> {
        let entry = || key.entry.clone();
        let metal4 = key.language >= Language::Metal4_0;
        if metal4 && (!self.properties.tensor_operations || self.fault == Some(Fault::Compiler)) {
            return Err(Error::Library { entry: entry(), message: "MSL 4.0 needs macOS 26".to_string() });
        }
        let counted = openmps_settings::EMULATOR_COUNT.get().is_some();
        let constants = key.constants.iter().map(|constant| (constant.index, value(constant))).collect();
        let options = Options { counted, metal4, constants, ..Options::default() };
        let library = Library::compile_with(&key.source, &options);
        let library = library.map_err(|error| Error::Library { entry: entry(), message: error.to_string() })?;
        let function = library.function(&key.entry);
        let function = function.map_err(|error| Error::Pipeline { entry: entry(), message: error.to_string() })?;
        Ok(EmulatedPipeline { function: Arc::new(function), threads: key.threads, metal4 })
    }

    fn kernel_names(&self, source: &str, language: Language) -> Result<Vec<String>> {
        let options = Options { metal4: language >= Language::Metal4_0, ..Options::default() };
        let library = Library::compile_with(source, &options).map_err(|error| match error {
            openmps_emulator::Error::Compile { .. }
            | openmps_emulator::Error::AddressSpace { .. }
            | openmps_emulator::Error::Signature { .. } => Error::Text { message: error.to_string() },
            missing => Error::System { what: "compiler", message: missing.to_string() },
        })?;
        Ok(library.function_names().map(str::to_string).collect())
    }

    fn pipeline_limits(&self, pipeline: &EmulatedPipeline) -> PipelineLimits {
        PipelineLimits {
            max_threads: limits::most_threads(pipeline.threads),
            simd_width: limits::SIMD_WIDTH,
            static_threadgroup_memory: pipeline.function.declared_threadgroup_memory(),
        }
    }

    fn executable(&self, graph: &Graph) -> Result<Arc<Graph>> {
        Ok(Arc::new(graph.clone()))
    }

    fn queue(&self, label: &str, _in_flight: usize) -> Result<EmulatedQueue> {
        EmulatedQueue::new(label, self.schedule, self.properties.clone(), self.fault)
    }

    fn command_buffer(&self, queue: &EmulatedQueue, label: &str) -> Result<EmulatedCommands> {
        Ok(EmulatedCommands::new(queue.clone(), label))
    }

    fn wait(&self, committed: &EmulatedCommit) {
        committed.wait();
    }

    fn event(&self) -> Result<EmulatedEvent> {
        Ok(EmulatedEvent::default())
    }

    fn event_value(&self, event: &EmulatedEvent) -> u64 {
        event.value()
    }

    fn wait_event(&self, event: &EmulatedEvent, value: u64, timeout: Duration) -> bool {
        event.wait(value, timeout)
    }

    /// The emulator keeps what it compiled on disk by itself.
    fn save_pipelines(&self) -> Result<()> {
        Ok(())
    }

    fn begin_capture(&self, _queue: &EmulatedQueue, _file: &Path) -> Result<()> {
        Err(unsupported("capture"))
    }

    fn end_capture(&self) {}
}

fn unsupported(what: &'static str) -> Error {
    Error::Unsupported { what, device: "the emulated Apple GPU".to_string() }
}

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod matrix_tests;
#[cfg(test)]
mod tests;

/// A function constant as the emulator takes it.
fn value(constant: &FunctionConstant) -> Value {
    let bits = u64::from_ne_bytes(constant.element);
    match constant.dtype {
        DType::Bool => Value::Bool(bits != 0),
        DType::I8 => Value::Int(i64::from(bits as i8)),
        DType::I16 => Value::Int(i64::from(bits as i16)),
        DType::I32 => Value::Int(i64::from(bits as i32)),
        DType::I64 => Value::Int(bits as i64),
        DType::F16 => Value::Float(f16::from_bits(bits as u16).to_f32()),
        DType::F32 => Value::Float(f32::from_bits(bits as u32)),
        _ => Value::Uint(bits),
    }
}
