//! The innermost tile of every product: a few rows by two vectors of columns, summed in registers.
//!
//! The left matrix is packed in panels of a few rows ([`super::panels`]); rows of the right one are found by a stride or by a table of
//! offsets, so that convolutions read their input in place.

#[cfg(target_arch = "x86_64")]
mod amx;
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
use crate::level::{Level, bfloats_at_once, multiplies_tiles};

type Kernel = unsafe fn(&Block);

/// The micro-kernels of one level.
pub(crate) struct Kernels {
    /// Rows of a tile, and of a panel.
    pub rows: usize,
    /// Columns of a tile.
    pub width: usize,
    pub order: Order,
    /// Terms of a sum in one go, at most: 384 of a panel are 9 KiB, with AVX-512 12, and fit the first-level cache of every CPU here; every pass over the
    /// result that is saved is worth more than a group in that cache. Of AMX's 192 are 24 KiB, beside a group of as many bytes.
    pub depth: usize,
    /// Multiplications of 32-bit numbers in a nanosecond, about.
    pub rate: usize,
    by: By,
}

/// How the numbers of a panel follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// A term of all its rows, then the next term.
    Terms,
    /// [`CHUNK`] terms of a row, the same of the next row, then the next terms of all rows; panels but the last have all rows.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "it is what the matrix unit of Intel's CPUs reads")
    )]
    Chunks,
}

/// Numbers of a row that follow each other in [`Order::Chunks`].
pub(crate) const CHUNK: usize = 16;
/// Rows of a panel in that order.
pub(crate) const CHUNK_ROWS: usize = 2 * CHUNK;

/// What multiplies.
enum By {
    Vectors(Vectors),
    #[cfg(target_arch = "x86_64")]
    Tiles,
}

/// A thread's readiness to call some kernels.
pub(crate) struct Ready {
    #[cfg(target_arch = "x86_64")]
    #[expect(dead_code, reason = "it is there to be dropped")]
    tiles: Option<amx::Configured>,
}

/// Kernels that keep the sums of a tile in vectors.
struct Vectors {
    finish: unsafe fn(&Block, &Epilogue, [usize; 2]),
    add_part: unsafe fn(&Block, *const f32, [usize; 2]),
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
            unsafe fn add_rows(call: &Block, spare: *const f32, size: [usize; 2]) {
                // SAFETY: passed on to the caller.
                unsafe { add_part::<Register>(call, spare, size) }
            }

            pub(super) static KERNELS: Kernels = Kernels {
                rows: $height,
                width: 2 * Register::N,
                order: Order::Terms,
                depth: 384,
                rate: 40,
                by: By::Vectors(Vectors {
                    finish: finish_rows,
                    add_part: add_rows,
                    strided: &[$(run::<$height, $rows, 2, false>),*],
                    by_rows: &[$(run::<0, $rows, 2, false>),*],
                    half: &[$(run::<$height, $rows, 1, false>),*],
                    tabled: &[$(run::<$height, $rows, 2, true>),*],
                }),
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

#[cfg(target_arch = "x86_64")]
static AMX: Kernels =
    Kernels { rows: amx::ROWS, width: amx::COLUMNS, order: Order::Chunks, depth: 192, rate: 400, by: By::Tiles };

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

/// The micro-kernels of the level in use for these terms; tiles have one width at a level. Pairs of bfloat16 are for a CPU that [`bfloats_at_once`] names a
/// number for.
pub(crate) fn kernels_of(terms: Terms) -> &'static Kernels {
    match terms {
        #[cfg(target_arch = "x86_64")]
        Terms::BfloatPairs if multiplies_tiles() => &AMX,
        #[cfg(target_arch = "x86_64")]
        Terms::BfloatPairs => {
            assert!(bfloats_at_once().is_some(), "pairs of bfloat16 without the instructions for them");
            &avx512_bfloats::KERNELS
        }
        #[cfg(not(target_arch = "x86_64"))]
        Terms::BfloatPairs => unreachable!("pairs of bfloat16 without the instructions for them"),
        Terms::Singles => kernels(),
    }
}

impl Kernels {
    /// What must live on a thread while it calls [`Kernels::run`].
    pub(crate) fn ready(&self) -> Ready {
        Ready {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: these kernels are those of a CPU that multiplies tiles.
            tiles: matches!(self.by, By::Tiles).then(|| unsafe { amx::Configured::new() }),
        }
    }

    /// Computes `rows` x `columns` of the result; `columns` may be less than the width, of a tile alone. Of several each has the width.
    ///
    /// # Safety
    /// `left` has `depth` numbers for each row, and in [`Order::Chunks`] as many for each row of a panel, or of sixteen where it is not packed; all lanes of the
    /// `depth` rows of `right` are readable; `out` has `columns` writable elements in each of `rows` rows, and the epilogue's slices cover them. `self` belongs to
    /// the level in use, and is [`Kernels::ready`] on this thread.
    #[inline]
    pub(crate) unsafe fn run(&self, call: &Block, rows: usize, columns: usize) {
        debug_assert!((1..=self.rows).contains(&rows) && columns <= self.width);
        debug_assert!(call.tiles.count == 1 || columns == self.width);
        // SAFETY: passed on to the caller.
        unsafe {
            match &self.by {
                By::Vectors(vectors) => vectors.run(call, [rows, columns], self.width),
                #[cfg(target_arch = "x86_64")]
                By::Tiles => amx::run(call, rows, columns),
            }
        }
    }
}

impl Vectors {
    /// # Safety
    /// As [`Kernels::run`].
    #[inline]
    unsafe fn run(&self, call: &Block, [rows, columns]: [usize; 2], width: usize) {
        let half = 2 * columns <= width;
        let (kernel, width) = match (call.rows_at, call.left_at) {
            (RowsAt::Stride(_), LeftAt::Rows(_)) => (self.by_rows[rows - 1], width),
            (RowsAt::Stride(_), LeftAt::Packed) if half => (self.half[rows - 1], width / 2),
            (RowsAt::Stride(_), LeftAt::Packed) => (self.strided[rows - 1], width),
            (RowsAt::Table(_), _) => (self.tabled[rows - 1], width),
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
                (self.add_part)(call, out, [rows, columns]);
            }
            if let Some(epilogue) = call.epilogue
                && !(whole && epilogue.quick().is_some())
            {
                (self.finish)(call, epilogue, [rows, call.tiles.count * columns]);
            }
        }
    }
}
