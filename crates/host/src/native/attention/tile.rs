//! One block of query rows against all keys of a head, in float32 registers.

use super::{Attention, Scaling};
use crate::native::lanes::{Lanes, at_level};
use crate::native::microkernel;
use crate::native::panels::pack_right;
use std::ops::Range;

/// Rows of a register block: 6 rows of 2 vectors are 12 sums, which hides the latency of fused multiply-add.
const ROWS: usize = 6;
/// Scores of a block: 256 KiB of the second-level cache.
const SCORES: usize = 1 << 16;

/// Columns of a register block.
pub(super) fn width() -> usize {
    microkernel::kernels().width
}

/// How many query rows a task takes.
pub(super) fn rows_of_block(padded: usize, rows: usize) -> usize {
    let fit = (SCORES / padded / ROWS * ROWS).clamp(ROWS, 8 * ROWS);
    // Equal blocks, so that the last one is not a sliver.
    rows.div_ceil(rows.div_ceil(fit)).next_multiple_of(ROWS)
}

/// Keys, transposed, in groups of `width`: depth rows of `width` keys each, zeros beyond the last key.
///
/// # Safety
/// The elements are readable; `to` has room for every group.
pub(super) unsafe fn pack_keys(
    from: *const f32,
    strides: (isize, isize),
    (depth, keys): (usize, usize),
    width: usize,
    to: &mut [f32],
) {
    for (group, to) in to.chunks_exact_mut((depth * width).max(1)).enumerate() {
        let first = group * width;
        let start = from.wrapping_offset(first as isize * strides.1);
        let size = (depth, width.min(keys.saturating_sub(first)));
        // SAFETY: passed on to the caller.
        unsafe { pack_right(start, strides, size, (width, depth), to) };
    }
}

/// Rows padded with zeros to `padded` columns.
///
/// # Safety
/// The elements are readable; `to` has room for every padded row.
pub(super) unsafe fn pack_rows(
    from: *const f32,
    strides: (isize, isize),
    (rows, columns): (usize, usize),
    padded: usize,
    to: &mut [f32],
) {
    for (row, to) in to.chunks_exact_mut(padded.max(1)).take(rows).enumerate() {
        let start = from.wrapping_offset(row as isize * strides.0);
        for (column, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = if column < columns { unsafe { *start.offset(column as isize * strides.1) } } else { 0.0 };
        }
    }
}

/// One task.
pub(super) struct Tile<'a> {
    pub sizes: &'a Attention,
    /// The first query row, and how many.
    pub first: usize,
    pub rows: usize,
    /// Keys rounded up to whole groups: the pitch of the scores.
    pub padded: usize,
    pub queries: *const f32,
    pub query_stride: isize,
    /// As [`pack_keys`] made them.
    pub keys: *const f32,
    /// Rows of whole vectors.
    pub values: *const f32,
    pub value_stride: isize,
    /// Address of the head's element (0, 0), stride of rows, stride of keys.
    pub mask: Option<(*const f32, isize, isize)>,
    /// Row 0 of the head's result.
    pub out: *mut f32,
    pub out_stride: isize,
}

impl Tile<'_> {
    /// Computes the rows of the result. `scores` has room for the rows and one more.
    ///
    /// # Safety
    /// What the fields say; nobody else writes these rows of the result.
    pub unsafe fn run(&self, scores: &mut [f32]) {
        let tile = self;
        // SAFETY: passed on to the caller; `at_level!` takes the level that the CPU has.
        unsafe { at_level!(run(tile: &Tile, scores: &mut [f32])) }
    }
}

