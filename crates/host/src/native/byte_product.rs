//! Products of integers of 8 bits that are summed in 32, wrapping, as quantised layers of Triton's kernels multiply.
//!
//! Two terms of a sum that follow each other are one number of 32 bits, which an instruction of AVX2 multiplies and adds up at once.

use super::scratch;
#[cfg(target_arch = "x86_64")]
use crate::level::{Level, level};

/// A factor: its first number, and bytes from one row, and from one column, to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub first: *const i8,
    pub by_row: isize,
    pub by_column: isize,
}

impl Bytes {
    /// Two neighbours as the halves of one number; the second is 0 where there is none.
    ///
    /// # Safety
    /// The first is an element, and so is the second where `has_second`.
    unsafe fn pair(&self, at: isize, step: isize, has_second: bool) -> i32 {
        // SAFETY: the caller's promise.
        let read = |offset: isize| i32::from(unsafe { self.first.offset(offset).read() });
        let second = if has_second { read(at + step) } else { 0 };
        read(at) & 0xffff | second << 16
    }
}

/// Columns that are summed in registers.
const WIDTH: usize = 32;
/// Rows that share what is read of the right factor.
const HEIGHT: usize = 2;

/// Adds `left right` to a matrix whose rows are `pitch` numbers apart.
///
/// # Safety
/// The factors have rows x depth and depth x columns elements; `to` has rows x columns writable ones, which overlap neither.
pub(crate) unsafe fn add(
    (rows, columns, depth): (usize, usize, usize),
    to: *mut i32,
    pitch: isize,
    [left, right]: [Bytes; 2],
) {
    let (pairs, groups) = (depth.div_ceil(2), columns.div_ceil(WIDTH));
    if pairs == 0 {
        return;
    }
    let lines = rows.div_ceil(HEIGHT) * HEIGHT;
    scratch::with(pairs * (lines + groups * WIDTH), |memory: &mut [i32]| {
        let (of_left, of_right) = memory.split_at_mut(pairs * lines);
        // Rows and columns that are not there are zeros.
        of_left[pairs * rows..].fill(0);
        for (row, line) in of_left.chunks_exact_mut(pairs).take(rows).enumerate() {
            for (k, pair) in line.iter_mut().enumerate() {
                let at = row as isize * left.by_row + 2 * k as isize * left.by_column;
                // SAFETY: the caller's promise.
                *pair = unsafe { left.pair(at, left.by_column, 2 * k + 1 < depth) };
            }
        }
        for (i, line) in of_right.chunks_exact_mut(WIDTH).enumerate() {
            let (first, k) = (i / pairs * WIDTH, i % pairs);
            let (there, rest) = line.split_at_mut(WIDTH.min(columns - first));
            rest.fill(0);
            for (column, pair) in (first..).zip(there) {
                let at = 2 * k as isize * right.by_row + column as isize * right.by_column;
                // SAFETY: the caller's promise.
                *pair = unsafe { right.pair(at, right.by_row, 2 * k + 1 < depth) };
            }
        }
        for (group, right) in of_right.chunks_exact(pairs * WIDTH).enumerate() {
            let width = WIDTH.min(columns - group * WIDTH);
            for (i, left) in of_left.chunks_exact(pairs * HEIGHT).enumerate() {
                let sums = sums(left, right, pairs);
                for (row, sums) in sums.iter().enumerate().take(HEIGHT.min(rows - i * HEIGHT)) {
                    // SAFETY: the caller's promise; the row and these columns are the matrix's.
                    unsafe {
                        let line = to.offset((i * HEIGHT + row) as isize * pitch).add(group * WIDTH);
                        for (column, sum) in sums.iter().enumerate().take(width) {
                            *line.add(column) = (*line.add(column)).wrapping_add(*sum);
                        }
                    }
                }
            }
        }
    });
}

type Sums = [[i32; WIDTH]; HEIGHT];

/// The sums of products of some rows' pairs, one row after the other, with pairs of a group of columns.
fn sums(left: &[i32], right: &[i32], pairs: usize) -> Sums {
    #[cfg(target_arch = "x86_64")]
    if level() >= Level::Avx2 {
        // SAFETY: the CPU has the level's instructions.
        return unsafe { avx2(left, right, pairs) };
    }
    portable(left, right, pairs)
}

