//! NVIDIA GPUs: CUDA's driver interface and run-time compiler, both found at run time.
//!
//! Buffers are managed memory, which the host reads at the same addresses: an operator that has no kernel yet runs on the host, between the
//! queue's other commands. Each queue is a stream.

mod api;
mod events;
mod fit;
#[cfg_attr(not(unix), path = "not_kept.rs")]
mod kept;
mod library;
mod nvrtc;

use super::{Command, Driver};
use crate::allocator::heap::{HeapSource, Region};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::identity::Identity;
use crate::pipeline::{CompiledFor, Pipeline};
use crate::properties::{Backend, DeviceProperties};
use crate::stage;
use api::{Api, Handle, Pointer};
use openmps_codegen::{Source, Target, compile, has_products};
use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// Attributes of `cuDeviceGetAttribute`.
const MULTIPROCESSORS: c_int = 16;
const THREADS_PER_MULTIPROCESSOR: c_int = 39;
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const CONCURRENT_MANAGED_ACCESS: c_int = 89;
const PAGEABLE_MEMORY_ACCESS: c_int = 88;

/// Programs on the grid's axes.
const MOST_PROGRAMS: [usize; 3] = [i32::MAX as usize, u16::MAX as usize, u16::MAX as usize];

/// An NVIDIA GPU with its context; clones are the same one.
#[derive(Clone)]
pub(crate) struct Cuda {
    gpu: Arc<Gpu>,
}

struct Gpu {
    api: &'static Api,
    /// By which pipelines keep what was compiled for this GPU.
    identity: Identity,
    ordinal: c_int,
    context: Handle,
    capability: (i32, i32),
    /// Whether kernels may follow every address of the process.
    pageable: bool,
    streams: Mutex<HashMap<u64, usize>>,
    /// Events that streams have reached, until somebody drops them.
    reached: Mutex<Vec<Event>>,
}

// SAFETY: the context and the streams may be used from any thread; each call makes the context current first.
unsafe impl Send for Gpu {}
// SAFETY: as above; the interface itself is thread safe.
unsafe impl Sync for Gpu {}

/// A kernel's code on one GPU.
struct Compiled {
    gpu: Arc<Gpu>,
    module: usize,
    function: usize,
    threads: u32,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: loaded once, unloaded once; the driver waits for launches that use it.
            unsafe { (self.gpu.api.module_unload)(self.module as Handle) };
        }
    }
}

/// The GPUs of this machine; an error says why there are none.
pub(crate) fn all() -> Result<Vec<(Cuda, DeviceProperties)>> {
    let api = Api::get()?;
    let mut count = 0;
    // SAFETY: writes one number.
    api.check("cuDeviceGetCount", unsafe { (api.device_count)(&mut count) })?;
    (0..count).map(|ordinal| Gpu::open(api, ordinal)).collect()
}

