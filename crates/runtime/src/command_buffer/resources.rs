//! Memory that commands use and that the host locks meanwhile: commands in a row are locked together, and waited for once.

use super::encoded::Encoded;
use crate::error::{Error, Result};
use crate::queue::Queue;
use std::collections::BTreeMap;

/// Memory that a command uses: from before it is submitted until the device is done with it, whoever else wants it waits.
pub trait Resource: Send {
    /// Which memory it is. All threads take locks in this order, so that commands on several queues cannot wait for each other.
    fn order(&self) -> usize;

    /// Whether the command writes it.
    fn is_written(&self) -> bool;

    /// Locks it until what is given is dropped; an error where it is not to be used any more.
    fn lock(&self) -> std::result::Result<Box<dyn Guard + '_>, openmps_host::Error>;
}

/// What a locked resource is held by.
pub trait Guard {}

impl<T> Guard for T {}

type Locks<'r> = BTreeMap<usize, std::result::Result<Box<dyn Guard + 'r>, openmps_host::Error>>;

/// Runs commands, each of which submits commands of its own, up to the first error. The device has ended them when this returns.
pub(super) fn run_locked(
    queue: &Queue,
    commands: &mut [Encoded],
    run: impl Fn(&Queue, &mut Encoded) -> Result<()>,
) -> Result<()> {
    // Callbacks before these commands may want the memory, and a GPU's thread would wait for the locks in one. What failed before is not
    // their error.
    if let Err(error) = queue.finish() {
        queue.keep(&error);
    }
    let resources: Vec<Vec<Box<dyn Resource>>> = commands.iter_mut().map(Encoded::take_resources).collect();
    let mut locks = lock_all(&resources);
    let submitted = commands.iter_mut().zip(&resources).try_for_each(|(command, uses)| {
        for resource in uses {
            // An error is told once: no command behind this one runs.
            if let Some(Err(_)) = locks.get(&resource.order())
                && let Some(Err(source)) = locks.remove(&resource.order())
            {
                return Err(Error::Kernel { operation: command.operation(), source });
            }
        }
        run(queue, command)
    });
    // A GPU works on after its commands were submitted, and the locks must last as long.
    submitted.and(queue.finish())
}

/// Locks each memory once, for writing where one of the commands writes it.
fn lock_all(resources: &[Vec<Box<dyn Resource>>]) -> Locks<'_> {
    let mut wanted: BTreeMap<usize, &dyn Resource> = BTreeMap::new();
    for resource in resources.iter().flatten() {
        let first = wanted.entry(resource.order()).or_insert(&**resource);
        if resource.is_written() && !first.is_written() {
            *first = &**resource;
        }
    }
    wanted.into_iter().map(|(order, resource)| (order, resource.lock())).collect()
}
