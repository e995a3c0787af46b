//! Products of few rows with a transposed right matrix (`x weight^T`): sums of products along neighbours, nothing packed. The right matrix is
//! read once, which is what such a product costs.

use super::{Matrices, MatrixProduct};
use crate::library::lanes::{Lanes, at_level};
use crate::threads::parallel_for;

/// Up to here reading both matrices in place beats packing the right one.
const MOST_ROWS: usize = 32;
/// Shorter sums than this are mostly the adding up of lanes.
const SHORTEST: usize = 48;
/// Columns and rows of a register block: 12 sums, 7 loads for 12 multiplications.
const COLUMNS: usize = 4;
const ROWS: usize = 3;

/// Whether [`run`] takes this product.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    let neighbours = product.left[1] == 1 && product.right[0] == 1;
    neighbours && product.rows <= MOST_ROWS && product.depth >= SHORTEST && product.columns >= COLUMNS
}

/// Computes one batch; offsets are in elements.
///
/// # Safety
/// As `matmul`, for one batch of float32 that [`takes`] has accepted.
pub(super) unsafe fn run(product: &MatrixProduct, at: Matrices, [left, right, out]: [isize; 3]) {
    let work = Work {
        product,
        left: (at.left as *const f32).wrapping_offset(left),
        right: (at.right as *const f32).wrapping_offset(right),
        out: (at.out as *mut f32).wrapping_offset(out),
    };
    let work = &work;
    let groups = product.columns.div_ceil(COLUMNS);
    let ns = COLUMNS * product.depth * product.rows / 25 + 10;
    parallel_for(groups, ns, |begin, end| {
        // SAFETY: the caller's promise; these columns of the result are this task's.
        unsafe { at_level!(columns(work: &Work, begin: usize, end: usize)) };
    });
}

struct Work<'a> {
    product: &'a MatrixProduct,
    left: *const f32,
    right: *const f32,
    out: *mut f32,
}

// SAFETY: tasks read the matrices and write columns of the result that are theirs alone.
unsafe impl Sync for Work<'_> {}

#[inline(always)]
unsafe fn columns<V: Lanes>(work: &Work, begin: usize, end: usize) {
    let product = work.product;
    for group in begin..end {
        let first = group * COLUMNS;
        let count = COLUMNS.min(product.columns - first);
        // Columns beyond the last repeat it; their sums are dropped.
        let lines: [*const f32; COLUMNS] =
            std::array::from_fn(|j| work.right.wrapping_offset((first + j.min(count - 1)) as isize * product.right[1]));
        let mut row = 0;
        while row < product.rows {
            let left = work.left.wrapping_offset(row as isize * product.left[0]);
            let rows = ROWS.min(product.rows - row);
            // SAFETY: rows of the left matrix and columns of the right one, which the caller vouches for.
            unsafe {
                let sums = match rows {
                    1 => block::<V, 1>(left, product.left[0], &lines, product.depth),
                    2 => block::<V, 2>(left, product.left[0], &lines, product.depth),
                    _ => block::<V, ROWS>(left, product.left[0], &lines, product.depth),
                };
                for (i, sums) in sums.iter().enumerate().take(rows) {
                    for (j, sum) in sums.iter().enumerate().take(count) {
                        let offset = (row + i) as isize * product.out[0] + (first + j) as isize * product.out[1];
                        let to = work.out.wrapping_offset(offset);
                        let value = product.alpha as f32 * sum;
                        *to = if product.beta == 0.0 { value } else { value + product.beta as f32 * *to };
                    }
                }
            }
            row += rows;
        }
    }
}

/// R rows times four columns.
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
    // SAFETY: every line has `depth` elements; `lanes` holds four vectors of any level.
    unsafe {
        let mut sums = [[V::splat(0.0); COLUMNS]; R];
        for p in (0..whole).step_by(V::N) {
            let right: [V; COLUMNS] = std::array::from_fn(|j| V::load(columns[j].add(p)));
            for i in 0..R {
                let x = V::load(rows[i].add(p));
                for j in 0..COLUMNS {
                    sums[i][j] = x.fma(right[j], sums[i][j]);
                }
            }
        }
        for i in 0..R {
            let mut lanes = [0.0f32; 64];
            for j in 0..COLUMNS {
                sums[i][j].store(lanes.as_mut_ptr().add(j * V::N));
            }
            // Four lanes of a sum come together at once, and N / 4 such groups are the whole sum.
            let [a, b, c, d] = V::load_by_4(lanes.as_ptr());
            let mut groups = [0.0f32; 16];
            a.add(b).add(c.add(d)).store(groups.as_mut_ptr());
            for j in 0..COLUMNS {
                let rest: f32 = (whole..depth).map(|p| *rows[i].add(p) * *columns[j].add(p)).sum();
                result[i][j] = groups[j * V::N / 4..(j + 1) * V::N / 4].iter().sum::<f32>() + rest;
            }
        }
    }
    result
}