#[inline(always)]
unsafe fn run<V: Lanes>(tile: &Tile, scores: &mut [f32]) {
    let Attention { depth, columns, .. } = *tile.sizes;
    let scaling = tile.sizes.scaling();
    let (width, padded) = (2 * V::N, tile.padded);
    let (scores, mask_row) = scores.split_at_mut(tile.rows * padded);
    let mut inverse = [0.0f32; 8 * ROWS];
    // SAFETY: every address lies in the operands that the caller describes, or in `scores`.
    unsafe {
        for from in (0..tile.rows).step_by(ROWS) {
            let count = ROWS.min(tile.rows - from);
            let first = tile.first + from;
            let seen = tile.sizes.seen_by(first..first + count);
            // Whole groups of keys around what the block sees.
            let (begin, end) = (seen.start / width * width, seen.end.next_multiple_of(width));
            let queries = tile.queries.offset(first as isize * tile.query_stride);
            for key in (begin..end).step_by(width) {
                let keys = tile.keys.add(key * depth);
                let to = scores.as_mut_ptr().add(from * padded + key);
                by_rows::<V>(count, queries, tile.query_stride, (keys, width as isize), depth, (to, padded));
            }
            for row in from..from + count {
                let line = &mut scores[row * padded + begin..row * padded + end];
                let own = tile.sizes.seen(tile.first + row);
                let own = own.start - begin..own.end - begin;
                let mask = tile.mask.map(|(mask, by_row, by_key)| {
                    let start = mask.offset((tile.first + row) as isize * by_row + begin as isize * by_key);
                    for key in own.clone() {
                        mask_row[key] = *start.offset(key as isize * by_key);
                    }
                    mask_row.as_ptr()
                });
                inverse[row] = softmax::<V>(line, own, scaling, mask);
            }
            for column in (0..columns).step_by(width) {
                let values = tile.values.offset(begin as isize * tile.value_stride).add(column);
                let left = scores.as_ptr().add(from * padded + begin);
                let wide = width.min(columns - column);
                let out = tile.out.offset((tile.first + from) as isize * tile.out_stride).add(column);
                let mut sums = [0.0f32; ROWS * 32];
                by_rows::<V>(
                    count,
                    left,
                    padded as isize,
                    (values, tile.value_stride),
                    seen.end.saturating_sub(begin),
                    (sums.as_mut_ptr(), width),
                );
                for row in 0..count {
                    let (sums, out) = (sums.as_ptr().add(row * width), out.offset(row as isize * tile.out_stride));
                    let factor = V::splat(inverse[from + row]);
                    if wide == width {
                        V::load(sums).mul(factor).store(out);
                        V::load(sums.add(V::N)).mul(factor).store(out.add(V::N));
                    } else {
                        (0..wide).for_each(|i| *out.add(i) = *sums.add(i) * inverse[from + row]);
                    }
                }
            }
        }
    }
}

/// [`product`] for a number of rows known when it runs.
#[inline(always)]
unsafe fn by_rows<V: Lanes>(
    rows: usize,
    left: *const f32,
    left_stride: isize,
    right: (*const f32, isize),
    depth: usize,
    out: (*mut f32, usize),
) {
    // SAFETY: passed on to the caller.
    unsafe {
        match rows {
            1 => product::<V, 1>(left, left_stride, right, depth, out),
            2 => product::<V, 2>(left, left_stride, right, depth, out),
            3 => product::<V, 3>(left, left_stride, right, depth, out),
            4 => product::<V, 4>(left, left_stride, right, depth, out),
            5 => product::<V, 5>(left, left_stride, right, depth, out),
            _ => product::<V, ROWS>(left, left_stride, right, depth, out),
        }
    }
}

/// R rows of `left`, whose elements are neighbours, times two vectors of columns.
#[inline(always)]
unsafe fn product<V: Lanes, const R: usize>(
    left: *const f32,
    left_stride: isize,
    (right, right_stride): (*const f32, isize),
    depth: usize,
    (out, out_stride): (*mut f32, usize),
) {
    // SAFETY: the caller vouches for R rows of `depth` elements, `depth` rows of two vectors, and R results of two vectors.
    unsafe {
        let mut sums = [[V::splat(0.0); 2]; R];
        let lines: [*const f32; R] = std::array::from_fn(|i| left.wrapping_offset(i as isize * left_stride));
        let mut row = right;
        for p in 0..depth {
            let (b0, b1) = (V::load(row), V::load(row.add(V::N)));
            for i in 0..R {
                let a = V::splat(*lines[i].add(p));
                sums[i] = [a.fma(b0, sums[i][0]), a.fma(b1, sums[i][1])];
            }
            row = row.wrapping_offset(right_stride);
        }
        for i in 0..R {
            let out = out.add(i * out_stride);
            sums[i][0].store(out);
            sums[i][1].store(out.add(V::N));
        }
    }
}

/// A score as softmax takes it.
#[inline(always)]
unsafe fn scaled<V: Lanes>(x: V, scaling: Scaling, mask: Option<V>) -> V {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let x = x.mul(V::splat(scaling.scale));
        let x = match scaling.soft_cap {
            Some(cap) => capped(x, cap),
            None => x,
        };
        match mask {
            Some(mask) => x.add(mask),
            None => x,
        }
    }
}

