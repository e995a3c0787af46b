//! Where heaps come from: large regions of a device's memory.

/// A region of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    /// The first byte's address.
    pub address: usize,
    /// The length in bytes.
    pub bytes: usize,
}

/// A device's supply of heaps. Called with the allocator's lock held: an implementation must not call back into
/// the allocator, so `finish` waits for the device only and runs no handler of a user.
pub(crate) trait HeapSource: Send + Sync {
    /// A fresh region of `bytes` (a multiple of 64 KiB), aligned to a page at least; `None` when there is none.
    fn reserve(&self, bytes: usize) -> Option<Region>;

    /// Takes back a region that `reserve` gave.
    fn release(&self, region: Region);

    /// Gives up the contents of a part of a region that stays reserved, so that its physical memory is free.
    fn discard(&self, _part: Region) {}

    /// Whether a freed block may still be in use by commands of its queue, so that only that queue may reuse it
    /// before `finish`.
    fn ordered_by_queue(&self) -> bool {
        false
    }

    /// Waits until the commands submitted to the queue have ended.
    fn finish(&self, _queue: u64) {}
}

/// The host's memory: anonymous pages, which cost nothing until they are touched.
pub(crate) struct HostMemory;

impl HeapSource for HostMemory {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        pages::reserve(bytes)
    }

    fn release(&self, region: Region) {
        pages::release(region);
    }

    fn discard(&self, part: Region) {
        pages::discard(part);
    }
}

#[cfg(unix)]
mod pages {
    use super::Region;

    /// The size of a transparent huge page; heaps of this size and above begin at a multiple of it.
    const HUGE_PAGE: usize = 2 << 20;

    pub fn reserve(bytes: usize) -> Option<Region> {
        if bytes < HUGE_PAGE {
            return map(bytes).map(|address| Region { address, bytes });
        }
        let mapped = map(bytes.checked_add(HUGE_PAGE)?)?;
        let address = mapped.next_multiple_of(HUGE_PAGE);
        let head = address - mapped;
        unmap(mapped, head);
        unmap(address + bytes, HUGE_PAGE - head);
        prefer_huge_pages(address, bytes);
        Some(Region { address, bytes })
    }

    pub fn release(region: Region) {
        unmap(region.address, region.bytes);
    }

    pub fn discard(part: Region) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const ADVICE: libc::c_int = libc::MADV_DONTNEED;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const ADVICE: libc::c_int = libc::MADV_FREE;
        // SAFETY: the allocator passes free parts of its own heaps only, so nobody reads the contents.
        unsafe { libc::madvise(part.address as *mut libc::c_void, part.bytes, ADVICE) };
    }

    fn map(bytes: usize) -> Option<usize> {
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        if cfg!(target_os = "linux") {
            // Heaps are reserved larger than they are used: only touched pages shall count.
            flags |= libc::MAP_NORESERVE;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the system's choice touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        (address != libc::MAP_FAILED).then_some(address as usize)
    }

    fn unmap(address: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the range is a whole mapping of `map`, or a part of one that nobody was given.
        if unsafe { libc::munmap(address as *mut libc::c_void, bytes) } != 0 {
            tracing::error!("munmap of {bytes} bytes at {address:#x}: {}", std::io::Error::last_os_error());
        }
    }

    fn prefer_huge_pages(_address: usize, _bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: advice about a mapping of our own; refusing it (no support in the kernel) changes nothing.
        unsafe {
            libc::madvise(_address as *mut libc::c_void, _bytes, libc::MADV_HUGEPAGE);
        }
    }
}

#[cfg(not(unix))]
mod pages {
    use super::Region;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, 4096).ok().filter(|layout| layout.size() > 0)
    }

    pub fn reserve(bytes: usize) -> Option<Region> {
        // SAFETY: the layout's size is not zero.
        let address = unsafe { alloc_zeroed(layout(bytes)?) } as usize;
        (address != 0).then_some(Region { address, bytes })
    }

    pub fn release(region: Region) {
        if let Some(layout) = layout(region.bytes) {
            // SAFETY: `reserve` gave this address with the same layout, and the allocator releases it once.
            unsafe { dealloc(region.address as *mut u8, layout) };
        }
    }

    pub fn discard(_part: Region) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_is_aligned_writable_and_given_back() {
        for bytes in [64 << 10, 2 << 20, (2 << 20) + (64 << 10), 64 << 20] {
            let region = HostMemory.reserve(bytes).expect("memory");
            let alignment = if cfg!(unix) && bytes >= 2 << 20 { 2 << 20 } else { 4096 };
            assert_eq!(region.address % alignment, 0);
            // SAFETY: first and last byte of a region that is ours.
            unsafe {
                (region.address as *mut u8).write(1);
                ((region.address + bytes - 1) as *mut u8).write(2);
            }
            HostMemory.release(region);
        }
        assert_eq!(HostMemory.reserve(usize::MAX & !0xffff), None);
    }
}
