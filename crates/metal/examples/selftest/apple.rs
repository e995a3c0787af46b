//! The checks on a Mac, one function each.

use openmps_metal::apple::{AppleMetal, Buffer};
use openmps_metal::arguments::{Addresses, Kernel, Parameter};
use openmps_metal::graph::{Binary, Builder, Operation};
use openmps_metal::interface::{Language, MathMode};
use openmps_metal::matrix::{Distribution, MatrixCall, MatrixView, TensorView};
use openmps_metal::{CommitPolicy, Launch, Metal, PipelineKey, Pipelines, Stream};
use openmps_tile::DType;
use std::process::ExitCode;
use std::sync::Arc;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const TEXT: &str = "
#include <metal_stdlib>
using namespace metal;
struct Numbers { uint n; };
kernel void add(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]], device float* z [[buffer(2)]],
                constant Numbers& numbers [[buffer(3)]], uint group [[threadgroup_position_in_grid]],
                uint lane [[thread_position_in_threadgroup]]) {
    uint i = group * 256 + lane;
    if (i < numbers.n) { z[i] = x[i] + y[i]; }
}
";

/// One GPU with three buffers of 32 x 32 numbers: x[i] = i, y[i] = 2, z undefined.
struct Bench {
    metal: Arc<AppleMetal>,
    stream: Stream<AppleMetal>,
    x: Buffer,
    y: Buffer,
    z: Buffer,
}

const SIDE: usize = 32;
const COUNT: usize = SIDE * SIDE;

type Check = fn(&Bench) -> Outcome;

const CHECKS: [(&str, Check); 6] = [
    ("a kernel of the Metal Shading Language", kernel),
    ("fill and copy", fill_and_copy),
    ("MPSMatrixMultiplication", product),
    ("MPSMatrixRandomPhilox", random),
    ("MPSGraph addition", addition),
    ("errors of the compiler", refusal),
];

