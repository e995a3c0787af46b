//! Two-dimensional transposes by tiles: whole cache lines are read and written, vectors are interleaved in registers.

use super::memory::by_size;
use super::non_temporal;

/// Bytes of a tile's row: one cache line, so that a line is read once and written once.
const LINE: usize = non_temporal::LINE;

/// Rows of the destination that are a multiple of so many bytes apart share few places of the first cache: a line that is written in parts would leave it
/// in between.
const CROWDED: isize = 2048;

/// Tiles next to each other in the source before the next rows: the pages that are written to meanwhile are few.
const BLOCK: usize = 8;

/// Moves `from[i][j]` to `to[j][i]`, where `(rows, columns)` is the size of `from`; `i` is contiguous in `to`, `j` in `from`.
/// A side is its address and the distance of its rows in bytes. `non_temporal` writes around the caches.
///
/// # Safety
/// Every element reached must be readable in `from` and writable in `to`.
pub(crate) unsafe fn transpose(
    element: usize,
    non_temporal: bool,
    size: (usize, usize),
    to: (isize, isize),
    from: (isize, isize),
) {
    let non_temporal = non_temporal && non_temporal::line_aligned(to.0) && non_temporal::line_aligned(to.1);
    // SAFETY: promised by the caller.
    unsafe {
        match element {
            1 => tiles::<u8, 16>(non_temporal, size, to, from, vector::transpose_u8),
            2 => tiles::<u16, 8>(non_temporal, size, to, from, vector::transpose_u16),
            4 => tiles::<u32, 4>(non_temporal, size, to, from, vector::transpose_u32),
            8 => tiles::<u64, 2>(non_temporal, size, to, from, vector::transpose_u64),
            other => by_size!(other, T => scalar::<T>(size.0, size.1, to, from)),
        }
    }
}

/// Transposes `N` x `N` elements between two addresses with row distances.
type Square = unsafe fn((isize, isize), (isize, isize));

/// One tile, made in the first cache before its lines go where they belong.
#[repr(align(64))]
struct CacheTile([[u8; LINE]; LINE]);

/// Goes over the matrix in tiles of a cache line by a cache line, each made of `N` x `N` squares.
#[inline(always)]
unsafe fn tiles<T: Copy, const N: usize>(
    non_temporal: bool,
    (rows, columns): (usize, usize),
    to: (isize, isize),
    from: (isize, isize),
    square: Square,
) {
    let bytes = size_of::<T>() as isize;
    let tile = LINE / size_of::<T>();
    let by_line = non_temporal || to.1 % CROWDED == 0;
    let block = BLOCK * tile;
    for first in (0..columns).step_by(block) {
        let end = columns.min(first + block);
        for row in (0..rows).step_by(tile) {
            let height = tile.min(rows - row);
            for column in (first..end).step_by(tile) {
                let width = tile.min(end - column);
                let (row, column) = (row as isize, column as isize);
                let to = (to.0 + column * to.1 + row * bytes, to.1);
                let from = (from.0 + row * from.1 + column * bytes, from.1);
                // SAFETY: the tile lies inside the matrix.
                unsafe {
                    if by_line && height == tile {
                        line_by_line::<T, N>(non_temporal, width, to, from, square);
                    } else {
                        one_tile::<T, N>(height, width, to, from, square);
                    }
                }
            }
        }
    }
}

/// A tile made in a buffer of its own, from which each line is written once. Apart from the others, since the buffer costs more than a small tile.
#[inline(never)]
unsafe fn line_by_line<T: Copy, const N: usize>(
    non_temporal: bool,
    width: usize,
    to: (isize, isize),
    from: (isize, isize),
    square: Square,
) {
    let mut lines = CacheTile([[0; LINE]; LINE]);
    let buffer = (lines.0.as_mut_ptr() as isize, LINE as isize);
    // SAFETY: passed on to the caller; no tile is larger than the buffer.
    unsafe {
        one_tile::<T, N>(LINE / size_of::<T>(), width, buffer, from, square);
        if non_temporal {
            return non_temporal::lines(to, buffer.0, width);
        }
        for (row, line) in (0..).zip(&lines.0[..width]) {
            ((to.0 + row * to.1) as *mut [u8; LINE]).write_unaligned(*line);
        }
    }
}

/// Transposes one tile: whole squares by vectors, what is left element by element.
#[inline(always)]
unsafe fn one_tile<T: Copy, const N: usize>(
    height: usize,
    width: usize,
    to: (isize, isize),
    from: (isize, isize),
    square: Square,
) {
    let bytes = size_of::<T>() as isize;
    let (whole_height, whole_width) = (height / N * N, width / N * N);
    // SAFETY: the squares and the rest lie inside the tile.
    unsafe {
        for row in (0..whole_height as isize).step_by(N) {
            for column in (0..whole_width as isize).step_by(N) {
                let to = (to.0 + column * to.1 + row * bytes, to.1);
                square(to, (from.0 + row * from.1 + column * bytes, from.1));
            }
        }
        if whole_width < width {
            let skip = whole_width as isize;
            let (to, from) = ((to.0 + skip * to.1, to.1), (from.0 + skip * bytes, from.1));
            scalar::<T>(whole_height, width - whole_width, to, from);
        }
        if whole_height < height {
            let skip = whole_height as isize;
            scalar::<T>(height - whole_height, width, (to.0 + skip * bytes, to.1), (from.0 + skip * from.1, from.1));
        }
    }
}