impl Gpu {
    fn open(api: &'static Api, ordinal: c_int) -> Result<(Cuda, DeviceProperties)> {
        let (mut device, mut context, mut total_memory) = (0, std::ptr::null_mut(), 0);
        let mut name = [0 as c_char; 256];
        // SAFETY: each call writes what its pointer points to, and no more than the length given.
        unsafe {
            api.check("cuDeviceGet", (api.device_get)(&mut device, ordinal))?;
            api.check("cuDeviceGetName", (api.device_name)(name.as_mut_ptr(), name.len() as c_int - 1, device))?;
            api.check("cuDeviceTotalMem", (api.device_memory)(&mut total_memory, device))?;
            api.check("cuDevicePrimaryCtxRetain", (api.context_retain)(&mut context, device))?;
        }
        let attribute = |which: c_int| {
            let mut value = 0;
            // SAFETY: writes one number.
            api.check("cuDeviceGetAttribute", unsafe { (api.device_attribute)(&mut value, which, device) })?;
            Ok(value)
        };
        if attribute(CONCURRENT_MANAGED_ACCESS)? == 0 {
            let message = format!("GPU {ordinal} and the host cannot use managed memory at the same time");
            return Err(Error::Driver { device: "cuda", message });
        }
        let capability = (attribute(CAPABILITY_MAJOR)?, attribute(CAPABILITY_MINOR)?);
        let name: String = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect();
        let properties = DeviceProperties {
            name,
            backend: Backend::Cuda,
            cores: attribute(MULTIPROCESSORS)? as usize,
            threads: attribute(THREADS_PER_MULTIPROCESSOR)? as usize,
            total_memory,
            vector_level: "simt",
            simd_width: 32,
            unified_memory: true,
            max_buffer_length: total_memory,
        };
        let pageable = attribute(PAGEABLE_MEMORY_ACCESS)? != 0;
        let gpu = Gpu {
            api,
            identity: Identity::next(),
            ordinal: device,
            context,
            capability,
            pageable,
            streams: Mutex::default(),
            reached: Mutex::default(),
        };
        Ok((Cuda { gpu: Arc::new(gpu) }, properties))
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained for the process's life.
        self.api.check("cuCtxSetCurrent", unsafe { (self.api.context_set)(self.context) })
    }

    /// The stream of a queue, made at its first command.
    fn stream(&self, queue: u64) -> Result<Handle> {
        self.enter()?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&stream) = streams.get(&queue) {
            return Ok(stream as Handle);
        }
        let mut stream = std::ptr::null_mut();
        // In order with the default stream of whoever else uses the context (PyTorch), as theirs are.
        const DEFAULT: u32 = 0;
        // SAFETY: writes one handle.
        self.api.check("cuStreamCreate", unsafe { (self.api.stream_create)(&mut stream, DEFAULT) })?;
        streams.insert(queue, stream as usize);
        Ok(stream)
    }

    fn finish(&self, queue: u64) -> Result<()> {
        let stream = self.streams.lock().unwrap_or_else(PoisonError::into_inner).get(&queue).copied();
        let Some(stream) = stream else { return Ok(()) };
        self.enter()?;
        let stream = stream as Handle;
        // SAFETY: a stream of this context.
        self.api.check("cuStreamSynchronize", unsafe { (self.api.stream_synchronize)(stream) })
    }

    fn copy(&self, queue: u64, destination: usize, source: usize, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (stream, to, from) = (self.stream(queue)?, destination as Pointer, source as Pointer);
        // SAFETY: the queue has checked the device's range; the host's is a live slice.
        self.api.check("cuMemcpyAsync", unsafe { (self.api.copy_async)(to, from, bytes, stream) })
    }

    fn compiled(self: &Arc<Self>, pipeline: &Pipeline) -> Result<Arc<Compiled>> {
        pipeline.compiled(CompiledFor::Device(self.identity), || self.compile(pipeline))
    }

    fn compile(self: &Arc<Self>, pipeline: &Pipeline) -> Result<Compiled> {
        let major = nvrtc::Nvrtc::get()?.capability(self.capability).0;
        let target = pipeline.target(|threads| Target::cuda_of_capability(threads, major));
        let (name, has_choices) = (pipeline.name(), has_products(pipeline.verified().kernel()));
        let generate = || compile(pipeline.verified(), &target).map_err(Error::Codegen);
        let source = stage::timed("generate", name, generate)?;
        let (compiler, how) = (nvrtc::Nvrtc::get()?, if has_choices { "best of several" } else { "as it is" });
        let options = compiler.options(self.capability).join(" ");
        let place = kept::Place::of(&[env!("CARGO_PKG_VERSION"), &compiler.version(), &options, how, &source.text]);
        if let Some(code) = place.as_ref().and_then(|place| place.read()) {
            match self.load(&code, &source) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => tracing::debug!("{name}: a kept kernel is compiled anew: {error}"),
            }
        }
        let (compiled, code) = if has_choices {
            fit::best(self, pipeline, (&target, source))?
        } else {
            let code = compiler.compile(name, &source.text, self.capability)?;
            (self.load(&code, &source)?, code)
        };
        place.inspect(|place| place.keep(&code));
        Ok(compiled)
    }

    /// The kernel of a whole image that was made from this text.
    fn load(self: &Arc<Self>, code: &[u8], source: &Source) -> Result<Compiled> {
        let entry = CString::new(source.entry.as_str()).unwrap_or_default();
        self.enter()?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: handles are written to live places; the image is a whole one of NVIDIA's compiler: just made, or held to its digest.
        unsafe {
            self.api.check("cuModuleLoadData", (self.api.module_load)(&mut module, code.as_ptr().cast()))?;
            let status = (self.api.module_function)(&mut function, module, entry.as_ptr());
            self.api.check("cuModuleGetFunction", status).inspect_err(|_| _ = (self.api.module_unload)(module))?;
        }
        let (module, function, threads) = (module as usize, function as usize, source.threads as u32);
        Ok(Compiled { gpu: self.clone(), module, function, threads })
    }

    fn failed(&self, message: String) -> Error {
        Error::Driver { device: "cuda", message: format!("GPU {}: {message}", self.ordinal) }
    }

    /// Launches a kernel; arguments are 64 bits each, of which it takes the lower ones.
    fn launch(self: &Arc<Self>, queue: u64, pipeline: &Pipeline, grid: [usize; 3], arguments: &[u64]) -> Result<()> {
        pipeline.check(arguments)?;
        if let Some(axis) = (0..3).find(|&axis| grid[axis] > MOST_PROGRAMS[axis]) {
            let (asked, most) = (grid[axis], MOST_PROGRAMS[axis]);
            return Err(self.failed(format!("{}: {asked} programs on axis {axis}, at most {most}", pipeline.name())));
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let compiled = self.compiled(pipeline)?;
        let stream = self.stream(queue)?;
        let [x, y, z] = grid.map(|size| size as u32);
        let pointers: Vec<*const c_void> = arguments.iter().map(|argument| (&raw const *argument).cast()).collect();
        let none = std::ptr::null();
        let (function, threads) = (compiled.function as Handle, compiled.threads);
        // SAFETY: as many arguments as the function has parameters, none of them wider than 64 bits.
        let status = unsafe { (self.api.launch)(function, x, y, z, threads, 1, 1, 0, stream, pointers.as_ptr(), none) };
        self.api.check("cuLaunchKernel", status)
    }
}

