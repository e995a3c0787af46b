//! The innermost tile of every product: a few rows by two vectors of columns, summed in registers.
//!
//! The left matrix is packed in panels of a few rows ([`super::panels`]); rows of the right one are found by a stride or by a table of
//! offsets, so that convolutions read their input in place.

use super::epilogue::{Epilogue, Single};
use super::lanes::{Arithmetic, Lanes};
use crate::level::level;
#[cfg(target_arch = "x86_64")]
use crate::level::{Level, multiplies_bfloats};

/// Rows of a tile at most, at any level.
pub(crate) const MOST_ROWS: usize = 8;
/// Columns of a tile at most, at any level.
pub(crate) const MOST_COLUMNS: usize = 32;

/// Terms that are summed up before they are added to the others: the error of a sum grows with its length. Parts of 128 make that of 384 terms
/// 0.6 times as large, and the tile 1 to 2 % slower; parts of 64 make it 4 % slower on a Zen 3.
const PART: usize = 128;
/// Terms that are multiplied between two looks at the end.
const AT_ONCE: usize = 2;
/// Numbers of a line of the caches.
const LINE: usize = 16;

/// One call of the micro-kernel.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// Terms of each sum.
    pub depth: usize,
    /// The panel's first number.
    pub left: *const f32,
    /// Where the others are.
    pub left_at: LeftAt,
    /// The first row of the right matrix; each has `columns` numbers, and all lanes are readable.
    pub right: *const f32,
    /// Where the other rows are.
    pub rows_at: RowsAt,
    /// The first element of the result.
    pub out: *mut f32,
    /// From one row of the result to the next.
    pub out_stride: usize,
    /// Whether the sums are added to what the result holds.
    pub accumulate: bool,
    /// Applied before storing; none while more terms are to come.
    pub epilogue: Option<&'a Epilogue<'a>>,
    /// The output channels of the block, for the epilogue.
    pub channels: Channels,
    /// The index of the block's first element in the whole output, for the epilogue's residual.
    pub index: usize,
    /// What is read soon, and how many numbers of it are asked for with each term.
    pub ahead: (*const f32, usize),
}

impl Block<'_> {
    /// Nothing is asked for ahead.
    pub const NOTHING: (*const f32, usize) = (std::ptr::null(), 0);
}

/// What 32 bits of the operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// A number.
    Singles,
    /// Two numbers of bfloat16, of two terms of a sum that follow each other.
    BfloatPairs,
}

impl Terms {
    /// How many numbers of 32 bits so many terms are; none where one would be left over.
    pub(crate) fn numbers(self, terms: usize) -> Option<usize> {
        match self {
            Terms::Singles => Some(terms),
            Terms::BfloatPairs => terms.is_multiple_of(2).then_some(terms / 2),
        }
    }

    /// Bytes of a term.
    pub(crate) fn size(self) -> usize {
        match self {
            Terms::Singles => size_of::<f32>(),
            Terms::BfloatPairs => size_of::<u16>(),
        }
    }
}

/// What one instruction adds to sums.
trait Multiply<V: Lanes> {
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn add(left: V, right: V, sums: V) -> V;
}

/// [`Terms::Singles`].
struct Singles;

impl<V: Lanes> Multiply<V> for Singles {
    #[inline(always)]
    unsafe fn add(left: V, right: V, sums: V) -> V {
        // SAFETY: the caller's promise.
        unsafe { left.fma(right, sums) }
    }
}

/// [`Terms::BfloatPairs`].
#[cfg(target_arch = "x86_64")]
struct BfloatPairs;

#[cfg(target_arch = "x86_64")]
impl Multiply<super::lanes::Avx512> for BfloatPairs {
    #[inline(always)]
    unsafe fn add(
        left: super::lanes::Avx512,
        right: super::lanes::Avx512,
        sums: super::lanes::Avx512,
    ) -> super::lanes::Avx512 {
        // SAFETY: the caller's promise.
        unsafe { left.add_bfloat_products(right, sums) }
    }
}

/// Where the numbers of a panel are.
#[derive(Clone, Copy)]
pub(crate) enum LeftAt {
    /// `depth` groups of [`Kernels::rows`] numbers.
    Packed,
    /// Each row's one after the other, the rows so many numbers apart. The right matrix's rows are found by a stride.
    Rows(usize),
}

