//! Products of matrices from packed parts (Goto and van de Geijn, 2008), shared out over the threads in two dimensions; what is packed is float32, or
//! pairs of bfloat16.
//!
//! One operand is packed as a whole, by all threads, unless the caller has kept it so; the other one is packed by each task in strips that stay
//! in the second-level cache while the first goes by.

mod goal;
mod packing;
mod strips;
mod tiles;

pub(crate) use self::goal::{Goal, Part};
pub(crate) use self::packing::{Operand, fill_right, left_len, pack_left, pack_right_whole, right_len};

use self::tiles::Tiles;
use super::epilogue::Epilogue;
use super::microkernel::{Channels, Terms, kernels, kernels_of};
use super::panels::Panels;
use super::scratch;
use crate::threads::{self, parallel_for};

/// Multiplications of a product that are worth a second thread.
pub(crate) const WORTH_SPLITTING: usize = 300_000;
/// Panels or groups that are worth packing a strip for.
const FEWEST_ACROSS: usize = 4;

/// `factor * left * right`, and what follows.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub rows: usize,
    /// Numbers of 32 bits along the sums.
    pub depth: usize,
    pub columns: usize,
    /// What those numbers are.
    pub terms: Terms,
    pub left: Operand<'a>,
    pub right: Operand<'a>,
    /// 1 where the left operand is packed, or no numbers are singles.
    pub factor: f32,
    pub goal: Goal<'a>,
    /// Of sums that go to memory.
    pub epilogue: Option<&'a Epilogue<'a>>,
    /// The epilogue's channels of the first row or column.
    pub channels: Channels,
    /// The index of the result's first element in the whole output, for the epilogue's residual.
    pub index: usize,
}

// SAFETY: tasks read the operands and write elements of the result that are theirs alone.
unsafe impl Sync for Product<'_> {}

impl Product<'_> {
    /// Computes the product with as many threads as it is worth.
    ///
    /// # Safety
    /// The operands have the product's sizes; the result's elements are writable, nobody else's, and apart from the operands; the epilogue's
    /// slices cover them.
    pub(crate) unsafe fn run(&self) {
        let (rows, depth, columns, kernels) = (self.rows, self.depth, self.columns, kernels_of(self.terms));
        if rows == 0 || columns == 0 {
            return;
        }
        // SAFETY: the caller's promise, which covers packing, too.
        unsafe {
            match (self.left, self.right) {
                (Operand::Packed(_), _) | (_, Operand::Packed(_)) => self.multiply(),
                (left, _) if rows <= columns => {
                    scratch::with(Panels::of(rows, kernels).packed_len(depth), |packed| {
                        pack_left(kernels, (rows, depth), left, self.factor, packed);
                        Product { left: Operand::Packed(packed), factor: 1.0, ..*self }.multiply();
                    });
                }
                (_, right) => {
                    scratch::with(right_len(depth, columns), |packed| {
                        pack_right_whole(kernels, (depth, columns), right, packed);
                        Product { right: Operand::Packed(packed), ..*self }.multiply();
                    });
                }
            }
        }
    }

    /// Multiplications.
    fn size(&self) -> usize {
        self.rows.saturating_mul(self.columns).saturating_mul(self.depth)
    }

    /// Shares the product out: by groups of columns where the left operand is packed, else by panels of rows.
    ///
    /// # Safety
    /// As [`Product::run`]; at least one operand is packed.
    unsafe fn multiply(&self) {
        let tiles = Tiles::new(self);
        let (panels, groups) = (tiles.panels.count, tiles.groups);
        let by_columns = matches!(self.left, Operand::Packed(_));
        let (along, across) = if by_columns { (groups, panels) } else { (panels, groups) };
        // Where nothing is packed on the way and groups are few, each task takes all of them, so that a panel is read once.
        let tasks = tasks();
        let cuts = match self.right {
            Operand::Packed(_) if by_columns && along < tasks => tasks / 2,
            _ => tasks.div_ceil(along),
        };
        let cuts = cuts.min(across / FEWEST_ACROSS).max(1);
        let cut = |i: usize| i * across / cuts;
        let ns = self.rows * self.columns / (along * cuts) * self.depth / kernels_of(self.terms).rate + 20;
        parallel_for(along * cuts, ns, |from, to| {
            let mut from = from;
            while from < to {
                let (i, first) = (from / along, from % along);
                let last = along.min(first + to - from);
                // SAFETY: the caller's promise; these tiles are this task's.
                unsafe {
                    if by_columns {
                        tiles.columns((cut(i), cut(i + 1)), (first, last));
                    } else {
                        tiles.rows((first, last), (cut(i), cut(i + 1)));
                    }
                }
                from += last - first;
            }
        });
    }
}

/// Tasks of a product: some for each thread even out what else the machine does.
fn tasks() -> usize {
    8 * threads::count()
}

/// Whether a product of so many columns, whose left operand is packed, is shared out by columns alone.
pub(crate) fn shared_by_columns(columns: usize) -> bool {
    columns.div_ceil(kernels().width) >= tasks()
}

/// Whether `count` products of `size` multiplications each are dealt out to the threads whole: small ones, and many of middle size. Few large ones are
/// split inside.
pub(crate) fn are_dealt_out_whole(count: usize, size: usize) -> bool {
    size <= WORTH_SPLITTING || count >= 4 * threads::count() && size <= 20 * WORTH_SPLITTING
}

/// Computes `count` products of one size: each by all threads, or, where they are small, each by one.
///
/// # Safety
/// As [`Product::run`] for each; their results do not overlap.
pub(crate) unsafe fn run_all<'a>(count: usize, product: impl Fn(usize) -> Product<'a> + Sync) {
    let size = if count > 0 { product(0).size() } else { 0 };
    // SAFETY: the caller's promise; a product that is computed inside of a task stays on its thread.
    let run = |from: usize, to: usize| (from..to).for_each(|i| unsafe { product(i).run() });
    if are_dealt_out_whole(count, size) {
        parallel_for(count, size / 30 + 200, run);
    } else {
        run(0, count);
    }
}
