//! Copies between any two layouts: dimensions are merged, runs go by `memcpy`, transposes by tiles, large work by threads.

use super::memory::{MAX_RANK, Memory, by_size, move_bytes};
use super::non_temporal;
use super::transpose::transpose;
use crate::threads;

/// Dense copies of at most this many bytes are not looked at any further.
const SMALL: usize = 64 << 10;

/// Copies of at least this many bytes write around the caches, which they would only flush.
const NON_TEMPORAL: usize = 48 << 20;

/// Bytes of one value that are written before they are copied.
const REPEATED: isize = 4096;

/// One dimension of a copy; strides in bytes.
#[derive(Clone, Copy, Default)]
struct Dimension {
    size: usize,
    to: isize,
    from: isize,
}

/// A copy after merging: few dimensions, outermost first, ordered by how far apart they lie in the destination.
struct CopyPlan {
    dimensions: [Dimension; MAX_RANK],
    rank: usize,
    /// Bytes moved at once.
    element: usize,
    to: isize,
    from: isize,
    /// Whether to write around the caches.
    non_temporal: bool,
}

/// Copies a tensor of these dimensions, whose elements have `element` bytes (1, 2, 4, 8 or 16), between two layouts.
///
/// # Safety
/// Every element that the strides reach must be readable in `from` and writable in `to`, and the two must not overlap,
/// unless they are the same memory with the same strides: then there is nothing to do.
pub unsafe fn copy(element: usize, dims: &[usize], to: Memory, from: Memory) {
    assert!(dims.len() <= MAX_RANK && dims.len() == to.strides.len() && dims.len() == from.strides.len());
    if to.address == from.address && to.strides == from.strides {
        return;
    }
    if let Some(elements) = dense_in_both(dims, to.strides, from.strides)
        && elements * element <= SMALL
    {
        // SAFETY: promised by the caller.
        return unsafe { move_bytes(from.address as *const u8, to.address as *mut u8, elements * element) };
    }
    if let Some(plan) = CopyPlan::new(element, dims, to, from) {
        // SAFETY: promised by the caller; the plan reaches the same elements.
        unsafe { plan.run() }
    }
}

/// The number of elements, where both layouts are dense.
#[inline]
fn dense_in_both(dims: &[usize], to: &[isize], from: &[isize]) -> Option<usize> {
    let mut elements = 1;
    for d in (0..dims.len()).rev() {
        let expected = elements as isize;
        if dims[d] != 1 && (to[d] != expected || from[d] != expected) {
            return None;
        }
        elements *= dims[d];
    }
    Some(elements)
}

/// Sets every element of a tensor to the value at `value`.
///
/// # Safety
/// As [`copy`]; `value` is the address of one element.
pub unsafe fn fill(element: usize, dims: &[usize], to: Memory, value: usize) {
    let strides = [0; MAX_RANK];
    // SAFETY: promised by the caller.
    unsafe { copy(element, dims, to, Memory::new(value, &strides[..dims.len()])) }
}

impl CopyPlan {
    /// Drops dimensions of one element, orders the others and merges neighbours; `None` when nothing is to be copied.
    fn new(element: usize, dims: &[usize], to: Memory, from: Memory) -> Option<CopyPlan> {
        let mut plan = CopyPlan {
            dimensions: [Dimension::default(); MAX_RANK],
            rank: 0,
            element,
            to: to.address as isize,
            from: from.address as isize,
            non_temporal: dims.iter().product::<usize>() * element >= NON_TEMPORAL,
        };
        let bytes = element as isize;
        for (d, &size) in dims.iter().enumerate() {
            match size {
                0 => return None,
                1 => {}
                _ => plan.insert(Dimension { size, to: to.strides[d] * bytes, from: from.strides[d] * bytes }),
            }
        }
        plan.merge();
        plan.widen();
        Some(plan)
    }

    /// Inserts a dimension where its distance in the destination belongs, walking it forwards there.
    fn insert(&mut self, mut new: Dimension) {
        if new.to < 0 {
            let last = new.size as isize - 1;
            self.to += last * new.to;
            self.from += last * new.from;
            new = Dimension { size: new.size, to: -new.to, from: -new.from };
        }
        let mut place = self.rank;
        while place > 0 && self.dimensions[place - 1].to < new.to {
            self.dimensions[place] = self.dimensions[place - 1];
            place -= 1;
        }
        self.dimensions[place] = new;
        self.rank += 1;
    }

