//! Products whose factors are packed on their own: one by one, or piece by piece, as the iterations of a loop bring them.
//!
//! Pieces are packed side by side, and multiplied when there are enough of them: the result is read and written once for many pieces, and sums stay
//! in registers for longer. Pieces that come again are found packed.

use super::microkernel::{Block, CHUNK, Channels, Kernels, LeftAt, Order, RowsAt, Terms, kernels_of};
use super::pairs::Halves;
use super::panels::{Panels, pack_right};
use super::scratch::{self, Buffer};
use super::stored::widen_lines;
use crate::threads::parallel_for;
use openmps_tile::DType;

/// Terms that are multiplied at once: a group of the right operand is half of the first-level cache.
const TERMS: usize = 256;
/// Numbers of both operands: 384 KiB, less than the second-level cache.
const NUMBERS: usize = 96 << 10;
/// Numbers that a thread keeps packed: 16 MiB, of the third-level cache.
const KEPT: usize = 4 << 20;
/// Chunks of one operand that are looked through.
const MOST_CHUNKS: usize = 64;
/// Numbers of a result above which a product is better shared out and packed by all threads.
const MOST_NUMBERS: usize = 1 << 16;
/// Multiplications, of numbers of 32 bits, that are worth looking for packed factors.
const WORTH_KEEPING: usize = 1 << 15;

/// What the elements of both factors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    Singles,
    /// bfloat16, of which two terms of a sum that follow each other are multiplied at once.
    BfloatPairs,
    /// Half types that are widened as they are packed, since their products are exact in float32.
    Halves,
    Bfloats,
}

impl Elements {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        if self == Elements::Singles { size_of::<f32>() } else { size_of::<u16>() }
    }

    /// What they are where they are packed.
    pub(crate) fn terms(self) -> Terms {
        if self == Elements::BfloatPairs { Terms::BfloatPairs } else { Terms::Singles }
    }
}

/// The size of a product, and how many terms of it are packed at most, where a pair of bfloat16 counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub rows: usize,
    pub columns: usize,
    /// Terms of one piece.
    pub depth: usize,
    /// A multiple of `depth`.
    pub terms: usize,
    pub of: Elements,
}

impl Size {
    /// None where fewer than two pieces would be multiplied at once.
    pub(crate) fn new((rows, columns, depth): (usize, usize, usize), of: Elements) -> Option<Size> {
        let depth = of.terms().numbers(depth)?;
        let most = TERMS.min(NUMBERS / (rows + columns).max(1));
        let pieces = most.checked_div(depth).filter(|&pieces| pieces > 1)?;
        Some(Size { rows, columns, depth, terms: pieces * depth, of })
    }

    /// Of products that are multiplied one by one; none where one is too large for that.
    pub(crate) fn one_by_one((rows, columns, depth): (usize, usize, usize), of: Elements) -> Option<Size> {
        let depth = of.terms().numbers(depth)?;
        let fits = (1..=2 * TERMS).contains(&depth) && rows.saturating_mul(columns) <= MOST_NUMBERS;
        fits.then_some(Size { rows, columns, depth, terms: depth, of })
    }

    /// Whether it is worth looking for packed factors.
    pub(crate) fn is_worth_keeping(&self) -> bool {
        self.rows * self.columns * self.terms >= WORTH_KEEPING
    }
}

/// A factor of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first element.
    pub first: *const u8,
    /// From row to row, from column to column.
    pub strides: [isize; 2],
    /// Whether the same place holds the same numbers until [`Piecewise::forget`].
    pub stays: bool,
}

/// Calls `work` with the 32-bit numbers of a factor's lines of `depth` numbers, and how far apart lines and the numbers of a line are.
///
/// # Safety
/// The elements of these lines are readable.
pub(crate) unsafe fn with_numbers(
    of: Elements,
    first: *const u8,
    (lines, depth): (usize, usize),
    [by_line, by_term]: [isize; 2],
    work: impl FnOnce(*const f32, [isize; 2]),
) {
    match of {
        Elements::Singles => work(first.cast(), [by_line, by_term]),
        Elements::BfloatPairs => {
            let lines = Halves { from: first.cast(), lines, terms: 2 * depth, by_line, by_term };
            // SAFETY: the caller's promise.
            unsafe { lines.with_pairs(work) };
        }
        Elements::Halves | Elements::Bfloats => {
            let dtype = if of == Elements::Halves { DType::F16 } else { DType::BF16 };
            // Neighbours are widened at once, be they terms of a line or the same term of all lines.
            let is_across = by_line == 1 && by_term != 1;
            let (length, strides) = if is_across { (lines, [by_term, by_line]) } else { (depth, [by_line, by_term]) };
            scratch::with(lines * depth, |wide: &mut [f32]| {
                // SAFETY: the caller's promise.
                unsafe { widen_lines(dtype, first.addr(), strides, wide, length.max(1)) };
                work(wide.as_ptr(), if is_across { [1, lines as isize] } else { [depth as isize, 1] });
            });
        }
    }
}

