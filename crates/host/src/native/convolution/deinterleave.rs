//! Rows of a convolution of stride 2, deinterleaved: what lies at even places, and what at odd ones.

use crate::native::lanes::{Lanes, WIDEST, at_level};

/// Numbers of a row, with the zeros around it, that are split by whole vectors: there is little else in short ones.
const SHORT: usize = 192;

/// Splits rows that are padded alike.
pub(super) struct Deinterleaver {
    padding: usize,
    /// A short row between zeros, of which those before it stay.
    row: [f32; SHORT],
    /// How long the row is that was there last.
    length: usize,
}

impl Deinterleaver {
    /// For rows with so many zeros before them, of which taps read the places with these remainders modulo the stride. None where those are not the
    /// even and the odd ones.
    pub fn new(stride: usize, phases: &[usize], padding: usize) -> Option<Deinterleaver> {
        if stride != 2 || phases.len() != 2 {
            return None;
        }
        Some(Deinterleaver { padding, row: [0.0; SHORT], length: 0 })
    }

    /// `even[x] = source[2 * x - padding]` and `odd[x] = source[2 * x + 1 - padding]` for x below `count`, zero outside the source. Numbers behind those are
    /// overwritten, as far as the lines go.
    pub fn split(&mut self, source: &[f32], even: &mut [f32], odd: &mut [f32], count: usize) {
        assert!(even.len() >= count && odd.len() >= count);
        let padding = self.padding;
        if source.is_empty() {
            even[..count].fill(0.0);
            odd[..count].fill(0.0);
        } else if padding + source.len() <= SHORT && count <= SHORT / 2 - WIDEST {
            if source.len() < self.length {
                self.row[padding + source.len()..][..self.length - source.len()].fill(0.0);
            }
            self.length = source.len();
            let row = &mut self.row;
            // SAFETY: the row has room for the source, and vectors for `count` pairs.
            unsafe {
                at_level!(split_short(source: &[f32], row: &mut [f32; SHORT], padding: usize, even: &mut [f32], odd: &mut [f32], count: usize))
            }
        } else {
            split_long(source, &mut even[..count], &mut odd[..count], padding);
        }
    }
}

/// # Safety
/// The row has room for the source behind the padding, and for a vector more than `count` pairs; both lines have `count` numbers.
#[inline(always)]
unsafe fn split_short<V: Lanes>(
    source: &[f32],
    row: &mut [f32; SHORT],
    padding: usize,
    even: &mut [f32],
    odd: &mut [f32],
    count: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        copy::<V>(source, row.as_mut_ptr().add(padding));
        for x in (0..count).step_by(V::N) {
            let [evens, odds] = V::load_by_2(row.as_ptr().add(2 * x));
            put(evens, &mut even[x..], count - x);
            put(odds, &mut odd[x..], count - x);
        }
    }
}

/// Copies numbers by whole vectors, of which the last overlaps the one before.
///
/// # Safety
/// There is room for as many.
#[inline(always)]
unsafe fn copy<V: Lanes>(from: &[f32], to: *mut f32) {
    let len = from.len();
    // SAFETY: within the numbers, and the room that the caller vouches for.
    unsafe {
        if len < V::N {
            return from.as_ptr().copy_to_nonoverlapping(to, len);
        }
        for x in (0..len - V::N).step_by(V::N) {
            V::load(from.as_ptr().add(x)).store(to.add(x));
        }
        V::load(from.as_ptr().add(len - V::N)).store(to.add(len - V::N));
    }
}

/// Stores a vector, or its first `count` numbers where the line has no room for it.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn put<V: Lanes>(vector: V, line: &mut [f32], count: usize) {
    // SAFETY: the line has room for the vector.
    unsafe {
        if line.len() >= V::N {
            vector.store(line.as_mut_ptr());
        } else {
            line[..count].copy_from_slice(&vector.lanes()[..count]);
        }
    }
}

/// [`Deinterleaver::split`] of a row that is read where it lies.
fn split_long(source: &[f32], even: &mut [f32], odd: &mut [f32], padding: usize) {
    // Up to `begin`, and from `end` on, a pair has an element outside the source.
    let begin = padding.div_ceil(2).min(even.len());
    let end = ((source.len() + padding) / 2).clamp(begin, even.len());
    for (phase, line) in [&mut *even, &mut *odd].into_iter().enumerate() {
        let value = |x: usize| source.get((2 * x + phase).wrapping_sub(padding)).copied().unwrap_or(0.0);
        (0..begin).chain(end..line.len()).for_each(|x| line[x] = value(x));
    }
    if begin < end {
        let from = source[2 * begin - padding..].as_ptr();
        let (even, odd, count) = (even[begin..].as_mut_ptr(), odd[begin..].as_mut_ptr(), end - begin);
        // SAFETY: pairs begin..end lie in the source and in both lines.
        unsafe { at_level!(split(from: *const f32, even: *mut f32, odd: *mut f32, count: usize)) }
    }
}

#[inline(always)]
unsafe fn split<V: Lanes>(from: *const f32, even: *mut f32, odd: *mut f32, count: usize) {
    let mut x = 0;
    // SAFETY: the caller vouches for `count` pairs and for as many elements of both lines.
    unsafe {
        while x + V::N <= count {
            let [a, b] = V::load_by_2(from.add(2 * x));
            a.store(even.add(x));
            b.store(odd.add(x));
            x += V::N;
        }
        while x < count {
            *even.add(x) = *from.add(2 * x);
            *odd.add(x) = *from.add(2 * x + 1);
            x += 1;
        }
    }
}
