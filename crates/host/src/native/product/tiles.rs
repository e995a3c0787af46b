//! The tiles of a product under way: strips of the operand that is packed on the way, each beside all of the other one.

use super::Product;
use super::goal::{Goal, Part};
use super::packing::{Operand, Parts};
use super::strips::{Run, Sums, in_place, numbers_of_a_strip};
use crate::native::lanes::has_eight;
use crate::native::microkernel::{Block, Kernels, LeftAt, Order, RowsAt, SideBySide, Terms, kernels_of};
use crate::native::panels::Panels;
use crate::native::scratch;
use crate::native::thin::{self, Thin};

/// Groups, or panels, of a strip at most.
const MOST_GROUPS: usize = 64;
/// Terms of the matrix unit's strips: of so many a strip has several groups.
const DEEPEST: usize = 2048;

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

impl Tiles<'_> {
    pub fn new<'a>(product: &'a Product<'a>) -> Tiles<'a> {
        let kernels = kernels_of(product.terms);
        let (panels, groups) = (Panels::of(product.rows, kernels), product.columns.div_ceil(kernels.width));
        let few = product.columns % (kernels.width / 2);
        let takes_few = product.depth > 0 && product.terms == Terms::Singles && has_eight();
        let goes_to_memory = matches!(product.goal, Goal::Memory { .. });
        let thin = takes_few && few <= thin::MOST && goes_to_memory && matches!(product.left, Operand::Packed(_));
        let tiled = product.columns - if thin { few } else { 0 };
        Tiles { product, kernels, panels, groups, tiled, parts: Parts::new(product.depth, kernels) }
    }

    /// The columns of a group that are a tile.
    fn width(&self, group: usize) -> usize {
        self.kernels.width.min(self.tiled.saturating_sub(group * self.kernels.width))
    }

    /// Parts of a sum that are added up before the next rows' are: as few passes over the sums as a strip of several groups allows, where the matrix unit computes
    /// them faster than the second-level cache takes them; else one.
    fn together(&self) -> usize {
        match self.kernels.order {
            Order::Terms => 1,
            Order::Chunks => (DEEPEST / self.parts.longest().max(1)).clamp(1, self.parts.count),
        }
    }

    /// Whether those are all parts, so that sums are complete before the next rows' or columns' begin.
    fn completes(&self) -> bool {
        self.together() == self.parts.count
    }

    /// Panels or groups of `size` lines that are packed at once, of so many.
    fn at_once(&self, size: usize, all: usize) -> usize {
        let depth = self.together() * self.parts.longest().max(1);
        (numbers_of_a_strip(self.kernels) / (depth * size)).clamp(1, all).min(MOST_GROUPS)
    }

    /// Calls `work` with where sums are added up: where they go, or in memory for so many rows and columns of them.
    fn with_sums(&self, rows: usize, columns: usize, work: impl FnOnce(Sums)) {
        match self.product.goal {
            Goal::Memory { first, stride, accumulate } => work(Sums { first, stride, accumulate, origin: (0, 0) }),
            Goal::Parts(_) => scratch::with(rows * columns, |sums: &mut [f32]| {
                work(Sums { first: sums.as_mut_ptr(), stride: columns, accumulate: false, origin: (0, 0) });
            }),
        }
    }

    /// Panels of a packed left operand times groups of columns, which are packed here or read in place.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    pub unsafe fn columns(&self, panels: (usize, usize), (first, last): (usize, usize)) {
        let (width, height) = (self.kernels.width, self.panels.height);
        let (most, together) = (self.at_once(width, last - first), self.together());
        let in_place = in_place(&self.product.right, self.kernels, self.parts, panels.1 - panels.0);
        let _ready = self.kernels.ready();
        let memory = match self.product.right {
            Operand::Packed(_) => 0,
            _ => most * width * self.parts.longest() * together,
        };
        // Those of a panel, or of all where later parts come back to them.
        let rows = height * if self.completes() { 1 } else { panels.1 - panels.0 };
        self.with_sums(rows, most * width, |sums| {
            scratch::with(memory, |packed: &mut [f32]| {
                for begin in (first..last).step_by(most) {
                    for some in (0..self.parts.count).step_by(together) {
                        let (groups, parts) =
                            ((begin, last.min(begin + most)), (some, self.parts.count.min(some + together)));
                        // SAFETY: passed on to the caller.
                        unsafe { self.strip_of_columns(panels, (groups, in_place), parts, sums, packed) };
                    }
                }
            });
        });
    }

    /// The panels times some groups, for some parts of the sums.
    ///
    /// # Safety
    /// As [`Tiles::columns`]; `packed` has room for the groups' terms.
    unsafe fn strip_of_columns(
        &self,
        panels: (usize, usize),
        (groups, in_place): ((usize, usize), bool),
        (first_part, last_part): (usize, usize),
        sums: Sums,
        mut packed: &mut [f32],
    ) {
        let Operand::Packed(left) = self.product.left else { unreachable!("the caller has packed it") };
        let ((begin, end), width, height) = (groups, self.kernels.width, self.panels.height);
        let columns = (begin * width, (end * width).min(self.tiled));
        let strip = |part: usize| {
            let (from, terms) = self.parts.get(part);
            let (to, rest) =
                std::mem::take(&mut packed).split_at_mut_checked((end - begin) * width * terms).unwrap_or_default();
            packed = rest;
            // SAFETY: the caller's promise about the right operand.
            let runs = unsafe { self.strip(groups, in_place, (from, terms), to) };
            (part, terms, &left[from * self.panels.count * height..], runs)
        };
        let strips: Vec<_> = (first_part..last_part).map(strip).collect();
        for panel in panels.0..panels.1 {
            let rows = self.rows_of(panel);
            let first_row = if self.completes() { rows.0 } else { self.panels.start(panels.0) };
            let sums = sums.from((first_row, columns.0), self.product.goal);
            for (part, terms, left, runs) in &strips {
                let left = left[panel * terms * height..].as_ptr();
                // The next panel comes from a farther cache while this one's tiles are computed.
                let step = height.div_ceil(end - begin);
                let ahead = |group: usize| (left.wrapping_add(terms * (height + step * (group - begin))), step);
                for run in runs {
                    // SAFETY: both are packed, or readable in place; the tiles are the caller's.
                    unsafe { self.run(rows, (*part, *terms), left, run, sums, ahead) };
                }
            }
            self.finish(last_part, sums, rows, columns);
        }
        let (group, column) = (self.tiled / width, self.tiled % width);
        for (part, terms, left, runs) in &strips {
            for run in runs.iter().filter(|run| (run.groups.0..run.groups.1).contains(&group)) {
                let right = (run.at(group).wrapping_add(column), run.stride);
                // SAFETY: as above.
                unsafe { self.left_over(panels, (*part, *terms), left, right, sums) };
            }
        }
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
            Operand::Strided(..) | Operand::Halves(_) | Operand::Pairs(_) => {}
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
        sums: Sums,
        ahead: impl Fn(usize) -> (*const f32, usize),
    ) {
        let width = self.kernels.width;
        let (begin, end) = (run.groups.0, run.groups.1.min(self.tiled.div_ceil(width)));
        let whole = end.min(self.tiled / width).max(begin);
        for groups in [(begin, whole), (whole, end)] {
            if groups.0 < groups.1 {
                let run = Run { groups, first: run.at(groups.0), ..*run };
                // SAFETY: the caller's promise.
                unsafe { self.tiles(rows, part, left, run, sums, ahead(groups.0)) };
            }
        }
    }

    /// Panels of rows, which are packed here, times groups of a packed right operand.
    ///
    /// # Safety
    /// As [`Product::run`]; these tiles are the caller's.
    pub unsafe fn rows(&self, (first, last): (usize, usize), groups: (usize, usize)) {
        let (width, height) = (self.kernels.width, self.panels.height);
        let (most, together) = (self.at_once(height, last - first), self.together());
        let _ready = self.kernels.ready();
        // Those of a group, or of all where later parts come back to them.
        let columns = width * if self.completes() { 1 } else { groups.1 - groups.0 };
        self.with_sums(most * height, columns, |sums| {
            scratch::with(most * height * self.parts.longest() * together, |packed: &mut [f32]| {
                for begin in (first..last).step_by(most) {
                    for some in (0..self.parts.count).step_by(together) {
                        let (panels, parts) =
                            ((begin, last.min(begin + most)), (some, self.parts.count.min(some + together)));
                        // SAFETY: passed on to the caller.
                        unsafe { self.strip_of_rows(panels, groups, parts, sums, packed) };
                    }
                }
            });
        });
    }

    /// Some panels times the groups, for some parts of the sums.
    ///
    /// # Safety
    /// As [`Tiles::rows`]; `packed` has room for the panels' terms.
    unsafe fn strip_of_rows(
        &self,
        panels: (usize, usize),
        groups: (usize, usize),
        (first_part, last_part): (usize, usize),
        sums: Sums,
        packed: &mut [f32],
    ) {
        let Operand::Packed(right) = self.product.right else { unreachable!("the caller has packed it") };
        let ((begin, end), width, height) = (panels, self.kernels.width, self.panels.height);
        let product = self.product;
        let place = |from: usize| (from - self.parts.get(first_part).0) * (end - begin) * height;
        for part in first_part..last_part {
            let (from, terms) = self.parts.get(part);
            let to = &mut packed[place(from)..][..(end - begin) * height * terms];
            // SAFETY: the caller's promise about the left operand.
            unsafe { product.left.pack_left((self.panels, panels), (from, terms), product.factor, to) };
        }
        let mut rows = [(0, 0); MOST_GROUPS];
        rows.iter_mut().zip(begin..end).for_each(|(rows, panel)| *rows = self.rows_of(panel));
        for group in groups.0..groups.1 {
            let first_column = width * if self.completes() { group } else { groups.0 };
            let sums = sums.from((rows[0].0, first_column), product.goal);
            for part in first_part..last_part {
                let (from, terms) = self.parts.get(part);
                let right = right[(from * self.groups + group * terms) * width..].as_ptr();
                let step = width.div_ceil(end - begin);
                for (panel, &rows) in rows[..end - begin].iter().enumerate() {
                    let ahead = (right.wrapping_add(terms * (width + step * panel)), step);
                    let left = packed[place(from) + panel * terms * height..].as_ptr();
                    let run = Run { groups: (group, group + 1), first: right, stride: width, step: 0 };
                    // SAFETY: both are packed; the tile is the caller's.
                    unsafe { self.tiles(rows, (part, terms), left, run, sums, ahead) };
                }
            }
            let all = (rows[0].0, self.panels.start(end) - rows[0].0);
            self.finish(last_part, sums, all, (group * width, group * width + self.width(group)));
        }
    }

    /// Gives a part of the result that is complete to who wants it, after so many parts of the sums.
    fn finish(&self, parts: usize, sums: Sums, (row, rows): (usize, usize), columns: (usize, usize)) {
        if let Goal::Parts(work) = self.product.goal
            && parts == self.parts.count
            && columns.0 < columns.1
        {
            let first = sums.at(row, columns.0).cast_const();
            work(Part { first, stride: sums.stride, rows: (row, row + rows), columns });
        }
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
        to: Sums,
    ) {
        let (product, height) = (self.product, self.panels.height);
        let column = self.tiled;
        let accumulate = to.accumulate || part > 0;
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
                        let at = i * to.stride + column + j;
                        // SAFETY: the element is the caller's.
                        let out = unsafe { &mut *to.first.add(at) };
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
        sums: Sums,
        ahead: (*const f32, usize),
    ) {
        let (product, (first, end)) = (self.product, run.groups);
        let column = first * self.kernels.width;
        let block = Block {
            depth: terms,
            part: Block::PART,
            left,
            left_at: LeftAt::Packed,
            right: run.first,
            rows_at: RowsAt::Stride(run.stride),
            out: sums.at(row, column),
            out_stride: sums.stride,
            accumulate: sums.accumulate || part > 0,
            epilogue: product.epilogue.filter(|_| part + 1 == self.parts.count),
            channels: product.channels.at(row, column),
            index: product.index + row * sums.stride + column,
            ahead,
            tiles: SideBySide { count: end - first, step: run.step },
        };
        // SAFETY: the caller's promise.
        unsafe { self.kernels.run(&block, rows, self.width(first)) };
    }
}