/// Where a sum is. Columns are neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub first: *mut f32,
    /// From row to row.
    pub stride: usize,
    /// Whether it holds something to add to.
    pub accumulate: bool,
}

/// A product under way, and its packed pieces.
pub(crate) struct Piecewise {
    size: Size,
    /// Terms that are packed and not yet multiplied.
    filled: usize,
    left: Side,
    right: Side,
    /// A left factor that is multiplied where it lies, since it is read once: its first number and the distance of its rows.
    rows: Option<(*const f32, usize)>,
}

impl Piecewise {
    /// One of so many products of a program.
    pub(crate) fn new(size: Size, products: usize) -> Piecewise {
        let kernels = kernels_of(size.of.terms());
        let (panels, width) = (Panels::of(size.rows, kernels), kernels.width);
        let side = |numbers: usize| {
            let most = (KEPT / (2 * products * numbers.max(1))).clamp(1, MOST_CHUNKS);
            Side { numbers, most, chunks: Vec::new(), current: 0 }
        };
        let right = side(size.columns.next_multiple_of(width) * size.terms);
        Piecewise { size, filled: 0, left: side(panels.packed_len(size.terms)), right, rows: None }
    }

    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// No piece stays beyond this, and nothing is left to add.
    pub(crate) fn forget(&mut self) {
        self.filled = 0;
        for side in [&mut self.left, &mut self.right] {
            side.chunks.iter_mut().for_each(|chunk| chunk.pieces.clear());
            side.current = 0;
        }
    }

    /// Adds the product of two factors to a sum, at once or when others have come.
    ///
    /// # Safety
    /// The factors' elements are readable, the sum's are writable and nobody else's. Until [`Self::finish`] the sum is the same.
    pub(crate) unsafe fn add(&mut self, left: Piece, right: Piece, out: Out) {
        let Size { rows, columns, depth, terms, of } = self.size;
        let (at, from) = (self.filled / depth, self.filled);
        let kernels = kernels_of(of.terms());
        let (panels, width) = (Panels::of(rows, kernels), kernels.width);
        let is_alone = depth == terms;
        self.rows = rows_in_place(self.size, left).filter(|_| is_alone && !left.stays);
        let pack_left = |packed: &mut [f32]| {
            // SAFETY: the caller's promise.
            unsafe {
                with_numbers(of, left.first, (rows, depth), left.strides, |first, [by_row, by_term]| {
                    for p in 0..panels.count {
                        let to = &mut packed[(p * terms + from) * panels.height..];
                        panels.pack((p, p + 1), first, (by_row, by_term), depth, 1.0, to);
                    }
                });
            }
        };
        if self.rows.is_none() {
            self.left.bring(at, left, pack_left);
        }
        self.right.bring(at, right, |packed| {
            let ([by_term, by_column], to) = (right.strides, &mut packed[from * width..]);
            // SAFETY: the caller's promise.
            unsafe {
                with_numbers(of, right.first, (columns, depth), [by_column, by_term], |first, [by_column, by_term]| {
                    pack_right(first, (by_term, by_column), (depth, columns), (width, terms), to);
                });
            }
        });
        self.filled += depth;
        if self.filled == terms {
            // SAFETY: the caller's promise.
            unsafe { self.finish(out) };
        }
    }

    /// Adds what has not been added yet.
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(crate) unsafe fn finish(&mut self, out: Out) {
        if self.filled == 0 {
            return;
        }
        let kernels = kernels_of(self.size.of.terms());
        let panels = Panels::of(self.size.rows, kernels);
        let left = match self.rows {
            Some((first, by_row)) => Left::Rows(first, by_row),
            None => Left::Packed(self.left.numbers()),
        };
        let right = self.right.numbers();
        let work = Multiplication { size: self.size, kernels, panels, filled: self.filled, left, right, out };
        let ns = self.size.rows * kernels.width * self.filled / kernels.rate + 20;
        // SAFETY: the caller's promise; each group of columns is one task's.
        let groups = |first: usize, last: usize| (first..last).for_each(|group| unsafe { work.group(group) });
        parallel_for(self.size.columns.div_ceil(kernels.width), ns, groups);
        self.filled = 0;
    }
}

