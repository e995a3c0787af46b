//! Apple GPUs, over the trait of `openmps_metal`: Metal itself, or what stands in for it.
//!
//! Memory is unified, so the host's kernels compute on it: an operator that has no kernel, and a kernel with float64, which Apple's GPUs
//! lack, runs on the host, between the queue's other commands. Each queue is a stream, which batches commands into command buffers.

mod events;
mod text;
mod transfers;
mod tuned;
mod vendor;

pub(crate) use text::text_of;
pub(crate) use tuned::are_trusted;

use super::{Command, Driver, Failures};
use crate::allocator::heap::{HeapSource, Region};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::pipeline::{CompiledFor, Pipeline};
use crate::properties::{Backend, DeviceProperties};
use crate::vendor::{Engine, VendorCall};
use openmps_metal::answers::Answers;
use openmps_metal::arguments::{Addresses, Kernel, Resolved};
use openmps_metal::interface::{Grid, Language, Properties};
use openmps_metal::{CommitPolicy, Executables, Launch, Metal, PipelineLimits, Pipelines, Stream, limits, pipelines};
use openmps_settings as settings;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// One GPU. Clones are the same.
pub(crate) struct MetalDevice<M: Metal> {
    gpu: Arc<Gpu<M>>,
}

impl<M: Metal> Clone for MetalDevice<M> {
    fn clone(&self) -> Self {
        MetalDevice { gpu: self.gpu.clone() }
    }
}

struct Gpu<M: Metal> {
    metal: Arc<M>,
    index: usize,
    /// By which pipelines keep what was compiled for this GPU.
    identity: Identity,
    streams: Mutex<HashMap<u64, Arc<Stream<M>>>>,
    addresses: RwLock<Addresses<M::Buffer>>,
    /// The block of the allocator's around an address, once there is an allocator.
    blocks: OnceLock<Blocks>,
    pipelines: Pipelines<M>,
    executables: Executables<M>,
    answers: Answers,
    /// How often somebody has waited.
    runs: AtomicU64,
    /// The engine that is forced.
    engine: Option<Engine>,
}

type Blocks = Box<dyn Fn(usize) -> Option<Range<usize>> + Send + Sync>;

/// What became of a pipeline.
enum Form {
    Kernel(Kernel),
    /// It needs what Metal, or this macOS, has not.
    Host,
}

/// What `OPENMPS_DEVICE=metal` finds: the GPUs of this Mac.
#[cfg(all(feature = "metal", target_vendor = "apple"))]
pub(crate) fn all() -> Result<Vec<openmps_metal::apple::AppleMetal>> {
    let found = openmps_metal::apple::AppleMetal::all();
    if found.is_empty() { Err(failed(openmps_metal::Error::NoDevice)) } else { Ok(found) }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::Driver { device: "metal", message: error.to_string() }
}

impl<M: Metal> MetalDevice<M> {
    /// The device, and what it says about itself. `engine` computes wherever it can; without one the table decides.
    pub fn new(index: usize, metal: M, engine: Option<Engine>) -> (MetalDevice<M>, DeviceProperties) {
        let properties = properties(metal.properties(), true);
        let answers = Answers::new(metal.properties());
        let gpu = Gpu {
            metal: Arc::new(metal),
            index,
            identity: Identity::next(),
            streams: Mutex::default(),
            addresses: RwLock::default(),
            blocks: OnceLock::new(),
            pipelines: Pipelines::new(settings::PIPELINE_LIMIT.get().unwrap_or(pipelines::LIMIT)),
            executables: Executables::new(settings::GRAPH_LIMIT.get().unwrap_or(pipelines::GRAPH_LIMIT)),
            answers,
            runs: AtomicU64::new(0),
            engine,
        };
        (MetalDevice { gpu: Arc::new(gpu) }, properties)
    }

    /// Makes the allocator's blocks known: dispatches on different ones may overlap.
    pub fn tell_apart_by(&self, blocks: Blocks) {
        // The first one stays.
        let _ = self.gpu.blocks.set(blocks);
    }
}

/// What a GPU of Apple's says about itself. Memory of an external GPU need not be the CPU's too.
pub(crate) fn properties(of: &Properties, unified_memory: bool) -> DeviceProperties {
    DeviceProperties {
        name: of.name.clone(),
        backend: Backend::Metal,
        cores: of.cores,
        threads: limits::THREADS,
        total_memory: of.working_set,
        vector_level: "simt",
        simd_width: limits::SIMD_WIDTH,
        unified_memory,
        max_buffer_length: of.max_buffer,
    }
}

impl<M: Metal> Gpu<M> {
    /// The stream of a queue, made at its first command.
    fn stream(&self, queue: u64) -> Result<Arc<Stream<M>>> {
        let mut streams = self.streams();
        if let Some(stream) = streams.get(&queue) {
            return Ok(stream.clone());
        }
        let (label, policy) = (format!("queue {queue}"), CommitPolicy::default());
        let stream = Arc::new(Stream::new(self.metal.clone(), &label, policy).map_err(failed)?);
        streams.insert(queue, stream.clone());
        Ok(stream)
    }

