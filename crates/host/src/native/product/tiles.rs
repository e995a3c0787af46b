//! The tiles of a product under way: strips of the operand that is packed on the way, each beside all of the other one.

use super::Product;
use super::packing::{Operand, Parts};
use crate::native::lanes::has_eight;
use crate::native::microkernel::{
    Block, Kernels, LeftAt, MOST_COLUMNS, RowsAt, SideBySide, Terms, kernels, kernels_of,
};
use crate::native::panels::Panels;
use crate::native::scratch;
use crate::native::thin::{self, Thin};

/// Groups, or panels, of a strip at most.
const MOST_GROUPS: usize = 64;
/// Bytes of a right matrix that stays in the first-level cache as it lies.
const SMALL: usize = 16 << 10;
/// Panels for which packing takes longer than it saves, as long as a group's rows do not all fall into a few sets of the first-level cache: of a matrix
/// that the third-level cache keeps twice as many, of one that the second keeps any number.
const FEW_PANELS: usize = 4;
/// Strips of a right matrix that the second-level cache keeps, and of one that the third does.
const STRIPS_OF_SECOND: usize = 2;
const STRIPS_OF_THIRD: usize = 8;
/// Bytes of a line of the first-level cache, its sets, and the lines of a set that are for these rows: of eight.
const LINE: usize = 64;
const SETS: usize = 64;
const WAYS: usize = 6;

/// Numbers of a strip, so that it takes less than half of the second-level cache: of that, CPUs with AVX-512 have 1 MB at least, others 512 KB.
fn numbers_of_a_strip() -> usize {
    if kernels().width == MOST_COLUMNS { 128 << 10 } else { 48 << 10 }
}

/// Places of the first-level cache that lines so many bytes apart fall into.
fn sets_of_rows(bytes: usize) -> usize {
    let lines = bytes / LINE;
    if bytes.is_multiple_of(LINE) && lines > 0 {
        SETS >> lines.trailing_zeros().min(SETS.trailing_zeros())
    } else {
        SETS
    }
}

/// A product under way.
pub(super) struct Tiles<'a> {
    product: &'a Product<'a>,
    kernels: &'static Kernels,
    pub panels: Panels,
    pub groups: usize,
    /// The columns that are tiles: all of them, but for few behind whole tiles and half ones where the left operand is packed.
    tiled: usize,
    parts: Parts,
}

/// Groups of a strip side by side, of which the last one may have fewer columns.
#[derive(Clone, Copy)]
struct Run {
    groups: (usize, usize),
    /// The first number of the first group's first row.
    first: *const f32,
    /// From one row to the next, and from one group to the next.
    stride: usize,
    step: usize,
}

impl Run {
    /// Of no groups.
    const NONE: Run = Run { groups: (0, 0), first: std::ptr::null(), stride: 0, step: 0 };

    fn at(&self, group: usize) -> *const f32 {
        self.first.wrapping_add((group - self.groups.0) * self.step)
    }
}

