//! Attention of few queries, as a step of generation has it: keys and values are read once, where they lie, by the kernels of products of
//! few rows, for all queries of a group of heads.

use super::tile::softmax;
use super::{Attention, Operands, gather, row_offset};
use crate::native::lanes::{WIDEST, at_level};
use crate::native::matmul::{Matrices, MatrixProduct, read_once};
use crate::native::memory::Memory;
use crate::native::stored::Stored;
use crate::native::{memory, scratch};
use crate::threads::{count, parallel_for};
use openmps_tile::DType;
use std::ops::Range;

/// Queries of a group of heads up to which this beats packing the keys, and how many keys there are for each at least.
const MOST_QUERIES: usize = 24;
const FEWEST_KEYS: usize = 4;

/// Whether [`attention`] takes this call: few queries, and keys and values whose elements are neighbours.
pub(super) fn takes(sizes: &Attention, operands: &Operands) -> bool {
    let lines = operands.keys.strides[3] == 1 && operands.values.strides[3] == 1;
    let queries = sizes.heads / sizes.key_heads * sizes.rows;
    lines && sizes.depth > 0 && queries <= MOST_QUERIES && sizes.keys >= FEWEST_KEYS * queries
}

/// One call.
struct Call<'a> {
    sizes: &'a Attention,
    dtype: DType,
    operands: &'a Operands<'a>,
    /// Queries of a group of heads.
    rows: usize,
    /// The keys that some query sees.
    seen: Range<usize>,
    /// From one query's scores to the next one's.
    pitch: usize,
}

/// # Safety
/// As `super::attention`, for elements of type `T`, which `dtype` names, and a call that [`takes`] has accepted.
pub(super) unsafe fn attention<T: Stored + Send + Sync>(
    sizes: &Attention,
    dtype: DType,
    operands: &Operands,
    narrow: fn(f32) -> T,
) {
    let Attention { batch, heads, key_heads, rows, depth, columns, .. } = *sizes;
    let seen = sizes.seen_by(0..rows);
    let pitch = seen.len().next_multiple_of(WIDEST);
    let call = &Call { sizes, dtype, operands, rows: heads / key_heads * rows, seen, pitch };
    scratch::with(batch * heads * rows * depth, |queries: &mut [f32]| {
        // SAFETY: the caller vouches for the elements; the copy has as many.
        unsafe { gather(&operands.queries, [batch, heads, rows, depth], T::single, queries) };
        let queries = &*queries;
        let some = |begin: usize, end: usize| {
            // The last line is a mask's.
            scratch::with((call.rows + 1) * pitch + call.rows * columns, |memory: &mut [f32]| {
                let (scores, sums) = memory.split_at_mut((call.rows + 1) * pitch);
                for set in begin..end {
                    let queries = &queries[set * call.rows * depth..][..call.rows * depth];
                    // SAFETY: passed on to the caller; these rows of the result are this task's.
                    unsafe { call.group::<T>(set, queries, scores, sums, narrow) };
                }
            });
        };
        let sets = batch * key_heads;
        // Fewer groups of heads than threads are cut inside, by the products.
        if sets < count() {
            some(0, sets);
        } else {
            parallel_for(sets, call.rows * call.seen.len() * (depth + columns) / 25 + 100, some);
        }
    });
}

impl Call<'_> {
    /// # Safety
    /// As [`attention`]: the queries of one group of heads, dense, and room for their scores and sums.
    unsafe fn group<T: Stored>(
        &self,
        set: usize,
        queries: &[f32],
        scores: &mut [f32],
        sums: &mut [f32],
        narrow: fn(f32) -> T,
    ) {
        let Attention { heads, key_heads, rows, depth, columns, .. } = *self.sizes;
        let (batch, key_head) = (set / key_heads, set % key_heads);
        let first = |memory: &Memory| {
            let at = [batch, key_head, self.seen.start].into_iter().zip(memory.strides);
            let offset: isize = at.map(|(i, &stride)| i as isize * stride).sum();
            memory.address.wrapping_add_signed(offset * size_of::<T>() as isize)
        };
        let (keys, values) = (self.operands.keys, self.operands.values);
        let (scores, mask) = scores.split_at_mut(self.rows * self.pitch);
        if !self.seen.is_empty() {
            let product = MatrixProduct {
                right: [1, keys.strides[2]],
                out: [self.pitch as isize, 1],
                ..MatrixProduct::dense(self.rows, depth, self.seen.len())
            };
            let at =
                Matrices { left: queries.as_ptr() as usize, right: first(&keys), out: scores.as_mut_ptr() as usize };
            // SAFETY: the caller vouches for the keys; queries and scores are dense.
            unsafe { read_once(&product, self.dtype, at) };
        }
        let mut factors = [0.0f32; MOST_QUERIES];
        for (query, line) in scores.chunks_exact_mut(self.pitch.max(1)).enumerate() {
            let head = key_head * (heads / key_heads) + query / rows;
            // SAFETY: passed on to the caller.
            factors[query] = unsafe { self.weights::<T>([batch, head, query % rows], line, mask) };
        }
        sums.fill(0.0);
        if !self.seen.is_empty() {
            let product = MatrixProduct {
                left: [self.pitch as isize, 1],
                right: [values.strides[2], 1],
                ..MatrixProduct::dense(self.rows, self.seen.len(), columns)
            };
            let at =
                Matrices { left: scores.as_ptr() as usize, right: first(&values), out: sums.as_mut_ptr() as usize };
            // SAFETY: the caller vouches for the values; scores and sums are dense.
            unsafe { read_once(&product, self.dtype, at) };
        }
        for (query, sums) in sums.chunks_exact(columns).enumerate() {
            let head = key_head * (heads / key_heads) + query / rows;
            let row = (batch * heads + head) * rows + query % rows;
            let dims = [self.sizes.batch, heads, rows, columns];
            let offset = row_offset(&self.operands.out, dims, row) * size_of::<T>() as isize;
            let address = self.operands.out.address.wrapping_add_signed(offset);
            // SAFETY: a row of the result, whose elements are neighbours, and which this task alone writes.
            let to = unsafe { memory::slice_mut::<T>(address, columns) };
            to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = narrow(sum * factors[query]));
        }
    }

    /// Turns a query's scores into weights; 1 over their sum.
    ///
    /// # Safety
    /// As [`attention`]; the lines have room for the scores of every key that is seen.
    unsafe fn weights<T: Stored>(&self, at: [usize; 3], line: &mut [f32], mask: &mut [f32]) -> f32 {
        let own = self.sizes.seen(at[2]);
        let own = own.start - self.seen.start..own.end - self.seen.start;
        let scaling = self.sizes.scaling();
        let mask = self.operands.mask.map(|from| {
            let offset: isize = at.iter().zip(from.strides).map(|(&i, &stride)| i as isize * stride).sum();
            let from = (from.address as *const T, offset + self.seen.start as isize * from.strides[3], from.strides[3]);
            for key in own.clone() {
                // SAFETY: the caller vouches for the mask's elements.
                mask[key] = unsafe { *from.0.wrapping_offset(from.1 + key as isize * from.2) }.single();
            }
            mask.as_ptr()
        });
        // SAFETY: the mask has the elements that are seen, and a line whole registers; the level is the CPU's.
        unsafe {
            at_level!(softmax(line: &mut [f32], own: Range<usize>, scaling: super::Scaling, mask: Option<*const f32>) -> f32)
        }
    }
}
