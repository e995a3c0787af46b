//! What follows a product, applied to parts of its result while they are in the cache.

use crate::native::epilogue::{Epilogue, Single};
use crate::native::lanes::{Arithmetic, Four, Lanes, at_level};
use crate::threads::parallel_for;

/// Rows of a result and some of their columns: neighbours, the first one at `out`.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The first element.
    pub out: *mut f32,
    /// From one row to the next.
    pub stride: usize,
    /// How many rows there are.
    pub rows: usize,
    /// The first column, which is the epilogue's channel, and how many there are.
    pub columns: (usize, usize),
    /// The index of the first element in the whole output, for the epilogue's residual.
    pub index: usize,
}

/// Applies the epilogue to a part.
///
/// # Safety
/// The part's elements are writable and this task's alone; the epilogue's slices cover them.
pub(super) unsafe fn part(epilogue: &Epilogue, part: Part) {
    // SAFETY: the caller's promise.
    unsafe { at_level!(rows(epilogue: &Epilogue, part: Part)) }
}

/// Applies the epilogue to `count` dense rows of a result, of which the first begins at element `first`.
///
/// # Safety
/// As [`part`], for these rows.
pub(super) unsafe fn all(epilogue: &Epilogue, out: usize, first: usize, (count, columns): (usize, usize)) {
    parallel_for(count, columns, |from, to| {
        let index = first + from * columns;
        let rows = Part {
            out: (out as *mut f32).wrapping_add(index),
            stride: columns,
            rows: to - from,
            columns: (0, columns),
            index,
        };
        // SAFETY: these rows are this task's.
        unsafe { part(epilogue, rows) };
    });
}

#[inline(always)]
unsafe fn rows<V: Lanes>(epilogue: &Epilogue, part: Part) {
    let (first, count) = part.columns;
    for row in 0..part.rows {
        let (out, index) = (part.out.wrapping_add(row * part.stride), part.index + row * part.stride);
        let line = Line { out, first, index };
        // SAFETY: elements of this row, which the caller vouches for.
        unsafe {
            let done = line.apply::<Four<V>>(epilogue, 0, count);
            let done = line.apply::<V>(epilogue, done, count);
            line.apply::<Single>(epilogue, done, count);
        }
    }
}

/// A row of a part: its first element, the channel of that and its index in the whole output.
struct Line {
    out: *mut f32,
    first: usize,
    index: usize,
}

impl Line {
    /// Applies the epilogue to as many elements from `from` to `to` as fill whole vectors; where these end.
    ///
    /// # Safety
    /// The elements are the caller's, the epilogue covers them, and the CPU has the instructions of `V`.
    #[inline(always)]
    unsafe fn apply<V: Arithmetic>(&self, epilogue: &Epilogue, from: usize, to: usize) -> usize {
        let end = from + (to - from) / V::N * V::N;
        for j in (from..end).step_by(V::N) {
            // SAFETY: the caller's promise.
            unsafe {
                let at = self.out.add(j);
                epilogue.apply_along(V::load(at), self.first + j, self.index + j).store(at);
            }
        }
        end
    }
}
