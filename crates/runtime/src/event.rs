//! Events: points in a queue's order, and the time when the queue reached them.

use crate::clock;
use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A point in a queue's order, set by `Queue::record`. Clones are the same event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// When the point was reached, on the runtime's clock; 0 before.
    reached_ns: Arc<AtomicU64>,
}

impl Event {
    /// An event that no queue has recorded yet.
    pub fn new() -> Event {
        Event::default()
    }

    /// Whether the event was recorded and the work before it has ended.
    pub fn query(&self) -> bool {
        self.time().is_some()
    }

    /// Waits for the work before the event; returns at once when it was never recorded.
    pub fn synchronize(&self) -> Result<()> {
        // Every device so far reaches an event at its submission, so whatever was recorded has been reached.
        Ok(())
    }

    /// Milliseconds from `earlier` to this event; negative when `earlier` was the later one.
    pub fn elapsed_ms(&self, earlier: &Event) -> Result<f64> {
        let end = self.time().ok_or(Error::NotRecorded { which: "the later event" })?;
        let begin = earlier.time().ok_or(Error::NotRecorded { which: "the earlier event" })?;
        Ok((end as f64 - begin as f64) / 1e6)
    }

    /// Sets the event: the queue has come here.
    pub(crate) fn reach(&self) {
        self.reached_ns.store(clock::now_ns(), Ordering::Release);
    }

    fn time(&self) -> Option<u64> {
        Some(self.reached_ns.load(Ordering::Acquire)).filter(|&time| time != 0)
    }
}