    /// The stream of a queue, if it had a command.
    fn existing(&self, queue: u64) -> Option<Arc<Stream<M>>> {
        self.streams().get(&queue).cloned()
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<Stream<M>>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resolve(&self, address: usize, bytes: usize) -> Option<Resolved<M::Buffer>> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).resolve(address, bytes)
    }

    /// A pointer of a kernel's: it reaches the block that it lies in.
    fn pointer(&self, address: usize) -> Option<Resolved<M::Buffer>> {
        let found = self.resolve(address, 0)?;
        let block = self.blocks.get().and_then(|blocks| blocks(address));
        Some(Resolved { extent: block.unwrap_or(found.extent), ..found })
    }

    fn compile(&self, pipeline: &Pipeline) -> Result<Form> {
        let properties = self.metal.properties();
        if text::refused(pipeline, properties).is_some() {
            Ok(Form::Host)
        } else {
            Ok(Form::Kernel(text_of(pipeline, properties, || self.multiplies_rightly(pipeline.kernel()))?))
        }
    }

    fn launch(
        &self,
        queue: u64,
        operation: &'static str,
        pipeline: &Pipeline,
        grid: [usize; 3],
        arguments: &[u64],
    ) -> Result<()> {
        let form = pipeline.compiled(CompiledFor::Device(self.identity), || self.compile(pipeline))?;
        let Form::Kernel(kernel) = &*form else {
            self.wait(queue);
            // SAFETY: `Queue::dispatch` is unsafe, and its caller vouches for the addresses, which are the host's too.
            return unsafe { super::host::run(operation, pipeline, grid, arguments) };
        };
        pipeline.check(arguments)?;
        self.launch_text(queue, kernel, grid.into(), arguments)
    }

    fn launch_text(&self, queue: u64, kernel: &Kernel, grid: Grid, arguments: &[u64]) -> Result<()> {
        let (compiled, limits) = self.pipelines.get(&self.metal, &kernel.pipeline).map_err(failed)?;
        let launch = Launch { kernel, pipeline: &compiled, limits, grid, arguments };
        // SAFETY: `Queue::dispatch` and `Queue::dispatch_text` are unsafe, and their callers vouch for what the kernel reaches.
        unsafe { self.stream(queue)?.dispatch(&launch, |address| self.pointer(address)) }.map_err(failed)
    }

    /// Waits until the queue has ended what came before, if it had a command. Errors stay for the next synchronisation.
    fn wait(&self, queue: u64) {
        if let Some(stream) = self.existing(queue) {
            stream.wait();
        }
    }

    fn finish(&self, queue: u64) -> Result<()> {
        let finished = self.existing(queue).map_or(Ok(()), |stream| stream.finish().map_err(failed));
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.pipelines.save_if_due(&self.metal);
        finished
    }
}

impl<M: Metal> Driver for MetalDevice<M> {
    fn submit(&self, queue: u64, command: Command<'_>) -> Result<()> {
        let gpu = &self.gpu;
        match command {
            // Unified memory: the host's kernel computes on it as soon as the stream has ended what came before. An error of what came before
            // stays for the next synchronisation.
            Command::Native { operation, work, .. } => {
                gpu.wait(queue);
                work().map_err(|source| Error::Kernel { operation, source })
            }
            Command::Submit { operation, work } => work().map_err(|source| Error::Kernel { operation, source }),
            Command::Dispatch { operation, pipeline, grid, arguments } => {
                gpu.launch(queue, operation, pipeline, grid, arguments)
            }
            Command::Text { kernel, grid, arguments, .. } => gpu.launch_text(queue, kernel, grid, arguments),
            Command::Vendor { plan, .. } => gpu.run_plan(queue, plan.downcast_ref()),
            Command::Copy { destination, source, bytes } => gpu.copy(queue, destination, source, bytes),
            Command::Write { destination, source } => gpu.write(queue, destination, source),
            // The bytes are wanted now, so an error of what made them is, too.
            Command::Read { destination, source } => {
                gpu.finish(queue)?;
                // SAFETY: the queue has checked the source's range, the destination is a slice.
                unsafe { std::ptr::copy(source as *const u8, destination.as_mut_ptr(), destination.len()) };
                Ok(())
            }
            Command::Fill { address, byte, bytes } => gpu.fill(queue, address, byte, bytes),
            Command::Record(event) => gpu.record(queue, event),
            Command::Wait(event) => gpu.wait_event(queue, event),
            Command::Callback(callback) => gpu.stream(queue)?.add_callback(callback).map_err(failed),
        }
    }

    fn finish(&self, queue: u64) -> Result<()> {
        self.gpu.finish(queue)
    }