/// The plain loop.
unsafe fn scalar<T: Copy>(rows: usize, columns: usize, to: (isize, isize), from: (isize, isize)) {
    let bytes = size_of::<T>() as isize;
    for j in 0..columns as isize {
        for i in 0..rows as isize {
            let target = (to.0 + j * to.1 + i * bytes) as *mut T;
            let source = (from.0 + i * from.1 + j * bytes) as *const T;
            // SAFETY: promised by the caller.
            unsafe { target.write_unaligned(source.read_unaligned()) }
        }
    }
}

/// Transposes of squares in 16-byte registers. After log2(N) rounds of interleaving row `i` with row `i + N/2`, an
/// N x N square is transposed; the same rounds serve every element size.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector {
    #[cfg(target_arch = "aarch64")]
    use std::arch::aarch64::*;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::*;

    #[cfg(target_arch = "x86_64")]
    mod register {
        use super::*;
        pub type Register = __m128i;
        pub unsafe fn load(address: isize) -> Register {
            // SAFETY: 16 readable bytes, promised by the caller.
            unsafe { _mm_loadu_si128(address as *const __m128i) }
        }
        pub unsafe fn store(address: isize, value: Register) {
            // SAFETY: 16 writable bytes, promised by the caller.
            unsafe { _mm_storeu_si128(address as *mut __m128i, value) }
        }
    }
    #[cfg(target_arch = "aarch64")]
    mod register {
        use super::*;
        pub type Register = uint8x16_t;
        pub unsafe fn load(address: isize) -> Register {
            // SAFETY: 16 readable bytes, promised by the caller.
            unsafe { vld1q_u8(address as *const u8) }
        }
        pub unsafe fn store(address: isize, value: Register) {
            // SAFETY: 16 writable bytes, promised by the caller.
            unsafe { vst1q_u8(address as *mut u8, value) }
        }
    }
    use register::{Register, load, store};

    macro_rules! square {
        ($name:ident, $n:expr, $rounds:expr, $x86_low:ident, $x86_high:ident, $arm_low:ident, $arm_high:ident, $arm_from:ident, $arm_to:ident) => {
            /// Transposes one square.
            ///
            /// # Safety
            /// The square must be readable in `from` and writable in `to`.
            pub unsafe fn $name(to: (isize, isize), from: (isize, isize)) {
                #[cfg(target_arch = "x86_64")]
                #[inline(always)]
                fn interleave(a: Register, b: Register) -> (Register, Register) {
                    // SAFETY: SSE2 is part of x86-64.
                    unsafe { ($x86_low(a, b), $x86_high(a, b)) }
                }
                #[cfg(target_arch = "aarch64")]
                #[inline(always)]
                fn interleave(a: Register, b: Register) -> (Register, Register) {
                    // SAFETY: NEON is part of aarch64.
                    unsafe {
                        let (a, b) = ($arm_from(a), $arm_from(b));
                        ($arm_to($arm_low(a, b)), $arm_to($arm_high(a, b)))
                    }
                }
                // SAFETY: promised by the caller.
                unsafe {
                    let mut rows: [Register; $n] = std::array::from_fn(|i| load(from.0 + i as isize * from.1));
                    for _ in 0..$rounds {
                        let before = rows;
                        for i in 0..$n / 2 {
                            (rows[2 * i], rows[2 * i + 1]) = interleave(before[i], before[i + $n / 2]);
                        }
                    }
                    for (i, row) in rows.into_iter().enumerate() {
                        store(to.0 + i as isize * to.1, row);
                    }
                }
            }
        };
    }

    #[cfg(target_arch = "aarch64")]
    fn itself(value: Register) -> Register {
        value
    }

    #[rustfmt::skip]
    square!(transpose_u8, 16, 4, _mm_unpacklo_epi8, _mm_unpackhi_epi8, vzip1q_u8, vzip2q_u8, itself, itself);
    #[rustfmt::skip]
    square!(transpose_u16, 8, 3, _mm_unpacklo_epi16, _mm_unpackhi_epi16, vzip1q_u16, vzip2q_u16, vreinterpretq_u16_u8, vreinterpretq_u8_u16);
    #[rustfmt::skip]
    square!(transpose_u32, 4, 2, _mm_unpacklo_epi32, _mm_unpackhi_epi32, vzip1q_u32, vzip2q_u32, vreinterpretq_u32_u8, vreinterpretq_u8_u32);
    #[rustfmt::skip]
    square!(transpose_u64, 2, 1, _mm_unpacklo_epi64, _mm_unpackhi_epi64, vzip1q_u64, vzip2q_u64, vreinterpretq_u64_u8, vreinterpretq_u8_u64);
}

/// Squares on a processor without vectors that we know.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod vector {
    macro_rules! square {
        ($name:ident, $type:ty, $n:expr) => {
            /// Transposes one square.
            ///
            /// # Safety
            /// The square must be readable in `from` and writable in `to`.
            pub unsafe fn $name(to: (isize, isize), from: (isize, isize)) {
                // SAFETY: promised by the caller.
                unsafe { super::scalar::<$type>($n, $n, to, from) }
            }
        };
    }
    square!(transpose_u8, u8, 16);
    square!(transpose_u16, u16, 8);
    square!(transpose_u32, u32, 4);
    square!(transpose_u64, u64, 2);
}
