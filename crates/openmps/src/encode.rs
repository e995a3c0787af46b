//! How every object of this crate comes into a command buffer: checks now, locks and the operator when the commands run.

use crate::buffer::{Access, Buffer};
use crate::command_buffer::CommandBuffer;
use crate::error::{Error, Result};
use openmps_graph::operators::copy::Copy;
use openmps_graph::{Meta, Operator, Queue, View};
use openmps_runtime::command_buffer::{Guard, Resource as Lock};
use std::thread::{self, ThreadId};

/// Memory that a command uses: a range of a buffer, and how.
pub(crate) struct Resource {
    /// What it is called in errors.
    pub what: &'static str,
    pub buffer: Buffer,
    pub access: Access,
    /// First byte and number of bytes.
    pub range: (usize, usize),
}

/// Encodes `work`, which submits commands that may use the resources' memory. What computes on the CPU is a native command of the queue's.
pub(crate) fn encode(
    command_buffer: &CommandBuffer,
    operation: &'static str,
    resources: Vec<Resource>,
    work: impl FnOnce(&Queue) -> Result<()> + Send + 'static,
) -> Result<()> {
    check(command_buffer, operation, &resources)?;
    let queue = command_buffer.queue().runtime().clone();
    let run = move || {
        // SAFETY: views are made of the resources, which are locked until the work has ended, and of memory that the queue allocates.
        work(unsafe { Queue::vouched(&queue) }).map_err(openmps_host::Error::from)
    };
    let encoder = thread::current().id();
    let lock = |resource| -> Box<dyn Lock> { Box::new(Used { operation, resource, encoder }) };
    Ok(command_buffer.runtime().submit(operation, resources.into_iter().map(lock).collect(), run)?)
}

/// A resource of one command.
struct Used {
    operation: &'static str,
    resource: Resource,
    /// The thread that encoded the command, which may wait for it while another one runs it.
    encoder: ThreadId,
}

impl Lock for Used {
    fn order(&self) -> usize {
        self.resource.buffer.order()
    }

    fn is_written(&self) -> bool {
        self.resource.access == Access::Write
    }

    fn lock(&self) -> std::result::Result<Box<dyn Guard + '_>, openmps_host::Error> {
        let Resource { what, buffer, access, .. } = &self.resource;
        Ok(Box::new(buffer.lock_for(self.encoder, self.operation, what, *access)?))
    }
}

fn check(command_buffer: &CommandBuffer, operation: &'static str, resources: &[Resource]) -> Result<()> {
    let device = command_buffer.queue().device();
    for resource in resources {
        let Resource { what, buffer, access, .. } = resource;
        if buffer.device() != device {
            let (got, expected) = (format!("{:?}", buffer.device()), format!("{device:?}"));
            return Err(Error::Device { operation, what, got, expected });
        }
        buffer.check_access(operation, what, *access)?;
    }
    for result in resources.iter().filter(|resource| resource.access == Access::Write) {
        for other in resources {
            if !std::ptr::eq(result, other) && overlap(result, other) {
                return Err(Error::Overlap { operation, what: other.what });
            }
        }
    }
    Ok(())
}

fn overlap(a: &Resource, b: &Resource) -> bool {
    let ((a_begin, a_bytes), (b_begin, b_bytes)) = (a.range, b.range);
    a.buffer.is_same(&b.buffer) && a_begin < b_begin + b_bytes && b_begin < a_begin + a_bytes
}

/// Runs an operator whose outputs may have any strides: those that are not dense are computed aside and copied.
pub(crate) fn run_strided(
    operator: &dyn Operator,
    queue: &Queue,
    inputs: &[View],
    outputs: &[View],
) -> openmps_graph::Result<()> {
    if outputs.iter().all(View::is_dense) {
        return operator.run(queue, inputs, outputs);
    }
    run_aside(operator, queue, inputs, outputs)
}

/// Computes an operator's outputs in memory of their own and copies them where they belong, which may be where its inputs are.
pub(crate) fn run_aside(
    operator: &dyn Operator,
    queue: &Queue,
    inputs: &[View],
    outputs: &[View],
) -> openmps_graph::Result<()> {
    let device = |source| openmps_graph::Error::Device { operator: operator.name(), source };
    let mut aside = Vec::with_capacity(outputs.len());
    for output in outputs {
        let bytes = openmps_graph::view::bytes(output.dtype, &output.shape)?;
        aside.push(queue.allocate(bytes.max(1)).map_err(device)?);
    }
    let dense =
        aside.iter().zip(outputs).map(|(memory, output)| View::dense(memory.address(), output.dtype, &output.shape));
    let dense: Vec<View> = dense.collect::<openmps_graph::Result<_>>()?;
    operator.run(queue, inputs, &dense)?;
    dense
        .iter()
        .zip(outputs)
        .try_for_each(|(from, to)| Copy.run(queue, std::slice::from_ref(from), std::slice::from_ref(to)))
}

/// Checks an operator's rule when it is encoded rather than when it runs.
pub(crate) fn infer(operator: &dyn Operator, inputs: &[View]) -> Result<Vec<Meta>> {
    let metas: Vec<Meta> = inputs.iter().map(|view| Meta { dtype: view.dtype, shape: view.shape.clone() }).collect();
    openmps_graph::layout::expect_computed(operator, &metas)?;
    Ok(operator.infer(&metas)?)
}