impl Driver for Cuda {
    unsafe fn borrow(&self, address: usize, bytes: usize) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        if self.gpu.pageable {
            return Ok(None);
        }
        let message = format!("GPU {} does not see the process's own {bytes} bytes at {address:#x}", self.gpu.ordinal);
        Err(Error::Driver { device: "cuda", message })
    }

    fn submit(&self, queue: u64, command: Command<'_>) -> Result<()> {
        let gpu = &self.gpu;
        match command {
            // Managed memory: the host's kernel computes on it as soon as the stream has ended what came before.
            Command::Native { operation, work, .. } => {
                gpu.finish(queue)?;
                work().map_err(|source| Error::Kernel { operation, source })
            }
            Command::Submit { operation, work } => work().map_err(|source| Error::Kernel { operation, source }),
            Command::Dispatch { pipeline, grid, arguments, .. } => gpu.launch(queue, pipeline, grid, arguments),
            Command::Text { kernel, .. } => Err(crate::devices::no_text(kernel.name(), "CUDA")),
            Command::Vendor { operation, .. } => Err(super::not_taken(operation, "cuda")),
            Command::Copy { destination, source, bytes } => gpu.copy(queue, destination, source, bytes),
            Command::Write { destination, source } => {
                gpu.copy(queue, destination, source.as_ptr() as usize, source.len())?;
                gpu.finish(queue)
            }
            Command::Read { destination, source } => {
                gpu.copy(queue, destination.as_mut_ptr() as usize, source, destination.len())?;
                gpu.finish(queue)
            }
            Command::Fill { address, byte, bytes } => {
                if bytes == 0 {
                    return Ok(());
                }
                let stream = gpu.stream(queue)?;
                // SAFETY: the queue has checked the range.
                let status = unsafe { (gpu.api.fill_async)(address as Pointer, byte, bytes, stream) };
                gpu.api.check("cuMemsetD8Async", status)
            }
            Command::Record(event) => gpu.record(queue, event),
            Command::Wait(event) => event.synchronize(),
            // A user's function may call anything, which a function on a stream must not.
            Command::Callback(callback) => {
                gpu.finish(queue)?;
                callback();
                Ok(())
            }
        }
    }

    fn finish(&self, queue: u64) -> Result<()> {
        self.gpu.finish(queue)
    }

    fn accepts(&self, pipeline: &Pipeline) -> Result<()> {
        self.gpu.compiled(pipeline).map(drop)
    }

    fn adopt(&self, queue: u64, handle: usize) -> Result<()> {
        self.gpu.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(queue, handle);
        Ok(())
    }

    fn handle(&self, queue: u64) -> Option<usize> {
        self.gpu.stream(queue).ok().map(|stream| stream as usize)
    }
}