/// The rows of a left factor, where each is 32-bit numbers one after the other.
fn rows_in_place(size: Size, left: Piece) -> Option<(*const f32, usize)> {
    let [by_row, by_term] = left.strides;
    let (is_whole, each) = match size.of {
        Elements::Singles => (by_term == 1, 1),
        Elements::Halves | Elements::Bfloats => return None,
        Elements::BfloatPairs => {
            let (from, lines, terms) = (left.first.cast(), size.rows, 2 * size.depth);
            // The matrix unit reads whole registers.
            let fits = kernels_of(Terms::BfloatPairs).order == Order::Terms || lines.is_multiple_of(CHUNK);
            (fits && Halves { from, lines, terms, by_line: by_row, by_term }.in_place(), 2)
        }
    };
    (is_whole && by_row >= 0).then_some((left.first.cast(), by_row as usize / each))
}

/// The packed pieces of one operand, by chunks that are multiplied at once.
struct Side {
    /// Numbers of a chunk.
    numbers: usize,
    /// Chunks at most.
    most: usize,
    chunks: Vec<Chunk>,
    /// The one that is being filled.
    current: usize,
}

#[derive(Default)]
struct Chunk {
    pieces: Vec<Piece>,
    memory: Option<Buffer>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.memory.take().into_iter().for_each(scratch::give);
    }
}

impl Side {
    /// Sees to it that a piece is number `at` of the current chunk, where `pack` puts it if it is not there.
    fn bring(&mut self, at: usize, piece: Piece, pack: impl FnOnce(&mut [f32])) {
        if at == 0 {
            self.current = self.choose(piece);
        }
        let chunk = &mut self.chunks[self.current];
        if chunk.pieces.get(at) == Some(&piece) && piece.stays {
            return;
        }
        chunk.pieces.truncate(at);
        chunk.pieces.push(piece);
        let bytes = self.numbers * size_of::<f32>();
        // Kept for long: no memory that a larger use could have.
        pack(chunk.memory.get_or_insert_with(|| scratch::take(bytes, 2 * bytes)).numbers_mut());
    }

    /// The chunk that begins with a piece, or one that may be overwritten: a new one while there is room, else the next in turn.
    fn choose(&mut self, piece: Piece) -> usize {
        let found = self.chunks.iter().position(|chunk| chunk.pieces.first().is_none_or(|first| *first == piece));
        match found {
            Some(chunk) => chunk,
            None if !piece.stays && !self.chunks.is_empty() => self.current,
            None if self.chunks.len() < self.most => {
                self.chunks.push(Chunk::default());
                self.chunks.len() - 1
            }
            None => (self.current + 1) % self.most,
        }
    }

    fn numbers(&self) -> &[f32] {
        self.chunks[self.current].memory.as_ref().map_or(&[], Buffer::numbers)
    }
}

/// What is multiplied.
struct Multiplication<'a> {
    size: Size,
    kernels: &'static Kernels,
    panels: Panels,
    filled: usize,
    left: Left<'a>,
    right: &'a [f32],
    out: Out,
}

/// A left operand: by panels, or its first element and the distance of its rows.
enum Left<'a> {
    Packed(&'a [f32]),
    Rows(*const f32, usize),
}

// SAFETY: tasks read the packed operands and write columns of the result that are theirs alone.
unsafe impl Sync for Multiplication<'_> {}

impl Multiplication<'_> {
    /// All panels times one group of columns, which stays in the first-level cache.
    ///
    /// # Safety
    /// As [`Piecewise::finish`]; the group's columns are the caller's.
    unsafe fn group(&self, group: usize) {
        let (Size { columns, terms, .. }, width) = (self.size, self.kernels.width);
        let Out { first, stride, accumulate } = self.out;
        let column = group * width;
        let _ready = self.kernels.ready();
        for p in 0..self.panels.count {
            let (row, height) = (self.panels.start(p), self.panels.height);
            let (left, left_at, ahead) = match self.left {
                Left::Packed(numbers) => {
                    let left = numbers[p * terms * height..].as_ptr();
                    (left, LeftAt::Packed, (left.wrapping_add(terms * height), height))
                }
                Left::Rows(first, stride) => (first.wrapping_add(row * stride), LeftAt::Rows(stride), Block::NOTHING),
            };
            let block = Block {
                depth: self.filled,
                part: Block::PART,
                left,
                left_at,
                right: self.right[group * terms * width..].as_ptr(),
                rows_at: RowsAt::Stride(width),
                out: first.wrapping_add(row * stride + column),
                out_stride: stride,
                accumulate,
                epilogue: None,
                channels: Channels::Rows(0),
                index: 0,
                ahead,
                tiles: Block::ALONE,
            };
            // SAFETY: the caller's promise.
            unsafe { self.kernels.run(&block, self.panels.start(p + 1) - row, width.min(columns - column)) };
        }
    }
}

#[cfg(test)]
mod tests;
