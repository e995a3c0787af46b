//! Running sums and products along an axis, forwards or backwards, with or without the element itself.

use super::lines::Lines;
use super::memory::{Element, slice};
use super::shared::Shared;
use crate::threads;

/// Which running value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Running sums.
    Sum,
    /// Running products.
    Product,
}

/// Columns that are scanned side by side, where lines are not contiguous.
const COLUMNS: usize = 64;

/// Contiguous lines that are scanned side by side: a sum waits for the one before it.
const TOGETHER: usize = 8;

/// From so many elements on a line is scanned in pieces, where there are not as many lines as are scanned side by side.
const LONG: usize = 1024;

/// Elements of such a piece, at most.
const PIECE: usize = 4096;

/// Bytes by which pieces are longer where they would begin at like places of their pages: what is read and written of all would lie in one set of the
/// first-level cache.
const APART: usize = 192;

/// Replaces each element by the sum or product of the elements up to it; `exclusive` leaves itself out, `reverse` starts
/// at the end. `x` and `out` are dense.
///
/// # Safety
/// Both must hold the lines as elements of `T`; they may be the same memory.
pub unsafe fn scan<T: Element>(kind: Scan, x: usize, out: usize, lines: Lines, exclusive: bool, reverse: bool) {
    match kind {
        // SAFETY: promised by the caller.
        Scan::Sum => unsafe { scan_with::<T>(x, out, lines, (exclusive, reverse), T::ZERO.widen(), |a, b| a + b) },
        // SAFETY: promised by the caller.
        Scan::Product => unsafe { scan_with::<T>(x, out, lines, (exclusive, reverse), T::ONE.widen(), |a, b| a * b) },
    }
}

#[inline(always)]
unsafe fn scan_with<T: Element>(
    x: usize,
    out: usize,
    Lines { outer, size, inner }: Lines,
    (exclusive, reverse): (bool, bool),
    start: T::Compute,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute + Sync + Copy,
) {
    if inner == 1 {
        // SAFETY: promised by the caller.
        return unsafe { scan_contiguous::<T>(x, out, (outer, size), (exclusive, reverse), start, join) };
    }
    let blocks = inner.div_ceil(COLUMNS);
    let ns = size * inner.min(COLUMNS);
    threads::parallel_for(outer * blocks, ns, |begin, end| {
        for block in begin..end {
            let first = block % blocks * COLUMNS;
            let width = COLUMNS.min(inner - first);
            let mut sums = [start; COLUMNS];
            for step in 0..size {
                let i = if reverse { size - 1 - step } else { step };
                let offset = ((block / blocks * size + i) * inner + first) * size_of::<T>();
                // SAFETY: inside the tensors; the row is read before it is written, and no other thread has it.
                let (from, to) = unsafe { (slice::<T>(x + offset, width), out + offset) };
                for (column, sum) in sums[..width].iter_mut().enumerate() {
                    let next = join(*sum, from[column].widen());
                    let value = T::narrow(if exclusive { *sum } else { next });
                    // SAFETY: as above.
                    unsafe { *(to as *mut T).add(column) = value }
                    *sum = next;
                }
            }
        }
    });
}

/// # Safety
/// As [`scan`], of lines without other axes behind theirs.
#[inline(always)]
unsafe fn scan_contiguous<T: Element>(
    x: usize,
    out: usize,
    (outer, size): (usize, usize),
    (exclusive, reverse): (bool, bool),
    start: T::Compute,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute + Sync + Copy,
) {
    if outer < TOGETHER && size >= LONG {
        let direction = (exclusive, reverse);
        // SAFETY: promised by the caller.
        return (0..outer)
            .for_each(|line| unsafe { scan_long::<T>(x, out, (line * size, size), direction, start, join) });
    }
    threads::parallel_for(outer.div_ceil(TOGETHER), size * TOGETHER, |begin, end| {
        let (first, last) = (begin * TOGETHER, outer.min(end * TOGETHER));
        let whole = first + (last - first) / TOGETHER * TOGETHER;
        let direction = (exclusive, reverse);
        // SAFETY: inside the tensors, and no other thread has these lines.
        unsafe {
            for line in (first..whole).step_by(TOGETHER) {
                scan_lines::<T, TOGETHER>((x, out), (line, size), direction, start, join);
            }
            for line in whole..last {
                scan_lines::<T, 1>((x, out), (line, size), direction, start, join);
            }
        }
    });
}