    fn prepare(&self, kernel: &Kernel) -> Option<Result<PipelineLimits>> {
        let compiled = self.gpu.pipelines.get(&self.gpu.metal, &kernel.pipeline);
        let refused =
            |error: openmps_metal::Error| Error::Compile { kernel: kernel.name().to_string(), log: error.to_string() };
        Some(compiled.map(|(_, limits)| limits).map_err(refused))
    }

    fn language(&self) -> Option<Language> {
        Some(self.gpu.metal.properties().language())
    }

    fn text_functions(&self, source: &str, language: Language) -> Option<Result<Vec<String>>> {
        let metal = &self.gpu.metal;
        let functions = metal.autorelease_pool(|| metal.kernel_names(source, language));
        Some(functions.map_err(|error| match error {
            openmps_metal::Error::Text { message } => Error::Compile { kernel: "a library".to_string(), log: message },
            other => failed(other),
        }))
    }

    fn begin_capture(&self, queue: u64, file: &Path) -> Result<()> {
        let (metal, stream) = (&self.gpu.metal, self.gpu.stream(queue)?);
        metal.autorelease_pool(|| metal.begin_capture(stream.queue(), file)).map_err(failed)
    }

    fn end_capture(&self) {
        self.gpu.metal.autorelease_pool(|| self.gpu.metal.end_capture());
    }

    fn accepts(&self, pipeline: &Pipeline) -> Result<()> {
        match &*pipeline.compiled(CompiledFor::Device(self.gpu.identity), || self.gpu.compile(pipeline))? {
            Form::Kernel(_) => Ok(()),
            Form::Host => super::planned(pipeline),
        }
    }

    fn is_idle(&self, queue: u64) -> Option<bool> {
        Some(self.gpu.existing(queue).is_none_or(|stream| stream.is_idle()))
    }

    fn wrong_answers(&self) -> Vec<String> {
        self.gpu.answers.wrong()
    }

    fn failures(&self, queue: u64) -> Option<Failures> {
        let failures = self.gpu.stream(queue).ok()?.failures();
        Some(Box::new(move || failures().map(failed)))
    }

    fn command_buffers(&self, queue: u64) -> Option<u64> {
        Some(self.gpu.existing(queue).map_or(0, |stream| stream.statistics().committed))
    }

    /// The whole pages around the memory: Metal takes no less. Nobody follows the other addresses on them.
    unsafe fn borrow(&self, address: usize, bytes: usize) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        let (gpu, bytes) = (&self.gpu, bytes.max(1));
        let first = address / limits::PAGE * limits::PAGE;
        let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(limits::PAGE));
        let start = NonNull::new(first as *mut u8).zip(end);
        let (start, end) = start.ok_or(Error::UnknownAddress { device: gpu.index, address, bytes })?;
        // SAFETY: the caller keeps the bytes; pages are there as a whole.
        let buffer = gpu.metal.autorelease_pool(|| unsafe { gpu.metal.import(start, end - first) }).map_err(failed)?;
        let mut addresses = gpu.addresses.write().unwrap_or_else(PoisonError::into_inner);
        let number = addresses.borrow(address, bytes, buffer, address - first);
        Ok(Some(Box::new(BorrowedMemory { gpu: gpu.clone(), number })))
    }

    fn has_engines(&self) -> bool {
        self.gpu.metal.properties().mps && self.gpu.engine != Some(Engine::Kernels)
    }

    fn plan(&self, call: &VendorCall) -> Option<Box<dyn Any>> {
        Some(Box::new(self.gpu.plan(call)?))
    }
}

/// Memory of the process, known to the GPU.
struct BorrowedMemory<M: Metal> {
    gpu: Arc<Gpu<M>>,
    number: u64,
}

impl<M: Metal> Drop for BorrowedMemory<M> {
    fn drop(&mut self) {
        let mut addresses = self.gpu.addresses.write().unwrap_or_else(PoisonError::into_inner);
        // Command buffers on their way hold what they use.
        drop(addresses.give_back(self.number));
    }
}

impl<M: Metal> HeapSource for MetalDevice<M> {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        let gpu = &self.gpu;
        let buffer = gpu.metal.autorelease_pool(|| gpu.metal.allocate(bytes)).ok()?;
        let (address, _) = gpu.metal.contents(&buffer);
        gpu.addresses.write().unwrap_or_else(PoisonError::into_inner).insert(address, bytes, buffer);
        Some(Region { address, bytes })
    }

    fn release(&self, region: Region) {
        let mut addresses = self.gpu.addresses.write().unwrap_or_else(PoisonError::into_inner);
        // Command buffers on their way hold what they use.
        drop(addresses.remove(region.address));
    }

    fn ordered_by_queue(&self) -> bool {
        true
    }

    /// Callbacks may want the allocator, which waits here.
    fn finish(&self, queue: u64) {
        if let Some(stream) = self.gpu.existing(queue) {
            stream.drain();
        }
    }
}

#[cfg(test)]
mod tests;
