//! Splitting work over threads: the calling thread takes part, and small work stays on it.

mod placement;
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

/// Pieces for each thread: they even out unequal speed without many trips to the counters.
const PIECES: usize = 4;

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Next(AtomicUsize);

/// Runs `work(begin, end)` over pieces of `0..items`, on several threads when `items * ns_per_item` is worth it.
///
/// Each thread begins with a part that is always its own, so that what it has just written is in its cache when the next kernel reads it, and
/// then takes pieces of the others' parts: one that comes late has fewer. `work` must be correct for any cut into pieces. Returns when every
/// piece is done.
pub fn parallel_for(items: usize, ns_per_item: usize, work: impl Fn(usize, usize) + Sync) {
    let total_ns = items.saturating_mul(ns_per_item.max(1));
    let threads = count().min(items).min(total_ns / WORTH_WAKING_NS + 1);
    if threads <= 1 {
        if items > 0 {
            work(0, items);
        }
        return;
    }
    // The first items are of the first thread's part, and so on; the parts differ by one item at most.
    let first = |thread: usize| items / threads * thread + (items % threads).min(thread);
    let piece = (items / threads).div_ceil(PIECES);
    let next: Vec<Next> = (0..threads).map(|thread| Next(AtomicUsize::new(first(thread)))).collect();
    let take = |thread: usize| {
        for of in (0..threads).map(|further| (thread + further) % threads) {
            let end = first(of + 1);
            loop {
                let begin = next[of].0.fetch_add(piece, Ordering::Relaxed);
                if begin >= end {
                    break;
                }
                work(begin, (begin + piece).min(end));
            }
        }
    };
    POOL.run(threads - 1, count() - 1, &take);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_in_one_piece() {
        for items in (0..70).chain([1_000, 4_097]) {
            for ns in [1, WORTH_WAKING_NS / 2, WORTH_WAKING_NS * items.max(1)] {
                let taken: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                parallel_for(items, ns, |begin, end| {
                    assert!(begin < end, "{items}: {begin}..{end}");
                    taken[begin..end].iter().for_each(|item| _ = item.fetch_add(1, Ordering::Relaxed));
                });
                assert!(taken.iter().all(|item| item.load(Ordering::Relaxed) == 1), "{items} of {ns} ns");
            }
        }
    }
}
