//! A slice that several threads write, each its own elements.

/// The address of a slice's first element, sent to threads whose parts of the slice do not overlap.
pub(crate) struct Shared<T> {
    address: *mut T,
    len: usize,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: it only names addresses; whoever dereferences one vouches that no other thread touches that element.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Shared<T> {
        Shared { address: slice.as_mut_ptr(), len: slice.len() }
    }

    /// The address of element `index`.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> *mut T {
        debug_assert!(index <= self.len);
        self.address.wrapping_add(index)
    }

    /// Elements `begin..begin + len`.
    ///
    /// # Safety
    /// They lie in the slice, no other thread touches them, and the caller holds no other reference to them.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, begin: usize, len: usize) -> &mut [T] {
        debug_assert!(begin + len <= self.len);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.address.add(begin), len) }
    }
}
