//! Ending a kernel that runs: whoever launches it may be asked now and then whether it should go on.
//!
//! Threads count programs and iterations of loops, and look up only once in many: at a flag that all of a launch's threads share, and,
//! on the launching thread, at the launcher's own question (Python's signals, say).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Counts between two looks while these come quickly.
const MOST: u32 = 64;
/// How long nobody needs to look.
const PATIENCE: Duration = Duration::from_millis(10);

/// What ends a launch, as its threads see it.
pub(crate) type Flag = Arc<AtomicBool>;

/// Whether what runs should stop.
type Question = Rc<dyn Fn() -> bool>;

thread_local! {
    static WATCH: RefCell<Option<(Flag, Question)>> = const { RefCell::new(None) };
}

/// Runs `work`, whose kernels end early with [`Error::Interrupted`](crate::Error::Interrupted) once `stop` has said true on this thread.
pub fn within<R>(stop: impl Fn() -> bool + 'static, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<(Flag, Question)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WATCH.replace(self.0.take());
        }
    }
    let _restore = Restore(WATCH.replace(Some((Flag::default(), Rc::new(stop)))));
    work()
}

/// The flag of the launch that this thread is in.
pub(crate) fn flag() -> Option<Flag> {
    WATCH.with_borrow(|watch| watch.as_ref().map(|(flag, _)| flag.clone()))
}

/// Asks the question, where this thread is the one to ask it, and hoists the flag.
pub(crate) fn ask() {
    // Not asked under the borrow: a handler of signals may launch kernels too.
    if let Some((flag, stop)) = WATCH.with_borrow(Clone::clone)
        && stop()
    {
        flag.store(true, Ordering::Relaxed);
    }
}

/// One thread's count.
pub(crate) struct Poll<'f> {
    flag: Option<&'f AtomicBool>,
    /// Counts until the next look, and how many there were before it.
    left: u32,
    span: u32,
    looked: Option<Instant>,
}

impl<'f> Poll<'f> {
    pub fn new(flag: Option<&'f Flag>) -> Poll<'f> {
        Poll { flag: flag.map(Arc::as_ref), left: 1, span: 1, looked: None }
    }

    /// Counts once; whether to stop.
    #[inline(always)]
    pub fn count(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        let Some(flag) = self.flag else {
            self.left = u32::MAX;
            return false;
        };
        let now = Instant::now();
        let passed = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        if self.looked.is_none() || passed > PATIENCE {
            self.looked = Some(now);
        }
        if passed > PATIENCE {
            self.span = 1;
            ask();
        } else {
            self.span = (self.span * 2).min(MOST);
        }
        self.left = self.span;
        flag.load(Ordering::Relaxed)
    }
}
