//! Attention in float64: plain loops, for gradient checks and the few who need it.

use super::{Attention, Operands};
use crate::native::memory::Memory;
use crate::native::scratch;
use crate::threads::parallel_for;

/// # Safety
/// As [`super::attention`], for float64.
pub(super) unsafe fn attention(sizes: &Attention, operands: &Operands) {
    let Attention { batch, heads, rows, keys, depth, columns, .. } = *sizes;
    parallel_for(batch * heads * rows, keys * (depth + columns), |begin, end| {
        scratch::with(keys + columns, |memory: &mut [f64]| {
            let (scores, sums) = memory.split_at_mut(keys);
            for row in begin..end {
                // SAFETY: the caller's promise; row `row` of the result is this task's.
                unsafe { one(sizes, operands, row, scores, sums) };
            }
        });
    });
}

/// # Safety
/// As [`attention`], for one row of the result.
unsafe fn one(sizes: &Attention, operands: &Operands, row: usize, scores: &mut [f64], sums: &mut [f64]) {
    let Attention { heads, key_heads, rows, depth, scale, .. } = *sizes;
    let (batch, head, i) = (row / rows / heads, row / rows % heads, row % rows);
    let key_head = head / (heads / key_heads);
    // SAFETY: the indices lie within the shapes, whose elements the caller vouches for.
    let at = |memory: &Memory, index: [usize; 4]| unsafe {
        let offset: isize = index.iter().zip(memory.strides).map(|(&i, &stride)| i as isize * stride).sum();
        *(memory.address as *const f64).offset(offset)
    };
    let seen = sizes.seen(i);
    let scores = &mut scores[seen.clone()];
    let mut largest = f64::NEG_INFINITY;
    for (j, score) in seen.clone().zip(scores.iter_mut()) {
        let terms = (0..depth)
            .map(|p| at(&operands.queries, [batch, head, i, p]) * at(&operands.keys, [batch, key_head, j, p]));
        let scaled = terms.sum::<f64>() * scale;
        let capped = sizes.soft_cap.map_or(scaled, |cap| cap * (scaled / cap).tanh());
        *score = capped + operands.mask.map_or(0.0, |mask| at(&mask, [batch, head, i, j]));
        largest = if *score > largest || score.is_nan() { *score } else { largest };
    }
    sums.fill(0.0);
    let mut total = 0.0;
    if largest > f64::NEG_INFINITY || largest.is_nan() {
        for (j, score) in seen.zip(scores.iter()) {
            let weight = (score - largest).exp();
            total += weight;
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum += weight * at(&operands.values, [batch, key_head, j, c]);
            }
        }
    }
    let inverse = if total == 0.0 { 0.0 } else { 1.0 / total };
    let place: isize = [batch, head, i].iter().zip(operands.out.strides).map(|(&i, &stride)| i as isize * stride).sum();
    let out = (operands.out.address as *mut f64).wrapping_offset(place);
    for (c, sum) in sums.iter().enumerate() {
        // SAFETY: as above.
        unsafe { *out.add(c) = sum * inverse };
    }
}
