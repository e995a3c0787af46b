//! Products of integers of 8 bits that are summed in 32, wrapping, as quantised layers of Triton's kernels multiply.
//!
//! Two terms of a sum that follow each other are one number of 32 bits, which an instruction of AVX2 multiplies and adds up at once, one of AVX-512 VNNI adds to
//! the sum, too.

use super::lanes::{Lanes, at_level};
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
    /// Rows and columns exchanged.
    fn turned(self) -> Bytes {
        Bytes { by_row: self.by_column, by_column: self.by_row, ..self }
    }

    /// Two neighbours of a row as the halves of one number; the second is 0 where there is none.
    ///
    /// # Safety
    /// The first is an element, and so is the second where `has_second`.
    #[inline(always)]
    unsafe fn pair(&self, at: isize, has_second: bool) -> i32 {
        // SAFETY: the caller's promise.
        unsafe {
            let second = if has_second { self.first.offset(at + self.by_column).read() } else { 0 };
            joined(self.first.offset(at).read(), second)
        }
    }

    /// The pairs of a row, of `depth` elements.
    ///
    /// # Safety
    /// The row has so many.
    #[inline(always)]
    unsafe fn pairs_of_row(&self, row: usize, depth: usize, to: &mut [i32]) {
        let first = row as isize * self.by_row;
        // SAFETY: the caller's promise, of each pair; neighbours in memory are read as such.
        unsafe {
            if self.by_column == 1 {
                let elements = std::slice::from_raw_parts(self.first.offset(first), depth);
                let (pairs, rest) = elements.as_chunks::<2>();
                for (to, &[low, high]) in to.iter_mut().zip(pairs) {
                    *to = joined(low, high);
                }
                if let [last] = rest {
                    to[pairs.len()] = joined(*last, 0);
                }
                return;
            }
            for (k, to) in to.iter_mut().enumerate() {
                *to = self.pair(first + 2 * k as isize * self.by_column, 2 * k + 1 < depth);
            }
        }
    }

    /// Pair `k` of each row from `first` on.
    ///
    /// # Safety
    /// The rows have `depth` elements, and are as many as `to` has numbers.
    #[inline(always)]
    unsafe fn pairs_across(&self, k: usize, first: usize, depth: usize, to: &mut [i32]) {
        let (at, has_second) = (first as isize * self.by_row + 2 * k as isize * self.by_column, 2 * k + 1 < depth);
        // SAFETY: the caller's promise, of each pair; neighbours in memory are read as such.
        unsafe {
            if self.by_row == 1 && has_second {
                let [low, high] =
                    [at, at + self.by_column].map(|at| std::slice::from_raw_parts(self.first.offset(at), to.len()));
                for (to, (&low, &high)) in to.iter_mut().zip(low.iter().zip(high)) {
                    *to = joined(low, high);
                }
                return;
            }
            for (i, to) in to.iter_mut().enumerate() {
                *to = self.pair(at + i as isize * self.by_row, has_second);
            }
        }
    }
}

#[inline(always)]
fn joined(low: i8, high: i8) -> i32 {
    i32::from(low) & 0xffff | i32::from(high) << 16
}

/// Columns that are summed in registers.
const WIDTH: usize = 32;
/// Rows that share what is read of the right factor.
const HEIGHT: usize = 8;

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
        let shape = (rows, columns, depth);
        // SAFETY: the caller's promise; `at_level` calls with instructions that the CPU has.
        unsafe { at_level!(pack(shape: Shape, left: Bytes, right: Bytes, of_left: &mut [i32], of_right: &mut [i32])) };
        for (group, right) in of_right.chunks_exact(pairs * WIDTH).enumerate() {
            let width = WIDTH.min(columns - group * WIDTH);
            for (i, left) in of_left.chunks_exact(pairs * HEIGHT).enumerate() {
                let row = i * HEIGHT;
                // SAFETY: the caller's promise; these rows and columns are the matrix's.
                unsafe {
                    let first = to.offset(row as isize * pitch).add(group * WIDTH);
                    multiply(left, right, Sums { first, pitch, rows: HEIGHT.min(rows - row), columns: width });
                }
            }
        }
    });
}

type Shape = (usize, usize, usize);

/// Packs both factors; rows and columns that are not there are zeros.
///
/// # Safety
/// The factors have the elements of the shape.
#[inline(always)]
unsafe fn pack<V: Lanes>(
    (rows, columns, depth): Shape,
    left: Bytes,
    right: Bytes,
    of_left: &mut [i32],
    of_right: &mut [i32],
) {
    let pairs = depth.div_ceil(2);
    of_left[pairs * rows..].fill(0);
    for (row, line) in of_left.chunks_exact_mut(pairs).take(rows).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { left.pairs_of_row(row, depth, line) };
    }
    let right = right.turned();
    for (i, line) in of_right.chunks_exact_mut(WIDTH).enumerate() {
        let (first, k) = (i / pairs * WIDTH, i % pairs);
        let (there, rest) = line.split_at_mut(WIDTH.min(columns - first));
        rest.fill(0);
        // SAFETY: the caller's promise.
        unsafe { right.pairs_across(k, first, depth, there) };
    }
}

