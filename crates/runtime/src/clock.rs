//! One clock for traces, events and command buffers.

use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since the process first asked; never 0, so that 0 can stand for "not yet".
pub(crate) fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1
}
