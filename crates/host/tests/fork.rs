//! Forks while other threads work. In a process of its own: a fork waits for the kernels of all threads, other tests' too, but not for ever.

#![cfg(unix)]

use openmps_host::fork::{list, section};
use openmps_host::parallel_for;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Taken outside of sections.
static LISTED: Mutex<u32> = Mutex::new(0);
/// Taken in sections.
static INNER: Mutex<u32> = Mutex::new(0);

/// Forks; the child says by its status whether it could do its work in time.
fn child_ends(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child computes and leaves without running what belongs to the test's process.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = work();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if done { 7 } else { 1 }) };
    }
    assert!(pid > 0, "fork");
    let begin = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: waits for the child made above.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7;
        }
        if begin.elapsed() > Duration::from_secs(10) {
            // SAFETY: the child made above, which hangs.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: as above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn children_find_every_lock_free_while_others_work() {
    list(|| Box::new(LISTED.lock().unwrap_or_else(PoisonError::into_inner)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    *LISTED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    let _section = section();
                    let mut inner = INNER.lock().unwrap_or_else(PoisonError::into_inner);
                    let _nested = section();
                    parallel_for(1 << 14, 100, |begin, end| {
                        std::hint::black_box((begin..end).sum::<usize>());
                    });
                    *inner += 1;
                }
            });
        }
        let bad = (0..150).filter(|_| {
            !child_ends(|| {
                *LISTED.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let _section = section();
                *INNER.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let total = AtomicUsize::new(0);
                parallel_for(1 << 14, 100, |begin, end| {
                    total.fetch_add((begin..end).sum::<usize>(), Ordering::Relaxed);
                });
                total.into_inner() == (1 << 13) * ((1 << 14) - 1)
            })
        });
        let bad = bad.count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(bad, 0, "children that hung or were wrong");
    });
}
