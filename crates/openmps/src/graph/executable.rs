//! Compiled graphs, and how they are run.

use super::bindings::Bindings;
use super::plan::{Goals, Observer, Plan, PreparedKey, copy};
use super::{Graph, OptimizationLevel, TensorData};
use crate::buffer::Contents;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::encode;
use crate::error::Result;
use crate::queue::CommandQueue;
use openmps_graph::View;
use openmps_graph::cache::Cache;
use openmps_graph::prepared::Prepared;
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
        // Whoever gets the results gets them when all of them have been written.
        let results = self.encode_with(&command_buffer, feeds, Observer::None, Contents::Whatever)?;
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
        self.encode_with(command_buffer, feeds, Observer::None, Contents::Zeros)
    }

    pub(super) fn encode_with(
        &self,
        command_buffer: &CommandBuffer,
        feeds: &[(&str, &TensorData)],
        observer: Observer,
        contents: Contents,
    ) -> Result<Vec<TensorData>> {
        let Bindings { brought, resources, results, copies, .. } =
            Bindings::new(&self.plan, &self.device, feeds, contents)?;
        let plan = self.plan.clone();
        // The plan's constants are read until the device has ended.
        command_buffer.keep(self.plan.clone())?;
        encode(command_buffer, "Executable", resources, move |queue| {
            plan.run(queue, &brought, &observer)?;
            for (value, to) in copies {
                let meta = &plan.values[value].meta;
                copy(queue, &plan.view(&brought, value)?, &View::dense(to, meta.dtype, &meta.shape)?)?;
            }
            plan.assign(queue, &brought)
        })?;
        Ok(results)
    }
}
