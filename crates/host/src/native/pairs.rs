//! Pairs of bfloat16: two terms of a sum that follow each other are one number of 32 bits of the packed product. Where they are neighbours in memory they
//! are read in place; else two lines are woven into one.

use super::lanes::{Lanes, at_level};
use super::microkernel::{CHUNK, CHUNK_ROWS, Order};
use super::panels::{Panels, turn_chunk};
use super::{Shared, scratch};
use crate::level::bfloats_at_once;
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
    /// Pairs of a line: so many that the CPU's instructions have no term left over.
    pub(crate) fn pairs(&self) -> usize {
        self.terms.next_multiple_of(bfloats_at_once().unwrap_or(2)) / 2
    }

    /// Whether pairs of terms are numbers of 32 bits as they lie.
    pub(crate) fn in_place(&self) -> bool {
        let even = self.terms == 2 * self.pairs() && self.by_line % 2 == 0;
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
        let pairs = self.pairs();
        scratch::with(self.lines * pairs, |woven: &mut [f32]| {
            let to = Shared::new(woven);
            parallel_for(pairs, self.lines / 8 + 1, |begin, end| {
                let (lines, width) = ((0, self.lines), self.lines.max(1));
                // SAFETY: these pairs are this task's; the caller vouches for the elements.
                unsafe {
                    let first = to.part(begin * self.lines, (end - begin) * self.lines).as_mut_ptr();
                    let woven = Woven { first, by_pair: self.lines, lines, width, by_group: 0 };
                    self.weave_pairs((begin, end - begin), woven);
                }
            });
            work(to.at(0).cast_const(), [1, self.lines as isize]);
        });
    }

    /// Packs some panels of a left operand, so many pairs from this one on.
    ///
    /// # Safety
    /// The elements are readable; lines are neighbours.
    pub(crate) unsafe fn pack_panels(
        &self,
        (panels, (first, last)): (Panels, (usize, usize)),
        (from, pairs): (usize, usize),
        to: &mut [f32],
    ) {
        for (p, panel) in (first..last).zip(to.chunks_exact_mut((panels.height * pairs).max(1))) {
            let lines = (panels.start(p), panels.start(p + 1) - panels.start(p));
            for (c, chunk) in panel.chunks_mut(panels.height * CHUNK).enumerate() {
                let mut numbers = [0.0; CHUNK_ROWS * CHUNK];
                let terms = chunk.len() / panels.height;
                let woven = match panels.order {
                    Order::Terms => chunk.as_mut_ptr(),
                    Order::Chunks => numbers.as_mut_ptr(),
                };
                let woven = Woven { first: woven, by_pair: panels.height, lines, width: panels.height, by_group: 0 };
                // SAFETY: the caller's promise; each of these pairs has a row of the panel's height.
                unsafe { self.weave_pairs((from + c * CHUNK, terms), woven) };
                if panels.order == Order::Chunks {
                    // SAFETY: so many pairs of the panel's height have been woven.
                    unsafe { turn_chunk(lines.1, numbers.as_ptr(), panels.height as isize, chunk) };
                }
            }
        }
    }

    /// Packs part of a right operand, from this pair and line on, to groups of `width` lines that have `terms` pairs each.
    ///
    /// # Safety
    /// The elements are readable; lines are neighbours.
    pub(crate) unsafe fn pack_groups(
        &self,
        (pair, line): (usize, usize),
        (pairs, lines): (usize, usize),
        (width, terms): (usize, usize),
        to: &mut [f32],
    ) {
        let last = lines.div_ceil(width).saturating_sub(1);
        assert!(to.len() >= (last * terms + pairs) * width);
        let woven =
            Woven { first: to.as_mut_ptr(), by_pair: width, lines: (line, lines), width, by_group: terms * width };
        // SAFETY: the caller's promise; there is room for the groups.
        unsafe { self.weave_pairs((pair, pairs), woven) };
        if !lines.is_multiple_of(width) {
            for row in to[last * terms * width..].chunks_exact_mut(width).take(pairs) {
                row[lines % width..].fill(0.0);
            }
        }
    }

    /// So many pairs of terms from one on, of some lines; a term that is not there is zero.
    ///
    /// # Safety
    /// The elements are readable; there is room for the pairs.
    unsafe fn weave_pairs(&self, pairs: (usize, usize), to: Woven) {
        let of = *self;
        // SAFETY: the caller's promise; `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(weave_all(of: Halves, pairs: (usize, usize), to: Woven)) };
    }
}

/// Where woven numbers go: groups of so many lines, of which a pair's numbers are neighbours.
#[derive(Clone, Copy)]
struct Woven {
    first: *mut f32,
    /// From one pair to the next.
    by_pair: usize,
    /// The first line and their number.
    lines: (usize, usize),
    /// Lines of a group.
    width: usize,
    by_group: usize,
}

/// # Safety
/// As [`Halves::weave_pairs`].
#[inline(always)]
unsafe fn weave_all<V: Lanes>(of: Halves, (first, count): (usize, usize), to: Woven) {
    let (line, lines) = to.lines;
    for k in 0..count {
        let term = 2 * (first + k);
        let low = of.from.wrapping_offset(term as isize * of.by_term + line as isize * of.by_line);
        let high = (term + 1 < of.terms).then(|| low.wrapping_offset(of.by_term));
        for (group, begin) in (0..lines).step_by(to.width).enumerate() {
            let place = to.first.wrapping_add(group * to.by_group + k * to.by_pair);
            // SAFETY: the caller's promise.
            unsafe {
                let to = std::slice::from_raw_parts_mut(place, to.width.min(lines - begin));
                let skip = |from: *const u16| from.wrapping_offset(begin as isize * of.by_line);
                match term < of.terms {
                    true => woven::<V>(skip(low), high.map(skip), of.by_line, to),
                    false => to.fill(0.0),
                }
            }
        }
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
