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
    watched: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    keys: u64,
    watched: Vec<Watched>,
    /// The watchdog waits without end, for a first entry.
    asleep: bool,
}

/// While it lives, this thread is reminded by [`trap::EXPIRED`] after the deadline.
pub(crate) struct Watch {
    key: u64,
    pub deadline: Instant,
}

impl Watch {
    pub(crate) fn start(deadline: Instant) -> Watch {
        let watchdog = watchdog();
        let mut list = watchdog.list();
        list.keys += 1;
        let key = list.keys;
        // SAFETY: has no condition.
        let thread = unsafe { libc::pthread_self() };
        list.watched.push(Watched { key, thread, deadline });
        if std::mem::take(&mut list.asleep) {
            watchdog.changed.notify_one();
        }
        Watch { key, deadline }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watchdog().list().watched.retain(|watched| watched.key != self.key);
    }
}

impl Watchdog {
    fn list(&self) -> MutexGuard<'_, List> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut list = self.list();
        loop {
            let now = Instant::now();
            for late in list.watched.iter().filter(|watched| watched.deadline <= now) {
                // SAFETY: a watched thread lives: it takes itself off the list, under this lock, before it ends.
                unsafe { libc::pthread_kill(late.thread, trap::EXPIRED) };
            }
            list.asleep = list.watched.is_empty();
            list = if list.asleep {
                self.changed.wait(list).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.changed.wait_timeout(list, PERIOD).unwrap_or_else(PoisonError::into_inner).0
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