/// Where row p of the right matrix starts, in elements from row 0.
#[derive(Clone, Copy)]
pub(crate) enum RowsAt {
    /// At `p * stride`.
    Stride(usize),
    /// At `table[p]`.
    Table(*const usize),
}

/// Which channel of an epilogue an element of a result has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channels {
    /// Each row has one, as the images of a convolution do; the first row's.
    Rows(usize),
    /// Each column has one, as the rows of a linear layer's result do; the first column's.
    Columns(usize),
}

impl Channels {
    /// Those of the part that begins at this row and column.
    pub(crate) fn at(self, row: usize, column: usize) -> Channels {
        match self {
            Channels::Rows(first) => Channels::Rows(first + row),
            Channels::Columns(first) => Channels::Columns(first + column),
        }
    }

    /// The first one.
    pub(crate) fn first(self) -> usize {
        match self {
            Channels::Rows(first) | Channels::Columns(first) => first,
        }
    }
}

type Kernel = unsafe fn(&Block);

/// The micro-kernels of one level.
pub(crate) struct Kernels {
    /// Rows of a tile, and of a panel.
    pub rows: usize,
    /// Columns of a tile.
    pub width: usize,
    finish: unsafe fn(&Block, &Epilogue, [usize; 2]),
    add_part: unsafe fn(&Block, &Spare, [usize; 2]),
    /// By the number of rows, less one.
    strided: &'static [Kernel],
    /// Those that read a panel by its rows.
    by_rows: &'static [Kernel],
    /// Those of one vector of columns.
    half: &'static [Kernel],
    tabled: &'static [Kernel],
}

/// A tile that is not yet in the result.
#[repr(align(64))]
struct Spare([f32; MOST_ROWS * MOST_COLUMNS]);

/// Adds one term's products to the sums.
///
/// # Safety
/// The CPU has the instructions; R numbers of the left matrix, `by_row` apart, and W vectors of the right one are readable.
#[inline(always)]
unsafe fn add_term<V: Lanes, M: Multiply<V>, const R: usize, const W: usize>(
    sums: &mut [[V; W]; R],
    left: *const f32,
    by_row: usize,
    right: *const f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut b = [V::splat(0.0); W];
        for j in 0..W {
            b[j] = V::load(right.add(j * V::N));
        }
        for i in 0..R {
            let a = V::splat(*left.add(i * by_row));
            for j in 0..W {
                sums[i][j] = M::add(a, b[j], sums[i][j]);
            }
        }
    }
}

/// R rows by W vectors; H is the height of a panel, 0 where it is read by its rows.
#[inline(always)]
unsafe fn block<V: Lanes, M: Multiply<V>, const H: usize, const R: usize, const W: usize, const TABLED: bool>(
    call: &Block,
) {
    // SAFETY: the caller vouches for all lanes of `depth` rows and for R x W vectors of the result.
    unsafe {
        for i in 0..R {
            for j in 0..W {
                V::prefetch(call.out.wrapping_add(i * call.out_stride + j * V::N));
            }
        }
        let (mut left, mut row) = (call.left, call.right);
        // Where there is a table, the row stays the first one.
        let (stride, table) = match call.rows_at {
            RowsAt::Stride(stride) => (stride, std::ptr::null()),
            RowsAt::Table(table) => (0, table),
        };
        // From one number of a column to the next, and from one column to the next.
        let (by_row, by_term) = match call.left_at {
            LeftAt::Rows(stride) if H == 0 => (stride, 1),
            _ => (1, H),
        };
        // The parts' sum lies on the stack: rows of the result may be a page apart, where the first-level cache holds only a few.
        let mut total = [[V::splat(0.0); W]; R];
        let (mut ahead, step) = call.ahead;
        let mut done = 0;
        let mut sums = loop {
            let mut sums = [[V::splat(0.0); W]; R];
            // What would be left over, and is short, is no part of its own.
            let last = if call.depth <= done + PART + PART / 2 { call.depth } else { done + PART };
            let mut p = done;
            while p < last {
                // The last one of an odd number of terms is added alone.
                let terms = if p + AT_ONCE <= last { AT_ONCE } else { 1 };
                if terms == AT_ONCE {
                    for u in 0..AT_ONCE {
                        let right =
                            if TABLED { call.right.add(*table.add(p + u)) } else { row.wrapping_add(u * stride) };
                        add_term::<V, M, R, W>(&mut sums, left.add(u * by_term), by_row, right);
                    }
                } else {
                    let right = if TABLED { call.right.add(*table.add(p)) } else { row };
                    add_term::<V, M, R, W>(&mut sums, left, by_row, right);
                }
                V::prefetch_to_second(ahead);
                if 2 * step > LINE {
                    V::prefetch_to_second(ahead.wrapping_add(step));
                }
                ahead = ahead.wrapping_add(terms * step);
                left = left.add(terms * by_term);
                row = row.wrapping_add(terms * stride);
                p += terms;
            }
            if done > 0 {
                for i in 0..R {
                    for j in 0..W {
                        sums[i][j] = sums[i][j].add(total[i][j]);
                    }
                }
            }
            if last == call.depth {
                break sums;
            }
            total = sums;
            done = last;
        };
        if call.accumulate {
            for i in 0..R {
                for j in 0..W {
                    sums[i][j] = sums[i][j].add(V::load(call.out.add(i * call.out_stride + j * V::N)));
                }
            }
        }
        if let Some(quick) = call.epilogue.and_then(Epilogue::quick) {
            if let Some(bias) = quick.bias {
                for i in 0..R {
                    for j in 0..W {
                        let bias = match call.channels {
                            Channels::Rows(first) => V::splat(bias[first + i]),
                            Channels::Columns(first) => V::load(bias.as_ptr().add(first + j * V::N)),
                        };
                        sums[i][j] = sums[i][j].add(bias);
                    }
                }
            }
            sums = quick.apply(sums, call.index, call.out_stride);
        }
        for i in 0..R {
            for j in 0..W {
                sums[i][j].store(call.out.add(i * call.out_stride + j * V::N));
            }
        }
    }
}

