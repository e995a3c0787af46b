//! Metal itself: the trait's implementation over bindings generated from Apple's headers. Type-checked and linked on Linux; the only
//! module, together with its own, that names Objective-C.

mod archive;
mod buffer;
mod capture;
mod commands;
mod cores;
mod event;
pub mod graph;
mod library;
mod mps;
mod properties;
mod raw;
mod residency;

pub use buffer::Buffer;
pub use commands::{Commands, Committed};
pub use event::Event;
pub use graph::Executable;
pub use library::Pipeline;

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::interface::{Language, Metal, PipelineKey, PipelineLimits, Properties};
use archive::Archive;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferDescriptor, MTLCommandBufferErrorOption, MTLCommandQueue, MTLCopyAllDevices,
    MTLDevice,
};
use raw::RawDevice;
use residency::Residency;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

// Without CoreGraphics in the process, Metal reports no device to programs of the command line.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// A GPU of this Mac, as `MTLDevice` gives it.
pub struct AppleMetal {
    device: Retained<RawDevice>,
    properties: Properties,
    residency: Option<Arc<Residency>>,
    archive: Archive,
}

/// A command queue.
pub struct Queue {
    pub(crate) raw: Retained<ProtocolObject<dyn MTLCommandQueue>>,
}

impl AppleMetal {
    /// Every device whose memory the CPU shares, the one with the largest working set first.
    pub fn all() -> Vec<AppleMetal> {
        autoreleasepool(|_| {
            let mut devices: Vec<AppleMetal> = MTLCopyAllDevices()
                .iter()
                .map(AppleMetal::new)
                .filter(|metal| metal.properties.unified_memory)
                .collect();
            devices.sort_by_key(|metal| std::cmp::Reverse(metal.properties.working_set));
            devices
        })
    }

    /// The device with this number of Metal's, whoever else uses it.
    pub fn with_registry(registry: u64) -> Option<AppleMetal> {
        autoreleasepool(|_| {
            let device = MTLCopyAllDevices().iter().find(|device| device.registryID() == registry);
            device.map(AppleMetal::new)
        })
    }

    fn new(device: Retained<RawDevice>) -> AppleMetal {
        let properties = properties::of(&device);
        let residency = Residency::new(&device).map(Arc::new);
        let archive = Archive::open(&device, &properties);
        AppleMetal { device, properties, residency, archive }
    }
}

/// Metal's own words for an error.
pub(crate) fn text(error: &NSError) -> String {
    error.localizedDescription().to_string()
}

/// The path of a file as a string of Foundation's.
pub(crate) fn path_string(path: &Path) -> Retained<NSString> {
    NSString::from_str(&path.to_string_lossy())
}

// SAFETY: lengths and contents are what Metal says of its buffers, which their handles retain.
unsafe impl Metal for AppleMetal {
    type Buffer = Buffer;
    type Pipeline = Pipeline;
    type Queue = Queue;
    type CommandBuffer = Commands;
    type Committed = Committed;
    type Event = Event;
    type Executable = Executable;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn autorelease_pool<R>(&self, work: impl FnOnce() -> R) -> R {
        autoreleasepool(|_| work())
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let limit = self.properties.max_buffer;
        let fits = bytes <= limit;
        let buffer = if fits { buffer::allocate(&self.device, self.residency.as_ref(), bytes) } else { None };
        buffer.ok_or(Error::OutOfMemory { bytes, limit })
    }

    unsafe fn import(&self, address: NonNull<u8>, bytes: usize) -> Result<Buffer> {
        // SAFETY: the caller vouches for the memory.
        unsafe { buffer::import(&self.device, address, bytes) }
    }

    fn contents(&self, buffer: &Buffer) -> (usize, usize) {
        buffer.contents()
    }

    fn pipeline(&self, key: &PipelineKey) -> Result<Pipeline> {
        library::compile(&self.device, &self.archive, key)
    }

    fn kernel_names(&self, source: &str, language: Language) -> Result<Vec<String>> {
        library::kernel_names(&self.device, source, language)
    }

    fn pipeline_limits(&self, pipeline: &Pipeline) -> PipelineLimits {
        pipeline.limits()
    }

    fn executable(&self, graph: &Graph) -> Result<Executable> {
        graph::compile(&self.device, &self.properties, graph)
    }

    fn queue(&self, label: &str, in_flight: usize) -> Result<Queue> {
        let raw = self.device.newCommandQueueWithMaxCommandBufferCount(in_flight);
        let raw = raw.ok_or(Error::NotMade { what: "command queue" })?;
        raw.setLabel(Some(&NSString::from_str(label)));
        if let Some(residency) = &self.residency {
            residency.attach(&raw);
        }
        Ok(Queue { raw })
    }

    fn command_buffer(&self, queue: &Queue, label: &str) -> Result<Commands> {
        let descriptor = MTLCommandBufferDescriptor::new();
        descriptor.setErrorOptions(MTLCommandBufferErrorOption::EncoderExecutionStatus);
        let raw =
            queue.raw.commandBufferWithDescriptor(&descriptor).ok_or(Error::NotMade { what: "command buffer" })?;
        raw.setLabel(Some(&NSString::from_str(label)));
        Ok(Commands::new(self.device.clone(), raw, label))
    }

    fn wait(&self, committed: &Committed) {
        committed.wait();
    }

    fn event(&self) -> Result<Event> {
        Event::new(&self.device)
    }

    fn event_value(&self, event: &Event) -> u64 {
        event.value()
    }

    fn wait_event(&self, event: &Event, value: u64, timeout: Duration) -> bool {
        event.wait(value, timeout)
    }

    fn save_pipelines(&self) -> Result<()> {
        self.archive.save()
    }

    fn begin_capture(&self, queue: &Queue, file: &Path) -> Result<()> {
        capture::begin(&queue.raw, file)
    }

    fn end_capture(&self) {
        capture::end();
    }
}

impl Drop for AppleMetal {
    /// The compiled pipelines are kept for the next process.
    fn drop(&mut self) {
        if let Err(error) = autoreleasepool(|_| self.archive.save()) {
            tracing::warn!("compiled pipelines were not kept: {error}");
        }
    }
}
