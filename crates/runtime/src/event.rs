//! Events: points in a queue's order, and the time when the queue reached them.

use crate::clock;
use crate::error::{Error, Result};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A point in a queue's order, set by `Queue::record`. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// When the point was reached, on the runtime's clock; 0 before.
    reached_ns: AtomicU64,
    pending: Mutex<Pending>,
    reached: Condvar,
}

/// Points that queues have still to reach: a device that works on its own reaches them later.
#[derive(Default)]
struct Pending {
    count: usize,
    /// The same points in the devices' own terms, as far as they have such.
    points: Vec<Point>,
    /// The last point as a device with a clock of its own has it.
    timed: Option<Arc<dyn Timed>>,
}

/// A point as the device knows it that is to reach it.
type Point = Arc<dyn Any + Send + Sync>;

/// A point that the device times itself: the host hears of it later, and not always equally late.
pub(crate) trait Timed: Any + Send + Sync {
    /// Milliseconds from an earlier point; none where no one clock has seen both.
    fn since(&self, earlier: &dyn Any) -> Option<f64>;
}

impl Event {
    /// An event that no queue has recorded yet.
    pub fn new() -> Event {
        Event::default()
    }

    /// Whether the event was recorded and the work before it has ended.
    pub fn query(&self) -> bool {
        self.time().is_some() && self.pending().count == 0
    }

    /// Waits for the work before the event; returns at once when it was never recorded.
    pub fn synchronize(&self) -> Result<()> {
        let mut pending = self.pending();
        while pending.count > 0 {
            pending = self.shared.reached.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Milliseconds from `earlier` to this event, by the device's clock where it has one; negative when `earlier` was the later one.
    pub fn elapsed_ms(&self, earlier: &Event) -> Result<f64> {
        let end = self.time().ok_or(Error::NotRecorded { which: "the later event" })?;
        let begin = earlier.time().ok_or(Error::NotRecorded { which: "the earlier event" })?;
        let timed = |event: &Event| event.pending().timed.clone();
        let by_device = timed(self).zip(timed(earlier)).and_then(|(end, begin)| end.since(&*begin as &dyn Any));
        Ok(by_device.unwrap_or((end as f64 - begin as f64) / 1e6))
    }

    /// Announces a `reach` to come: from now on `synchronize` waits for it.
    pub(crate) fn announce(&self) {
        let mut pending = self.pending();
        pending.count += 1;
        let earlier = pending.timed.take();
        drop(pending);
        // A device's call, which must not wait for a function that waits for the lock.
        drop(earlier);
    }

    /// Adds what the device that announced a point waits for it by.
    pub(crate) fn add_point(&self, point: Point) {
        let mut pending = self.pending();
        // It may have been reached by now.
        if pending.count > 0 {
            pending.points.push(point);
        }
    }

    /// Adds how the device that announced a point times it.
    #[cfg(feature = "cuda")]
    pub(crate) fn set_timed(&self, timed: Arc<dyn Timed>) {
        let earlier = self.pending().timed.replace(timed);
        drop(earlier);
    }

    /// What is still to be reached, in the devices' terms; none where one of the devices has none.
    pub(crate) fn points(&self) -> Option<Vec<Point>> {
        let pending = self.pending();
        (pending.points.len() >= pending.count).then(|| pending.points.clone())
    }

    /// Sets the event: the queue has come here.
    pub(crate) fn reach(&self) {
        let mut pending = self.pending();
        self.shared.reached_ns.store(clock::now_ns(), Ordering::Release);
        if pending.count == 0 {
            // Nobody announced it: what a device timed before is of an earlier point.
            pending.timed = None;
        }
        pending.count = pending.count.saturating_sub(1);
        if pending.count == 0 {
            pending.points.clear();
        }
        self.shared.reached.notify_all();
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> Option<u64> {
        Some(self.shared.reached_ns.load(Ordering::Acquire)).filter(|&time| time != 0)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Event").field("reached_ns", &self.time()).field("pending", &self.pending().count).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_event_is_waited_for() {
        let event = Event::new();
        event.synchronize().expect("never recorded");
        event.announce();
        assert!(!event.query());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| event.synchronize().map(|()| event.query()));
            assert!(!event.query());
            event.reach();
            assert!(waits.join().expect("no panic").expect("reached"));
        });
        // Without an announcement, as on the host.
        event.reach();
        assert!(event.query());
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_device_s_own_clock_counts_as_long_as_it_has_seen_both() {
        struct At(f64);
        impl Timed for At {
            fn since(&self, earlier: &dyn Any) -> Option<f64> {
                earlier.downcast_ref::<At>().map(|earlier| self.0 - earlier.0)
            }
        }
        let record = |event: &Event, at: f64| {
            event.announce();
            event.set_timed(Arc::new(At(at)));
            event.reach();
        };
        let (begin, end) = (Event::new(), Event::new());
        record(&begin, 1000.0);
        record(&end, 3000.0);
        assert_eq!(end.elapsed_ms(&begin).expect("recorded"), 2000.0);
        assert_eq!(end.elapsed_ms(&end).expect("recorded"), 0.0);
        // Recorded again by a device that has no clock.
        end.reach();
        assert!((0.0..1000.0).contains(&end.elapsed_ms(&begin).expect("recorded")));
    }
}
