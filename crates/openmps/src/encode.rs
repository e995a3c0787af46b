//! How every object of this crate comes into a command buffer: checks now, locks and the operator when the command runs.

use crate::buffer::{Access, Buffer, Guard};
use crate::error::{Error, Result};
use openmps_graph::operators::copy::Copy;
use openmps_graph::{Meta, Operator, Queue, View};
use openmps_runtime::CommandBuffer;

/// Memory that a command uses: a range of a buffer, and how.
pub(crate) struct Resource {
    /// What it is called in errors.
    pub what: &'static str,
    pub buffer: Buffer,
    pub access: Access,
    /// First byte and number of bytes.
    pub range: (usize, usize),
}

/// Encodes `work`, which may use the resources' memory while it runs.
pub(crate) fn encode(
    command_buffer: &CommandBuffer,
    operation: &'static str,
    resources: Vec<Resource>,
    work: impl FnOnce(&Queue) -> Result<()> + Send + 'static,
) -> Result<()> {
    check(command_buffer, operation, &resources)?;
    let queue = command_buffer.queue().clone();
    let run = move || -> Result<()> {
        // Callbacks before this command may want the buffers, and a GPU's thread would wait for the locks in one.
        queue.finish()?;
        let _guards = lock_all(operation, &resources)?;
        // SAFETY: views are made of the resources, which are locked until the work has ended, and of memory that the queue allocates.
        let result = work(unsafe { Queue::vouched(&queue) });
        // A GPU works on after its commands were submitted, and the locks must last as long. What failed before is not this command's error.
        let ended = queue.finish();
        result.and(ended.map_err(Error::from))
    };
    Ok(command_buffer.run_native(operation, move || run().map_err(openmps_host::Error::from))?)
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

/// Locks each buffer once, in one order for all threads, so that commands on several queues cannot wait for each other.
fn lock_all<'r>(operation: &'static str, resources: &'r [Resource]) -> Result<Vec<Guard<'r>>> {
    let mut ordered: Vec<&Resource> = resources.iter().collect();
    ordered.sort_by_key(|resource| (resource.buffer.order(), std::cmp::Reverse(resource.access)));
    ordered.dedup_by_key(|resource| resource.buffer.order());
    ordered.into_iter().map(|resource| resource.buffer.lock(operation, resource.what, resource.access)).collect()
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
    Ok(operator.infer(&metas)?)
}
