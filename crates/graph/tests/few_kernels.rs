//! A network at a thousand shapes compiles few kernels: on a GPU each takes a tenth of a second when a shape is new.

#[allow(dead_code, reason = "other tests use the rest")]
mod harness;

use harness::{Layout, Tensor, vouched};
use libtest_mimic::{Arguments, Failed, Trial};
use openmps_graph::entry::Input;
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::concat::Concat;
use openmps_graph::operators::convolution::Convolution;
use openmps_graph::operators::elementwise::{Call, Elementwise};
use openmps_graph::operators::layer_norm::LayerNorm;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::pooling::{Pooling, PoolingType};
use openmps_graph::operators::reduce::{Reduce, Reduction};
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::{DType, Operator, program};
use openmps_runtime::{Backend, Device};
use std::process::Command;

/// Shapes that each network is run at; on the emulated device a quarter of them.
const SHAPES: usize = 1_000;

/// Kernels that both networks may need, on one device, in one element type.
const MOST: usize = 64;

/// The variable that names the part that a process runs.
const PART: &str = "FEW_KERNELS_PART";

/// A network's part: tensors of one type on one device.
struct Runner {
    device: Device,
    dtype: DType,
}

impl Runner {
    fn tensor(&self, dims: &[usize]) -> Tensor {
        Tensor::make(&self.device, &Input::new(dims), self.dtype, Layout::Dense, 1)
    }

    fn run(&self, operator: &dyn Operator, inputs: &[&Tensor]) -> Tensor {
        let metas: Vec<_> = inputs.iter().map(|input| input.meta()).collect();
        let views: Vec<_> = inputs.iter().map(|input| input.view.clone()).collect();
        let outputs: Vec<_> = operator.infer(&metas).unwrap().iter().map(|m| Tensor::empty(&self.device, m)).collect();
        let out: Vec<_> = outputs.iter().map(|output| output.view.clone()).collect();
        operator.run(vouched(&self.device.queue()), &views, &out).unwrap();
        outputs.into_iter().next().unwrap()
    }

    fn elementwise(&self, name: &str, inputs: &[&Tensor]) -> Tensor {
        self.run(&Call::new(Elementwise::all().find(|operator| operator.row().name == name).unwrap()), inputs)
    }

    /// A layer of an encoder over `batch` sequences of `length`, its classes' probabilities, and the mean over the sequence.
    fn encoder(&self, batch: usize, length: usize) {
        let (heads, depth) = (2, 8);
        let width = heads * depth;
        let x = self.tensor(&[batch, length, width]);
        let [scale, bias] = [(); 2].map(|()| self.tensor(&[width]));
        let norm = LayerNorm { begin: 2, epsilon: 1e-5, scale: true, bias: true, centred: true, statistics: false };
        let normed = self.run(&norm, &[&x, &scale, &bias]);
        let linear = Matmul { transpose_left: false, transpose_right: false };
        let wide = self.run(&linear, &[&normed, &self.tensor(&[width, 2 * width])]);
        self.elementwise("exp", &[&wide]);
        let heads = self.tensor(&[batch, heads, length, depth]);
        self.run(&Attention { causal: true, ..Attention::default() }, &[&heads, &heads, &heads]);
        let scores = self.run(&Matmul { transpose_left: false, transpose_right: true }, &[&heads, &heads]);
        self.run(&Softmax { axis: -1, logarithm: false }, &[&scores]);
        self.elementwise("add", &[&x, &normed]);
        self.run(&Reduce::new(Reduction::Mean, &[1], false), &[&x]);
        self.run(&Reduce::new(Reduction::Sum, &[-1], false), &[&scores]);
        self.run(&Reduce::new(Reduction::Maximum, &[], false), &[&x]);
        self.run(&Concat { axis: 1 }, &[&x, &normed]);
        let axis = Some(-1);
        self.run(&ArgReduce { largest: true, axis, keep_dims: false, dtype: DType::I64 }, &[&scores]);
    }

    /// A few layers on images.
    fn images(&self, batch: usize, [height, width]: [usize; 2]) {
        let x = self.tensor(&[batch, 3, height, width]);
        let convolution = Convolution { paddings: vec![1, 1], ..Convolution::default() };
        let y = self.run(&convolution, &[&x, &self.tensor(&[8, 3, 3, 3])]);
        let y = self.elementwise("relu", &[&y]);
        self.run(&Pooling { strides: [1, 1], ..Pooling::new(PoolingType::Max, [2, 2]) }, &[&y]);
        self.run(&Pooling { global: true, ..Pooling::new(PoolingType::Average, [1, 1]) }, &[&y]);
        self.run(&Reduce::new(Reduction::Mean, &[2, 3], true), &[&y]);
    }
}

/// Kernels that both networks compile in a process that has compiled none.
fn compiled(device: Device, dtype: DType) -> u64 {
    let shapes = if device.properties().backend == Backend::Host { SHAPES } else { SHAPES / 4 };
    let (runner, mut random) = (Runner { device, dtype }, fastrand::Rng::with_seed(7));
    for _ in 0..shapes {
        runner.encoder(random.usize(1..4), random.usize(1..150));
        runner.images(random.usize(1..3), [random.usize(3..30), random.usize(3..30)]);
    }
    program::statistics().misses
}

/// One part of the test in a process of its own: the cache of kernels is the process's.
fn in_a_process(part: &str) -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?).env(PART, part).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count: usize = text.trim().parse().map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())?;
    if count <= MOST { Ok(()) } else { Err(format!("{count} kernels, at most {MOST}").into()) }
}

/// The device that the environment names; or the emulated one with our own kernels, where there is one.
fn device(name: &str) -> Option<Device> {
    match name {
        "device" => Device::all().first().cloned(),
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        "metal-emulated" => {
            use openmps_metal::emulated::Emulated;
            let emulated = Emulated::with_schedule(openmps_emulator::Schedule::Ascending);
            Some(Device::over_with_engine(1, emulated, Some(openmps_runtime::vendor::Engine::Kernels)))
        }
        _ => None,
    }
}

fn main() {
    let part = |name: &str| -> Option<u64> {
        let (name, dtype) = name.split_once('/')?;
        let dtype = [DType::F32, DType::F16].into_iter().find(|known| known.name() == dtype)?;
        Some(compiled(device(name)?, dtype))
    };
    if let Ok(name) = std::env::var(PART) {
        return println!("{}", part(&name).expect("a part of this test"));
    }
    let parts = ["device/float32", "device/float16", "metal-emulated/float32", "metal-emulated/float16"];
    let there = |name: &&str| name.split_once('/').is_some_and(|(name, _)| device(name).is_some());
    let trials = parts.into_iter().filter(there).map(|name| Trial::test(name, move || in_a_process(name)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