/// Applies an epilogue to rows and columns of the result.
#[inline(always)]
unsafe fn finish<V: Lanes>(call: &Block, epilogue: &Epilogue, [rows, columns]: [usize; 2]) {
    for i in 0..rows {
        let whole = columns / V::N * V::N;
        // SAFETY: the caller vouches for the block's elements and for the epilogue's.
        unsafe {
            for j in (0..whole).step_by(V::N) {
                finish_one::<V>(call, epilogue, i, j);
            }
            for j in whole..columns {
                finish_one::<Single>(call, epilogue, i, j);
            }
        }
    }
}

#[inline(always)]
unsafe fn finish_one<V: Arithmetic>(call: &Block, epilogue: &Epilogue, i: usize, j: usize) {
    let at = i * call.out_stride + j;
    // SAFETY: the caller vouches for the block's elements and for the epilogue's.
    unsafe {
        let out = call.out.add(at);
        let value = V::load(out);
        let value = match call.channels {
            Channels::Rows(first) => epilogue.apply(value, first + i, call.index + at),
            Channels::Columns(first) => epilogue.apply_along(value, first + j, call.index + at),
        };
        value.store(out);
    }
}

/// Stores, or adds, the first rows and columns of a spare tile to the result.
#[inline(always)]
unsafe fn add_part<V: Lanes>(call: &Block, spare: &Spare, [rows, columns]: [usize; 2]) {
    let whole = columns / V::N * V::N;
    for i in 0..rows {
        // SAFETY: the caller vouches for `columns` elements in each of the rows, and no tile is larger than a spare one.
        unsafe {
            let (from, out) = (spare.0.as_ptr().add(i * MOST_COLUMNS), call.out.add(i * call.out_stride));
            for j in (0..whole).step_by(V::N) {
                let sum = V::load(from.add(j));
                let sum = if call.accumulate { sum.add(V::load(out.add(j))) } else { sum };
                sum.store(out.add(j));
            }
            for j in whole..columns {
                let sum = *from.add(j);
                *out.add(j) = if call.accumulate { sum + *out.add(j) } else { sum };
            }
        }
    }
}

