//! A transposed right matrix (`x weight^T`): sums of products along neighbours, nothing packed.

use super::{MOST_ROWS, Work};
use crate::native::lanes::{Lanes, WIDEST, at_level};
use crate::native::matmul::MatrixProduct;
use crate::native::stored::{Stored, widened};
use crate::threads::parallel_for;
use half::{bf16, f16};
use openmps_tile::DType;

/// Shorter sums than this are mostly the adding up of lanes.
const SHORTEST: usize = 48;
/// Rows and columns of a register block: 12 sums, a left vector for each row and one right vector are 16 registers; AVX-512 has 32.
const ROWS: usize = 3;
const MOST_ROWS_AT_ONCE: usize = 6;
const COLUMNS: usize = 4;
/// Columns of a block of one row: as many sums as two multiply-adds a cycle with a latency of four keep under way.
const COLUMNS_OF_A_ROW: usize = 8;
/// Columns of a group and terms of a pass: so much of the right matrix stays in the first-level cache while all rows go by.
const GROUP: usize = 4 * COLUMNS;
const TERMS: usize = 384;
/// Numbers of the left matrix that stay there where all rows are one block, and columns of the right one are read once, in lines as long as possible.
const LEFT: usize = 6144;
/// From so many rows on, elements of half precision are converted once for all of them, not once for each block.
const WORTH_WIDENING: usize = 3 * ROWS;

/// Rows up to which this beats packing a right matrix of float32: 32 x 1024 by 1024 x 1024 took 415 us here and 398 packed, 64 rows 957 and 655; with
/// AVX2 553 and 641, 1261 and 1116 (Zen 5, one thread).
const MOST_SINGLE_ROWS: usize = 40;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct, right: DType) -> bool {
    let neighbours = product.left[1] == 1 && product.right[0] == 1;
    let most = if right == DType::F32 { MOST_SINGLE_ROWS } else { MOST_ROWS };
    neighbours && product.rows <= most && product.depth >= SHORTEST && product.columns >= COLUMNS
}

/// # Safety
/// As `skinny::run`, for a product that [`takes`] has accepted.
pub(super) unsafe fn run(work: &Work) {
    let product = work.product;
    let groups = product.columns.div_ceil(GROUP);
    let ns = GROUP * product.depth * product.rows / 25 + 10;
    parallel_for(groups, ns, |begin, end| {
        // SAFETY: the caller's promise; these columns of the result are this task's.
        unsafe { at_level!(columns(work: &Work, begin: usize, end: usize)) };
    });
}

/// Sums of a group's columns for every row.
type Sums = [[f32; GROUP]; MOST_ROWS];

#[inline(always)]
unsafe fn columns<V: Lanes>(work: &Work, begin: usize, end: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match work.dtype {
            DType::F16 => columns_of::<V, f16>(work, begin, end),
            DType::BF16 => columns_of::<V, bf16>(work, begin, end),
            _ => columns_of::<V, f32>(work, begin, end),
        }
    }
}

#[inline(always)]
unsafe fn columns_of<V: Lanes, W: Stored>(work: &Work, begin: usize, end: usize) {
    let product = work.product;
    let widen = size_of::<W>() < 4 && product.rows >= WORTH_WIDENING;
    let pass = if product.rows <= rows_at_once::<V>() { LEFT / product.rows } else { TERMS };
    let mut wide = [[0.0f32; TERMS]; GROUP];
    let mut sums = [[0.0; GROUP]; MOST_ROWS];
    for group in begin..end {
        let first = group * GROUP;
        let count = GROUP.min(product.columns - first);
        sums[..product.rows].fill([0.0; GROUP]);
        for from in (0..product.depth).step_by(pass) {
            let terms = (from, pass.min(product.depth - from));
            // Columns beyond the last repeat it; their sums are dropped.
            let lines: [*const W; GROUP] = std::array::from_fn(|j| {
                let column = (first + j.min(count - 1)) as isize;
                (work.right as *const W).wrapping_offset(column * product.right[1]).wrapping_add(from)
            });
            // SAFETY: columns and terms inside of the matrices, which the caller vouches for.
            unsafe {
                if widen {
                    for (line, wide) in lines.iter().zip(&mut wide).take(count) {
                        let to = &mut wide[..terms.1];
                        widened::<V, W>(*line, to.as_mut_ptr(), to.len());
                    }
                    let lines = std::array::from_fn(|j| wide[j.min(count - 1)].as_ptr());
                    add::<V, f32>(work, &lines, count, terms, &mut sums);
                } else {
                    add::<V, W>(work, &lines, count, terms, &mut sums);
                }
            }
        }
        // SAFETY: these columns of the result are this task's.
        unsafe { work.finish((first, count), sums.as_flattened(), GROUP) };
    }
}

