//! A right matrix whose rows are neighbours (`x weight`): each row, multiplied by a number of the left matrix, is added to sums that stay in
//! the first-level cache.

use super::Work;
use crate::native::lanes::{Lanes, WIDEST, at_level, lanes};
use crate::native::matmul::MatrixProduct;
use crate::native::scratch;
use crate::native::stored::{Stored, widened};
use crate::threads::{self, parallel_for};
use half::{bf16, f16};
use openmps_tile::DType;

/// Rows of the left matrix, and registers of the right one's row, that are multiplied with each other at once; twice as many registers where there
/// are so few rows that sums would wait for each other, or enough registers.
const ROWS: usize = 6;
const REGISTERS: usize = 2;
const WIDE: usize = 2 * REGISTERS;
const FEW_ROWS: usize = 2;
/// Bytes ahead in each row of the right matrix at which lines are asked for, in short rows and in long ones: eight streams that move in step are
/// more than a processor follows (1 x 4096 x 4096: 3.4 ms without, 1.6 with; Zen 5, one thread).
const AHEAD: [usize; 2] = [512, 1024];
const LONG: usize = 4096;
/// Columns of the widest block.
const WIDTH: usize = REGISTERS * WIDEST;
/// Rows of the right matrix that a block goes down: sums are read and written once for so many terms. Rows a power of two apart share a set of the
/// first-level cache, which has eight places.
const TERMS: usize = 8;
/// Rows of the right matrix that wide blocks go down where the left one has more than [`ROWS`]: their lines stay in the second-level cache for the next
/// six. A matrix that is in that cache whole they go down to its end. Nothing is asked for ahead there: it made products of 12 rows by 1024 x 1024
/// take half as long again (Zen 5).
const MANY_TERMS: usize = 256;
/// Sums of all rows that a task keeps in the first-level cache.
const SUMS: usize = 4096;
/// Sums that it keeps where the rows are one block: reading the right matrix is all the work then, and long lines are read fastest.
const SUMS_OF_A_BLOCK: usize = 16_384;
/// Elements of a right matrix that is tiny, that the second-level cache holds, and that the third does.
const TINY: usize = 1 << 16;
const LARGE: usize = 1 << 18;
const HUGE: usize = 1 << 22;
/// Rows up to which this beats packing a right matrix of float32 that is tiny, fits the second-level cache, the third, or none, and at every level one
/// that is packed already. The crate gemm, which multiplies two to five rows otherwise, is faster where the matrix is tiny.
const MOST_SINGLE_ROWS: [usize; 4] = [1, 12, 6, 6];
/// The same with wide blocks: 16 x 512 by 512 x 512 takes 34 us here and 70 packed, by 2048 x 2048 860 and 980, by 4096 x 4096 5.4 ms and 4.9; 64 rows by
/// 2048 x 2048 2.55 ms and 2.86 (Zen 5, one thread).
const MOST_SINGLE_ROWS_OF_WIDE_BLOCKS: [usize; 4] = [6, 64, 64, 6];
/// Rows up to which this beats packing a right matrix of half precision: 12 x 2048 by 2048 x 2048 took 1.2 ms here and 1.4 packed, 16 rows 1.68 and
/// 1.62, 64 rows 8.0 and 5.5 (Zen 4, one thread).
pub(in crate::native::matmul) const MOST_HALF_ROWS: usize = 12;
/// The same with wide blocks, by the size of the matrix: 16 x 512 by 512 x 512 takes 34 us here and 59 packed, 64 x 2048 by 2048 x 2048 2.2 ms and 2.5, 16 x
/// 4096 by 4096 x 4096 5.5 ms and 4.2 (Zen 5, one thread).
const MOST_HALF_ROWS_OF_WIDE_BLOCKS: [usize; 4] = [64, 64, 64, MOST_HALF_ROWS];

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct, right: DType) -> bool {
    let (class, has_wide_blocks) = (size_class(product), lanes() == WIDEST);
    let most = match (right, has_wide_blocks) {
        (DType::F32, true) => MOST_SINGLE_ROWS_OF_WIDE_BLOCKS[class],
        (DType::F32, false) => MOST_SINGLE_ROWS[class],
        (_, true) => MOST_HALF_ROWS_OF_WIDE_BLOCKS[class],
        (_, false) => MOST_HALF_ROWS,
    };
    product.right[1] == 1 && product.depth > 0 && product.rows <= most
}

/// Whether a right matrix of float32, of a product that [`takes`] has accepted, is better read where it lies even by a caller who has it for long and
/// could keep it packed.
pub(super) fn beats_packed(product: &MatrixProduct) -> bool {
    product.rows <= MOST_SINGLE_ROWS[size_class(product)]
}