/// Where products go: some rows and columns of the matrix.
#[derive(Clone, Copy)]
struct Sums {
    first: *mut i32,
    pitch: isize,
    rows: usize,
    columns: usize,
}

impl Sums {
    /// # Safety
    /// The elements are writable.
    #[inline(always)]
    unsafe fn add(&self, products: &[[i32; WIDTH]; HEIGHT]) {
        for (row, products) in products.iter().enumerate().take(self.rows) {
            // SAFETY: the caller's promise.
            let line =
                unsafe { std::slice::from_raw_parts_mut(self.first.offset(row as isize * self.pitch), self.columns) };
            line.iter_mut().zip(products).for_each(|(sum, product)| *sum = sum.wrapping_add(*product));
        }
    }
}

/// Adds the products of some rows' pairs, one row after the other, with pairs of a group of columns.
///
/// # Safety
/// The sums are writable.
unsafe fn multiply(left: &[i32], right: &[i32], sums: Sums) {
    // SAFETY: the caller's promise; the CPU has the instructions.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match level() {
            Level::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => return vnni(left, right, sums),
            Level::Avx512 | Level::Avx2 => return avx2(left, right, sums),
            _ => {}
        }
        sums.add(&portable(left, right));
    }
}

fn portable(left: &[i32], right: &[i32]) -> [[i32; WIDTH]; HEIGHT] {
    let (halves, pairs) = (|pair: i32| [i32::from(pair as i16), pair >> 16], left.len() / HEIGHT);
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
/// The sums are writable, and the CPU has AVX-512 and its instructions for neural networks.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni,avx2")]
unsafe fn vnni(left: &[i32], right: &[i32], to: Sums) {
    use std::arch::x86_64::*;
    const VECTORS: usize = WIDTH / 16;
    let pairs = left.len() / HEIGHT;
    assert!(left.len() == pairs * HEIGHT && right.len() == pairs * WIDTH);
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; HEIGHT];
    for k in 0..pairs {
        // SAFETY: the slices have the lengths that were asserted.
        unsafe {
            let from = right.as_ptr().add(k * WIDTH);
            let line: [__m512i; VECTORS] = std::array::from_fn(|i| _mm512_loadu_si512(from.add(16 * i).cast()));
            for (row, sums) in sums.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32(*left.get_unchecked(row * pairs + k));
                for (sum, &other) in sums.iter_mut().zip(&line) {
                    *sum = _mm512_dpwssd_epi32(*sum, pair, other);
                }
            }
        }
    }
    // SAFETY: registers are numbers one after the other; the caller's promise.
    unsafe { to.add(&std::mem::transmute::<[[__m512i; VECTORS]; HEIGHT], [[i32; WIDTH]; HEIGHT]>(sums)) };
}

/// A quarter of the columns at a time, since there are half as many registers of half the size.
///
/// # Safety
/// The sums are writable, and the CPU has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(left: &[i32], right: &[i32], to: Sums) {
    use std::arch::x86_64::*;
    const VECTORS: usize = WIDTH / 8;
    let pairs = left.len() / HEIGHT;
    assert!(left.len() == pairs * HEIGHT && right.len() == pairs * WIDTH);
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; HEIGHT];
    for vector in 0..VECTORS {
        let mut column = [_mm256_setzero_si256(); HEIGHT];
        for k in 0..pairs {
            // SAFETY: the slices have the lengths that were asserted.
            unsafe {
                let other = _mm256_loadu_si256(right.as_ptr().add(k * WIDTH + 8 * vector).cast());
                for (row, sum) in column.iter_mut().enumerate() {
                    let pair = _mm256_set1_epi32(*left.get_unchecked(row * pairs + k));
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pair, other));
                }
            }
        }
        sums.iter_mut().zip(column).for_each(|(row, sum)| row[vector] = sum);
    }
    // SAFETY: registers are numbers one after the other; the caller's promise.
    unsafe { to.add(&std::mem::transmute::<[[__m256i; VECTORS]; HEIGHT], [[i32; WIDTH]; HEIGHT]>(sums)) };
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
    fn all_ways_of_summing_are_one() {
        let pairs = 9;
        let number = |i: usize| ((i * 2_654_435_761) as u32 & 0x00ff_00ff) as i32 - 0x0080_0080;
        let (left, right): (Vec<i32>, Vec<i32>) =
            ((0..pairs * HEIGHT).map(number).collect(), (0..pairs * WIDTH).map(number).collect());
        let expected = portable(&left, &right);
        let products = |function: unsafe fn(&[i32], &[i32], Sums)| {
            let mut products = [[0; WIDTH]; HEIGHT];
            let first = products.as_flattened_mut().as_mut_ptr();
            // SAFETY: the products are writable, and the CPU has the level's instructions.
            unsafe { function(&left, &right, Sums { first, pitch: WIDTH as isize, rows: HEIGHT, columns: WIDTH }) };
            products
        };
        assert_eq!(products(multiply), expected);
        #[cfg(target_arch = "x86_64")]
        if level() >= Level::Avx2 {
            assert_eq!(products(avx2), expected);
        }
    }
}