macro_rules! kernels {
    ($module:ident, $lanes:ident, $multiply:ident, $height:literal: $($rows:literal)*, $(#[$attribute:meta])*) => {
        mod $module {
            use super::*;
            use crate::native::lanes::$lanes as Register;

            $(#[$attribute])*
            unsafe fn run<const H: usize, const R: usize, const W: usize, const TABLED: bool>(call: &Block) {
                // SAFETY: passed on to the caller.
                unsafe { block::<Register, $multiply, H, R, W, TABLED>(call) }
            }

            $(#[$attribute])*
            unsafe fn finish_rows(call: &Block, epilogue: &Epilogue, size: [usize; 2]) {
                // SAFETY: passed on to the caller.
                unsafe { finish::<Register>(call, epilogue, size) }
            }

            $(#[$attribute])*
            unsafe fn add_rows(call: &Block, spare: &Spare, size: [usize; 2]) {
                // SAFETY: passed on to the caller.
                unsafe { add_part::<Register>(call, spare, size) }
            }

            pub(super) static KERNELS: Kernels = Kernels {
                rows: $height,
                width: 2 * Register::N,
                finish: finish_rows,
                add_part: add_rows,
                strided: &[$(run::<$height, $rows, 2, false>),*],
                by_rows: &[$(run::<0, $rows, 2, false>),*],
                half: &[$(run::<$height, $rows, 1, false>),*],
                tabled: &[$(run::<$height, $rows, 2, true>),*],
            };
        }
    };
}

// The heights: 8 x 2 and 6 x 2 sums hide the latency of fused multiply-add on two pipes, leave registers for the operands, and load few enough
// numbers for each of them. Of 6 to 24 rows and 16 to 96 columns of AVX-512, 8 x 32 was the fastest: 98 % of the multiply-adds' own rate on Zen 4.
#[cfg(target_arch = "x86_64")]
kernels!(avx512, Avx512, Singles, 8: 1 2 3 4 5 6 7 8, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]);
// As many sums: the instruction takes as long as a multiply-add, and multiplies twice as many numbers.
#[cfg(target_arch = "x86_64")]
kernels!(avx512_bfloats, Avx512, BfloatPairs, 8: 1 2 3 4 5 6 7 8, #[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, Avx2, Singles, 6: 1 2 3 4 5 6, #[target_feature(enable = "avx2,fma,f16c,bmi2")]);
kernels!(portable, Portable, Singles, 6: 1 2 3 4 5 6,);

/// The micro-kernels of the level in use.
pub(crate) fn kernels() -> &'static Kernels {
    match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &avx512::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &avx2::KERNELS,
        _ => &portable::KERNELS,
    }
}

/// The micro-kernels of the level in use for these terms; panels and tiles have one size at a level. Pairs of bfloat16 are for a CPU that
/// [`multiplies_bfloats`].
pub(crate) fn kernels_of(terms: Terms) -> &'static Kernels {
    match terms {
        #[cfg(target_arch = "x86_64")]
        Terms::BfloatPairs => {
            assert!(multiplies_bfloats(), "pairs of bfloat16 without the instructions for them");
            &avx512_bfloats::KERNELS
        }
        #[cfg(not(target_arch = "x86_64"))]
        Terms::BfloatPairs => unreachable!("pairs of bfloat16 without the instructions for them"),
        Terms::Singles => kernels(),
    }
}

impl Kernels {
    /// Computes `rows` x `columns` of the result; `columns` may be less than the width.
    ///
    /// # Safety
    /// `left` has `depth` numbers for each row; all lanes of the `depth` rows of `right` are readable; `out` has `columns` writable elements in
    /// each of `rows` rows, and the epilogue's slices cover them. `self` belongs to the level in use.
    #[inline]
    pub(crate) unsafe fn run(&self, call: &Block, rows: usize, columns: usize) {
        debug_assert!((1..=self.rows).contains(&rows) && columns <= self.width);
        let half = 2 * columns <= self.width;
        let (kernel, width) = match (call.rows_at, call.left_at) {
            (RowsAt::Stride(_), LeftAt::Rows(_)) => (self.by_rows[rows - 1], self.width),
            (RowsAt::Stride(_), LeftAt::Packed) if half => (self.half[rows - 1], self.width / 2),
            (RowsAt::Stride(_), LeftAt::Packed) => (self.strided[rows - 1], self.width),
            (RowsAt::Table(_), _) => (self.tabled[rows - 1], self.width),
        };
        let whole = columns == width;
        // SAFETY: the caller's promise; a spare tile has room for the largest.
        unsafe {
            if whole {
                kernel(call);
            } else {
                let mut spare = Spare([0.0; MOST_ROWS * MOST_COLUMNS]);
                let out = spare.0.as_mut_ptr();
                kernel(&Block { out, out_stride: MOST_COLUMNS, accumulate: false, epilogue: None, ..*call });
                (self.add_part)(call, &spare, [rows, columns]);
            }
            if let Some(epilogue) = call.epilogue
                && !(whole && epilogue.quick().is_some())
            {
                (self.finish)(call, epilogue, [rows, columns]);
            }
        }
    }
}
