//! The most multiply-adds that the CPU does in a second: what a kernel's own figure is seen beside.

use super::lanes::{Lanes, at_level};
use crate::threads;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Registers that are summed side by side: enough that none waits for itself, and every level has more.
const SUMS: usize = 12;

/// Rounds between two looks at the clock.
const ROUNDS: usize = 20_000;

#[inline(always)]
unsafe fn of_level<V: Lanes>() -> usize {
    // SAFETY: the caller vouches for the instructions; nothing is read or written.
    unsafe {
        let (factor, addend) = (V::splat(black_box(0.5)), V::splat(black_box(1.0)));
        let mut sums = [addend; SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = sum.fma(factor, addend);
            }
        }
        black_box(sums.map(|sum| sum.lanes()));
    }
    2 * ROUNDS * SUMS * V::N
}

/// Multiply-adds of this thread on registers alone, as the level in use has them; how many operations that were.
pub fn multiply_adds() -> usize {
    // SAFETY: the level is one that the CPU has.
    unsafe { at_level!(of_level() -> usize) }
}

/// Additions and multiplications of float32 a second, of all threads together, in the fastest of the rounds that fit into this time.
pub fn operations_per_second(time: Duration) -> f64 {
    let (begin, pieces, mut best) = (Instant::now(), 8 * threads::count(), 0.0_f64);
    while best == 0.0 || begin.elapsed() < time {
        let (round, operations) = (Instant::now(), AtomicUsize::new(0));
        threads::parallel_for(pieces, threads::WORTH_WAKING_NS * pieces, |begin, end| {
            for _ in begin..end {
                operations.fetch_add(multiply_adds(), Ordering::Relaxed);
            }
        });
        best = best.max(operations.into_inner() as f64 / round.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_the_best_round_are_counted() {
        // An emulated CPU does tens of millions.
        let found = operations_per_second(Duration::from_millis(20));
        assert!((1e6..1e15).contains(&found), "{found}");
    }
}