/// `cap * tanh(x / cap)`, as `1 - 2 / (e^(2 y) + 1)` away from zero and as the series of tanh near it, where that would cancel.
#[inline(always)]
unsafe fn capped<V: Lanes>(x: V, cap: f32) -> V {
    // SAFETY: the caller vouches for the instructions.
    unsafe {
        let (one, two) = (V::splat(1.0), V::splat(2.0));
        let y = x.mul(V::splat(1.0 / cap));
        let far = one.sub(two.div(y.mul(two).exp().add(one)));
        // |y| below 0.2: the next term is below 1e-8 of y.
        let square = y.mul(y);
        let mut series = V::splat(62.0 / 2835.0);
        for factor in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
            series = series.fma(square, V::splat(factor));
        }
        let (near, far) = (y.mul(series).lanes(), far.lanes());
        let (small, mut result) = (y.lanes(), [0.0f32; crate::native::lanes::WIDEST]);
        for i in 0..V::N {
            result[i] = cap * if small[i].abs() < 0.2 { near[i] } else { far[i] };
        }
        V::load(result.as_ptr())
    }
}

/// Scaled scores of `keys`, less than a register of them.
#[inline(always)]
unsafe fn scale_few<V: Lanes>(
    line: &mut [f32],
    keys: Range<usize>,
    scaling: Scaling,
    mask: Option<*const f32>,
    top: &mut f32,
) {
    let mut some = [0.0f32; crate::native::lanes::WIDEST];
    some[..keys.len()].copy_from_slice(&line[keys.clone()]);
    // SAFETY: the caller vouches for the instructions and for the mask's elements at `keys`; no register is wider than `some`.
    unsafe {
        scaled(V::load(some.as_ptr()), scaling, None).store(some.as_mut_ptr());
        for (i, key) in keys.enumerate() {
            let x = some[i] + mask.map_or(0.0, |mask| *mask.add(key));
            line[key] = x;
            *top = if x > *top || x.is_nan() { x } else { *top };
        }
    }
}

/// Turns scores into `e^(score - largest)` after scale, cap and mask, zeros beyond `seen`, and returns 1 over their sum (0 where nothing is
/// seen).
#[inline(always)]
pub(super) unsafe fn softmax<V: Lanes>(
    line: &mut [f32],
    seen: Range<usize>,
    scaling: Scaling,
    mask: Option<*const f32>,
) -> f32 {
    let begin = seen.start.next_multiple_of(V::N).min(seen.end);
    let end = begin + (seen.end - begin) / V::N * V::N;
    // SAFETY: vectors lie within the line, whose length is a multiple of theirs; the mask has the elements of `seen`.
    unsafe {
        let mut top = f32::NEG_INFINITY;
        scale_few::<V>(line, seen.start..begin, scaling, mask, &mut top);
        let at = line.as_mut_ptr();
        let mut largest = V::splat(f32::NEG_INFINITY);
        for i in (begin..end).step_by(V::N) {
            // A closure would not have the level's instructions.
            #[allow(clippy::manual_map)]
            let of_mask = match mask {
                Some(mask) => Some(V::load(mask.add(i))),
                None => None,
            };
            let x = scaled(V::load(at.add(i)), scaling, of_mask);
            x.store(at.add(i));
            largest = x.max(largest);
        }
        for &x in &largest.lanes()[..V::N] {
            top = if x > top || x.is_nan() { x } else { top };
        }
        scale_few::<V>(line, end..seen.end, scaling, mask, &mut top);
        // What is beyond counts as minus infinity.
        line[..seen.start].fill(f32::NEG_INFINITY);
        line[seen.end..].fill(f32::NEG_INFINITY);
        if top == f32::NEG_INFINITY {
            line.fill(0.0);
            return 0.0;
        }
        let at = line.as_mut_ptr();
        let (top, tiny, zero) = (V::splat(top), V::splat(1.2e-38), V::splat(0.0));
        let mut sum = zero;
        for i in (0..line.len()).step_by(V::N) {
            // `exp` stops at the smallest normal number; less than that is nothing.
            let x = V::load(at.add(i)).sub(top).exp().sub(tiny).max(zero);
            x.store(at.add(i));
            sum = sum.add(x);
        }
        1.0 / sum.lanes()[..V::N].iter().sum::<f32>()
    }
}
