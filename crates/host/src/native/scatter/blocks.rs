//! Adding by several indices at once: blocks of a tensor that lie alike, each the same one as another or apart from it.

use super::super::memory::Element;
use crate::threads;

/// Blocks of a tensor, and where the values for them lie. Offsets and strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    /// Where each block begins in the tensor and among the values; blocks that begin alike are one block, others have no element in common.
    pub offsets: &'a [(isize, isize)],
    /// The dimensions of a block.
    pub dims: &'a [usize],
    /// Its strides in the tensor.
    pub strides: &'a [isize],
    /// Its strides among the values, zero where they are broadcast.
    pub values: &'a [isize],
}

/// Elements of a block along its last dimension: where they begin in the tensor and among the values, and how many.
type Line = (isize, isize, usize);

impl Blocks<'_> {
    /// The last dimension with its strides; a block of no dimensions is one element.
    fn last(&self) -> (usize, isize, isize) {
        let last = |of: &[isize]| of.last().copied().unwrap_or(0);
        (self.dims.last().copied().unwrap_or(1), last(self.strides), last(self.values))
    }

    /// The elements `begin..end` of a block, in row-major order.
    fn lines(&self, begin: usize, end: usize) -> Vec<Line> {
        let (len, step, value_step) = self.last();
        let (mut lines, mut at) = (Vec::new(), begin);
        while at < end {
            let (mut rest, inside) = (at / len, at % len);
            let count = (len - inside).min(end - at);
            let (mut to, mut from) = (inside as isize * step, inside as isize * value_step);
            for d in (0..self.dims.len().saturating_sub(1)).rev() {
                let index = (rest % self.dims[d]) as isize;
                rest /= self.dims[d];
                (to, from) = (to + index * self.strides[d], from + index * self.values[d]);
            }
            lines.push((to, from, count));
            at += count;
        }
        lines
    }
}

/// Adds the values of each block to its elements in `out`, in order; sums of halves are rounded once.
///
/// # Safety
/// `out` and `values` must point to `T` with all elements of the blocks, which do not overlap.
pub unsafe fn add_blocks<T: Element>(blocks: Blocks<'_>, out: usize, values: usize) {
    let elements = blocks.dims.iter().product();
    let mut order: Vec<usize> = (0..blocks.offsets.len()).collect();
    if T::IS_HALF {
        order.sort_by_key(|&k| blocks.offsets[k].0);
    }
    // Threads share the elements of a block, never blocks: duplicates need no atomics and add up in the same order every time.
    threads::parallel_for(elements, order.len(), |begin, end| {
        let lines = blocks.lines(begin, end);
        let add = if T::IS_HALF { add_rounded_once::<T> } else { add_in_order::<T> };
        // SAFETY: promised by the caller; no other thread has these elements of the blocks.
        unsafe { add(blocks, out as *mut T, values as *const T, &order, &lines) }
    });
}

/// Adds the lines of each block in turn.
///
/// # Safety
/// As [`add_blocks`]; the lines are of the blocks.
unsafe fn add_in_order<T: Element>(blocks: Blocks<'_>, out: *mut T, values: *const T, order: &[usize], lines: &[Line]) {
    let (_, step, value_step) = blocks.last();
    for &k in order {
        let (block, value) = blocks.offsets[k];
        for &(to, from, count) in lines {
            // SAFETY: promised by the caller.
            let (to, from) = unsafe { (out.offset(block + to), values.offset(value + from)) };
            if (step, value_step) == (1, 1) {
                // SAFETY: elements one after the other, in the tensor and among the values.
                let (to, from) =
                    unsafe { (std::slice::from_raw_parts_mut(to, count), std::slice::from_raw_parts(from, count)) };
                to.iter_mut().zip(from).for_each(|(sum, &value)| *sum = sum.plus(value));
                continue;
            }
            for i in 0..count as isize {
                // SAFETY: promised by the caller.
                unsafe { *to.offset(i * step) = (*to.offset(i * step)).plus(*from.offset(i * value_step)) }
            }
        }
    }
}

/// As [`add_in_order`] for blocks that come sorted: what is added to a line is summed up in the computing type.
///
/// # Safety
/// As [`add_in_order`].
unsafe fn add_rounded_once<T: Element>(
    blocks: Blocks<'_>,
    out: *mut T,
    values: *const T,
    order: &[usize],
    lines: &[Line],
) {
    let (_, step, value_step) = blocks.last();
    let mut sums: Vec<T::Compute> = Vec::new();
    for same in order.chunk_by(|&x, &y| blocks.offsets[x].0 == blocks.offsets[y].0) {
        for &(to, from, count) in lines {
            // SAFETY: promised by the caller.
            let to = unsafe { out.offset(blocks.offsets[same[0]].0 + to) };
            sums.clear();
            // SAFETY: promised by the caller.
            sums.extend((0..count as isize).map(|i| unsafe { *to.offset(i * step) }.widen()));
            for &k in same {
                // SAFETY: promised by the caller.
                let from = unsafe { values.offset(blocks.offsets[k].1 + from) };
                for (i, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: promised by the caller.
                    *sum = *sum + unsafe { *from.offset(i as isize * value_step) }.widen();
                }
            }
            for (i, &sum) in sums.iter().enumerate() {
                // SAFETY: promised by the caller.
                unsafe { *to.offset(i as isize * step) = T::narrow(sum) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// Adds ones to columns 1, 0 and 1 of a tensor of shape [3, 4], `times` each.
    fn columns<T: Element>(times: usize) -> Vec<T> {
        let mut out = vec![T::ZERO; 12];
        let values = [T::ONE; 3];
        let offsets = [[(1, 0), (0, 0), (1, 0)]; 4000].concat();
        let blocks = Blocks { offsets: &offsets[..3 * times], dims: &[3], strides: &[4], values: &[1] };
        // SAFETY: columns of the tensor; three values.
        unsafe { add_blocks::<T>(blocks, out.as_mut_ptr() as usize, values.as_ptr() as usize) };
        out
    }

    #[test]
    fn blocks_of_columns_add_up() {
        let row = [2.0, 4.0, 0.0, 0.0];
        assert_eq!(columns::<f32>(2), [row; 3].concat().iter().map(|&x| x as f32).collect::<Vec<_>>());
        assert_eq!(columns::<i64>(2), [row; 3].concat().iter().map(|&x| x as i64).collect::<Vec<_>>());
    }

    #[test]
    fn halves_are_rounded_once() {
        let row = [4000.0, 8000.0, 0.0, 0.0].map(bf16::from_f32);
        assert_eq!(columns::<bf16>(4000), [row; 3].concat());
    }

    #[test]
    fn parts_of_blocks_are_the_whole() {
        let blocks = Blocks { offsets: &[(0, 0)], dims: &[2, 3, 5], strides: &[100, 10, 1], values: &[0, 5, 1] };
        let elements = |lines: Vec<Line>| -> Vec<(isize, isize)> {
            lines.iter().flat_map(|&(to, from, count)| (0..count as isize).map(move |i| (to + i, from + i))).collect()
        };
        let whole = elements(blocks.lines(0, 30));
        assert_eq!((whole.len(), whole[0], whole[29]), (30, (0, 0), (124, 14)));
        for cut in 0..30 {
            assert_eq!([elements(blocks.lines(0, cut)), elements(blocks.lines(cut, 30))].concat(), whole);
        }
    }
}
