//! The tile itself: sums of products in registers, and what follows them.

use super::block::{Block, Channels, LeftAt, Place, RowsAt};
#[cfg(target_arch = "x86_64")]
use super::pairs;
use crate::native::epilogue::{Epilogue, Single};
use crate::native::lanes::{Arithmetic, Lanes};

/// Rows of a tile of vectors at most, at any level.
pub const MOST_ROWS: usize = 8;
/// Columns of a tile at most, at any level.
pub const MOST_COLUMNS: usize = 32;

/// Terms that are multiplied between two looks at the end.
const AT_ONCE: usize = 2;
/// Numbers of a line of the caches.
const LINE: usize = 16;

/// What one instruction adds to sums.
pub trait Multiply<V: Lanes> {
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn add(left: V, right: V, sums: V) -> V;
}

/// [`Terms::Singles`].
pub struct Singles;

impl<V: Lanes> Multiply<V> for Singles {
    #[inline(always)]
    unsafe fn add(left: V, right: V, sums: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { left.fma(right, sums) }
    }
}

/// [`Terms::BfloatPairs`].
#[cfg(target_arch = "x86_64")]
pub struct BfloatPairs;

#[cfg(target_arch = "x86_64")]
impl Multiply<crate::native::lanes::Avx512> for BfloatPairs {
    #[inline(always)]
    unsafe fn add(
        left: crate::native::lanes::Avx512,
        right: crate::native::lanes::Avx512,
        sums: crate::native::lanes::Avx512,
    ) -> crate::native::lanes::Avx512 {
        // SAFETY: the caller's promise.
        unsafe { left.add_bfloat_products(right, sums) }
    }
}

/// A tile that is not yet in the result.
#[repr(align(64))]
pub struct Spare(pub [f32; MOST_ROWS * MOST_COLUMNS]);

/// Adds one term's products to the sums.
///
/// # Safety
/// The CPU has the instructions; R numbers of the left matrix, `by_row` apart, and W vectors of the right one are readable.
#[inline(always)]
unsafe fn add_term<V: Lanes, M: Multiply<V>, const R: usize, const W: usize>(
    sums: &mut [[V; W]; R],
    left: *const f32,
    by_row: usize,
    right: *const f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut b = [V::splat(0.0); W];
        for j in 0..W {
            b[j] = V::load(right.add(j * V::N));
        }
        for i in 0..R {
            let a = V::splat(*left.add(i * by_row));
            for j in 0..W {
                sums[i][j] = M::add(a, b[j], sums[i][j]);
            }
        }
    }
}

/// The sums of so many terms, at least one.
///
/// # Safety
/// The CPU has the instructions; so many terms are readable.
#[inline(always)]
unsafe fn sum_part<V: Lanes, M: Multiply<V>, const H: usize, const R: usize, const W: usize, const TABLED: bool>(
    place: &mut Place,
    count: usize,
) -> [[V; W]; R] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[V::splat(0.0); W]; R];
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if pairs::suits(V::N, H, W) && !TABLED {
            pairs::add(&mut sums, place, count / 2);
            done = count / 2 * 2;
        }
        while done < count {
            // The last one of an odd number of terms is added alone.
            let terms = if done + AT_ONCE <= count { AT_ONCE } else { 1 };
            let Place { left, by_row, by_term, right, stride, table, .. } = *place;
            let row = |u: usize| if TABLED { right.add(*table.add(u)) } else { right.wrapping_add(u * stride) };
            if terms == AT_ONCE {
                for u in 0..AT_ONCE {
                    add_term::<V, M, R, W>(&mut sums, left.add(u * by_term), by_row, row(u));
                }
            } else {
                add_term::<V, M, R, W>(&mut sums, left, by_row, row(0));
            }
            let next = place.ahead.wrapping_add(place.ahead_step);
            V::prefetch_to_second(place.ahead);
            if 2 * place.ahead_step > LINE {
                V::prefetch_to_second(next);
            }
            // A tile of few rows: there are two lines for each term.
            if place.ahead_step > LINE {
                V::prefetch_to_second(place.ahead.wrapping_add(LINE));
                V::prefetch_to_second(next.wrapping_add(LINE));
            }
            place.ahead = place.ahead.wrapping_add(terms * place.ahead_step);
            place.left = left.add(terms * by_term);
            if TABLED {
                place.table = table.add(terms);
            } else {
                place.right = right.wrapping_add(terms * stride);
            }
            done += terms;
        }
        sums
    }
}

