//! Compiled graphs, and how they are run.

use super::plan::{Goals, Observer, Plan, PreparedKey, copy};
use super::{Graph, OptimizationLevel, Source, TensorData};
use crate::buffer::{Access, Buffer};
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{Resource, encode};
use crate::error::{Error, Result};
use crate::queue::CommandQueue;
use openmps_graph::cache::Cache;
use openmps_graph::prepared::Prepared;
use openmps_graph::{Meta, View};
use std::sync::Arc;

/// A graph compiled for a device: `MPSGraphExecutable`. It may run on several queues and threads at once.
///
/// ```
/// use openmps::{DataType, Device, Graph, TensorData};
/// let mut graph = Graph::new();
/// let x = graph.placeholder("x", &[3], DataType::F32)?;
/// let y = graph.add(x, x)?;
/// let device = Device::get(0)?;
/// let executable = graph.compile(&device, &[y])?;
/// let feed = TensorData::from_slice(&device, &[3], &[1.0f32, 2.0, 3.0])?;
/// assert_eq!(executable.run(&device.queue(), &[("x", &feed)])?[0].read::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Debug)]
pub struct Executable {
    device: Device,
    pub(super) plan: Arc<Plan>,
}

impl Executable {
    /// The steps that the results need, after the passes of this level, for the device. Constants go into the forms that operators ask for where there is
    /// a cache for them.
    pub(super) fn new(
        graph: &Graph,
        device: &Device,
        goals: Goals,
        level: OptimizationLevel,
        prepared: Option<&Cache<PreparedKey, Prepared>>,
    ) -> Result<Executable> {
        let plan = Plan::new(graph, device, &goals, level, prepared)?;
        Ok(Executable { device: device.clone(), plan: Arc::new(plan) })
    }
}

