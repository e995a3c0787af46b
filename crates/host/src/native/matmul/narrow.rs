//! Products of few rows with a transposed right matrix (`x weight^T`): sums of products along neighbours, nothing packed. The right matrix is
//! read once, which is what such a product costs.

use super::{Matrices, MatrixProduct, then};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::threads::parallel_for;

/// Up to here reading both matrices in place beats packing the right one.
const MOST_ROWS: usize = 64;
/// Shorter sums than this are mostly the adding up of lanes.
const SHORTEST: usize = 48;
/// Rows and columns of a register block: 12 sums, a left vector for each row and one right vector are 16 registers.
const ROWS: usize = 3;
const COLUMNS: usize = 4;
/// Columns of a group and terms of a pass: so much of the right matrix stays in the first-level cache while all rows go by.
const GROUP: usize = 4 * COLUMNS;
const TERMS: usize = 384;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    let neighbours = product.left[1] == 1 && product.right[0] == 1;
    neighbours && product.rows <= MOST_ROWS && product.depth >= SHORTEST && product.columns >= COLUMNS
}

/// Computes one batch; offsets are in elements.
///
/// # Safety
/// As `matmul` or, with an epilogue, `linear`, for one batch of float32 that [`takes`] has accepted.
pub(super) unsafe fn run(
    product: &MatrixProduct,
    at: Matrices,
    [left, right, out]: [isize; 3],
    epilogue: Option<&Epilogue>,
) {
    let work = Work {
        product,
        epilogue,
        first: out as usize,
        left: (at.left as *const f32).wrapping_offset(left),
        right: (at.right as *const f32).wrapping_offset(right),
        out: (at.out as *mut f32).wrapping_offset(out),
    };
    let work = &work;
    let groups = product.columns.div_ceil(GROUP);
    let ns = GROUP * product.depth * product.rows / 25 + 10;
    parallel_for(groups, ns, |begin, end| {
        // SAFETY: the caller's promise; these columns of the result are this task's.
        unsafe { at_level!(columns(work: &Work, begin: usize, end: usize)) };
    });
}

struct Work<'a> {
    product: &'a MatrixProduct,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The index of the result's first element in the whole output.
    first: usize,
    left: *const f32,
    right: *const f32,
    out: *mut f32,
}

// SAFETY: tasks read the matrices and write columns of the result that are theirs alone.
unsafe impl Sync for Work<'_> {}

/// Sums of a group's columns for every row.
type Sums = [[f32; GROUP]; MOST_ROWS];

#[inline(always)]
unsafe fn columns<V: Lanes>(work: &Work, begin: usize, end: usize) {
    let product = work.product;
    for group in begin..end {
        let first = group * GROUP;
        let count = GROUP.min(product.columns - first);
        let mut sums = [[0.0; GROUP]; MOST_ROWS];
        for from in (0..product.depth).step_by(TERMS) {
            let terms = TERMS.min(product.depth - from);
            // SAFETY: columns and terms inside of the matrices, which the caller vouches for.
            unsafe { add::<V>(work, (first, count), (from, terms), &mut sums) };
        }
        for (i, sums) in sums.iter().enumerate().take(product.rows) {
            for (j, sum) in sums.iter().enumerate().take(count) {
                let offset = i as isize * product.out[0] + (first + j) as isize * product.out[1];
                let value = product.alpha as f32 * sum;
                // SAFETY: an element of the result, written by this task alone.
                unsafe {
                    let to = work.out.wrapping_offset(offset);
                    *to = if product.beta == 0.0 { value } else { value + product.beta as f32 * *to };
                }
            }
        }
        if let Some(epilogue) = work.epilogue {
            let (out, stride) = (work.out.wrapping_add(first), product.out[0] as usize);
            let index = work.first + first;
            let part = then::Part { out, stride, rows: product.rows, columns: (first, count), index };
            // SAFETY: this task's columns of a dense result.
            unsafe { then::part(epilogue, part) };
        }
    }
}

/// Adds `terms` terms from `from` on to the sums of `count` columns from `first` on.
#[inline(always)]
unsafe fn add<V: Lanes>(work: &Work, (first, count): (usize, usize), (from, terms): (usize, usize), sums: &mut Sums) {
    let product = work.product;
    for row in (0..product.rows).step_by(ROWS) {
        let left = work.left.wrapping_offset(row as isize * product.left[0]).wrapping_add(from);
        for column in (0..count).step_by(COLUMNS) {
            // Columns beyond the last repeat it; their sums are dropped.
            let lines: [*const f32; COLUMNS] = std::array::from_fn(|j| {
                let column = (first + (column + j).min(count - 1)) as isize;
                work.right.wrapping_offset(column * product.right[1]).wrapping_add(from)
            });
            // SAFETY: rows of the left matrix and columns of the right one, which the caller vouches for.
            let block = unsafe {
                match product.rows - row {
                    1 => block::<V, 1>(left, product.left[0], &lines, terms),
                    2 => block::<V, 2>(left, product.left[0], &lines, terms),
                    _ => block::<V, ROWS>(left, product.left[0], &lines, terms),
                }
            };
            for (sums, block) in sums[row..].iter_mut().zip(block) {
                sums[column..].iter_mut().zip(block).for_each(|(sum, more)| *sum += more);
            }
        }
    }
}

/// R rows times four columns; the other rows of the result are zero.
#[inline(always)]
unsafe fn block<V: Lanes, const R: usize>(
    left: *const f32,
    stride: isize,
    columns: &[*const f32; COLUMNS],
    depth: usize,
) -> [[f32; COLUMNS]; ROWS] {
    let whole = depth / V::N * V::N;
    let rows: [*const f32; R] = std::array::from_fn(|i| left.wrapping_offset(i as isize * stride));
    let mut result = [[0.0; COLUMNS]; ROWS];
    // SAFETY: every line has `depth` elements.
    unsafe {
        let mut sums = [[V::splat(0.0); COLUMNS]; R];
        for p in (0..whole).step_by(V::N) {
            // Written out: a closure would not have the instructions of the function that it stands in.
            let mut x = [V::splat(0.0); R];
            for i in 0..R {
                x[i] = V::load(rows[i].add(p));
            }
            for j in 0..COLUMNS {
                let y = V::load(columns[j].add(p));
                for i in 0..R {
                    sums[i][j] = x[i].fma(y, sums[i][j]);
                }
            }
        }
        for i in 0..R {
            result[i] = V::sums(sums[i]);
            for p in whole..depth {
                for j in 0..COLUMNS {
                    result[i][j] += *rows[i].add(p) * *columns[j].add(p);
                }
            }
        }
    }
    result
}
