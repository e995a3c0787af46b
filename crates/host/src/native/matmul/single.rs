//! Large float32 products: both matrices packed in cache-sized parts, the micro-kernel over them (Goto and van de Geijn, 2008).

use super::{Matrices, MatrixProduct, then};
use crate::native::epilogue::Epilogue;
use crate::native::microkernel::{Block, Kernels, Panels, ROWS, RowsAt, kernels, pack_right};
use crate::native::scratch;
use crate::threads::parallel_for;

/// Elements of a packed group of the right matrix at most. It comes from the second-level cache while it is summed, and every pass over
/// the result that it saves is worth more than that.
const GROUP: usize = 8192;
/// Columns of the right matrix packed at once: a few MiB, for the last-level cache.
const COLUMNS: usize = 2048;
/// Panels of the left matrix packed by one task: a part of the second-level cache, and enough tasks to even out the threads.
const TASK_PANELS: usize = 8;

/// Whether [`run`] takes this product: its result or its transpose has rows of neighbouring elements, and beta is 0 or 1.
pub(super) fn takes(product: &MatrixProduct) -> bool {
    let neighbours = product.out[1] == 1 || product.out[0] == 1;
    neighbours && (product.beta == 0.0 || product.beta == 1.0) && product.rows.min(product.columns) >= ROWS
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
    if product.out[1] != 1 {
        debug_assert!(epilogue.is_none(), "what follows a product is for dense results");
        let at = Matrices { left: at.right, right: at.left, out: at.out };
        // SAFETY: the transposed product: the same elements by other names.
        return unsafe { run(&product.transposed(), at, [right, left, out], epilogue) };
    }
    let work = Work {
        product,
        epilogue,
        first: out as usize,
        kernels: kernels(),
        panels: Panels::new(product.rows),
        left: (at.left as *const f32).wrapping_offset(left),
        right: (at.right as *const f32).wrapping_offset(right),
        out: (at.out as *mut f32).wrapping_offset(out),
    };
    let width = work.kernels.width;
    let depth = even_part(product.depth, GROUP / width);
    scratch::with(depth * COLUMNS.min(product.columns).next_multiple_of(width), |packed| {
        for first in (0..product.columns).step_by(COLUMNS) {
            for from in (0..product.depth).step_by(depth.max(1)) {
                let part = Part {
                    columns: (first, COLUMNS.min(product.columns - first)),
                    terms: (from, depth.min(product.depth - from)),
                };
                // SAFETY: the part lies inside of the matrices, which the caller vouches for.
                unsafe {
                    work.pack(&part, packed);
                    work.multiply(&part, packed);
                }
            }
        }
    });
}

/// The size of parts of at most `most` that cut `whole` evenly: a short last part would cost a whole pass over the result.
fn even_part(whole: usize, most: usize) -> usize {
    whole.div_ceil(whole.div_ceil(most).max(1))
}

/// A product under way.
struct Work<'a> {
    product: &'a MatrixProduct,
    epilogue: Option<&'a Epilogue<'a>>,
    /// The index of the result's first element in the whole output.
    first: usize,
    kernels: &'static Kernels,
    panels: Panels,
    left: *const f32,
    right: *const f32,
    out: *mut f32,
}

// SAFETY: tasks read the matrices and write rows of the result that are theirs alone.
unsafe impl Sync for Work<'_> {}

/// Tasks over panels of rows; where those are few, each is cut again by groups of columns.
struct Tasks {
    panels: usize,
    groups: usize,
    by_column: usize,
}

impl Tasks {
    /// Groups that are worth packing a task's rows for.
    const FEWEST_GROUPS: usize = 8;

    fn new(panels: usize, groups: usize) -> Tasks {
        let by_row = panels.div_ceil(TASK_PANELS).max(1);
        // Four for each thread even out what else the machine does.
        let wanted = (4 * crate::threads::count()).div_ceil(by_row);
        Tasks { panels, groups, by_column: wanted.min(groups / Tasks::FEWEST_GROUPS).max(1) }
    }

    fn count(&self) -> usize {
        self.panels.div_ceil(TASK_PANELS) * self.by_column
    }

    /// First and last panel, first and last group.
    fn get(&self, task: usize) -> ((usize, usize), (usize, usize)) {
        let (row, column) = (task / self.by_column * TASK_PANELS, task % self.by_column);
        let group = |column: usize| column * self.groups / self.by_column;
        ((row, (row + TASK_PANELS).min(self.panels)), (group(column), group(column + 1)))
    }
}

/// First column and number of columns, first term and number of terms.
struct Part {
    columns: (usize, usize),
    terms: (usize, usize),
}

/// Memory that tasks fill in places of their own.
struct Groups(*mut f32);

// SAFETY: each task has groups of its own.
unsafe impl Sync for Groups {}

impl Groups {
    /// The group of this index and size.
    ///
    /// # Safety
    /// It lies in the memory, and nobody else has it.
    unsafe fn group<'g>(&self, index: usize, size: usize) -> &'g mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(index * size), size) }
    }
}