/// So many lines, from the first one on, side by side.
///
/// # Safety
/// As [`scan`], of these lines.
#[inline(always)]
unsafe fn scan_lines<T: Element, const LINES: usize>(
    tensors: (usize, usize),
    (first, size): (usize, usize),
    (exclusive, reverse): (bool, bool),
    start: T::Compute,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute + Copy,
) {
    let mut sums = [start; LINES];
    for step in 0..size {
        let i = if reverse { size - 1 - step } else { step };
        for (line, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { advance::<T>(tensors, (first + line) * size + i, sum, exclusive, join) };
        }
    }
}

/// Takes element `at` of `x` into its running value, and stores that, or what it was before.
///
/// # Safety
/// Both tensors have the element, which nobody else reads or writes; they may be the same memory.
#[inline(always)]
unsafe fn advance<T: Element>(
    (x, out): (usize, usize),
    at: usize,
    sum: &mut T::Compute,
    exclusive: bool,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute,
) {
    // SAFETY: the caller's promise; the element is read before it is written.
    unsafe {
        let next = join(*sum, (*(x as *const T).add(at)).widen());
        *(out as *mut T).add(at) = T::narrow(if exclusive { *sum } else { next });
        *sum = next;
    }
}

/// One line in pieces, [`TOGETHER`] of which are scanned side by side once it is known what stands before each.
///
/// # Safety
/// As [`scan`], of the line of this first element and length.
#[inline(always)]
unsafe fn scan_long<T: Element>(
    x: usize,
    out: usize,
    (first, size): (usize, usize),
    (exclusive, reverse): (bool, bool),
    start: T::Compute,
    join: impl Fn(T::Compute, T::Compute) -> T::Compute + Sync + Copy,
) {
    let (x, out) = (x + first * size_of::<T>(), out + first * size_of::<T>());
    let pieces = size.div_ceil(PIECE).next_multiple_of(TOGETHER);
    let mut piece = size.div_ceil(pieces);
    if (piece * size_of::<T>()).is_multiple_of(512) {
        piece += APART / size_of::<T>();
    }
    // The steps of a piece, and where the line's element of a step is.
    let steps = |number: usize| (number * piece).min(size)..((number + 1) * piece).min(size);
    let place = |step: usize| if reverse { size - 1 - step } else { step };
    let mut sums = vec![start; pieces];
    let of_piece = Shared::new(&mut sums);
    threads::parallel_for(pieces, piece / 2, |begin, end| {
        for number in begin..end {
            let steps = steps(number);
            let lowest = if reverse { size - steps.end } else { steps.start };
            // SAFETY: a piece of the line, which nobody writes yet.
            let values = unsafe { slice::<T>(x + lowest * size_of::<T>(), steps.len()) };
            let (chunks, rest) = values.as_chunks::<TOGETHER>();
            let mut lanes = [start; TOGETHER];
            for chunk in chunks {
                for lane in 0..TOGETHER {
                    lanes[lane] = join(lanes[lane], chunk[lane].widen());
                }
            }
            let sum = lanes.into_iter().chain(rest.iter().map(|value| value.widen())).fold(start, join);
            // SAFETY: this task alone has this piece.
            unsafe { *of_piece.at(number) = sum };
        }
    });
    let mut before = start;
    for sum in &mut sums {
        before = join(before, std::mem::replace(sum, before));
    }
    threads::parallel_for(pieces / TOGETHER, piece * TOGETHER, |begin, end| {
        for group in begin..end {
            let first = group * TOGETHER;
            let mut running = [start; TOGETHER];
            running.copy_from_slice(&sums[first..first + TOGETHER]);
            let mut go = |number: usize, step: usize| {
                let at = place(step);
                let sum = &mut running[number];
                // SAFETY: inside the line, and no other task has its piece.
                unsafe { advance::<T>((x, out), at, sum, exclusive, join) };
            };
            // The last piece of the group has the fewest steps.
            let whole = steps(first + TOGETHER - 1).len();
            for step in 0..whole {
                for number in 0..TOGETHER {
                    go(number, (first + number) * piece + step);
                }
            }
            for number in 0..TOGETHER {
                steps(first + number).skip(whole).for_each(|step| go(number, step));
            }
        }
    });
}

