//! Products of matrices from packed parts (Goto and van de Geijn, 2008), shared out over the threads in two dimensions; what is packed is float32, or
//! pairs of bfloat16.
//!
//! One operand is packed as a whole, by all threads, unless the caller has kept it so; the other one is packed by each task in strips that stay
//! in the second-level cache while the first goes by.

use super::epilogue::Epilogue;
use super::lanes::has_eight;
use super::microkernel::{Block, Channels, Kernels, LeftAt, MOST_COLUMNS, RowsAt, Terms, kernels, kernels_of};
use super::panels::{Halves, Panels, pack_right};
use super::thin::{self, Thin};
use super::{Shared, scratch};
use crate::threads::{self, parallel_for};

/// Terms of a sum in one go: a panel of so many is 9 KiB, with AVX-512 12, and fits the first-level cache of every CPU here; every pass over the result
/// that is saved is worth more than a group in that cache.
const DEPTH: usize = 384;
/// Groups, or panels, of a strip at most.
const MOST_GROUPS: usize = 64;
/// Bytes of a right matrix that stays in the first-level cache as it lies.
const SMALL: usize = 16 << 10;
/// Multiplications of a product that are worth a second thread.
pub(crate) const WORTH_SPLITTING: usize = 300_000;
/// Panels or groups that are worth packing a strip for.
const FEWEST_ACROSS: usize = 4;

/// Numbers of a strip, so that it takes less than half of the second-level cache: of that, CPUs with AVX-512 have 1 MB at least, others 512 KB.
fn numbers_of_a_strip() -> usize {
    if kernels().width == MOST_COLUMNS { 128 << 10 } else { 48 << 10 }
}

/// An operand: its first element and its strides (from row to row, from column to column), the same of half precision, or what [`pack_left`] or
/// [`pack_right_whole`] made of it.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    Strided(*const f32, [isize; 2]),
    Halves(Halves),
    Packed(&'a [f32]),
}

// SAFETY: what shares an operand reads its elements, which nobody writes.
unsafe impl Sync for Operand<'_> {}

impl Operand<'_> {
    /// Packs panels of a left matrix, `terms` columns of it from this one on, as [`Panels::pack`] does.
    ///
    /// # Safety
    /// The elements of these panels and columns are readable.
    unsafe fn pack_left(
        &self,
        (panels, which): (Panels, (usize, usize)),
        (from, terms): (usize, usize),
        factor: f32,
        to: &mut [f32],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Operand::Strided(left, [by_row, by_column]) => {
                    let left = left.wrapping_offset(from as isize * by_column);
                    panels.pack(which, left, (*by_row, *by_column), terms, factor, to);
                }
                Operand::Halves(halves) => panels.pack_halves(which, halves, (from, terms), factor, to),
                Operand::Packed(_) => unreachable!("it is packed"),
            }
        }
    }

    /// Packs part of a right matrix, from this row and column on, as [`pack_right`] does.
    ///
    /// # Safety
    /// The part's elements are readable.
    unsafe fn pack_right(
        &self,
        (row, column): (usize, usize),
        size: (usize, usize),
        groups: (usize, usize),
        to: &mut [f32],
    ) {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Operand::Strided(right, [by_row, by_column]) => {
                    let from = right.wrapping_offset(row as isize * by_row + column as isize * by_column);
                    pack_right(from, (*by_row, *by_column), size, groups, to);
                }
                Operand::Halves(halves) => halves.pack((row, column), size, groups, to),
                Operand::Packed(_) => unreachable!("it is packed"),
            }
        }
    }
}

/// `out = factor * left * right`, or that much more, and what follows.
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
    /// The first element; columns are neighbours.
    pub out: *mut f32,
    /// From one row of the result to the next.
    pub out_stride: usize,
    /// Whether the product is added to what the result holds.
    pub accumulate: bool,
    pub epilogue: Option<&'a Epilogue<'a>>,
    /// The epilogue's channels of the first row or column.
    pub channels: Channels,
    /// The index of the result's first element in the whole output, for the epilogue's residual.
    pub index: usize,
}