/// Runs every check on every GPU; the one that is named; or tells their names, as a program of tests does.
pub fn run() -> ExitCode {
    let wanted = std::env::args().nth(1);
    if wanted.as_deref() == Some("--list") {
        CHECKS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let devices = AppleMetal::all();
    if devices.is_empty() {
        eprintln!("FAILED: this machine has no Metal device with unified memory");
        return ExitCode::FAILURE;
    }
    let mut failed = 0;
    for metal in devices {
        println!("{:#?}", metal.properties());
        let bench = match Bench::new(metal) {
            Ok(bench) => bench,
            Err(error) => {
                eprintln!("FAILED: {error}");
                return ExitCode::FAILURE;
            }
        };
        let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        for (name, check) in CHECKS.into_iter().filter(|(name, _)| is_wanted(name)) {
            match check(&bench) {
                Ok(()) => println!("passed: {name}"),
                Err(error) => {
                    failed += 1;
                    println!("FAILED: {name}: {error}");
                }
            }
        }
        println!("{:?}", bench.stream.statistics());
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Bench {
    fn new(metal: AppleMetal) -> Result<Bench, Box<dyn std::error::Error>> {
        let metal = Arc::new(metal);
        let stream = Stream::new(metal.clone(), "selftest", CommitPolicy::default())?;
        let buffer = |value: fn(usize) -> f32| -> openmps_metal::Result<Buffer> {
            let buffer = metal.autorelease_pool(|| metal.allocate(COUNT * 4))?;
            let values: Vec<f32> = (0..COUNT).map(value).collect();
            // SAFETY: the buffer is as long as the values, and no command uses it yet.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), metal.contents(&buffer).0 as *mut f32, COUNT) };
            Ok(buffer)
        };
        let (x, y, z) = (buffer(|i| i as f32)?, buffer(|_| 2.0)?, buffer(|_| f32::NAN)?);
        Ok(Bench { metal, stream, x, y, z })
    }

    /// Waits, and compares z with what is expected.
    fn expect(&self, value: impl Fn(usize) -> f32) -> Outcome {
        self.stream.finish()?;
        // SAFETY: z is as long, and every command has ended.
        let found = unsafe { std::slice::from_raw_parts(self.metal.contents(&self.z).0 as *const f32, COUNT) };
        match (0..COUNT).find(|&i| found[i] != value(i)) {
            None => Ok(()),
            Some(i) => Err(format!("element {i} is {}, where {} was expected", found[i], value(i)).into()),
        }
    }

    fn matrix(&self, buffer: &Buffer) -> MatrixView<Buffer> {
        MatrixView::dense(buffer.clone(), 0, DType::F32, 1, SIDE, SIDE)
    }

    fn tensor(&self, buffer: &Buffer) -> TensorView<Buffer> {
        TensorView { buffer: buffer.clone(), offset: 0, shape: vec![SIDE, SIDE], dtype: DType::F32 }
    }
}

fn key(source: &str) -> PipelineKey {
    PipelineKey {
        source: source.into(),
        entry: "add".to_string(),
        math: MathMode::Safe,
        language: Language::Metal3_0,
        threads: 256,
        constants: Vec::new(),
    }
}

fn kernel(bench: &Bench) -> Outcome {
    let buffer = |index, written| Parameter::Buffer { index, written };
    let parameters =
        vec![buffer(0, false), buffer(1, false), buffer(2, true), Parameter::Number { offset: 0, size: 4 }];
    let kernel =
        Kernel { pipeline: key(TEXT), threads: [256, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers: 4 };
    let pipelines = Pipelines::<AppleMetal>::new(4);
    let (pipeline, limits) = pipelines.get(&bench.metal, &kernel.pipeline)?;
    let mut addresses = Addresses::default();
    let mut argument = |buffer: &Buffer| {
        let (address, bytes) = bench.metal.contents(buffer);
        addresses.insert(address, bytes, buffer.clone());
        address as u64
    };
    let arguments = [argument(&bench.x), argument(&bench.y), argument(&bench.z), COUNT as u64];
    let grid = [COUNT / 256, 1, 1].into();
    let launch = Launch { kernel: &kernel, pipeline: &pipeline, limits, grid, arguments: &arguments };
    // SAFETY: the three buffers have `COUNT` elements each, as the kernel is told.
    unsafe { bench.stream.dispatch(&launch, |address| addresses.resolve(address, 0)) }?;
    bench.expect(|i| i as f32 + 2.0)
}

fn fill_and_copy(bench: &Bench) -> Outcome {
    let at = |buffer: &Buffer| {
        let (address, bytes) = bench.metal.contents(buffer);
        openmps_metal::arguments::Resolved { buffer: buffer.clone(), offset: 0, extent: address..address + bytes }
    };
    bench.stream.fill(&at(&bench.z), COUNT * 4, 0)?;
    bench.stream.copy(&at(&bench.z), &at(&bench.x), COUNT * 2)?;
    bench.expect(|i| if i < COUNT / 2 { i as f32 } else { 0.0 })
}

fn product(bench: &Bench) -> Outcome {
    bench.stream.matrix(&MatrixCall::Multiplication {
        left: bench.matrix(&bench.x),
        right: bench.matrix(&bench.y),
        result: bench.matrix(&bench.z),
        transpose_left: false,
        transpose_right: false,
        alpha: 0.5,
        beta: 0.0,
    })?;
    // Each row of x summed: whole numbers, exact in any order.
    bench.expect(|i| (0..SIDE).map(|k| (i / SIDE * SIDE + k) as f32).sum())
}

fn random(bench: &Bench) -> Outcome {
    let (result, distribution) = (bench.matrix(&bench.z), Distribution::Uniform(0.0, 1.0));
    bench.stream.matrix(&MatrixCall::Random { result, distribution, seed: 7, philox: true })?;
    bench.stream.finish()?;
    // SAFETY: z is as long, and every command has ended.
    let found = unsafe { std::slice::from_raw_parts(bench.metal.contents(&bench.z).0 as *const f32, COUNT) };
    let mean = found.iter().sum::<f32>() / COUNT as f32;
    let inside = found.iter().all(|value| (0.0..1.0).contains(value));
    if inside && (0.4..0.6).contains(&mean) { Ok(()) } else { Err(format!("the mean is {mean}").into()) }
}

fn addition(bench: &Bench) -> Outcome {
    let mut builder = Builder::new();
    let (x, y) = (builder.input(DType::F32, &[SIDE, SIDE])?, builder.input(DType::F32, &[SIDE, SIDE])?);
    let sum = builder.add(Operation::Binary(Binary::Addition), &[x, y])?;
    let graph = builder.finish(&[sum])?;
    let executable = bench.metal.autorelease_pool(|| bench.metal.executable(&graph))?;
    let (x, y, z) = (bench.tensor(&bench.x), bench.tensor(&bench.y), bench.tensor(&bench.z));
    bench.stream.graph(&executable, &[x, y], &[z])?;
    bench.expect(|i| i as f32 + 2.0)
}

fn refusal(bench: &Bench) -> Outcome {
    match bench.metal.autorelease_pool(|| bench.metal.pipeline(&key("kernel void add() { nonsense }"))) {
        Err(openmps_metal::Error::Library { .. }) => Ok(()),
        Err(other) => Err(format!("another error: {other}").into()),
        Ok(_) => Err("nonsense was compiled".into()),
    }
}