impl Executable {
    /// The device that it was compiled for.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[3], DataType::F32)?;
    /// let device = Device::get(0)?;
    /// assert_eq!(graph.compile(&device, &[x])?.device(), &device);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Encodes a run and waits for it: `runWithMTLCommandQueue:inputsArray:...`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Error, Graph};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[3], DataType::F32)?;
    /// let y = graph.softmax(x, 0)?;
    /// let device = Device::get(0)?;
    /// let error = graph.compile(&device, &[y])?.run(&device.queue(), &[]).unwrap_err();
    /// assert!(matches!(error, Error::Feed { .. }));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn run(&self, queue: &CommandQueue, feeds: &[(&str, &TensorData)]) -> Result<Vec<TensorData>> {
        let command_buffer = queue.command_buffer();
        let results = self.encode(&command_buffer, feeds)?;
        command_buffer.commit()?;
        command_buffer.wait_until_completed()?;
        Ok(results)
    }

    /// Encodes a run: `encodeToCommandBuffer:inputsArray:...`. The results may be read when the command buffer has completed.
    ///
    /// ```
    /// use openmps::{DataType, Device, Graph, TensorData};
    /// let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2], DataType::F32)?;
    /// let y = graph.multiply(x, x)?;
    /// let device = Device::get(0)?;
    /// let (executable, command_buffer) = (graph.compile(&device, &[y])?, device.queue().command_buffer());
    /// let feed = TensorData::from_slice(&device, &[2], &[2.0f32, 3.0])?;
    /// let results = executable.encode(&command_buffer, &[("x", &feed)])?;
    /// command_buffer.commit()?;
    /// command_buffer.wait_until_completed()?;
    /// assert_eq!(results[0].read::<f32>()?, [4.0, 9.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(&self, command_buffer: &CommandBuffer, feeds: &[(&str, &TensorData)]) -> Result<Vec<TensorData>> {
        self.encode_with(command_buffer, feeds, Observer::None)
    }

    pub(super) fn encode_with(
        &self,
        command_buffer: &CommandBuffer,
        feeds: &[(&str, &TensorData)],
        observer: Observer,
    ) -> Result<Vec<TensorData>> {
        const OPERATION: &str = "Executable";
        let plan = &self.plan;
        let mut views: Vec<Option<View>> = vec![None; plan.values.len()];
        let mut resources: Vec<Resource> = Vec::new();
        let mut use_buffer = |what, buffer: &Buffer, access, range| {
            resources.push(Resource { what, buffer: buffer.clone(), access, range });
        };
        // What the results do not need may be fed all the same; a name that is misspelt leaves another one without its tensor.
        for (at, &(name, _)) in feeds.iter().enumerate() {
            if feeds[..at].iter().any(|&(other, _)| other == name) {
                return Err(Error::Feed { name: name.to_owned(), what: "it was given two tensors" });
            }
        }
        for (index, value) in plan.values.iter().enumerate() {
            match &value.source {
                Source::Placeholder(name) => {
                    let Some((_, feed)) = feeds.iter().find(|(other, _)| other == name) else {
                        if self.needs(index) {
                            return Err(Error::Feed { name: name.clone(), what: "no tensor was given" });
                        }
                        continue;
                    };
                    check_feed(&value.meta, feed)?;
                    views[index] = Some(feed.view()?);
                    use_buffer("a feed", &feed.buffer, Access::Read, (feed.offset, value.meta.bytes()?));
                }
                Source::Constant(_)
                | Source::Data(_)
                | Source::Stored(_)
                | Source::Folded(..)
                | Source::Variable(_) => {
                    if let Some(tensor) = &plan.constants[index] {
                        views[index] = Some(tensor.view()?);
                        let (what, access) = if plan.is_set[index] {
                            ("a variable", Access::Write)
                        } else {
                            ("a constant", Access::Read)
                        };
                        use_buffer(what, &tensor.buffer, access, (tensor.offset, value.meta.bytes()?));
                    }
                }
                Source::Step(_) | Source::Reshape(_) => {}
            }
        }
        let mut results: Vec<TensorData> = Vec::with_capacity(plan.results.len());
        let mut copies = Vec::new();
        for &value in &plan.results {
            let (root, meta) = (plan.roots[value], &plan.values[value].meta);
            let buffer = Buffer::new(&self.device, meta.bytes()?)?;
            let result = TensorData::new(&buffer, 0, &meta.shape, meta.dtype)?;
            use_buffer("a result", &buffer, Access::Write, (0, buffer.len()));
            match &views[root] {
                // Fed, constant, or a result before this one: there is nothing to compute into this buffer.
                Some(_) => copies.push((value, buffer.address(0))),
                None => views[root] = Some(View::dense(buffer.address(0), meta.dtype, &plan.values[root].meta.shape)?),
            }
            results.push(result);
        }
        for &[value, _] in &plan.assignments {
            let (root, meta) = (plan.roots[value], &plan.values[plan.roots[value]].meta);
            if views[root].is_none() {
                let buffer = Buffer::new(&self.device, meta.bytes()?)?;
                use_buffer("a variable's new value", &buffer, Access::Write, (0, buffer.len()));
                views[root] = Some(View::dense(buffer.address(0), meta.dtype, &meta.shape)?);
            }
        }
        let plan = plan.clone();
        encode(command_buffer, OPERATION, resources, move |queue| {
            plan.run(queue, views.clone(), &observer)?;
            for (value, to) in copies {
                let meta = &plan.values[value].meta;
                copy(queue, &plan.view(&views, value)?, &View::dense(to, meta.dtype, &meta.shape)?)?;
            }
            plan.assign(queue, &views)
        })?;
        Ok(results)
    }

    /// Whether a step or a result reads the value.
    fn needs(&self, value: usize) -> bool {
        let reads = |&input: &usize| self.plan.roots[input] == value;
        let plan = &self.plan;
        let goals = || plan.results.iter().chain(plan.assignments.iter().map(|[value, _]| value));
        plan.steps.iter().any(|step| step.inputs.iter().any(reads)) || goals().any(reads)
    }
}

fn check_feed(meta: &Meta, feed: &TensorData) -> Result<()> {
    let (operation, what) = ("Executable", "a feed");
    if feed.meta.shape != meta.shape {
        let (got, expected) = (format!("{:?}", feed.meta.shape), format!("{:?}", meta.shape));
        return Err(Error::Shape { operation, what, got, expected });
    }
    if feed.meta.dtype != meta.dtype {
        return Err(Error::DataType { operation, what, got: feed.meta.dtype, expected: meta.dtype.to_string() });
    }
    Ok(())
}