    /// Joins neighbouring dimensions that are one longer dimension in both layouts.
    fn merge(&mut self) {
        let mut kept = 0;
        for next in 1..self.rank {
            let inner = self.dimensions[next];
            let outer = &mut self.dimensions[kept];
            let span = inner.size as isize;
            if outer.to == inner.to * span && outer.from == inner.from * span {
                *outer = Dimension { size: outer.size * inner.size, ..inner };
            } else {
                kept += 1;
                self.dimensions[kept] = inner;
            }
        }
        self.rank = self.rank.min(kept + 1);
    }

    /// Takes a short innermost run as one larger element.
    fn widen(&mut self) {
        if self.rank > 1 && self.inner_is_run() {
            let bytes = self.element * self.dimensions[self.rank - 1].size;
            if matches!(bytes, 2 | 4 | 8 | 16) {
                self.element = bytes;
                self.rank -= 1;
            }
        }
    }

    fn inner_is_run(&self) -> bool {
        let inner = self.dimensions[self.rank - 1];
        inner.to == self.element as isize && inner.from == self.element as isize
    }

    /// # Safety
    /// As [`copy`].
    unsafe fn run(&self) {
        let dimensions = &self.dimensions[..self.rank];
        if self.rank == 0 {
            // SAFETY: one element, promised by the caller of `copy`.
            return unsafe { by_size!(self.element, T => move_one::<T>(self.to, self.from)) };
        }
        let total: usize = dimensions.iter().map(|d| d.size).product();
        // A lone run is memory bound; anything else costs about a nanosecond an element on top.
        let total_ns = total * self.element / 8 + if self.inner_is_run() { 0 } else { total };
        if total_ns < 2 * threads::WORTH_WAKING_NS {
            // SAFETY: as above.
            return unsafe { run_part(dimensions, self.element, self.non_temporal, self.to, self.from) };
        }
        let cut = self.dimension_to_cut();
        let cut_dimension = dimensions[cut];
        threads::parallel_for(cut_dimension.size, total_ns / cut_dimension.size, |begin, end| {
            let mut part = self.dimensions;
            part[cut].size = end - begin;
            let skip = begin as isize;
            let (to, from) = (self.to + skip * cut_dimension.to, self.from + skip * cut_dimension.from);
            // SAFETY: a part of the whole; parts write different elements.
            unsafe { run_part(&part[..self.rank], self.element, self.non_temporal, to, from) }
        });
    }

    /// The outermost dimension with enough elements for every thread, or else the longest.
    fn dimension_to_cut(&self) -> usize {
        let dimensions = &self.dimensions[..self.rank];
        let enough = threads::count() * 8;
        let longest = || (0..self.rank).max_by_key(|&d| dimensions[d].size).unwrap_or(0);
        dimensions.iter().position(|d| d.size >= enough).unwrap_or_else(longest)
    }
}

/// Copies one part on this thread.
///
/// # Safety
/// As [`copy`]; strides in bytes.
unsafe fn run_part(dimensions: &[Dimension], element: usize, non_temporal: bool, to: isize, from: isize) {
    let (&inner, outer) = dimensions.split_last().expect("a part has a dimension");
    let bytes = element as isize;
    if inner.to == bytes && inner.from == bytes {
        let run = inner.size * element;
        if non_temporal && run >= 1024 {
            // SAFETY: every address is inside the tensors, as the caller promised.
            return walk(outer, to, from, &mut |to, from| unsafe { non_temporal::run(to, from, run) });
        }
        // SAFETY: as above.
        return walk(outer, to, from, &mut |to, from| unsafe { move_bytes(from as *const u8, to as *mut u8, run) });
    }
    let across = outer.iter().rposition(|d| d.from == bytes && d.size >= 4);
    if let (Some(across), true) = (across, inner.to == bytes && inner.from != 0) {
        let columns = outer[across];
        let mut rest = [Dimension::default(); MAX_RANK];
        rest[..across].copy_from_slice(&outer[..across]);
        rest[across..outer.len() - 1].copy_from_slice(&outer[across + 1..]);
        let rest = &rest[..outer.len() - 1];
        let is_dense = columns.to == inner.size as isize * bytes;
        // SAFETY: as above.
        return walk(rest, to, from, &mut |to, from| unsafe {
            match inner.size {
                2 if is_dense => by_size!(element, T => interleave::<T, 2>(columns.size, to, (from, inner.from))),
                3 if is_dense => by_size!(element, T => interleave::<T, 3>(columns.size, to, (from, inner.from))),
                _ => transpose(element, non_temporal, (inner.size, columns.size), (to, columns.to), (from, inner.from)),
            }
        });
    }
    // SAFETY: as above.
    by_size!(element, T => walk(outer, to, from, &mut |to, from| unsafe { move_strided::<T>(inner, to, from) }));
}

