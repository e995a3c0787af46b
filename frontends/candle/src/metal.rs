//! Candle's Metal device as an external GPU: its buffers without a copy, its command encoder, its order of dispatches. Type-checked for macOS, not
//! yet run on Apple hardware.

use crate::external::{self, Given};
use crate::forward::Forward;
use candle_core::backend::BackendStorage;
use candle_core::metal_backend::DeviceId;
use candle_core::{DType, Device, Error, Layout, MetalDevice, MetalStorage, Result, Shape, Storage, Tensor};
use candle_metal_kernels::RESOURCE_OPTIONS;
use candle_metal_kernels::metal::{Buffer, CommandsGuard, ComputePipeline};
use objc2_metal::MTLSize;
use openmps::runtime::external::{ExternalDevice, ExternalGpu, HeldDevices};
use openmps_metal::apple::AppleMetal;
use openmps_metal::arguments::{Kernel, Table};
use openmps_metal::encode::{self, Encoder};
use openmps_metal::interface::{Grid, Metal, Properties, Size};
use openmps_metal::pipelines::{LIMIT, Pipelines};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A GPU of this machine as openmps knows it: for its limits, and for its compiled kernels.
struct Gpu {
    metal: AppleMetal,
    pipelines: Pipelines<AppleMetal>,
}

/// One of Candle's devices, and its GPU.
struct CandleGpu {
    device: MetalDevice,
    gpu: Arc<Gpu>,
}

type CandleDevice = ExternalDevice<CandleGpu>;

/// The devices that were used last, by Candle's own number.
static DEVICES: LazyLock<HeldDevices<DeviceId, CandleGpu>> = LazyLock::new(HeldDevices::default);

/// The GPUs that were used, as many as the machine has, each by its registry number.
static GPUS: Mutex<Vec<(u64, Arc<Gpu>)>> = Mutex::new(Vec::new());

fn external_device(device: &MetalDevice) -> Result<Arc<CandleDevice>> {
    DEVICES.get_or_try(&device.id(), || {
        // Compiled forms of a kernel depend on the GPU, whose index this is.
        let (index, gpu) = gpu(device.metal_device().registry_id())?;
        Ok((index, CandleGpu { device: device.clone(), gpu }))
    })
}

fn gpu(registry: u64) -> Result<(usize, Arc<Gpu>)> {
    let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match gpus.iter().position(|(known, _)| *known == registry) {
        Some(index) => index,
        None => {
            let metal = AppleMetal::with_registry(registry)
                .ok_or_else(|| Error::msg(format!("openmps finds no GPU with the registry number {registry}")))?;
            gpus.push((registry, Arc::new(Gpu { metal, pipelines: Pipelines::new(LIMIT) })));
            gpus.len() - 1
        }
    };
    Ok((index, gpus[index].1.clone()))
}

/// Whether openmps's kernels take tensors of this type on this device: Metal has no float64, and bfloat16 from macOS 14 on only.
pub(crate) fn takes(device: &Device, dtype: DType) -> bool {
    let Device::Metal(device) = device else { return false };
    match dtype {
        DType::F32 | DType::F16 => true,
        DType::BF16 => external_device(device).is_ok_and(|external| external.gpu().gpu.metal.properties().bfloat),
        _ => false,
    }
}

/// Runs an operator on the device of its operands, on Candle's encoder.
pub(crate) fn on_metal(op: &dyn Forward, inputs: &[(&MetalStorage, &Layout)]) -> Result<(MetalStorage, Shape)> {
    let Some((first, _)) = inputs.first() else { candle_core::bail!("an operator without operands has no device") };
    let device = first.device();
    let held: Vec<_> = op.held().into_iter().map(Tensor::storage_and_layout).collect();
    let mut given: Vec<Given<Buffer>> = inputs.iter().map(|&(storage, layout)| given(storage, layout)).collect();
    for (storage, layout) in &held {
        let Storage::Metal(storage) = &**storage else {
            candle_core::bail!("a tensor that the operator holds is not on its operands' Metal device")
        };
        given.push(self::given(storage, layout));
    }
    let made = external::forward(&*external_device(device)?, op, &given, |count, dtype| {
        // Candle's allocator counts the handles; kernels get the buffer within.
        let handle = device.new_buffer(count.max(1), dtype, "openmps")?;
        Ok(((*handle).clone(), handle))
    })?;
    Ok((MetalStorage::new(made.handle, device.clone(), made.count, made.dtype), made.shape))
}

