//! Splitting work over threads: the calling thread takes part, and small work stays on it.

mod pool;

use pool::Pool;
use std::sync::atomic::{AtomicUsize, Ordering};

static POOL: Pool = Pool::new();

/// For the child of a fork, which has none of the threads.
pub(crate) fn begin_anew() {
    // SAFETY: called in a child before the fork returns there, which has one thread.
    unsafe { POOL.begin_anew() };
}

/// Work below this many nanoseconds is not worth waking another thread for.
pub const WORTH_WAKING_NS: usize = 6_000;

/// Threads that one kernel may use: `OPENMPS_NUM_THREADS`, or the CPU's cores.
pub fn count() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        openmps_settings::NUM_THREADS.get().unwrap_or_else(cpus)
    })
}

/// Runs `work(begin, end)` over pieces of `0..items`, on several threads when `items * ns_per_item` is worth it.
///
/// Pieces are taken from a shared counter, so a thread that comes late takes fewer. `work` must be correct for
/// any cut into pieces. Returns when every piece is done.
pub fn parallel_for(items: usize, ns_per_item: usize, work: impl Fn(usize, usize) + Sync) {
    let total_ns = items.saturating_mul(ns_per_item.max(1));
    let threads = count().min(items).min(total_ns / WORTH_WAKING_NS + 1);
    if threads <= 1 {
        if items > 0 {
            work(0, items);
        }
        return;
    }
    // Four pieces a thread even out unequal speed without many trips to the counter.
    let piece = items.div_ceil(threads * 4);
    let next = AtomicUsize::new(0);
    let take = || loop {
        let begin = next.fetch_add(piece, Ordering::Relaxed);
        if begin >= items {
            break;
        }
        work(begin, (begin + piece).min(items));
    };
    POOL.run(threads - 1, count() - 1, &take);
}
