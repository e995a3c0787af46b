//! A right matrix whose rows are neighbours (`x weight`): each row, multiplied by a number of the left matrix, is added to sums that stay in
//! the first-level cache.

use super::Work;
use crate::native::lanes::{Lanes, WIDEST, at_level};
use crate::native::matmul::MatrixProduct;
use crate::native::scratch;
use crate::native::stored::{Stored, widened};
use crate::threads::{self, parallel_for};
use half::{bf16, f16};
use openmps_tile::DType;

/// Rows of the left matrix, and registers of the right one's row, that are multiplied with each other at once.
const ROWS: usize = 6;
const REGISTERS: usize = 2;
/// Columns of the widest block.
const WIDTH: usize = REGISTERS * WIDEST;
/// Rows of the right matrix that a block goes down: sums are read and written once for so many terms. Rows that are a multiple of [`SETS`] apart
/// share a set of the first-level cache, which has eight places; of shorter ones more fit.
const TERMS: usize = 8;
const MOST_TERMS: usize = 4 * TERMS;
/// Bytes after which the sets of the first-level cache begin anew.
const SETS: usize = 4096;
/// Sums of all rows that a task keeps in the first-level cache.
const SUMS: usize = 4096;
/// Sums that it keeps where the rows are one block: reading the right matrix is all the work then, and long lines are read fastest.
const SUMS_OF_A_BLOCK: usize = 16_384;
/// Rows up to which this beats packing a right matrix of float32, and those from which only large ones are not as well packed.
const MOST_SINGLE_ROWS: usize = 5;
const LARGE: usize = 1 << 18;
/// Rows up to which this beats packing a right matrix of half precision: 12 x 2048 by 2048 x 2048 took 1.2 ms here and 1.4 packed, 16 rows 1.68 and
/// 1.62, 64 rows 8.0 and 5.5 (Zen 4, one thread).
pub(in crate::native::matmul) const MOST_HALF_ROWS: usize = 12;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct, right: DType) -> bool {
    let most = match right {
        DType::F32 => MOST_SINGLE_ROWS - usize::from(product.depth * product.columns <= LARGE),
        _ => MOST_HALF_ROWS,
    };
    product.right[1] == 1 && product.depth > 0 && product.rows <= most
}

/// # Safety
/// As `skinny::run`, for a product that [`takes`] has accepted.
pub(super) unsafe fn run(work: &Work) {
    let product = work.product;
    let (sums, pieces) = if product.rows <= ROWS { (SUMS_OF_A_BLOCK, 1) } else { (SUMS, 4) };
    let fair = product.columns.div_ceil(pieces * threads::count()).next_multiple_of(WIDTH);
    let width = (sums / product.rows / WIDTH * WIDTH).min(fair.max(2 * WIDTH)).max(WIDTH);
    let ns = width * product.depth * product.rows.next_multiple_of(ROWS) / 25 + 10;
    parallel_for(product.columns.div_ceil(width), ns, |begin, end| {
        scratch::with(width * product.rows, |sums| {
            for stripe in begin..end {
                let first = stripe * width;
                let columns = (first, width.min(product.columns - first));
                sums.fill(0.0);
                let to = &mut *sums;
                // SAFETY: the caller's promise; these columns of the result are this task's.
                unsafe {
                    at_level!(add(work: &Work, columns: (usize, usize), to: &mut [f32], width: usize));
                    work.finish(columns, sums, width);
                }
            }
        });
    });
}

#[inline(always)]
unsafe fn add<V: Lanes>(work: &Work, columns: (usize, usize), sums: &mut [f32], width: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match work.dtype {
            DType::F16 => add_of::<V, f16>(work, columns, sums, width),
            DType::BF16 => add_of::<V, bf16>(work, columns, sums, width),
            _ => add_of::<V, f32>(work, columns, sums, width),
        }
    }
}

