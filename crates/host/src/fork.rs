//! Forks while other threads work: a child has the forking thread alone, and what another thread held at that moment would be held for ever.
//!
//! Whoever takes locks, or makes something that is made once, does it in a [`section`]. A fork waits until no other thread is in one, then
//! takes the locks that are also taken outside of sections, in the order in which they were listed ([`list`]), and gives them back in the
//! parent and in the child. In the child the threads that share a kernel's work begin anew.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a fork waits for sections to end. One that waits for the forking thread would never: then the fork goes on without.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes a lock and gives its guard.
pub type Lock = fn() -> Box<dyn Any>;

/// Threads inside a section.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// Forks that are waiting or under way: nobody enters.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// The locks that a fork takes, in this order.
static LOCKS: RwLock<Vec<Lock>> = RwLock::new(Vec::new());

thread_local! {
    /// In how many sections, one inside the other, this thread is.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What a fork of this thread has taken.
    static TAKEN: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, no other thread forks.
#[must_use = "the section ends when this is dropped"]
pub struct Section {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Begins a section; inside another one of the thread it costs an addition.
#[inline]
pub fn section() -> Section {
    let depth = DEPTH.get();
    if depth == 0 {
        enter();
    }
    DEPTH.set(depth + 1);
    Section { _thread: PhantomData }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            INSIDE.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Adds a lock to those that a fork takes.
pub fn list(lock: Lock) {
    register();
    LOCKS.write().unwrap_or_else(PoisonError::into_inner).push(lock);
}

fn enter() {
    register();
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKS.load(Ordering::SeqCst) == 0 {
            return;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        while FORKS.load(Ordering::Acquire) > 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[inline]
fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the functions live as long as this library, which is never unloaded; they do not unwind.
        let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        debug_assert_eq!(refused, 0, "the system has no memory for three addresses");
    });
}

fn own() -> usize {
    usize::from(DEPTH.get() > 0)
}

extern "C" fn before() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    let begin = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > own() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(20));
    }
    TAKEN.with_borrow_mut(|taken| {
        let locks = LOCKS.write().unwrap_or_else(PoisonError::into_inner);
        taken.extend(locks.iter().map(|lock| lock()));
        // Last taken, first given back: the list itself goes to the end.
        taken.insert(0, Box::new(locks));
    });
}

fn give_back() {
    TAKEN.with_borrow_mut(|taken| while taken.pop().is_some() {});
}

extern "C" fn in_parent() {
    give_back();
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    give_back();
    INSIDE.store(own(), Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
    crate::threads::begin_anew();
}