fn given<'a>(storage: &MetalStorage, layout: &'a Layout) -> Given<'a, Buffer> {
    let buffer = storage.buffer().clone();
    Given { bytes: buffer.length(), buffer, dtype: storage.dtype(), layout }
}

// SAFETY: buffers are made by Candle for the length; `encode::checked` binds the table.
unsafe impl ExternalGpu for CandleGpu {
    type Buffer = Buffer;

    fn properties(&self) -> &Properties {
        self.gpu.metal.properties()
    }

    /// Beside Candle's own pool, which would keep it and hand it out; its encoder orders what uses it all the same.
    fn allocate(&self, bytes: usize) -> openmps_metal::Result<Buffer> {
        let buffer = self.gpu.metal.autorelease_pool(|| self.device.metal_device().new_buffer(bytes, RESOURCE_OPTIONS));
        buffer.map_err(|_| openmps_metal::Error::OutOfMemory { bytes, limit: self.gpu.metal.properties().max_buffer })
    }

    unsafe fn launch(&self, kernel: &Kernel, table: &Table<Buffer>, grid: Grid) -> openmps_metal::Result<()> {
        let Gpu { metal, pipelines } = &*self.gpu;
        metal.autorelease_pool(|| {
            let (pipeline, limits) = pipelines.get(metal, &kernel.pipeline)?;
            pipelines.save_if_due(metal);
            let encoder = self.device.command_encoder();
            let encoder = encoder.map_err(|error| openmps_metal::Error::System {
                what: "Candle's command encoder",
                message: error.to_string(),
            })?;
            let pipeline = ComputePipeline::new(pipeline.raw().clone());
            let device = metal.properties();
            // SAFETY: passed on to the caller.
            unsafe { encode::checked(&mut CandleEncoder(&encoder), device, &limits, kernel, &pipeline, table, grid) }
        })
    }
}

/// Candle's encoder for one dispatch. It puts the barriers itself, by what is bound to be read and what to be written.
struct CandleEncoder<'a>(&'a CommandsGuard<'a>);

impl Encoder for CandleEncoder<'_> {
    type Buffer = Buffer;
    type Pipeline = ComputePipeline;

    fn set_pipeline(&mut self, pipeline: &ComputePipeline) -> openmps_metal::Result<()> {
        self.0.set_compute_pipeline_state(pipeline);
        Ok(())
    }

    fn set_buffer(&mut self, index: usize, buffer: &Buffer, offset: usize, written: bool) -> openmps_metal::Result<()> {
        let encoder = self.0.as_ref();
        if written {
            // What is written may be read as well; an output waits for earlier readers and writers both.
            encoder.set_output_buffer(index, Some(buffer), offset);
        } else {
            encoder.set_input_buffer(index, Some(buffer), offset);
        }
        Ok(())
    }

    fn set_bytes(&mut self, index: usize, bytes: &[u8]) -> openmps_metal::Result<()> {
        self.0.as_ref().set_bytes_directly(index, bytes.len(), bytes.as_ptr().cast());
        Ok(())
    }

    fn set_threadgroup_memory(&mut self, index: usize, bytes: usize) -> openmps_metal::Result<()> {
        self.0.as_ref().set_threadgroup_memory_length(index, bytes);
        Ok(())
    }

    unsafe fn dispatch(&mut self, grid: Grid, threads: Size) -> openmps_metal::Result<()> {
        let size = |[width, height, depth]: Size| MTLSize { width, height, depth };
        match grid {
            Grid::Threadgroups(count) => self.0.as_ref().dispatch_thread_groups(size(count), size(threads)),
            Grid::Threads(count) => self.0.as_ref().dispatch_threads(size(count), size(threads)),
        }
        Ok(())
    }
}