impl Tiles<'_> {
    pub fn new<'a>(product: &'a Product<'a>) -> Tiles<'a> {
        let kernels = kernels_of(product.terms);
        let (panels, groups) = (Panels::new(product.rows), product.columns.div_ceil(kernels.width));
        let few = product.columns % (kernels.width / 2);
        let takes_few = product.depth > 0 && product.terms == Terms::Singles && has_eight();
        let thin = takes_few && few <= thin::MOST && matches!(product.left, Operand::Packed(_));
        let tiled = product.columns - if thin { few } else { 0 };
        Tiles { product, kernels, panels, groups, tiled, parts: Parts::new(product.depth) }
    }

    /// The columns of a group that are a tile.
    fn width(&self, group: usize) -> usize {
        self.kernels.width.min(self.tiled.saturating_sub(group * self.kernels.width))
    }

    /// Panels of a packed left operand times groups of columns, which are packed here or read in place.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    pub unsafe fn columns(&self, panels: (usize, usize), (first, last): (usize, usize)) {
        let Operand::Packed(left) = self.product.left else { unreachable!("the caller has packed it") };
        let (width, height) = (self.kernels.width, self.panels.height);
        let most = (numbers_of_a_strip() / (self.parts.longest().max(1) * width)).clamp(1, last - first);
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
                    let runs = unsafe { self.strip((begin, end), in_place, (from, terms), packed) };
                    let left = &left[from * self.panels.count * height..];
                    for panel in panels.0..panels.1 {
                        let rows = self.rows_of(panel);
                        let left = left[panel * terms * height..].as_ptr();
                        // The next panel comes from a farther cache while this one's tiles are computed.
                        let step = height.div_ceil(end - begin);
                        let ahead = |group: usize| (left.wrapping_add(terms * (height + step * (group - begin))), step);
                        for run in &runs {
                            // SAFETY: both are packed, or readable in place; the tiles are the caller's.
                            unsafe { self.run(rows, (part, terms), left, run, ahead) };
                        }
                    }
                    let (group, column) = (self.tiled / width, self.tiled % width);
                    for run in runs.iter().filter(|run| (run.groups.0..run.groups.1).contains(&group)) {
                        let right = (run.at(group).wrapping_add(column), run.stride);
                        // SAFETY: as above.
                        unsafe { self.left_over(panels, (part, terms), left, right) };
                    }
                }
            }
        });
    }

    /// Whether whole groups of columns are best read where they lie: they are read once or a few times, or come from a near cache. Of rows that are a
    /// multiple of a page apart few stay in the first one. (Images of 7 to 112 pixels' sides take 10 to 25 % less time so, matrices of some megabytes 3 to
    /// 10 % more.)
    fn in_place(&self, panels: (usize, usize)) -> bool {
        let Operand::Strided(_, [by_row, by_column]) = self.product.right else { return false };
        let bytes = by_row.unsigned_abs() * size_of::<f32>();
        let (panels, whole) = (panels.1 - panels.0, bytes.saturating_mul(self.product.depth));
        let once = panels == 1 && !bytes.is_multiple_of(2048);
        let strip = numbers_of_a_strip() * size_of::<f32>();
        let (most, sets) = match whole {
            _ if whole <= STRIPS_OF_SECOND * strip => (usize::MAX, 4),
            _ if whole <= STRIPS_OF_THIRD * strip => (2 * FEW_PANELS, 4),
            _ => (FEW_PANELS, 8),
        };
        let spread = sets_of_rows(bytes) >= sets || self.parts.longest() <= WAYS * sets_of_rows(bytes);
        let few = panels <= most && spread;
        by_column == 1 && by_row >= 0 && (once || few || whole <= SMALL)
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
    ) -> [Run; 2] {
        let width = self.kernels.width;
        let packed = |first, groups| Run { groups, first, stride: width, step: terms * width };
        let mut there = Run::NONE;
        match self.product.right {
            Operand::Packed(right) => {
                let first = right[(from * self.groups + begin * terms) * width..].as_ptr();
                return [packed(first, (begin, end)), Run::NONE];
            }
            Operand::Strided(right, [by_row, _]) if in_place => {
                let whole = |group: usize| matches!(self.width(group), count if count == width || 2 * count == width);
                let last = if whole(end - 1) { end } else { end - 1 };
                let first = right.wrapping_offset(from as isize * by_row + (begin * width) as isize);
                there = Run { groups: (begin, last), first, stride: by_row as usize, step: width };
            }
            Operand::Strided(..) | Operand::Halves(_) => {}
        }
        let begin = begin.max(there.groups.1);
        if begin == end {
            return [there, Run::NONE];
        }
        let columns = (end * width).min(self.product.columns) - begin * width;
        // SAFETY: the caller's promise.
        unsafe { self.product.right.pack_right((from, begin * width), (terms, columns), (width, terms), to) };
        [there, packed(to.as_ptr(), (begin, end))]
    }

    /// A panel times the tiles of a run: the whole ones at once.
    ///
    /// # Safety
    /// As [`Tiles::tiles`].
    #[inline]
    unsafe fn run(
        &self,
        rows: (usize, usize),
        part: (usize, usize),
        left: *const f32,
        run: &Run,
        ahead: impl Fn(usize) -> (*const f32, usize),
    ) {
        let width = self.kernels.width;
        let (begin, end) = (run.groups.0, run.groups.1.min(self.tiled.div_ceil(width)));
        let whole = end.min(self.tiled / width).max(begin);
        for groups in [(begin, whole), (whole, end)] {
            if groups.0 < groups.1 {
                let run = Run { groups, first: run.at(groups.0), ..*run };
                // SAFETY: the caller's promise.
                unsafe { self.tiles(rows, part, left, run, ahead(groups.0)) };
            }
        }
    }

    /// Panels of rows, which are packed here, times groups of a packed right operand.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    pub unsafe fn rows(&self, (first, last): (usize, usize), groups: (usize, usize)) {
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
                            let run = Run { groups: (group, group + 1), first: right, stride: width, step: 0 };
                            // SAFETY: both are packed; the tile is the caller's.
                            unsafe { self.tiles(rows, (part, terms), left, run, ahead) };
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
        (right, stride): (*const f32, usize),
    ) {
        let (product, height) = (self.product, self.panels.height);
        let column = self.tiled;
        let accumulate = product.accumulate || part > 0;
        let epilogue = product.epilogue.filter(|_| part + 1 == self.parts.count);
        for begin in (first..last).step_by(thin::PANELS) {
            let panel = |p: usize| (begin + p).min(last - 1);
            let panels = std::array::from_fn(|p| left[panel(p) * terms * height..].as_ptr());
            for j in 0..product.columns - column {
                let right = right.wrapping_add(j);
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

    /// One call of the micro-kernel: a panel times groups that are whole, or one that need not be.
    ///
    /// # Safety
    /// Panel and groups hold the part's terms; the tiles of the result are the caller's.
    #[inline]
    unsafe fn tiles(
        &self,
        (row, rows): (usize, usize),
        (part, terms): (usize, usize),
        left: *const f32,
        run: Run,
        ahead: (*const f32, usize),
    ) {
        let (product, (first, end)) = (self.product, run.groups);
        let column = first * self.kernels.width;
        let at = row * product.out_stride + column;
        let block = Block {
            depth: terms,
            part: Block::PART,
            left,
            left_at: LeftAt::Packed,
            right: run.first,
            rows_at: RowsAt::Stride(run.stride),
            out: product.out.wrapping_add(at),
            out_stride: product.out_stride,
            accumulate: product.accumulate || part > 0,
            epilogue: product.epilogue.filter(|_| part + 1 == self.parts.count),
            channels: product.channels.at(row, column),
            index: product.index + at,
            ahead,
            tiles: SideBySide { count: end - first, step: run.step },
        };
        // SAFETY: the caller's promise.
        unsafe { self.kernels.run(&block, rows, self.width(first)) };
    }
}
