//! Pairs of bfloat16: two terms of a sum that follow each other are one number of 32 bits of the packed product. Where they are neighbours in memory they
//! are read in place; else two lines are woven into one.

use super::lanes::{Lanes, at_level};
use super::{Shared, scratch};
use crate::threads::parallel_for;

/// An operand: lines of terms, which are rows of the left matrix and columns of the right one.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    pub from: *const u16,
    pub lines: usize,
    pub terms: usize,
    /// From one line to the next, and from one term to the next.
    pub by_line: isize,
    pub by_term: isize,
}

// SAFETY: tasks read the operand's elements, which nobody writes.
unsafe impl Sync for Halves {}

impl Halves {
    /// Whether pairs of terms are numbers of 32 bits as they lie.
    pub(crate) fn in_place(&self) -> bool {
        let even = self.terms.is_multiple_of(2) && self.by_line % 2 == 0;
        self.by_term == 1 && even && self.from.addr().is_multiple_of(align_of::<f32>())
    }

    /// Calls `work` with the first pair, and the strides from one line to the next and from one pair to the next: in place, or of a copy that does not last
    /// longer.
    ///
    /// # Safety
    /// The elements are readable.
    pub(crate) unsafe fn with_pairs(&self, work: impl FnOnce(*const f32, [isize; 2])) {
        if self.in_place() {
            return work(self.from.cast(), [self.by_line / 2, 1]);
        }
        let pairs = self.terms.div_ceil(2);
        scratch::with(self.lines * pairs, |woven: &mut [f32]| {
            let to = Shared::new(woven);
            parallel_for(pairs, self.lines / 8 + 1, |begin, end| {
                for pair in begin..end {
                    // SAFETY: these pairs are this task's; the caller vouches for the elements.
                    unsafe { self.weave(pair, to.part(pair * self.lines, self.lines)) };
                }
            });
            work(to.at(0).cast_const(), [1, self.lines as isize]);
        });
    }

    /// One pair of terms of every line; a term that is not there is zero.
    ///
    /// # Safety
    /// The elements are readable; `to` has a number for each line.
    unsafe fn weave(&self, pair: usize, to: &mut [f32]) {
        let low = self.from.wrapping_offset(2 * pair as isize * self.by_term);
        let high = (2 * pair + 1 < self.terms).then(|| low.wrapping_offset(self.by_term));
        let by_line = self.by_line;
        // SAFETY: the caller's promise; `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(woven(low: *const u16, high: Option<*const u16>, by_line: isize, to: &mut [f32])) };
    }
}

/// # Safety
/// Both lines have an element for each number of `to`, `by_line` apart.
#[inline(always)]
unsafe fn woven<V: Lanes>(low: *const u16, high: Option<*const u16>, by_line: isize, to: &mut [f32]) {
    let pair = |low: u16, high: u16| f32::from_bits(u32::from(low) | u32::from(high) << 16);
    // SAFETY: the caller's promise, for each element.
    unsafe {
        match high {
            Some(high) if by_line == 1 => {
                // Loops over neighbours become vectors.
                for (i, to) in to.iter_mut().enumerate() {
                    *to = pair(low.add(i).read_unaligned(), high.add(i).read_unaligned());
                }
            }
            _ => {
                for (i, to) in to.iter_mut().enumerate() {
                    let at = i as isize * by_line;
                    *to =
                        pair(low.offset(at).read_unaligned(), high.map_or(0, |high| high.offset(at).read_unaligned()));
                }
            }
        }
    }
}
