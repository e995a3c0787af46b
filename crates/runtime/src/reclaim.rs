//! Memory that somebody else caches: what a thread asks for it when the device's own is out.
//!
//! A program above this one may keep freed tensors in a cache of its own (Paddle does), which the device's allocator takes for used. While
//! its kernel runs, it lends the thread a way to empty that cache; a buffer that finds no memory empties it and tries once more.

use std::cell::Cell;

thread_local! {
    static RECLAIM: Cell<Option<Reclaim>> = const { Cell::new(None) };
}

/// A way to empty the cache: a function and its argument.
#[derive(Clone, Copy)]
struct Reclaim {
    empty: unsafe fn(*const ()),
    of: *const (),
}

/// Runs `work` with a way to empty the caller's cache, on this thread. It is called with none of the runtime's locks held.
///
/// # Safety
/// `empty(of)` may be called at any time until `work` returns or unwinds, on this thread.
#[inline]
pub unsafe fn with<R>(empty: unsafe fn(*const ()), of: *const (), work: impl FnOnce() -> R) -> R {
    /// Brings back what was there before, also when the work unwinds.
    struct Restore(Option<Reclaim>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECLAIM.set(self.0);
        }
    }
    let _restore = Restore(RECLAIM.replace(Some(Reclaim { empty, of })));
    work()
}

/// Empties the cache of whoever lent a way to; false where nobody did.
#[cold]
pub(crate) fn reclaim() -> bool {
    // Taken while it is called: emptying a cache frees, and must not come back here.
    let Some(reclaim) = RECLAIM.take() else { return false };
    // SAFETY: `with` has not returned, and its caller's promise lasts as long.
    unsafe { (reclaim.empty)(reclaim.of) };
    RECLAIM.set(Some(reclaim));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_lasts_as_long_as_the_work() {
        let emptied = Cell::new(0);
        /// Counts, and finds no way while it runs.
        unsafe fn empty(of: *const ()) {
            assert!(!reclaim());
            // SAFETY: the counter below.
            let emptied = unsafe { &*of.cast::<Cell<u32>>() };
            emptied.set(emptied.get() + 1);
        }
        assert!(!reclaim());
        // SAFETY: the counter outlives the call.
        unsafe { with(empty, (&raw const emptied).cast(), || assert!(reclaim() && reclaim())) };
        assert!(!reclaim());
        assert_eq!(emptied.get(), 2);
    }
}
