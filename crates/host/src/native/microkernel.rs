//! The innermost tile of every product: a few rows by two vectors of columns, summed in registers.
//!
//! The left matrix is packed in panels of a few rows ([`super::panels`]); rows of the right one are found by a stride or by a table of
//! offsets, so that convolutions read their input in place.

mod block;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod tile;

pub(crate) use block::{Block, Channels, LeftAt, RowsAt, SideBySide, Terms};
pub(crate) use tile::{MOST_COLUMNS, MOST_ROWS};

use self::tile::{Spare, add_part, block, finish};
use super::epilogue::Epilogue;
use super::lanes::Arithmetic;
use crate::level::level;
#[cfg(target_arch = "x86_64")]
use crate::level::{Level, multiplies_bfloats};

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

macro_rules! kernels {
    ($module:ident, $lanes:ident, $multiply:ident, $height:literal: $($rows:literal)*, $(#[$attribute:meta])*) => {
        mod $module {
            use super::*;
            use super::tile::$multiply;
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
    /// Computes `rows` x `columns` of the result; `columns` may be less than the width, of a tile alone. Of several each has the width.
    ///
    /// # Safety
    /// `left` has `depth` numbers for each row; all lanes of the `depth` rows of `right` are readable; `out` has `columns` writable elements in
    /// each of `rows` rows, and the epilogue's slices cover them. `self` belongs to the level in use.
    #[inline]
    pub(crate) unsafe fn run(&self, call: &Block, rows: usize, columns: usize) {
        debug_assert!((1..=self.rows).contains(&rows) && columns <= self.width);
        debug_assert!(call.tiles.count == 1 || columns == self.width);
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
                (self.finish)(call, epilogue, [rows, call.tiles.count * columns]);
            }
        }
    }
}