impl HeapSource for Cuda {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        const GLOBAL: u32 = 1;
        let mut address = 0;
        self.gpu.enter().ok()?;
        // SAFETY: writes one address.
        let status = unsafe { (self.gpu.api.allocate_managed)(&mut address, bytes, GLOBAL) };
        (status == 0).then_some(Region { address: address as usize, bytes })
    }

    fn release(&self, region: Region) {
        if self.gpu.enter().is_ok() {
            // SAFETY: an address that `reserve` gave; the driver waits for what uses it.
            unsafe { (self.gpu.api.free)(region.address as Pointer) };
        }
    }

    fn ordered_by_queue(&self) -> bool {
        true
    }

    fn finish(&self, queue: u64) {
        // The error, if any, is delivered by the queue's own synchronisation.
        let _ = self.gpu.finish(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::nvrtc::Nvrtc;
    use openmps_codegen::{Target, compile, threads_for};
    use openmps_tile::{parse, verify};

    /// The compiler needs no GPU, so what it takes is tested wherever it is installed; `cargo xtask test` installs it.
    #[test]
    fn texts_compile() {
        let nvrtc = match Nvrtc::get() {
            Ok(nvrtc) => nvrtc,
            Err(error) if openmps_settings::NVRTC.get().is_some() => panic!("{error}"),
            Err(error) => return eprintln!("not run: {error}"),
        };
        for ttir in [
            include_str!("../../../../tile/tests/ttir/vector_add.ttir"),
            include_str!("../../../../tile/tests/ttir/softmax.ttir"),
            include_str!("../../../../tile/tests/ttir/dropout.ttir"),
            include_str!("../../../../tile/tests/ttir/matmul.ttir"),
            include_str!("../../../../tile/tests/ttir/half_matmul.ttir"),
            include_str!("../../../../tile/tests/ttir/half_attention.ttir"),
            include_str!("../../../../tile/tests/ttir/half_attention_gradient.ttir"),
        ] {
            let kernel = parse(ttir).expect("read");
            for capability in [(8, 0), (9, 0)] {
                let target = Target::cuda_of_capability(threads_for(&kernel), capability.0);
                let source = compile(verify(&kernel).expect("verified"), &target).expect("written");
                let code = nvrtc.compile(&kernel.name, &source.text, capability);
                let code = code.unwrap_or_else(|error| panic!("{error}"));
                assert!(code.starts_with(b"\x7fELF"), "{}", kernel.name);
            }
        }
        let error = nvrtc.compile("broken", "__global__ void k() { x = 1; }", (9, 0)).expect_err("x is unknown");
        assert!(error.to_string().contains("identifier \"x\" is undefined"), "{error}");
    }
}