fn portable(left: &[i32], right: &[i32], pairs: usize) -> Sums {
    let halves = |pair: i32| [i32::from(pair as i16), pair >> 16];
    let mut sums = [[0i32; WIDTH]; HEIGHT];
    for (k, line) in right.chunks_exact(WIDTH).enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            let [first, second] = halves(left[row * pairs + k]);
            for (sum, &pair) in sums.iter_mut().zip(line) {
                let [x, y] = halves(pair);
                *sum = sum.wrapping_add(first * x + second * y);
            }
        }
    }
    sums
}

/// # Safety
/// The CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(left: &[i32], right: &[i32], pairs: usize) -> Sums {
    use std::arch::x86_64::*;
    const VECTORS: usize = WIDTH / 8;
    assert!(left.len() == pairs * HEIGHT && right.len() == pairs * WIDTH);
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; HEIGHT];
    for k in 0..pairs {
        // SAFETY: the slices have the lengths that were asserted.
        unsafe {
            let from = right.as_ptr().add(k * WIDTH);
            let line: [__m256i; VECTORS] = std::array::from_fn(|i| _mm256_loadu_si256(from.add(8 * i).cast()));
            for (row, sums) in sums.iter_mut().enumerate() {
                let pair = _mm256_set1_epi32(*left.get_unchecked(row * pairs + k));
                for (sum, &other) in sums.iter_mut().zip(&line) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pair, other));
                }
            }
        }
    }
    let mut result = [[0; WIDTH]; HEIGHT];
    for (row, sums) in result.iter_mut().zip(&sums) {
        for (i, sum) in sums.iter().enumerate() {
            // SAFETY: a row has as many vectors.
            unsafe { _mm256_storeu_si256(row.as_mut_ptr().add(8 * i).cast(), *sum) };
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_plain_loops() {
        for (rows, columns, depth) in [(1, 1, 1), (2, 32, 2), (3, 33, 7), (5, 70, 64), (4, 8, 0), (0, 3, 2)] {
            for transposed in [false, true] {
                let number = |i: usize| (i.wrapping_mul(0x9e37_79b1) >> 7) as i8;
                let left: Vec<i8> = (0..rows * depth).map(number).collect();
                let right: Vec<i8> = (0..depth * columns).map(|i| number(i + 1000)).collect();
                let strides = |of_row: usize, of_column: usize| {
                    let [row, column] = if transposed { [1, of_column] } else { [of_row, 1] };
                    [row as isize, column as isize]
                };
                let ([left_row, left_column], [right_row, right_column]) =
                    (strides(depth, rows), strides(columns, depth));
                let mut out = vec![7i32; rows * columns];
                let factors = [
                    Bytes { first: left.as_ptr(), by_row: left_row, by_column: left_column },
                    Bytes { first: right.as_ptr(), by_row: right_row, by_column: right_column },
                ];
                // SAFETY: the strides are those of the vectors.
                unsafe { add((rows, columns, depth), out.as_mut_ptr(), columns as isize, factors) };
                for (i, &found) in out.iter().enumerate() {
                    let (row, column) = ((i / columns) as isize, (i % columns) as isize);
                    let term = |k: isize| {
                        let x = left[(row * left_row + k * left_column) as usize];
                        i32::from(x) * i32::from(right[(k * right_row + column * right_column) as usize])
                    };
                    assert_eq!(found, 7 + (0..depth as isize).map(term).sum::<i32>(), "{rows} {columns} {depth}: {i}");
                }
            }
        }
    }

    #[test]
    fn both_ways_of_summing_are_one() {
        let pairs = 9;
        let number = |i: usize| ((i * 2_654_435_761) as u32 & 0x00ff_00ff) as i32 - 0x0080_0080;
        let (left, right): (Vec<i32>, Vec<i32>) =
            ((0..pairs * HEIGHT).map(number).collect(), (0..pairs * WIDTH).map(number).collect());
        assert_eq!(sums(&left, &right, pairs), portable(&left, &right, pairs));
    }
}