/// Which of the four sizes the right matrix has.
fn size_class(product: &MatrixProduct) -> usize {
    let elements = product.depth * product.columns;
    [TINY, LARGE, HUGE].into_iter().filter(|&most| elements > most).count()
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
    let (depth, stride) = (work.product.depth, work.product.right[0]);
    let (step, wide_step) = (REGISTERS * V::N, WIDE * V::N);
    let whole = count / step * step;
    let has_wide = V::N == WIDEST || work.product.rows <= FEW_ROWS;
    let ahead = AHEAD[usize::from(count * size_of::<W>() > LONG)];
    let wide = if has_wide { count / wide_step * wide_step } else { 0 };
    let (pass, ahead) = match work.product.rows {
        rows if wide == 0 || rows <= FEW_ROWS => (TERMS, ahead),
        _ if depth * work.product.columns <= LARGE => (depth, 0),
        rows if rows > ROWS => (MANY_TERMS, 0),
        _ => (TERMS, ahead),
    };
    let right = |from: usize| (work.right as *const W).wrapping_offset(from as isize * stride).wrapping_add(first);
    // SAFETY: rows of the right matrix and their columns, and sums of `width >= whole + step` columns.
    unsafe {
        for from in (0..depth).step_by(pass) {
            let lines = Block { right: right(from), stride, terms: pass.min(depth - from), ahead };
            for column in (0..wide).step_by(wide_step) {
                rows::<V, W, WIDE>(work, from, lines.after(column), &mut sums[column..], width);
            }
            for column in (wide..whole).step_by(step) {
                rows::<V, W, REGISTERS>(work, from, lines.after(column), &mut sums[column..], width);
            }
        }
        if whole == count {
            return;
        }
        // What is left of the last block, with zeros after it.
        let mut rest = [[0.0f32; WIDTH]; TERMS];
        for from in (0..depth).step_by(TERMS) {
            let terms = TERMS.min(depth - from);
            for (k, line) in rest.iter_mut().enumerate().take(terms) {
                let to = &mut line[..count - whole];
                widened::<V, W>(right(from + k).add(whole), to.as_mut_ptr(), to.len());
            }
            let lines = Block { right: rest[0].as_ptr(), stride: WIDTH as isize, terms, ahead: 0 };
            rows::<V, f32, REGISTERS>(work, from, lines, &mut sums[whole..], width);
        }
    }
}

/// Some columns of so many rows of the right matrix, `stride` elements apart; lines are asked for `ahead` bytes after them, none where that is 0.
#[derive(Clone, Copy)]
struct Block<W> {
    right: *const W,
    stride: isize,
    terms: usize,
    ahead: usize,
}

impl<W> Block<W> {
    /// The same rows, so many columns later.
    fn after(self, columns: usize) -> Block<W> {
        Block { right: self.right.wrapping_add(columns), ..self }
    }
}

/// All rows of the left matrix times one block of the right one, of C registers.
#[inline(always)]
unsafe fn rows<V: Lanes, W: Stored, const C: usize>(
    work: &Work,
    from: usize,
    right: Block<W>,
    sums: &mut [f32],
    width: usize,
) {
    let [by_row, by_column] = work.product.left;
    let rows = work.product.rows;
    let blocks = rows.div_ceil(ROWS);
    for i in 0..blocks {
        let (row, next) = (i * rows / blocks, (i + 1) * rows / blocks);
        let left = work.left.wrapping_offset(row as isize * by_row + from as isize * by_column);
        let sums = &mut sums[row * width..];
        // SAFETY: passed on to the caller.
        unsafe {
            match next - row {
                1 => block::<V, W, 1, C>(left, work.product.left, right, sums, width),
                2 => block::<V, W, 2, C>(left, work.product.left, right, sums, width),
                3 => block::<V, W, 3, C>(left, work.product.left, right, sums, width),
                4 => block::<V, W, 4, C>(left, work.product.left, right, sums, width),
                5 => block::<V, W, 5, C>(left, work.product.left, right, sums, width),
                _ => block::<V, W, ROWS, C>(left, work.product.left, right, sums, width),
            }
        }
    }
}

/// R rows of the left matrix times one block of the right one, of C registers.
#[inline(always)]
unsafe fn block<V: Lanes, W: Stored, const R: usize, const C: usize>(
    left: *const f32,
    [by_row, by_column]: [isize; 2],
    right: Block<W>,
    sums: &mut [f32],
    width: usize,
) {
    debug_assert!(sums.len() >= (R - 1) * width + C * V::N, "sums of a block");
    let sums = sums.as_mut_ptr();
    let asked_for = if right.ahead == 0 { 0 } else { C * V::N * size_of::<W>() };
    // SAFETY: the caller vouches for the rows of the block, for R rows of the left matrix, and for the sums. To ask for memory that is not there is
    // harmless.
    unsafe {
        let mut block = [[V::splat(0.0); C]; R];
        for i in 0..R {
            for j in 0..C {
                block[i][j] = V::load(sums.add(i * width + j * V::N));
            }
        }
        for k in 0..right.terms as isize {
            let line = right.right.offset(k * right.stride);
            for line_of_bytes in (0..asked_for).step_by(64) {
                V::prefetch(line.cast::<u8>().wrapping_add(right.ahead + line_of_bytes).cast());
            }
            let mut b = [V::splat(0.0); C];
            for j in 0..C {
                b[j] = W::load(line.add(j * V::N));
            }
            for i in 0..R {
                let x = V::splat(*left.offset(i as isize * by_row + k * by_column));
                for j in 0..C {
                    block[i][j] = x.fma(b[j], block[i][j]);
                }
            }
        }
        for i in 0..R {
            for j in 0..C {
                block[i][j].store(sums.add(i * width + j * V::N));
            }
        }
    }
}
