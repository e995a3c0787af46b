//! What tells the devices of a process apart, those that are gone too.

use std::sync::atomic::{AtomicU64, Ordering};

/// A device of this process. Caches keep by it what was made for a device: an index is that of several, one of each kind, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(u64);

impl Identity {
    /// One that nothing else has.
    pub(crate) fn next() -> Identity {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Identity(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