/// Calls `visit` with the two addresses of every index of the dimensions.
fn walk<F: FnMut(isize, isize)>(dimensions: &[Dimension], to: isize, from: isize, visit: &mut F) {
    match dimensions {
        [] => visit(to, from),
        [only] => {
            for i in 0..only.size as isize {
                visit(to + i * only.to, from + i * only.from);
            }
        }
        [first, rest @ ..] => {
            for i in 0..first.size as isize {
                walk(rest, to + i * first.to, from + i * first.from, visit);
            }
        }
    }
}

/// # Safety
/// Both addresses hold a `T`, at any alignment.
#[inline(always)]
unsafe fn move_one<T>(to: isize, from: isize) {
    // SAFETY: promised by the caller.
    unsafe { (to as *mut T).write_unaligned((from as *const T).read_unaligned()) }
}

/// Takes an element of each of `N` rows in turn: what a transpose of so few rows is.
///
/// # Safety
/// `count` elements lie at each row's address, and `N` times as many at the destination.
#[inline(always)]
unsafe fn interleave<T: Copy, const N: usize>(count: usize, to: isize, (from, distance): (isize, isize)) {
    let to = to as *mut T;
    let rows: [*const T; N] = std::array::from_fn(|row| (from + row as isize * distance) as *const T);
    for i in 0..count {
        for (place, row) in rows.iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { to.add(i * N + place).write_unaligned(row.add(i).read_unaligned()) };
        }
    }
}

/// Writes one value `count` times: the first ones by themselves, the others as copies of those, for which the library has the widest vectors.
///
/// # Safety
/// So many elements lie at the address, at any alignment.
unsafe fn repeat<T: Copy>(value: T, to: isize, count: isize) {
    let bytes = size_of::<T>() as isize;
    let first = count.min(REPEATED / bytes);
    // SAFETY: promised by the caller; a copy begins behind what it is copied from, and is no longer.
    unsafe {
        for i in 0..first {
            ((to + i * bytes) as *mut T).write_unaligned(value);
        }
        let mut done = first;
        while done < count {
            let next = first.min(count - done);
            std::ptr::copy_nonoverlapping(to as *const u8, (to + done * bytes) as *mut u8, (next * bytes) as usize);
            done += next;
        }
    }
}

/// Copies one dimension; the common strides are constants, so that the compiler vectorises their loops.
///
/// # Safety
/// Every address reached holds a `T`, at any alignment.
unsafe fn move_strided<T: Copy>(inner: Dimension, to: isize, from: isize) {
    let bytes = size_of::<T>() as isize;
    let count = inner.size as isize;
    // SAFETY: promised by the caller.
    unsafe {
        match (inner.to == bytes, inner.from) {
            (true, 0) => {
                repeat::<T>((from as *const T).read_unaligned(), to, count);
            }
            (true, stride) if stride == -bytes => {
                for i in 0..count {
                    move_one::<T>(to + i * bytes, from - i * bytes);
                }
            }
            (true, stride) if stride == 2 * bytes => {
                for i in 0..count {
                    move_one::<T>(to + i * bytes, from + i * 2 * bytes);
                }
            }
            (true, stride) => {
                for i in 0..count {
                    move_one::<T>(to + i * bytes, from + i * stride);
                }
            }
            (false, stride) => {
                for i in 0..count {
                    move_one::<T>(to + i * inner.to, from + i * stride);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
