//! The stream over the emulator: kernels run later than they are said, in order where they depend on each other.

use super::*;
use crate::arguments::{Addresses, Kernel, Parameter};
use crate::interface::{Language, MathMode};
use crate::{CommitPolicy, Launch, Pipelines, Stream};

const TEXT: &str = "
#include <metal_stdlib>
using namespace metal;
struct Numbers { uint n; float scale; };
kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant Numbers& numbers [[buffer(2)]],
                  uint group [[threadgroup_position_in_grid]], uint lane [[thread_position_in_threadgroup]]) {
    uint i = group * 64 + lane;
    if (i < numbers.n) { y[i] = x[i] * numbers.scale + 1.0f; }
}
kernel void outside(device float* x [[buffer(0)]]) { x[1ul << 44] = 1.0f; }
";

fn kernel(entry: &str, buffers: usize, numbers: &[(usize, usize)]) -> Kernel {
    let pipeline = PipelineKey {
        source: TEXT.into(),
        entry: entry.to_string(),
        math: MathMode::Safe,
        language: Language::Metal3_1,
        threads: 64,
        constants: Vec::new(),
    };
    let parameters = (0..buffers).map(|index| Parameter::Buffer { index, written: index + 1 == buffers });
    let parameters =
        parameters.chain(numbers.iter().map(|&(offset, size)| Parameter::Number { offset, size })).collect();
    let size = numbers.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    Kernel { pipeline, threads: [64, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers: size }
}

struct Gpu {
    metal: Arc<Emulated>,
    stream: Stream<Emulated>,
    pipelines: Pipelines<Emulated>,
    addresses: Addresses<EmulatedBuffer>,
}

impl Gpu {
    fn new(schedule: Schedule) -> Gpu {
        let metal = Arc::new(Emulated::with_schedule(schedule));
        let stream = Stream::new(metal.clone(), "test", CommitPolicy::default()).unwrap();
        Gpu { metal, stream, pipelines: Pipelines::new(8), addresses: Addresses::default() }
    }

    fn buffer(&mut self, values: &[f32]) -> usize {
        let buffer = self.metal.allocate(size_of_val(values)).unwrap();
        let (address, bytes) = self.metal.contents(&buffer);
        // SAFETY: the buffer is as long as the values.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), address as *mut f32, values.len()) };
        self.addresses.insert(address, bytes, buffer);
        address
    }

    fn launch(&self, kernel: &Kernel, threadgroups: usize, arguments: &[u64]) {
        let (pipeline, limits) = self.pipelines.get(&self.metal, &kernel.pipeline).unwrap();
        let launch = Launch { kernel, pipeline: &pipeline, limits, grid: [threadgroups, 1, 1].into(), arguments };
        // SAFETY: each test's kernel stays inside the buffers that it is given.
        unsafe { self.stream.dispatch(&launch, |address| self.addresses.resolve(address, 0)) }.unwrap();
    }
}

fn read(address: usize, count: usize) -> Vec<f32> {
    // SAFETY: the test's own buffer of as many values, after the stream has ended.
    unsafe { std::slice::from_raw_parts(address as *const f32, count) }.to_vec()
}

#[test]
fn kernels_that_depend_on_each_other_keep_their_order() {
    const N: usize = 1000;
    for schedule in [Schedule::Ascending, Schedule::Descending, Schedule::Shuffled(7)] {
        let mut gpu = Gpu::new(schedule);
        let x: Vec<f32> = (0..N).map(|i| i as f32).collect();
        let (x, y, z) = (gpu.buffer(&x), gpu.buffer(&[0.0; N]), gpu.buffer(&[0.0; N]));
        let scale = kernel("scale", 2, &[(0, 4), (4, 4)]);
        let run = |from: usize, to: usize, by: f32| {
            gpu.launch(&scale, N.div_ceil(64), &[from as u64, to as u64, N as u64, u64::from(by.to_bits())]);
        };
        // y = 2x + 1; z = 3y + 1; x = z + 1, which must not overtake the first.
        run(x, y, 2.0);
        run(y, z, 3.0);
        run(z, x, 1.0);
        gpu.stream.finish().unwrap();
        let expected: Vec<f32> = (0..N).map(|i| 3.0 * (2.0 * i as f32 + 1.0) + 2.0).collect();
        assert_eq!(read(x, N), expected, "{schedule:?}");
    }
}

#[test]
fn faults_and_refused_texts_are_errors() {
    let mut gpu = Gpu::new(Schedule::Ascending);
    let x = gpu.buffer(&[0.0; 64]);
    gpu.launch(&kernel("outside", 1, &[]), 1, &[x as u64]);
    let error = gpu.stream.finish().unwrap_err().to_string();
    assert!(error.contains("test 0 failed (fault)") && error.contains("outside"), "{error}");
    gpu.stream.finish().unwrap();
    let broken = PipelineKey { source: "kernel void k() { double x; }".into(), ..kernel("k", 0, &[]).pipeline };
    assert!(matches!(gpu.pipelines.get(&gpu.metal, &broken), Err(Error::Library { .. })));
    let missing = kernel("missing", 0, &[]).pipeline;
    assert!(matches!(gpu.pipelines.get(&gpu.metal, &missing), Err(Error::Pipeline { .. })));
}

#[test]
fn copies_fills_and_events_run_in_order_across_queues() {
    let mut gpu = Gpu::new(Schedule::Descending);
    let (x, y) = (gpu.buffer(&[1.0; 256]), gpu.buffer(&[2.0; 256]));
    let other = Stream::new(gpu.metal.clone(), "other", CommitPolicy::default()).unwrap();
    let event = gpu.metal.event().unwrap();
    let at = |address| gpu.addresses.resolve(address, 0).unwrap();
    // The other queue waits until the first has filled x.
    other.wait_for(&event, 1).unwrap();
    other.copy(&at(y), &at(x), 1024).unwrap();
    other.flush().unwrap();
    gpu.stream.fill(&at(x), 1024, 0).unwrap();
    gpu.stream.signal(&event, 1).unwrap();
    other.finish().unwrap();
    assert_eq!(read(y, 256), [0.0; 256]);
    gpu.stream.finish().unwrap();
    assert!(gpu.metal.wait_event(&event, 1, Duration::ZERO));
    assert!(!gpu.metal.wait_event(&event, 2, Duration::from_millis(1)));
}

/// A system before macOS 26 has no MSL 4.0, whatever the text.
#[test]
fn tensor_operations_need_a_newer_system() {
    let key = PipelineKey {
        source: "#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
kernel void nothing(device half* x [[buffer(0)]]) {
    constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(16, 32, 16);
    mpp::tensor_ops::matmul2d<descriptor, metal::execution_simdgroup> product;
}
"
        .into(),
        entry: "nothing".to_string(),
        math: MathMode::Safe,
        language: Language::Metal4_0,
        threads: 32,
        constants: Vec::new(),
    };
    Emulated::like(m5).pipeline(&key).unwrap();
    let older = PipelineKey { language: Language::Metal3_2, ..key.clone() };
    for (metal, key) in [(Emulated::like(|of| of), key), (Emulated::like(m5), older)] {
        assert!(matches!(metal.pipeline(&key).err(), Some(Error::Library { .. })), "{:?}", key.language);
    }
}
