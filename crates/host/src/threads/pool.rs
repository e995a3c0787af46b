//! The threads that share a kernel's work: they spin for a moment after each kernel, then sleep; nobody waits for one to wake up.
//!
//! A kernel of a few microseconds ends before a sleeping thread has woken. So the thread that calls a kernel begins at once,
//! closes the region when no work is left, and waits only for the threads that had entered by then. One region is open at a time:
//! a second caller, or a region inside a region, works alone. A forked child, whose threads are gone, begins with none (`crate::fork`).

use super::placement;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

/// Checks of the state by an idle thread before it sleeps: about 50 microseconds, longer than the pause between two small kernels. None under
/// `OPENMPS_SPIN=0`: such threads are woken for each kernel, and help only with those that take longer than that.
fn spins() -> usize {
    if openmps_settings::SPIN.get().unwrap_or(true) { 2_000 } else { 0 }
}

/// Low bits of the state: how many threads have entered the region, and how many more may.
const ENTERED: u64 = 1;
const ENTERED_MASK: u64 = 0xffff;
const PLACES: u64 = 1 << 16;
const PLACES_MASK: u64 = 0xffff << 16;
/// The rest counts regions.
const REGION: u64 = 1 << 32;

/// Called with the number of the thread: 0 for the one that opened the region, and each helper has its own for good.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// A set of threads that help the calling thread.
pub struct Pool {
    /// Region number, places left, threads entered.
    state: AtomicU64,
    /// Threads that have left the present region.
    left: AtomicU64,
    /// Whether a region is open.
    busy: AtomicBool,
    /// The CPU of the thread that opened the present region.
    caller: AtomicUsize,
    /// What the threads of the present region run.
    work: UnsafeCell<Option<&'static Work<'static>>>,
    /// What the first panicking helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Replaced in the child of a fork alone.
    sleepers: UnsafeCell<OnceLock<Vec<Sleeper>>>,
}

/// A helping thread as those see it who may have to wake it.
struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<(Thread, placement::Thread)>,
    /// The CPU that it is kept from.
    kept_from: AtomicUsize,
}

impl Sleeper {
    fn new() -> Sleeper {
        let kept_from = AtomicUsize::new(placement::UNKNOWN);
        Sleeper { asleep: AtomicBool::new(false), thread: OnceLock::new(), kept_from }
    }

    /// Sees to it that this thread is not on the caller's CPU.
    fn keep_from(&self, caller: usize) {
        if let Some((_, thread)) = self.thread.get()
            && caller != placement::UNKNOWN
        {
            let before = self.kept_from.swap(caller, Ordering::Relaxed);
            if before != caller {
                placement::keep(*thread, caller, before);
            }
        }
    }
}

// SAFETY: `work` is written only by the holder of `busy` while no thread is inside a region, and read only by threads that have entered one.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool whose threads start with the first region.
    pub const fn new() -> Pool {
        Pool {
            state: AtomicU64::new(0),
            left: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            caller: AtomicUsize::new(placement::UNKNOWN),
            work: UnsafeCell::new(None),
            panic: Mutex::new(None),
            sleepers: UnsafeCell::new(OnceLock::new()),
        }
    }

    /// Forgets its threads: the next region starts others.
    ///
    /// # Safety
    /// This is the process's only thread, as in the child of a fork, and no region is open on it.
    pub unsafe fn begin_anew(&'static self) {
        // SAFETY: nobody else is there to use it. The threads' list is not dropped: it belongs to another process's threads.
        unsafe { self.sleepers.get().write(OnceLock::new()) };
        self.state.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
        self.busy.store(false, Ordering::Release);
    }

    /// Runs `work` on the calling thread and at the same time on up to `helpers` others, as many as come in time.
    ///
    /// `work` must take its pieces from a shared counter and return when none is left.
    pub fn run(&'static self, helpers: usize, most: usize, work: &Work<'_>) {
        if helpers == 0 || self.busy.swap(true, Ordering::Acquire) {
            return work(0);
        }
        let caller = placement::current();
        self.caller.store(caller, Ordering::Relaxed);
        let sleepers = self.start(most);
        // SAFETY: only the lifetime is widened; `Closing` waits, also on a panic, for every thread that may still use the reference.
        let work: &'static Work<'static> = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        // SAFETY: this thread holds `busy`, and the last region's threads have left it.
        unsafe { *self.work.get() = Some(work) };
        self.left.store(0, Ordering::Relaxed);
        let region = (self.state.load(Ordering::Relaxed) & !(ENTERED_MASK | PLACES_MASK)).wrapping_add(REGION);
        let closing = Closing(self);
        self.state.store(region | (helpers.min(most) as u64 * PLACES), Ordering::SeqCst);
        for sleeper in sleepers.iter().take(helpers) {
            if sleeper.asleep.load(Ordering::SeqCst) && sleeper.asleep.swap(false, Ordering::SeqCst) {
                sleeper.keep_from(caller);
                if let Some((thread, _)) = sleeper.thread.get() {
                    thread.unpark();
                }
            }
        }
        work(0);
        drop(closing);
    }

    /// The helping threads, started by the first call.
    fn start(&'static self, most: usize) -> &'static [Sleeper] {
        // SAFETY: it is written in the child of a fork only, by its one thread.
        let list: &'static OnceLock<Vec<Sleeper>> = unsafe { &*self.sleepers.get() };
        if let Some(sleepers) = list.get() {
            return sleepers;
        }
        let sleepers = list.get_or_init(|| (0..most).map(|_| Sleeper::new()).collect());
        for (index, sleeper) in sleepers.iter().enumerate() {
            let builder = std::thread::Builder::new().name(format!("openmps-host-{}", index + 1));
            // A thread that the system refuses is one helper fewer: nobody waits for those that never enter.
            let _ = builder.spawn(move || self.help(sleeper, index + 1));
        }
        sleepers
    }

    /// The life of a helping thread.
    fn help(&'static self, me: &'static Sleeper, number: usize) {
        let _ = me.thread.set((std::thread::current(), placement::Thread::current()));
        me.keep_from(self.caller.load(Ordering::Relaxed));
        let (mut seen, spins) = (0, spins());
        loop {
            let state = self.await_region(me, seen, spins);
            seen = state & !(ENTERED_MASK | PLACES_MASK);
            if self.enter(seen) {
                // The caller may have been moved here since.
                let caller = self.caller.load(Ordering::Relaxed);
                if placement::current() == caller {
                    me.keep_from(caller);
                }
                // SAFETY: having entered, this thread is waited for before `work` is written again or its referent ends.
                let work = unsafe { (*self.work.get()).expect("an open region has work") };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(number))) {
                    self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(panic);
                }
                self.left.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The state once a region other than `seen` has places.
    fn await_region(&self, me: &Sleeper, seen: u64, spins: usize) -> u64 {
        let news = |state: u64| state & PLACES_MASK != 0 && state & !(ENTERED_MASK | PLACES_MASK) != seen;
        loop {
            for _ in 0..=spins {
                let state = self.state.load(Ordering::Acquire);
                if news(state) {
                    return state;
                }
                std::hint::spin_loop();
            }
            me.asleep.store(true, Ordering::SeqCst);
            let state = self.state.load(Ordering::SeqCst);
            if !news(state) {
                std::thread::park();
            }
            me.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Takes a place in the region, if it is still open and has one.
    fn enter(&self, region: u64) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
                let open = state & PLACES_MASK != 0 && state & !(ENTERED_MASK | PLACES_MASK) == region;
                open.then(|| state - PLACES + ENTERED)
            })
            .is_ok()
    }
}