/// The gradient of a running product `y` of `x`, given the gradient `dy`: `dx[i] = sum over j >= i of dy[j] * y[j] / x[i]`,
/// written without the division, so that zeros in `x` are exact. Quadratic only from the first zero of a line on.
///
/// # Safety
/// All four must hold the lines as dense elements of `T`; `dx` overlaps none of the others.
pub unsafe fn product_gradient<T: Element>(x: usize, y: usize, dy: usize, dx: usize, lines: Lines) {
    let Lines { outer, size, inner } = lines;
    let len = outer * size * inner;
    threads::parallel_for(outer * inner, size * 4, |begin, end| {
        // SAFETY: promised by the caller.
        let (x, y, dy) = unsafe { (slice::<T>(x, len), slice::<T>(y, len), slice::<T>(dy, len)) };
        for line in begin..end {
            let at = |i: usize| (line / inner * size + i) * inner + line % inner;
            let zero = (0..size).find(|&i| x[at(i)].to_f64() == 0.0).unwrap_or(size);
            let mut sum = 0.0;
            let write = |i: usize, value: f64| {
                // SAFETY: inside `dx`; no other thread has this line.
                unsafe { *(dx as *mut T).add(at(i)) = T::from_f64(value) }
            };
            for i in (0..zero).rev() {
                sum += dy[at(i)].to_f64() * y[at(i)].to_f64();
                write(i, sum / x[at(i)].to_f64());
            }
            for i in zero..size {
                // Everything before `i`, then the products from `i + 1` on; another zero ends them.
                let mut product: f64 = (0..i).map(|j| x[at(j)].to_f64()).product();
                let mut sum = 0.0;
                for j in i..size {
                    if j > i {
                        product *= x[at(j)].to_f64();
                    }
                    if product == 0.0 {
                        break;
                    }
                    sum += dy[at(j)].to_f64() * product;
                }
                write(i, sum);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_plain_loop() {
        for (outer, size, inner) in [
            (1, 1, 1),
            (2, 7, 1),
            (3, 5, 4),
            (1, 30, 100),
            (500, 40, 3),
            (203, 9, 1),
            (9, 0, 1),
            (1, 1024, 1),
            (3, 1031, 1),
            (1, 50_001, 1),
            (1, 32_768, 1),
            (1, 70_000, 1),
        ] {
            for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
                let x: Vec<i64> = (0..outer * size * inner).map(|i| (i * 31 % 17) as i64 - 8).collect();
                let mut out = vec![0_i64; x.len()];
                let lines = Lines { outer, size, inner };
                let (from, to) = (x.as_ptr() as usize, out.as_mut_ptr() as usize);
                // SAFETY: both vectors hold the lines.
                unsafe { scan::<i64>(Scan::Sum, from, to, lines, exclusive, reverse) };
                for (flat, &got) in out.iter().enumerate() {
                    let (o, i, c) = (flat / inner / size, flat / inner % size, flat % inner);
                    let counts = |j: usize| if reverse { j >= i } else { j <= i } && !(exclusive && j == i);
                    let expected: i64 = (0..size).filter(|&j| counts(j)).map(|j| x[(o * size + j) * inner + c]).sum();
                    assert_eq!(got, expected);
                }
            }
        }
    }

    #[test]
    fn gradient_of_products_with_zeros() {
        for x in [[2.0_f64, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]] {
            let (dy, mut dx) = ([1.0_f64, 10.0, 100.0], [0.0_f64; 3]);
            let y = [x[0], x[0] * x[1], x[0] * x[1] * x[2]];
            let [a, b, c] = x;
            let expected = [1.0 + 10.0 * b + 100.0 * b * c, 10.0 * a + 100.0 * a * c, 100.0 * a * b];
            let address = |values: &[f64; 3]| values.as_ptr() as usize;
            let lines = Lines { outer: 1, size: 3, inner: 1 };
            // SAFETY: one line of three elements each.
            unsafe { product_gradient::<f64>(address(&x), address(&y), address(&dy), dx.as_mut_ptr() as usize, lines) };
            assert_eq!(dx, expected);
        }
    }
}
