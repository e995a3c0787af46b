//! Points in a queue's order.

use crate::error::Result;
use openmps_runtime as runtime;
use std::fmt;

/// A point in a queue's order: `MTLSharedEvent`. Clones are the same event.
///
/// ```
/// use openmps::{Device, Event};
/// let (event, queue) = (Event::new(), Device::get(0)?.queue());
/// assert!(!event.query());
/// queue.record(&event)?;
/// event.synchronize()?;
/// assert!(event.query());
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Event(runtime::Event);

impl Event {
    /// An event that no queue has recorded yet.
    ///
    /// ```
    /// assert!(!openmps::Event::new().query());
    /// ```
    pub fn new() -> Event {
        Event::default()
    }

    /// Whether the event was recorded and the work before it has ended.
    ///
    /// ```
    /// assert!(!openmps::Event::new().query());
    /// ```
    pub fn query(&self) -> bool {
        self.0.query()
    }

    /// Waits for the work before the event; returns at once when it was never recorded.
    ///
    /// ```
    /// openmps::Event::new().synchronize()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.0.synchronize()?)
    }

    /// Milliseconds from `earlier` to this event; negative when `earlier` was the later one.
    ///
    /// ```
    /// use openmps::{Device, Event};
    /// let (begin, end, queue) = (Event::new(), Event::new(), Device::get(0)?.queue());
    /// queue.record(&begin)?;
    /// queue.record(&end)?;
    /// queue.synchronize()?;
    /// assert!(end.elapsed_ms(&begin)? >= 0.0);
    /// assert!(end.elapsed_ms(&Event::new()).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn elapsed_ms(&self, earlier: &Event) -> Result<f64> {
        Ok(self.0.elapsed_ms(&earlier.0)?)
    }

    /// The event below, for calls of [`openmps::runtime`](crate::runtime), which have an error type of their own.
    ///
    /// ```
    /// assert!(!openmps::Event::new().runtime().query());
    /// ```
    pub fn runtime(&self) -> &runtime::Event {
        &self.0
    }
}

impl From<runtime::Event> for Event {
    fn from(event: runtime::Event) -> Event {
        Event(event)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
