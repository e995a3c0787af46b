//! What a compiled graph is made of and where its time goes: steps with their sizes, durations, memory; the machine's ceilings.

use super::{Executable, Graph, TensorData};
use crate::device::Device;
use crate::error::Result;
use crate::queue::CommandQueue;
use openmps_graph::Meta;
use openmps_graph::operators::copy::Copy;
use openmps_runtime::Backend;
use std::time::Duration;

/// A step of a compiled graph.
///
/// ```
/// use openmps::{DataType, Device, Graph};
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x", &[2, 3], DataType::F32)?;
/// let y = graph.placeholder("y", &[3, 4], DataType::F32)?;
/// let z = graph.matmul(x, y)?;
/// let steps = graph.compile(&Device::get(0)?, &[z])?.steps();
/// assert_eq!((steps[0].operator, steps[0].bytes, steps[0].arithmetic), ("matmul", 4 * (6 + 12 + 8), 2 * 3 * 8));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepSummary {
    /// The operator's name.
    pub operator: &'static str,
    /// Other operators that it does the work of: what was fused.
    pub includes: Vec<&'static str>,
    /// What it reads.
    pub inputs: Vec<Meta>,
    /// What it writes.
    pub outputs: Vec<Meta>,
    /// Bytes of all inputs and outputs.
    pub bytes: u64,
    /// Additions, multiplications and other formulas of single numbers.
    pub arithmetic: u64,
}

/// Memory of a run of a compiled graph, in bytes.
///
/// ```
/// use openmps::{DataType, Device, Graph};
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x", &[1024], DataType::F32)?;
/// let y = graph.softmax(x, 0)?;
/// let y = graph.softmax(y, 0)?;
/// let memory = graph.compile(&Device::get(0)?, &[y])?.memory();
/// assert_eq!((memory.results, memory.peak, memory.sum), (4096, 4096, 4096));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemorySummary {
    /// Constants that steps read: weights, folded or not, and packed.
    pub constants: u64,
    /// Of these, weights in the order in which a kernel of the host reads them. Executables of one network share them.
    pub packed: u64,
    /// What is handed back.
    pub results: u64,
    /// Between inputs and results: the block in which values that are not needed at the same time share places.
    pub peak: u64,
    /// The same if nothing were given back before the end.
    pub sum: u64,
}

/// What a machine can do at most, as measured: the bytes that a copy reads and writes, and the arithmetic of float32.
///
/// ```no_run
/// let ceilings = openmps::graph::Ceilings::measure(&openmps::Device::get(0)?)?;
/// println!("{:.1} GB/s, {:.1} GFLOP/s", ceilings.bytes_per_second / 1e9, ceilings.operations_per_second / 1e9);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ceilings {
    /// Of a copy that is larger than any cache.
    pub bytes_per_second: f64,
    /// Of multiply-adds in registers on the CPU; of a large product on a GPU.
    pub operations_per_second: f64,
}

/// Elements of the tensor that is copied: 128 MiB of float32, which no cache holds.
const COPIED: usize = 1 << 25;

/// Rows and columns of the product that is a GPU's measure.
const PRODUCT: usize = 2048;

/// Runs of a measurement, of which the shortest counts.
const RUNS: usize = 5;

impl Ceilings {
    /// Measures a device; it takes about a second.
    ///
    /// ```no_run
    /// # let device = openmps::Device::get(0)?;
    /// openmps::graph::Ceilings::measure(&device)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn measure(device: &Device) -> Result<Ceilings> {
        let mut graph = Graph::new();
        let x = graph.placeholder("x", &[COPIED], openmps_tile::DType::F32)?;
        let copied = graph.operator(Copy, &[x])?;
        let feed = TensorData::from_slice(device, &[COPIED], &vec![1.0f32; COPIED])?;
        let copy = graph.compile(device, &copied)?;
        let bytes_per_second = best(&copy, device, &[("x", &feed)])?.0;
        let operations_per_second = match device.properties().backend {
            Backend::Host => openmps_host::native::ceiling::operations_per_second(Duration::from_millis(200)),
            _ => {
                let mut graph = Graph::new();
                let x = graph.placeholder("x", &[PRODUCT, PRODUCT], openmps_tile::DType::F32)?;
                let product = graph.matmul(x, x)?;
                let feed = TensorData::from_slice(device, &[PRODUCT, PRODUCT], &vec![0.5f32; PRODUCT * PRODUCT])?;
                best(&*graph.compile(device, &[product])?, device, &[("x", &feed)])?.1
            }
        };
        Ok(Ceilings { bytes_per_second, operations_per_second })
    }
}