impl Work<'_> {
    /// Packs a part of the right matrix in groups of the micro-kernel's width.
    ///
    /// # Safety
    /// The part lies inside of the right matrix.
    unsafe fn pack(&self, part: &Part, packed: &mut [f32]) {
        let ((first, count), (from, depth)) = (part.columns, part.terms);
        let (width, [by_row, by_column]) = (self.kernels.width, self.product.right);
        let groups = Groups(packed.as_mut_ptr());
        let groups = &groups;
        parallel_for(count.div_ceil(width), depth * width / 8, |begin, end| {
            for group in begin..end {
                let column = first + group * width;
                let start = self.right.wrapping_offset(from as isize * by_row + column as isize * by_column);
                let size = (depth, width.min(count - group * width));
                // SAFETY: this task alone has the group; the elements lie in the part.
                unsafe { pack_right(start, (by_row, by_column), size, width, groups.group(group, depth * width)) };
            }
        });
    }

    /// Adds the part's terms to its columns of the result.
    ///
    /// # Safety
    /// `packed` is what [`Work::pack`] made of the part.
    unsafe fn multiply(&self, part: &Part, packed: &[f32]) {
        let (_, depth) = part.terms;
        let tasks = Tasks::new(self.panels.count, part.columns.1.div_ceil(self.kernels.width));
        let ns = self.product.rows * part.columns.1 * depth / tasks.count() / 40;
        parallel_for(tasks.count(), ns, |begin, end| {
            scratch::with(TASK_PANELS * ROWS * depth, |left| {
                for task in begin..end {
                    let (panels, groups) = tasks.get(task);
                    // SAFETY: the caller's promise; these panels and groups of the result are this task's.
                    unsafe { self.block(part, panels, groups, left, packed) };
                }
            });
        });
    }

    /// One task: packs its rows of the left matrix, then runs the micro-kernel over groups and panels.
    ///
    /// # Safety
    /// As [`Work::multiply`].
    unsafe fn block(
        &self,
        part: &Part,
        (first, last): (usize, usize),
        groups: (usize, usize),
        left: &mut [f32],
        packed: &[f32],
    ) {
        let (from, depth) = part.terms;
        let [by_row, by_column] = self.product.left;
        let start = self.left.wrapping_offset(from as isize * by_column);
        let factor = self.product.alpha as f32;
        // SAFETY: rows of these panels and terms of this part lie in the left matrix.
        unsafe { self.panels.pack((first, last), start, (by_row, by_column), depth, factor, left) };
        for group in groups.0..groups.1 {
            // SAFETY: the panels are packed, and the groups as the caller says.
            unsafe { self.group(part, (first, last), group, left, packed) };
        }
        if let Some(epilogue) = self.epilogue
            && from + depth == self.product.depth
        {
            // SAFETY: these panels and groups of the result are this task's.
            unsafe { self.then(epilogue, part, (first, last), groups) };
        }
    }

    /// Packed panels times one packed group of columns.
    ///
    /// # Safety
    /// As [`Work::multiply`].
    unsafe fn group(&self, part: &Part, (first, last): (usize, usize), group: usize, left: &[f32], packed: &[f32]) {
        let ((columns, count), (from, depth)) = (part.columns, part.terms);
        let (width, stride) = (self.kernels.width, self.product.out[0] as usize);
        let column = columns + group * width;
        let count = width.min(count - group * width);
        for panel in first..last {
            let row = self.panels.start(panel);
            let block = Block {
                depth,
                left: left[(panel - first) * ROWS * depth..].as_ptr(),
                right: packed[group * width * depth..].as_ptr(),
                rows_at: RowsAt::Stride(width),
                out: self.out.wrapping_add(row * stride + column),
                out_stride: stride,
                accumulate: from > 0 || self.product.beta != 0.0,
                epilogue: None,
                channel: 0,
                index: 0,
            };
            // SAFETY: panel and group are packed whole; the block's elements are this task's part of the result.
            unsafe { self.kernels.run(&block, self.panels.start(panel + 1) - row, count) };
        }
    }

    /// What follows the product, on a task's part of the result: long rows, which the second-level cache still holds.
    ///
    /// # Safety
    /// As [`Work::multiply`].
    unsafe fn then(&self, epilogue: &Epilogue, part: &Part, panels: (usize, usize), groups: (usize, usize)) {
        let (columns, count) = part.columns;
        let (width, stride) = (self.kernels.width, self.product.out[0] as usize);
        let (row, end) = (self.panels.start(panels.0), self.panels.start(panels.1));
        let (first, last) = (groups.0 * width, (groups.1 * width).min(count));
        let offset = row * stride + columns + first;
        let part = then::Part {
            out: self.out.wrapping_add(offset),
            stride,
            rows: end - row,
            columns: (columns + first, last - first),
            index: self.first + offset,
        };
        // SAFETY: this task's part of the result.
        unsafe { then::part(epilogue, part) };
    }
}
