//! Events on a queue: reached for the host when a command buffer ends, and for the GPU's other queues on the GPU itself.

use super::{Gpu, failed};
use crate::error::Result;
use crate::event::Event;
use openmps_metal::Metal;
use std::any::Any;
use std::sync::Arc;

/// Where a queue of this device reaches an event: when `event` has `value`.
struct Point<M: Metal> {
    metal: Arc<M>,
    queue: u64,
    event: M::Event,
    value: u64,
}

impl<M: Metal> Gpu<M> {
    /// Sets an event when the queue gets there.
    pub(super) fn record(&self, queue: u64, event: &Event) -> Result<()> {
        event.announce();
        let reached = event.clone();
        let recorded = self.stream(queue).and_then(|stream| stream.record(move || reached.reach()).map_err(failed));
        // Nobody shall wait for what never comes.
        let (of_device, value) = recorded.inspect_err(|_| event.reach())?;
        event.add_point(Arc::new(Point { metal: self.metal.clone(), queue, event: of_device, value }));
        Ok(())
    }

    /// Holds the queue until an event is reached: on the GPU where queues of this device are to reach it, else here.
    pub(super) fn wait_event(&self, queue: u64, event: &Event) -> Result<()> {
        let points = event.points();
        let own = |point: &Arc<dyn Any + Send + Sync>| {
            point.clone().downcast::<Point<M>>().ok().filter(|point| Arc::ptr_eq(&point.metal, &self.metal))
        };
        match points.and_then(|points| points.iter().map(own).collect::<Option<Vec<_>>>()) {
            None => event.synchronize(),
            Some(points) => points
                .iter()
                .filter(|point| point.queue != queue)
                .try_for_each(|point| self.stream(queue)?.wait_for(&point.event, point.value).map_err(failed)),
        }
    }
}