/// Bytes and arithmetic a second of a graph of one step, in the fastest of some runs.
fn best(executable: &Executable, device: &Device, feeds: &[(&str, &TensorData)]) -> Result<(f64, f64)> {
    let mut shortest = Duration::MAX;
    for _ in 0..RUNS {
        shortest = shortest.min(executable.time_steps(&device.queue(), feeds)?.iter().sum());
    }
    let (seconds, step) = (shortest.as_secs_f64().max(1e-9), &executable.steps()[0]);
    Ok((step.bytes as f64 / seconds, step.arithmetic as f64 / seconds))
}

/// Bytes of a dense tensor.
fn bytes(meta: &Meta) -> u64 {
    meta.count() * meta.dtype.size() as u64
}

impl Executable {
    /// The steps in the order in which they run.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[8], DataType::F32)?;
    /// let y = graph.softmax(x, 0)?;
    /// assert_eq!(graph.compile(&Device::get(0)?, &[y])?.steps()[0].operator, "softmax");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn steps(&self) -> Vec<StepSummary> {
        let metas = |values: &[usize]| values.iter().map(|&value| self.plan.values[value].meta.clone()).collect();
        let summary = |step: &super::Step| {
            let (inputs, outputs): (Vec<Meta>, Vec<Meta>) = (metas(&step.inputs), metas(&step.outputs));
            StepSummary {
                operator: step.operator.name(),
                includes: step.operator.includes(),
                bytes: inputs.iter().chain(&outputs).map(bytes).sum(),
                arithmetic: step.operator.arithmetic(&inputs, &outputs),
                inputs,
                outputs,
            }
        };
        self.plan.steps.iter().map(summary).collect()
    }

    /// Memory of a run beside what it is fed.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.constant(&[8], &[1.0f32; 8])?;
    /// assert_eq!(graph.compile(&Device::get(0)?, &[x])?.memory().results, 32);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn memory(&self) -> MemorySummary {
        let plan = &self.plan;
        let bytes_of = |value: usize| bytes(&plan.values[value].meta);
        let is_result = |value: usize| plan.results.iter().any(|&result| plan.roots[result] == value);
        let between = plan.steps.iter().flat_map(|step| &step.outputs).filter(|&&output| !is_result(output));
        let constants = plan.constants.iter().flatten();
        let packed = plan.packed().iter().map(|prepared| prepared.bytes() as u64).sum();
        MemorySummary {
            constants: constants.map(|tensor| bytes(&tensor.meta)).sum::<u64>() + packed,
            packed,
            results: plan.results.iter().map(|&value| bytes_of(value)).sum(),
            peak: plan.layout.bytes as u64,
            sum: between.map(|&value| bytes_of(value)).sum(),
        }
    }

    /// One run in which every step is waited for: how long each took.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph, TensorData};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[8], DataType::F32)?;
    /// let y = graph.softmax(x, 0)?;
    /// let device = Device::get(0)?;
    /// let feed = TensorData::from_slice(&device, &[8], &[1.0f32; 8])?;
    /// let durations = graph.compile(&device, &[y])?.time_steps(&device.queue(), &[("x", &feed)])?;
    /// assert_eq!(durations.len(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn time_steps(&self, queue: &CommandQueue, feeds: &[(&str, &TensorData)]) -> Result<Vec<Duration>> {
        use std::sync::{Arc, Mutex, PoisonError};
        let durations = Arc::new(Mutex::new(Vec::new()));
        let command_buffer = queue.command_buffer();
        let clock = super::plan::Observer::Clock(Arc::clone(&durations));
        self.encode_with(&command_buffer, feeds, clock, crate::buffer::Contents::Whatever)?;
        command_buffer.commit()?;
        command_buffer.wait_until_completed()?;
        let taken = std::mem::take(&mut *durations.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(taken)
    }
}
