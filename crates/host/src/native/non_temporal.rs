//! Stores that go around the caches, for copies that are larger than them: a line is written without being read first.

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Whether an address or a distance is a multiple of a cache line.
#[inline]
pub fn line_aligned(address: isize) -> bool {
    address % LINE as isize == 0
}

/// Copies `bytes` bytes.
///
/// # Safety
/// They must be readable at `from`, writable at `to`, and not overlap.
pub unsafe fn run(to: isize, from: isize, bytes: usize) {
    let head = (to.wrapping_neg() as usize % LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    let done = head + lines * LINE;
    // SAFETY: promised by the caller; the three pieces make up the whole.
    unsafe {
        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, head);
        self::lines((to + head as isize, LINE as isize), from + head as isize, lines);
        std::ptr::copy_nonoverlapping(
            (from + done as isize) as *const u8,
            (to + done as isize) as *mut u8,
            bytes - done,
        );
    }
}

/// Copies `count` cache lines that lie one after the other at `from` to an address with a distance.
///
/// # Safety
/// `to` must be aligned to a line; the lines must be readable and writable, and not overlap.
#[cfg(target_arch = "x86_64")]
pub unsafe fn lines(to: (isize, isize), from: isize, count: usize) {
    use std::arch::x86_64::*;
    for line in 0..count as isize {
        let source = (from + line * LINE as isize) as *const __m128i;
        let target = (to.0 + line * to.1) as *mut __m128i;
        // SAFETY: promised by the caller; SSE2 is part of x86-64.
        unsafe {
            let parts: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(source.add(i)));
            for (i, part) in parts.into_iter().enumerate() {
                _mm_stream_si128(target.add(i), part);
            }
        }
    }
    // Streamed stores are ordered with nothing else; other threads read the result.
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() }
}

/// Copies `count` cache lines that lie one after the other at `from` to an address with a distance.
///
/// # Safety
/// The lines must be readable and writable, and not overlap.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn lines(to: (isize, isize), from: isize, count: usize) {
    for line in 0..count as isize {
        let (source, target) = (from + line * LINE as isize, to.0 + line * to.1);
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(source as *const u8, target as *mut u8, LINE) }
    }
}