/// Closes the region and waits for the threads inside, also when the caller's own part panics.
struct Closing(&'static Pool);

impl Drop for Closing {
    fn drop(&mut self) {
        let pool = self.0;
        let entered = pool.state.fetch_and(!PLACES_MASK, Ordering::AcqRel) & ENTERED_MASK;
        let mut checks = 0;
        while pool.left.load(Ordering::Acquire) < entered {
            checks += 1;
            // A helper that lost its core to another process needs this one's.
            if checks % 1_000 == 0 {
                // The helpers may be in a kernel that never ends.
                if checks % 100_000 == 0 && !std::thread::panicking() {
                    crate::interrupt::ask();
                }
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
        let panic = pool.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        pool.busy.store(false, Ordering::Release);
        if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static POOL: Pool = Pool::new();

    /// Sums `0..items` in a region; every item is taken once.
    fn sum(items: usize, helpers: usize) -> usize {
        let (next, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
        POOL.run(helpers, 3, &|_| {
            loop {
                let item = next.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    break;
                }
                total.fetch_add(item, Ordering::Relaxed);
            }
        });
        total.into_inner()
    }

    #[test]
    fn every_piece_is_done_when_a_region_ends() {
        for round in 0..20_000 {
            let items = round % 50;
            assert_eq!(sum(items, 1 + round % 3), items * items.saturating_sub(1) / 2, "round {round}");
        }
    }

    #[test]
    fn regions_of_many_threads_at_once() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2_000).for_each(|_| assert_eq!(sum(40, 3), 780)));
            }
        });
    }

    #[test]
    fn a_region_inside_a_region_runs_on_its_thread() {
        let total = AtomicUsize::new(0);
        let next = AtomicUsize::new(0);
        POOL.run(3, 3, &|_| {
            while next.fetch_add(1, Ordering::Relaxed) < 8 {
                total.fetch_add(sum(10, 3), Ordering::Relaxed);
            }
        });
        assert_eq!(total.into_inner(), 8 * 45);
    }

    #[test]
    fn a_sleeping_thread_is_woken() {
        let helped = AtomicUsize::new(0);
        for _ in 0..200 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let here = std::thread::current().id();
            let next = AtomicUsize::new(0);
            POOL.run(1, 3, &|_| {
                while next.fetch_add(1, Ordering::Relaxed) < 200 {
                    std::thread::sleep(std::time::Duration::from_micros(20));
                    if std::thread::current().id() != here {
                        helped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            if helped.load(Ordering::Relaxed) > 0 {
                return;
            }
        }
        panic!("no helper ever took a piece");
    }

    /// These tests where no thread stays awake, in a process of their own: settings are read once.
    #[test]
    fn threads_that_do_not_spin() {
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        tests.args(["threads::pool::tests::", "--skip", "threads_that_do_not_spin"]).env("OPENMPS_SPIN", "0");
        let output = tests.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let caught = catch_unwind(|| POOL.run(3, 3, &|_| panic!("planted")));
        assert!(caught.is_err());
        assert_eq!(sum(10, 3), 45);
    }
}
