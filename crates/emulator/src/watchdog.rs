//! One thread a process that reminds operating system threads whose kernel runs for too long.

use crate::trap;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often late threads are reminded.
const PERIOD: Duration = Duration::from_millis(50);

struct Watched {
    key: u64,
    thread: libc::pthread_t,
    deadline: Instant,
}

#[derive(Default)]
struct Watchdog {
    watched: Mutex<(u64, Vec<Watched>)>,
    changed: Condvar,
}

/// While it lives, this thread is reminded by [`trap::EXPIRED`] after the deadline.
pub(crate) struct Watch {
    key: u64,
    pub deadline: Instant,
}

impl Watch {
    pub(crate) fn start(deadline: Instant) -> Watch {
        let watchdog = watchdog();
        let mut watched = watchdog.watched();
        watched.0 += 1;
        let key = watched.0;
        // SAFETY: has no condition.
        let thread = unsafe { libc::pthread_self() };
        watched.1.push(Watched { key, thread, deadline });
        watchdog.changed.notify_one();
        Watch { key, deadline }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watchdog().watched().1.retain(|watched| watched.key != self.key);
    }
}

impl Watchdog {
    fn watched(&self) -> MutexGuard<'_, (u64, Vec<Watched>)> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut watched = self.watched();
        loop {
            let now = Instant::now();
            for late in watched.1.iter().filter(|watched| watched.deadline <= now) {
                // SAFETY: a watched thread lives: it takes itself off the list, under this lock, before it ends.
                unsafe { libc::pthread_kill(late.thread, trap::EXPIRED) };
            }
            watched = if watched.1.is_empty() {
                self.changed.wait(watched).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.changed.wait_timeout(watched, PERIOD).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

fn watchdog() -> &'static Watchdog {
    static WATCHDOG: OnceLock<&'static Watchdog> = OnceLock::new();
    WATCHDOG.get_or_init(|| {
        let watchdog: &'static Watchdog = Box::leak(Box::default());
        let thread = std::thread::Builder::new().name("openmps-emulator watchdog".to_owned());
        // Without it kernels run as they are; only one that does not end would show.
        if let Err(error) = thread.spawn(|| watchdog.run()) {
            tracing::warn!("kernels that do not end will not be stopped: {error}");
        }
        watchdog
    })
}