/// Adds `terms` terms from `from` on to the sums of `count` columns, whose elements from there on are at `lines`.
#[inline(always)]
unsafe fn add<V: Lanes, W: Stored>(
    work: &Work,
    lines: &[*const W; GROUP],
    count: usize,
    (from, terms): (usize, usize),
    sums: &mut Sums,
) {
    let product = work.product;
    let most = rows_at_once::<V>();
    for row in (0..product.rows).step_by(most) {
        let left = work.left.wrapping_offset(row as isize * product.left[0]).wrapping_add(from);
        let left = (left, product.left[0]);
        let sums = &mut sums[row..];
        // SAFETY: rows of the left matrix and columns of the right one, which the caller vouches for.
        unsafe {
            match (product.rows - row).min(most) {
                1 => blocks::<V, W, 1, COLUMNS_OF_A_ROW>(left, lines, count, terms, sums),
                2 => blocks::<V, W, 2, COLUMNS>(left, lines, count, terms, sums),
                ROWS => blocks::<V, W, ROWS, COLUMNS>(left, lines, count, terms, sums),
                4 => blocks::<V, W, 4, COLUMNS>(left, lines, count, terms, sums),
                5 => blocks::<V, W, 5, COLUMNS>(left, lines, count, terms, sums),
                _ => blocks::<V, W, MOST_ROWS_AT_ONCE, COLUMNS>(left, lines, count, terms, sums),
            }
        }
    }
}

/// Rows of a register block at this level.
const fn rows_at_once<V: Lanes>() -> usize {
    if V::N == WIDEST { MOST_ROWS_AT_ONCE } else { ROWS }
}

/// R rows times all columns, C at a time.
#[inline(always)]
unsafe fn blocks<V: Lanes, W: Stored, const R: usize, const C: usize>(
    left: (*const f32, isize),
    lines: &[*const W; GROUP],
    count: usize,
    terms: usize,
    sums: &mut [[f32; GROUP]],
) {
    for column in (0..count).step_by(C) {
        let lines = std::array::from_fn(|j| lines[column + j]);
        // SAFETY: passed on to the caller.
        let block = unsafe { block::<V, W, R, C>(left, &lines, terms) };
        for (sums, block) in sums.iter_mut().zip(block) {
            sums[column..].iter_mut().zip(block).for_each(|(sum, more)| *sum += more);
        }
    }
}

/// R rows, so many elements apart, times C columns.
#[inline(always)]
unsafe fn block<V: Lanes, W: Stored, const R: usize, const C: usize>(
    (left, stride): (*const f32, isize),
    columns: &[*const W; C],
    depth: usize,
) -> [[f32; C]; R] {
    const { assert!(C.is_multiple_of(COLUMNS), "sums are added up by fours") };
    let whole = depth / V::N * V::N;
    let rows: [*const f32; R] = std::array::from_fn(|i| left.wrapping_offset(i as isize * stride));
    let mut result = [[0.0; C]; R];
    // SAFETY: every line has `depth` elements.
    unsafe {
        let mut sums = [[V::splat(0.0); C]; R];
        for p in (0..whole).step_by(V::N) {
            // Written out: a closure would not have the instructions of the function that it stands in.
            let mut x = [V::splat(0.0); R];
            for i in 0..R {
                x[i] = V::load(rows[i].add(p));
            }
            for j in 0..C {
                let y: V = W::load(columns[j].add(p));
                for i in 0..R {
                    sums[i][j] = x[i].fma(y, sums[i][j]);
                }
            }
        }
        for i in 0..R {
            for j in (0..C).step_by(COLUMNS) {
                let four = V::sums([sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]]);
                result[i][j..j + COLUMNS].copy_from_slice(&four);
            }
            for p in whole..depth {
                for j in 0..C {
                    result[i][j] += *rows[i].add(p) * (*columns[j].add(p)).single();
                }
            }
        }
    }
    result
}
