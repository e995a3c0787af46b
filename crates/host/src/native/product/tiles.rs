//! The tiles of a product under way: strips of the operand that is packed on the way, each beside all of the other one.

use super::Product;
use super::packing::{Operand, Parts};
use crate::native::lanes::has_eight;
use crate::native::microkernel::{Block, Kernels, LeftAt, MOST_COLUMNS, RowsAt, Terms, kernels, kernels_of};
use crate::native::panels::Panels;
use crate::native::scratch;
use crate::native::thin::{self, Thin};

/// Groups, or panels, of a strip at most.
const MOST_GROUPS: usize = 64;
/// Bytes of a right matrix that stays in the first-level cache as it lies.
const SMALL: usize = 16 << 10;

/// Numbers of a strip, so that it takes less than half of the second-level cache: of that, CPUs with AVX-512 have 1 MB at least, others 512 KB.
fn numbers_of_a_strip() -> usize {
    if kernels().width == MOST_COLUMNS { 128 << 10 } else { 48 << 10 }
}

/// A product under way.
pub(super) struct Tiles<'a> {
    product: &'a Product<'a>,
    kernels: &'static Kernels,
    pub panels: Panels,
    pub groups: usize,
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
    pub fn new<'a>(product: &'a Product<'a>) -> Tiles<'a> {
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
    pub unsafe fn columns(&self, panels: (usize, usize), (first, last): (usize, usize)) {
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