// SAFETY: tasks read the operands and write elements of the result that are theirs alone.
unsafe impl Sync for Product<'_> {}

/// The parts that a sum is cut into: equal ones, since a short last one would cost a whole pass over the result.
#[derive(Clone, Copy)]
struct Parts {
    depth: usize,
    count: usize,
}

impl Parts {
    fn new(depth: usize) -> Parts {
        Parts { depth, count: depth.div_ceil(DEPTH).max(1) }
    }

    /// The first term of part `i` and their number.
    fn get(self, i: usize) -> (usize, usize) {
        let start = |i: usize| i * self.depth / self.count;
        (start(i), start(i + 1) - start(i))
    }

    fn longest(self) -> usize {
        self.depth.div_ceil(self.count)
    }
}

/// Numbers of a packed left matrix.
pub(crate) fn left_len(rows: usize, depth: usize) -> usize {
    Panels::new(rows).packed_len(depth)
}

/// Numbers of a packed right matrix.
pub(crate) fn right_len(depth: usize, columns: usize) -> usize {
    columns.next_multiple_of(kernels().width) * depth
}

/// Packs a left matrix as a whole: part by part, panel by panel.
///
/// # Safety
/// The matrix's elements are readable.
pub(crate) unsafe fn pack_left((rows, depth): (usize, usize), left: Operand, factor: f32, packed: &mut [f32]) {
    let (panels, parts) = (Panels::new(rows), Parts::new(depth));
    let (packed, left) = (Shared::new(packed), &left);
    parallel_for(parts.count * panels.count, panels.height * parts.longest() / 8, |begin, end| {
        let mut task = begin;
        while task < end {
            let (panel, (from, terms)) = (task % panels.count, parts.get(task / panels.count));
            let count = (panels.count - panel).min(end - task);
            task += count;
            // SAFETY: this task alone has the panels; their elements lie in the matrix.
            unsafe {
                let to =
                    packed.part((from * panels.count + panel * terms) * panels.height, count * terms * panels.height);
                left.pack_left((panels, (panel, panel + count)), (from, terms), factor, to);
            }
        }
    });
}

/// Packs a right matrix as a whole: part by part, group by group.
///
/// # Safety
/// The matrix's elements are readable.
pub(crate) unsafe fn pack_right_whole((depth, columns): (usize, usize), right: Operand, packed: &mut [f32]) {
    let (width, parts) = (kernels().width, Parts::new(depth));
    let groups = columns.div_ceil(width);
    let (packed, right) = (Shared::new(packed), &right);
    parallel_for(parts.count * groups, width * parts.longest() / 8, |begin, end| {
        let mut task = begin;
        while task < end {
            let (group, (from, terms)) = (task % groups, parts.get(task / groups));
            let count = (groups - group).min(end - task);
            task += count;
            // SAFETY: this task alone has the groups; their elements lie in the matrix.
            unsafe {
                let to = packed.part((from * groups + group * terms) * width, count * terms * width);
                let columns = (count * width).min(columns - group * width);
                right.pack_right((from, group * width), (terms, columns), (width, terms), to);
            }
        }
    });
}

/// Packs a right matrix of which the caller makes `at_once` rows at a time: `rows(i, write)` calls `write(j, row)` for j below `at_once` with row
/// `i * at_once + j`, which has whole groups.
pub(crate) fn fill_right(
    (depth, columns): (usize, usize),
    at_once: usize,
    packed: &mut [f32],
    rows: impl Fn(usize, &mut dyn FnMut(usize, &[f32])) + Sync,
) {
    let (width, parts) = (kernels().width, Parts::new(depth));
    let groups = columns.div_ceil(width);
    assert!(depth.is_multiple_of(at_once) && packed.len() == groups * width * depth);
    // The part of each row, from which its place follows.
    let part_of = |k: usize| (0..parts.count).map(|i| parts.get(i)).find(|(from, terms)| k < from + terms);
    let packed = Shared::new(packed);
    parallel_for(depth / at_once, at_once * columns / 4, |begin, end| {
        for i in begin..end {
            rows(i, &mut |j, row| {
                let k = i * at_once + j;
                let Some((from, terms)) = part_of(k) else { return };
                for (group, numbers) in row.chunks_exact(width).take(groups).enumerate() {
                    // SAFETY: this task alone writes row `k`.
                    let to = unsafe { packed.part((from * groups + group * terms + k - from) * width, width) };
                    to.copy_from_slice(numbers);
                }
            });
        }
    });
}

