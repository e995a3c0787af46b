//! The most multiply-adds that the CPU does in a second, and the most bytes that it reads or copies: what a kernel's own figure is seen beside.

use super::lanes::{Lanes, at_level};
use super::non_temporal;
use crate::threads;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
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

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Every byte is read.
    Read,
    /// Every byte of one half is read and written to the other, around the caches where that is faster.
    Copy,
}

/// Bytes of a cache line in float32, and lines that are read side by side.
const LINE: usize = non_temporal::LINE / size_of::<f32>();
const SIDE_BY_SIDE: usize = 4;

/// Bytes that one region of threads moves at least, so that its beginning and its end count little.
const LEAST: usize = 4 << 20;

#[inline(always)]
unsafe fn read_level<V: Lanes>(from: *const f32, count: usize) {
    // SAFETY: the caller vouches for the instructions and for `count` elements.
    unsafe {
        let mut sums = [V::splat(0.0); LINE * SIDE_BY_SIDE];
        let (step, used) = (LINE * SIDE_BY_SIDE, LINE * SIDE_BY_SIDE / V::N);
        for at in (0..count - count % step).step_by(step) {
            for (i, sum) in sums[..used].iter_mut().enumerate() {
                *sum = sum.add(V::load(from.add(at + i * V::N)));
            }
        }
        black_box(sums.map(|sum| sum.lanes()));
    }
}

/// One pass over memory of this thread's own.
fn pass(traffic: Traffic, memory: &mut [f32], around_caches: bool) {
    let (from, half) = (memory.as_mut_ptr(), memory.len() / 2);
    // SAFETY: the level is one that the CPU has; the halves are of this memory and do not overlap.
    unsafe {
        match traffic {
            Traffic::Read => {
                let (from, count) = (from.cast_const(), memory.len());
                at_level!(read_level(from: *const f32, count: usize))
            }
            Traffic::Copy if around_caches => {
                non_temporal::run(from.add(half) as isize, from as isize, half * size_of::<f32>())
            }
            Traffic::Copy => from.add(half).copy_from_nonoverlapping(from, half),
        }
    }
}

/// Bytes a second of all threads together that read or copy `bytes` in all, each its own part, again and again; in the fastest of the rounds
/// that fit into this time. A copy's bytes count when they are read and when they are written.
pub fn bytes_per_second(traffic: Traffic, bytes: usize, time: Duration) -> f64 {
    let (begin, mut best) = (Instant::now(), 0.0_f64);
    let count = threads::count();
    let parts: Vec<Mutex<Vec<f32>>> = (0..count).map(|_| Mutex::new(vec![1.0; bytes / 4 / count])).collect();
    let passes = (LEAST / bytes.max(1)).max(1);
    while best == 0.0 || begin.elapsed() < time {
        for around_caches in [false, true] {
            let round = Instant::now();
            threads::parallel_for(count, threads::WORTH_WAKING_NS * count, |begin, end| {
                for part in &parts[begin..end] {
                    let mut memory = part.lock().unwrap_or_else(PoisonError::into_inner);
                    (0..passes).for_each(|_| pass(traffic, &mut memory, around_caches));
                }
            });
            best = best.max((passes * bytes) as f64 / round.elapsed().as_secs_f64());
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_the_best_round_are_counted() {
        for traffic in [Traffic::Read, Traffic::Copy] {
            let found = bytes_per_second(traffic, 1 << 20, Duration::from_millis(20));
            assert!((1e6..1e13).contains(&found), "{traffic:?}: {found}");
        }
    }

    #[test]
    fn operations_of_the_best_round_are_counted() {
        // An emulated CPU does tens of millions.
        let found = operations_per_second(Duration::from_millis(20));
        assert!((1e6..1e15).contains(&found), "{found}");
    }
}