/// Adds all terms to the sums of some columns, `width` for each row.
#[inline(always)]
unsafe fn add_of<V: Lanes, W: Stored>(work: &Work, (first, count): (usize, usize), sums: &mut [f32], width: usize) {
    let product = work.product;
    let step = REGISTERS * V::N;
    let whole = count / step * step;
    // What is left of the last block, with zeros after it.
    let mut rest = [[0.0f32; WIDTH]; MOST_TERMS];
    let apart = (product.right[0].unsigned_abs() * size_of::<W>()).max(1);
    let most = (TERMS * SETS / apart).clamp(TERMS, MOST_TERMS);
    for from in (0..product.depth).step_by(most) {
        let terms = most.min(product.depth - from);
        let right = (work.right as *const W).wrapping_offset(from as isize * product.right[0]).wrapping_add(first);
        // SAFETY: rows `from..from + terms` of the right matrix and their columns exist, and sums of `width >= whole + step` columns do.
        unsafe {
            for column in (0..whole).step_by(step) {
                let lines = (right.add(column), product.right[0]);
                rows::<V, W>(work, from, terms, lines, &mut sums[column..], width);
            }
            if whole < count {
                for (k, line) in rest.iter_mut().enumerate().take(terms) {
                    let from = right.wrapping_offset(k as isize * product.right[0]).add(whole);
                    let to = &mut line[..count - whole];
                    widened::<V, W>(from, to.as_mut_ptr(), to.len());
                }
                rows::<V, f32>(work, from, terms, (rest[0].as_ptr(), WIDTH as isize), &mut sums[whole..], width);
            }
        }
    }
}

/// All rows of the left matrix times one block of the right one.
#[inline(always)]
unsafe fn rows<V: Lanes, W: Stored>(
    work: &Work,
    from: usize,
    terms: usize,
    right: (*const W, isize),
    sums: &mut [f32],
    width: usize,
) {
    let [by_row, by_column] = work.product.left;
    for row in (0..work.product.rows).step_by(ROWS) {
        let left = work.left.wrapping_offset(row as isize * by_row + from as isize * by_column);
        let sums = &mut sums[row * width..];
        // SAFETY: passed on to the caller.
        unsafe {
            match work.product.rows - row {
                1 => block::<V, W, 1>(left, work.product.left, right, terms, sums, width),
                2 => block::<V, W, 2>(left, work.product.left, right, terms, sums, width),
                3 => block::<V, W, 3>(left, work.product.left, right, terms, sums, width),
                4 => block::<V, W, 4>(left, work.product.left, right, terms, sums, width),
                5 => block::<V, W, 5>(left, work.product.left, right, terms, sums, width),
                _ => block::<V, W, ROWS>(left, work.product.left, right, terms, sums, width),
            }
        }
    }
}

/// R rows of the left matrix times one block of the right one.
#[inline(always)]
unsafe fn block<V: Lanes, W: Stored, const R: usize>(
    left: *const f32,
    [by_row, by_column]: [isize; 2],
    (right, stride): (*const W, isize),
    terms: usize,
    sums: &mut [f32],
    width: usize,
) {
    debug_assert!(sums.len() >= (R - 1) * width + REGISTERS * V::N, "sums of a block");
    let sums = sums.as_mut_ptr();
    // SAFETY: the caller vouches for `terms` rows of the block, for R rows of the left matrix, and for the sums.
    unsafe {
        let mut block = [[V::splat(0.0); REGISTERS]; R];
        for i in 0..R {
            for j in 0..REGISTERS {
                block[i][j] = V::load(sums.add(i * width + j * V::N));
            }
        }
        for k in 0..terms as isize {
            let line = right.offset(k * stride);
            let (a, b): (V, V) = (W::load(line), W::load(line.add(V::N)));
            for i in 0..R {
                let x = V::splat(*left.offset(i as isize * by_row + k * by_column));
                block[i][0] = x.fma(a, block[i][0]);
                block[i][1] = x.fma(b, block[i][1]);
            }
        }
        for i in 0..R {
            for j in 0..REGISTERS {
                block[i][j].store(sums.add(i * width + j * V::N));
            }
        }
    }
}