impl Product<'_> {
    /// Computes the product with as many threads as it is worth.
    ///
    /// # Safety
    /// The operands have the product's sizes; the result's elements are writable, nobody else's, and apart from the operands; the epilogue's
    /// slices cover them.
    pub(crate) unsafe fn run(&self) {
        let (rows, depth, columns) = (self.rows, self.depth, self.columns);
        if rows == 0 || columns == 0 {
            return;
        }
        // SAFETY: the caller's promise, which covers packing, too.
        unsafe {
            match (self.left, self.right) {
                (Operand::Packed(_), _) | (_, Operand::Packed(_)) => self.multiply(),
                (left, _) if rows <= columns => {
                    scratch::with(left_len(rows, depth), |packed| {
                        pack_left((rows, depth), left, self.factor, packed);
                        Product { left: Operand::Packed(packed), factor: 1.0, ..*self }.multiply();
                    });
                }
                (_, right) => {
                    scratch::with(right_len(depth, columns), |packed| {
                        pack_right_whole((depth, columns), right, packed);
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
        // Some tasks for each thread even out what else the machine does. Where nothing is packed on the way and groups are few, each takes all of them, so
        // that a panel is read once.
        let tasks = 8 * threads::count();
        let cuts = match self.right {
            Operand::Packed(_) if by_columns && along < tasks => tasks / 2,
            _ => tasks.div_ceil(along),
        };
        let cuts = cuts.min(across / FEWEST_ACROSS).max(1);
        let cut = |i: usize| i * across / cuts;
        let ns = self.rows * self.columns / (along * cuts) * self.depth / 40 + 20;
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

/// A product under way.
struct Tiles<'a> {
    product: &'a Product<'a>,
    kernels: &'static Kernels,
    panels: Panels,
    groups: usize,
    /// The groups that are tiles where the left operand is packed: all of them, but for one of few columns.
    tiled: usize,
    parts: Parts,
}

/// Where a tile's rows of the right matrix are.
#[derive(Clone, Copy)]
struct Group {
    first: *const f32,
    stride: usize,
}

impl Tiles<'_> {
    fn new<'a>(product: &'a Product<'a>) -> Tiles<'a> {
        let kernels = kernels_of(product.terms);
        let (panels, groups) = (Panels::new(product.rows), product.columns.div_ceil(kernels.width));
        let left_over = product.columns % kernels.width;
        let few = product.depth > 0 && (1..=thin::MOST).contains(&left_over);
        let thin = few && product.terms == Terms::Singles && has_eight();
        Tiles { product, kernels, panels, groups, tiled: groups - usize::from(thin), parts: Parts::new(product.depth) }
    }

    /// The columns of a group.
    fn width(&self, group: usize) -> usize {
        self.kernels.width.min(self.product.columns - group * self.kernels.width)
    }

    /// Panels of a packed left operand times groups of columns, which are packed here or read in place.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    unsafe fn columns(&self, panels: (usize, usize), (first, last): (usize, usize)) {
        let Operand::Packed(left) = self.product.left else { unreachable!("the caller has packed it") };
        let (width, height) = (self.kernels.width, self.panels.height);
        let most = (numbers_of_a_strip() / (self.parts.longest().max(1) * width)).clamp(1, last - first);
        let mut strip = [Group { first: std::ptr::null(), stride: width }; MOST_GROUPS];
        let most = most.min(MOST_GROUPS);
        let in_place = self.in_place(panels);
        let memory =
            if matches!(self.product.right, Operand::Packed(_)) { 0 } else { most * width * self.parts.longest() };
        scratch::with(memory, |packed: &mut [f32]| {
            for begin in (first..last).step_by(most) {
                let end = last.min(begin + most);
                for part in 0..self.parts.count {
                    let (from, terms) = self.parts.get(part);
                    // SAFETY: the caller's promise about the right operand.
                    unsafe { self.strip((begin, end), in_place, (from, terms), packed, &mut strip) };
                    let left = &left[from * self.panels.count * height..];
                    let tiled = end.min(self.tiled);
                    for panel in panels.0..panels.1 {
                        let rows = self.rows_of(panel);
                        let left = left[panel * terms * height..].as_ptr();
                        // The next panel comes from a farther cache while this one's tiles are computed.
                        let step = height.div_ceil(end - begin);
                        for (own, group) in strip.iter().zip(begin..tiled) {
                            let ahead = (left.wrapping_add(terms * (height + step * (group - begin))), step);
                            // SAFETY: both are packed, or readable in place; the tile is the caller's.
                            unsafe { self.tile(rows, group, (part, terms), left, *own, ahead) };
                        }
                    }
                    if tiled < end {
                        // SAFETY: as above.
                        unsafe { self.left_over(panels, (part, terms), left, strip[tiled - begin]) };
                    }
                }
            }
        });
    }

    /// Whether whole groups of columns are best read where they lie: they are read once, or stay in the first-level cache. Of rows that are a multiple
    /// of a page apart few do.
    fn in_place(&self, panels: (usize, usize)) -> bool {
        let Operand::Strided(_, [by_row, by_column]) = self.product.right else { return false };
        let bytes = by_row.unsigned_abs() * size_of::<f32>();
        let once = panels.1 - panels.0 == 1 && !bytes.is_multiple_of(2048);
        by_column == 1 && by_row >= 0 && (once || bytes.saturating_mul(self.product.depth) <= SMALL)
    }

    /// Where some terms of a strip's groups are: in the packed operand, in place, or in `to`, where this packs them.
    ///
    /// # Safety
    /// The right operand's elements are readable; `to` has room for the groups.
    unsafe fn strip(
        &self,
        (begin, end): (usize, usize),
        in_place: bool,
        (from, terms): (usize, usize),
        to: &mut [f32],
        strip: &mut [Group; MOST_GROUPS],
    ) {
        let width = self.kernels.width;
        let mut packed_from = begin;
        match self.product.right {
            Operand::Packed(right) => {
                for (own, group) in strip.iter_mut().zip(begin..end) {
                    *own =
                        Group { first: right[(from * self.groups + group * terms) * width..].as_ptr(), stride: width };
                }
                return;
            }
            Operand::Strided(right, [by_row, _]) if in_place => {
                let whole = |group: usize| matches!(self.width(group), count if count == width || 2 * count == width);
                while packed_from < end && whole(packed_from) {
                    let first = right.wrapping_offset(from as isize * by_row + (packed_from * width) as isize);
                    strip[packed_from - begin] = Group { first, stride: by_row as usize };
                    packed_from += 1;
                }
            }
            Operand::Strided(..) | Operand::Halves(_) => {}
        }
        if packed_from == end {
            return;
        }
        let columns = (end * width).min(self.product.columns) - packed_from * width;
        // SAFETY: the caller's promise.
        unsafe { self.product.right.pack_right((from, packed_from * width), (terms, columns), (width, terms), to) };
        for group in packed_from..end {
            strip[group - begin] = Group { first: to[(group - packed_from) * terms * width..].as_ptr(), stride: width };
        }
    }

    /// Panels of rows, which are packed here, times groups of a packed right operand.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    unsafe fn rows(&self, (first, last): (usize, usize), groups: (usize, usize)) {
        let Operand::Packed(right) = self.product.right else { unreachable!("the caller has packed it") };
        let (width, height) = (self.kernels.width, self.panels.height);
        let most =
            (numbers_of_a_strip() / (self.parts.longest().max(1) * height)).clamp(1, last - first).min(MOST_GROUPS);
        let mut rows = [(0, 0); MOST_GROUPS];
        scratch::with(most * height * self.parts.longest(), |packed: &mut [f32]| {
            for begin in (first..last).step_by(most) {
                let end = last.min(begin + most);
                rows.iter_mut().zip(begin..end).for_each(|(rows, panel)| *rows = self.rows_of(panel));
                for part in 0..self.parts.count {
                    let (from, terms) = self.parts.get(part);
                    let product = self.product;
                    // SAFETY: the caller's promise about the left operand.
                    unsafe {
                        product.left.pack_left((self.panels, (begin, end)), (from, terms), product.factor, packed);
                    }
                    for group in groups.0..groups.1 {
                        let right = right[(from * self.groups + group * terms) * width..].as_ptr();
                        let step = width.div_ceil(end - begin);
                        for (panel, &rows) in rows[..end - begin].iter().enumerate() {
                            let ahead = (right.wrapping_add(terms * (width + step * panel)), step);
                            let left = packed[panel * terms * height..].as_ptr();
                            let right = Group { first: right, stride: width };
                            // SAFETY: both are packed; the tile is the caller's.
                            unsafe { self.tile(rows, group, (part, terms), left, right, ahead) };
                        }
                    }
                }
            }
        });
    }

    /// The first row of a panel, and how many it has. Not asked for by every tile: a division takes as long as a dozen products.
    fn rows_of(&self, panel: usize) -> (usize, usize) {
        let row = self.panels.start(panel);
        (row, self.panels.start(panel + 1) - row)
    }

    /// The columns behind the last tile, panel by panel.
    ///
    /// # Safety
    /// As [`Tiles::tile`], for these panels and those columns.
    unsafe fn left_over(
        &self,
        (first, last): (usize, usize),
        (part, terms): (usize, usize),
        left: &[f32],
        right: Group,
    ) {
        let (product, height) = (self.product, self.panels.height);
        let column = self.tiled * self.kernels.width;
        let accumulate = product.accumulate || part > 0;
        let epilogue = product.epilogue.filter(|_| part + 1 == self.parts.count);
        for begin in (first..last).step_by(thin::PANELS) {
            let panel = |p: usize| (begin + p).min(last - 1);
            let panels = std::array::from_fn(|p| left[panel(p) * terms * height..].as_ptr());
            for j in 0..product.columns - column {
                let (right, stride) = (right.first.wrapping_add(j), right.stride);
                // SAFETY: both are packed, or readable in place, with so many terms.
                let sums = unsafe { thin::multiply(Thin { left: panels, height, depth: terms, right, stride }) };
                for (panel, sums) in (begin..last).zip(sums) {
                    let (row, rows) = self.rows_of(panel);
                    for (i, sum) in (row..row + rows).zip(sums) {
                        let at = i * product.out_stride + column + j;
                        // SAFETY: the element is the caller's.
                        let out = unsafe { &mut *product.out.add(at) };
                        let sum = if accumulate { sum + *out } else { sum };
                        let channel = product.channels.at(i, column + j).first();
                        *out = epilogue.map_or(sum, |then| then.apply_one(sum, channel, product.index + at));
                    }
                }
            }
        }
    }

    /// One call of the micro-kernel.
    ///
    /// # Safety
    /// Panel and group hold the part's terms; the tile of the result is the caller's.
    #[inline]
    unsafe fn tile(
        &self,
        (row, rows): (usize, usize),
        group: usize,
        (part, terms): (usize, usize),
        left: *const f32,
        right: Group,
        ahead: (*const f32, usize),
    ) {
        let product = self.product;
        let column = group * self.kernels.width;
        let at = row * product.out_stride + column;
        let block = Block {
            depth: terms,
            left,
            left_at: LeftAt::Packed,
            right: right.first,
            rows_at: RowsAt::Stride(right.stride),
            out: product.out.wrapping_add(at),
            out_stride: product.out_stride,
            accumulate: product.accumulate || part > 0,
            epilogue: product.epilogue.filter(|_| part + 1 == self.parts.count),
            channels: product.channels.at(row, column),
            index: product.index + at,
            ahead,
        };
        // SAFETY: the caller's promise.
        unsafe { self.kernels.run(&block, rows, self.width(group)) };
    }
}