/// R rows by W vectors; H is the height of a panel, 0 where it is read by its rows.
#[inline(always)]
pub unsafe fn block<V: Lanes, M: Multiply<V>, const H: usize, const R: usize, const W: usize, const TABLED: bool>(
    call: &Block,
) {
    let quick = call.epilogue.and_then(Epilogue::quick);
    let (stride, table) = match call.rows_at {
        RowsAt::Stride(stride) => (stride, std::ptr::null()),
        RowsAt::Table(table) => (0, table),
    };
    let (by_row, by_term) = match call.left_at {
        LeftAt::Rows(stride) if H == 0 => (stride, 1),
        _ => (1, H),
    };
    let (mut ahead, ahead_step) = call.ahead;
    // SAFETY: the caller vouches for all lanes of `depth` rows and for R x W vectors of the result, for each tile.
    unsafe {
        for tile in 0..call.tiles.count {
            let column = tile * W * V::N;
            let out = call.out.add(column);
            for i in 0..R {
                for j in 0..W {
                    V::prefetch(out.wrapping_add(i * call.out_stride + j * V::N));
                }
            }
            let right = call.right.wrapping_add(tile * call.tiles.step);
            let mut place = Place { left: call.left, by_row, by_term, right, stride, table, ahead, ahead_step };
            // What would be left over, and is short, is no part of its own.
            let part = |left_over: usize| if left_over <= call.part + call.part / 2 { left_over } else { call.part };
            let mut left_over = call.depth - part(call.depth);
            let mut sums = sum_part::<V, M, H, R, W, TABLED>(&mut place, part(call.depth));
            while left_over > 0 {
                let more = sum_part::<V, M, H, R, W, TABLED>(&mut place, part(left_over));
                left_over -= part(left_over);
                for i in 0..R {
                    for j in 0..W {
                        sums[i][j] = sums[i][j].add(more[i][j]);
                    }
                }
            }
            ahead = place.ahead;
            if call.accumulate {
                for i in 0..R {
                    for j in 0..W {
                        sums[i][j] = sums[i][j].add(V::load(out.add(i * call.out_stride + j * V::N)));
                    }
                }
            }
            if let Some(quick) = &quick {
                if let Some(bias) = quick.bias {
                    for i in 0..R {
                        for j in 0..W {
                            let bias = match call.channels {
                                Channels::Rows(first) => V::splat(bias[first + i]),
                                Channels::Columns(first) => V::load(bias.as_ptr().add(first + column + j * V::N)),
                            };
                            sums[i][j] = sums[i][j].add(bias);
                        }
                    }
                }
                sums = quick.apply(sums, call.index + column, call.out_stride);
            }
            for i in 0..R {
                for j in 0..W {
                    sums[i][j].store(out.add(i * call.out_stride + j * V::N));
                }
            }
        }
    }
}

/// Applies an epilogue to rows and columns of the result.
#[inline(always)]
pub unsafe fn finish<V: Lanes>(call: &Block, epilogue: &Epilogue, [rows, columns]: [usize; 2]) {
    for i in 0..rows {
        let whole = columns / V::N * V::N;
        // SAFETY: the caller vouches for the block's elements and for the epilogue's.
        unsafe {
            for j in (0..whole).step_by(V::N) {
                finish_one::<V>(call, epilogue, i, j);
            }
            for j in whole..columns {
                finish_one::<Single>(call, epilogue, i, j);
            }
        }
    }
}

#[inline(always)]
unsafe fn finish_one<V: Arithmetic>(call: &Block, epilogue: &Epilogue, i: usize, j: usize) {
    let at = i * call.out_stride + j;
    // SAFETY: the caller vouches for the block's elements and for the epilogue's.
    unsafe {
        let out = call.out.add(at);
        let value = V::load(out);
        let value = match call.channels {
            Channels::Rows(first) => epilogue.apply(value, first + i, call.index + at),
            Channels::Columns(first) => epilogue.apply_along(value, first + j, call.index + at),
        };
        value.store(out);
    }
}

/// Stores, or adds, the first rows and columns of a spare tile, whose rows are [`MOST_COLUMNS`] apart, to the result.
#[inline(always)]
pub unsafe fn add_part<V: Lanes>(call: &Block, spare: *const f32, [rows, columns]: [usize; 2]) {
    let whole = columns / V::N * V::N;
    for i in 0..rows {
        // SAFETY: the caller vouches for `columns` elements in each of the rows, and no tile is larger than a spare one.
        unsafe {
            let (from, out) = (spare.add(i * MOST_COLUMNS), call.out.add(i * call.out_stride));
            for j in (0..whole).step_by(V::N) {
                let sum = V::load(from.add(j));
                let sum = if call.accumulate { sum.add(V::load(out.add(j))) } else { sum };
                sum.store(out.add(j));
            }
            for j in whole..columns {
                let sum = *from.add(j);
                *out.add(j) = if call.accumulate { sum + *out.add(j) } else { sum };
            }
        }
    }
}
