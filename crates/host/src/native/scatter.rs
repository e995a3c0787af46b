//! Writing elements and rows by index, with or without accumulation; duplicates are applied in order, on one thread.

mod blocks;

pub use blocks::{Blocks, add_blocks};

use super::gather::{Along, AxisSplit, Indices};
use super::memory::{Element, by_size, move_bytes, slice, slice_mut};
use crate::{Error, threads};

/// What happens where an index names an element that already has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// The last value stays.
    Assign,
    /// Values are added up.
    Add,
    /// Values are multiplied.
    Multiply,
    /// The smallest value stays.
    Minimum,
    /// The largest value stays.
    Maximum,
    /// The average of all values.
    Mean,
}

impl Reduce {
    #[inline(always)]
    fn apply<T: Element>(self, old: T, new: T) -> T {
        match self {
            Reduce::Assign => new,
            Reduce::Add | Reduce::Mean => old.plus(new),
            Reduce::Multiply => old.times(new),
            Reduce::Minimum if new < old || new.is_nan() => new,
            Reduce::Maximum if new > old || new.is_nan() => new,
            Reduce::Minimum | Reduce::Maximum => old,
        }
    }
}

/// `out[o][indices[k]][..] += values[o][k][..]` for a dense `out` cut into `rows` (bytes of a row: `rows.row`).
///
/// # Safety
/// `out` and `values` must be dense tensors of `T` with these sizes, without overlap.
pub unsafe fn add_rows<T: Element>(out: usize, values: usize, rows: AxisSplit, indices: Indices) -> Result<(), Error> {
    indices.check(rows.size)?;
    let numbers: Vec<usize> = (0..indices.len()).map(|k| indices.wrapped(k, rows.size)).collect();
    let inner = rows.row / size_of::<T>();
    for outer in 0..rows.outer {
        let (skip_out, skip_values) = (outer * rows.size * rows.row, outer * numbers.len() * rows.row);
        // SAFETY: promised by the caller.
        unsafe { add_numbered::<T>(out + skip_out, values + skip_values, inner, &numbers) }
    }
    Ok(())
}

/// Adds a row of `inner` elements to each row of `out` that is named by its number.
///
/// # Safety
/// Every named row must be in `out`, and `values` must hold one row for each, without overlap.
pub unsafe fn add_numbered<T: Element>(out: usize, values: usize, inner: usize, numbers: &[usize]) {
    if T::IS_HALF {
        // SAFETY: promised by the caller.
        return unsafe { add_halves::<T>(out, values, inner, numbers) };
    }
    if inner == 1 {
        for (k, &number) in numbers.iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe {
                let sum = (out as *mut T).add(number);
                *sum = (*sum).plus(*(values as *const T).add(k));
            }
        }
        return;
    }
    // Duplicates need no atomics and add up in the same order every time.
    let add = |_, to: &mut [T], from: &[T]| to.iter_mut().zip(from).for_each(|(sum, &value)| *sum = sum.plus(value));
    // SAFETY: promised by the caller.
    unsafe { each_numbered(out, values, inner, numbers, add) }
}

/// Calls `work` with the position of each number, columns of the row of `out` that it names, and these columns of the row of `values` at its position; those of one
/// row in order. Threads share columns, never rows.
///
/// # Safety
/// As [`add_numbered`].
#[inline(always)]
unsafe fn each_numbered<T: Element>(
    out: usize,
    values: usize,
    inner: usize,
    numbers: &[usize],
    work: impl Fn(usize, &mut [T], &[T]) + Sync,
) {
    threads::parallel_for(inner, numbers.len(), |begin, end| {
        for (k, &number) in numbers.iter().enumerate() {
            // SAFETY: promised by the caller; no other thread has these columns.
            let (to, from) = unsafe {
                let at = |base: usize, row: usize| base + (row * inner + begin) * size_of::<T>();
                (slice_mut::<T>(at(out, number), end - begin), slice::<T>(at(values, k), end - begin))
            };
            work(k, to, from);
        }
    });
}

/// As [`add_numbered`]: what is added to a row of `out` is summed up in the computing type, and rounded once.
///
/// # Safety
/// As [`add_numbered`].
unsafe fn add_halves<T: Element>(out: usize, values: usize, inner: usize, numbers: &[usize]) {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by_key(|&k| numbers[k]);
    threads::parallel_for(inner, numbers.len(), |begin, end| {
        let at = |base: usize, row: usize| base + (row * inner + begin) * size_of::<T>();
        let mut sums: Vec<T::Compute> = Vec::with_capacity(end - begin);
        for same in order.chunk_by(|&x, &y| numbers[x] == numbers[y]) {
            // SAFETY: promised by the caller; no other thread has these columns.
            let to = unsafe { slice_mut::<T>(at(out, numbers[same[0]]), end - begin) };
            sums.clear();
            sums.extend(to.iter().map(|number| number.widen()));
            for &k in same {
                // SAFETY: as above.
                let from = unsafe { slice::<T>(at(values, k), end - begin) };
                sums.iter_mut().zip(from).for_each(|(sum, value)| *sum = *sum + value.widen());
            }
            to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = T::narrow(sum));
        }
    });
}

/// Takes the smaller or the larger of each element of a row of `inner` elements and the one of the row of `out` that is named by its number; without
/// `include_self` the first row that goes to a place replaces what was there.
///
/// # Safety
/// Every named row must be in `out`, and `values` must hold one row for each, without overlap.
pub unsafe fn choose_numbered<T: Element>(
    out: usize,
    values: usize,
    inner: usize,
    numbers: &[usize],
    reduce: Reduce,
    include_self: bool,
) {
    let mut is_named = vec![include_self; numbers.iter().max().map_or(0, |&most| most + 1)];
    let replaces: Vec<bool> = numbers.iter().map(|&number| !std::mem::replace(&mut is_named[number], true)).collect();
    let choose = |k: usize, to: &mut [T], from: &[T]| {
        let pairs = to.iter_mut().zip(from);
        match reduce {
            _ if replaces[k] => to.copy_from_slice(from),
            Reduce::Minimum => pairs.for_each(|(to, &from)| *to = Reduce::Minimum.apply(*to, from)),
            _ => pairs.for_each(|(to, &from)| *to = Reduce::Maximum.apply(*to, from)),
        }
    };
    // SAFETY: promised by the caller.
    unsafe { each_numbered(out, values, inner, numbers, choose) }
}

/// Copies a row of `row` bytes over each row of `out` that is named by its number; of duplicates the last stays.
///
/// # Safety
/// Every named row must be in `out`, and `values` must hold one row for each (or one for all, when `step` is 0).
pub unsafe fn assign_numbered(out: usize, values: usize, row: usize, step: usize, numbers: &[usize]) {
    for (k, &number) in numbers.iter().enumerate() {
        let (to, from) = (out + number * row, values + k * step);
        // SAFETY: promised by the caller.
        unsafe { move_bytes(from as *const u8, to as *mut u8, row) }
    }
}

/// Sets each row of `out` that is named by its number to zero.
///
/// # Safety
/// Every named row must be in `out`.
pub unsafe fn clear_numbered(out: usize, row: usize, numbers: &[usize]) {
    for &number in numbers {
        // SAFETY: promised by the caller.
        unsafe { std::ptr::write_bytes((out + number * row) as *mut u8, 0, row) }
    }
}

/// `out[.., indices[p], ..] = values[p]`, elements of `element` bytes; of duplicates the last stays.
///
/// # Safety
/// `out` and `values` must be dense tensors of the two shapes given to [`Along::new`], without overlap.
pub unsafe fn put_along(along: &Along, element: usize, out: usize, values: usize) {
    by_size!(element, T => along.visit(|position, offset| {
        // SAFETY: inside the tensors; a line is written by one thread.
        unsafe { *(out as *mut T).add(offset) = *(values as *const T).add(position) }
    }));
}

/// As [`put_along`] with a reduction; without `include_self` the old values of named elements do not count.
///
/// # Safety
/// As [`put_along`]; `len` is the number of elements of `out`.
pub unsafe fn reduce_along<T: Element>(
    along: &Along,
    out: usize,
    len: usize,
    values: usize,
    reduce: Reduce,
    include_self: bool,
) {
    if T::IS_HALF && matches!(reduce, Reduce::Add | Reduce::Multiply | Reduce::Mean) {
        // SAFETY: promised by the caller.
        return unsafe { reduce_halves::<T>(along, out, len, values, reduce, include_self) };
    }
    // How many values each element has received; lets the first one replace an old value that does not count.
    let first = u32::from(include_self);
    let mut counts = vec![first; if include_self && reduce != Reduce::Mean { 0 } else { len }];
    let counts = counts.as_mut_ptr() as usize;
    let counted = !(include_self && reduce != Reduce::Mean);
    along.visit(|position, offset| {
        // SAFETY: inside the tensors and the counts; a line is written by one thread.
        unsafe {
            let (element, value) = ((out as *mut T).add(offset), *(values as *const T).add(position));
            let fresh = counted && {
                let count = (counts as *mut u32).add(offset);
                *count += 1;
                *count == 1
            };
            *element = if fresh { value } else { reduce.apply(*element, value) };
        }
    });
    if reduce == Reduce::Mean {
        // SAFETY: `out` and the counts have `len` elements; the visits are over.
        let (out, counts) = unsafe { (slice_mut::<T>(out, len), slice::<u32>(counts, len)) };
        for (element, &count) in out.iter_mut().zip(counts).filter(|(_, count)| **count > 1) {
            *element = element.share(count);
        }
    }
}

/// As [`reduce_along`] for sums, products and averages, each rounded once.
///
/// # Safety
/// As [`reduce_along`].
unsafe fn reduce_halves<T: Element>(
    along: &Along,
    out: usize,
    len: usize,
    values: usize,
    reduce: Reduce,
    include_self: bool,
) {
    // SAFETY: promised by the caller.
    let out = unsafe { slice_mut::<T>(out, len) };
    let mut results: Vec<(f64, u32)> = out.iter().map(|number| (number.to_f64(), u32::from(include_self))).collect();
    let at = results.as_mut_ptr() as usize;
    along.visit(|position, offset| {
        // SAFETY: inside the tensors and the results; a line is written by one thread.
        let (result, value) =
            unsafe { (&mut *(at as *mut (f64, u32)).add(offset), *(values as *const T).add(position)) };
        result.0 = match (result.1, reduce) {
            (0, _) => value.to_f64(),
            (_, Reduce::Multiply) => result.0 * value.to_f64(),
            _ => result.0 + value.to_f64(),
        };
        result.1 += 1;
    });
    for (element, (result, count)) in out.iter_mut().zip(results).filter(|(_, (_, count))| *count > 0) {
        *element = T::from_f64(if reduce == Reduce::Mean { result / f64::from(count) } else { result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(reduce: Reduce, include_self: bool) -> Vec<f32> {
        let mut out = vec![10.0_f32, 20.0, 30.0, 40.0, 50.0, 60.0];
        let (values, indices) = ([1.0_f32, 2.0, 3.0, 4.0], [0_i64, 0, 0, 1]);
        let along = Along::new(&[2, 3], &[2, 2], 0, (Indices::I64(&indices), -2)).unwrap();
        let (to, from) = (out.as_mut_ptr() as usize, values.as_ptr() as usize);
        // SAFETY: the arrays have the shapes named.
        unsafe { reduce_along::<f32>(&along, to, 6, from, reduce, include_self) };
        out
    }

    #[test]
    fn reductions_with_and_without_self() {
        assert_eq!(put(Reduce::Add, true), [14.0, 22.0, 30.0, 40.0, 54.0, 60.0]);
        assert_eq!(put(Reduce::Add, false), [4.0, 2.0, 30.0, 40.0, 4.0, 60.0]);
        assert_eq!(put(Reduce::Multiply, true), [30.0, 40.0, 30.0, 40.0, 200.0, 60.0]);
        assert_eq!(put(Reduce::Minimum, true), [1.0, 2.0, 30.0, 40.0, 4.0, 60.0]);
        assert_eq!(put(Reduce::Maximum, false), [3.0, 2.0, 30.0, 40.0, 4.0, 60.0]);
        assert_eq!(put(Reduce::Mean, false), [2.0, 2.0, 30.0, 40.0, 4.0, 60.0]);
        assert_eq!(put(Reduce::Mean, true)[1], 11.0);
    }

    #[test]
    fn of_rows_the_smaller_or_larger_elements_stay() {
        let values = [1.0_f32, -7.0, f32::NAN, 3.0, 2.0, 4.0, 9.0, -9.0, 0.5];
        let chosen = |reduce, include_self| {
            let mut out = [8.0_f32, -8.0, 0.0, 6.0, 6.0, 6.0, 5.0, 5.0, 5.0];
            let (to, from) = (out.as_mut_ptr() as usize, values.as_ptr() as usize);
            // SAFETY: three rows of three, and numbers below three.
            unsafe { choose_numbered::<f32>(to, from, 3, &[0, 2, 0], reduce, include_self) };
            out.map(|number| if number.is_nan() { 777.0 } else { number })
        };
        assert_eq!(chosen(Reduce::Maximum, false), [9.0, -7.0, 777.0, 6.0, 6.0, 6.0, 3.0, 2.0, 4.0]);
        assert_eq!(chosen(Reduce::Maximum, true), [9.0, -7.0, 777.0, 6.0, 6.0, 6.0, 5.0, 5.0, 5.0]);
        assert_eq!(chosen(Reduce::Minimum, false), [1.0, -9.0, 777.0, 6.0, 6.0, 6.0, 3.0, 2.0, 4.0]);
        assert_eq!(chosen(Reduce::Minimum, true), [1.0, -9.0, 777.0, 6.0, 6.0, 6.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn halves_are_summed_beyond_what_they_count_to() {
        use half::bf16;
        let (count, inner) = (3000, 3);
        let values = vec![bf16::ONE; count * inner];
        let mut out = vec![bf16::ZERO; inner];
        let (to, from) = (out.as_mut_ptr() as usize, values.as_ptr() as usize);
        // SAFETY: a row, and rows that are added to it.
        unsafe { add_numbered::<bf16>(to, from, inner, &vec![0; count]) };
        assert_eq!(out, [bf16::from_f32(3000.0); 3]);
        let indices = vec![0_i64; count];
        for (reduce, expected) in [(Reduce::Add, 6000.0), (Reduce::Mean, 6000.0 / 3001.0), (Reduce::Multiply, 3000.0)] {
            let mut out = [bf16::from_f32(3000.0)];
            let along = Along::new(&[1], &[count], 0, (Indices::I64(&indices), -1)).unwrap();
            // SAFETY: the arrays have the shapes named.
            unsafe { reduce_along::<bf16>(&along, out.as_mut_ptr() as usize, 1, from, reduce, true) };
            assert_eq!(out, [bf16::from_f64(expected)], "{reduce:?}");
        }
    }

    #[test]
    fn duplicates_add_up_whatever_the_threads() {
        let (size, inner, count) = (17, 300, 900);
        let values: Vec<i32> = (0..count * inner).map(|i| (i % 1001) as i32).collect();
        let indices: Vec<i32> = (0..count).map(|k| (k * k % size) as i32).collect();
        let mut expected = vec![0; size * inner];
        for (flat, value) in values.iter().enumerate() {
            expected[indices[flat / inner] as usize * inner + flat % inner] += value;
        }
        let mut out = vec![0; size * inner];
        let rows = AxisSplit { outer: 1, size, row: inner * 4 };
        let (to, from) = (out.as_mut_ptr() as usize, values.as_ptr() as usize);
        // SAFETY: the vectors have the sizes named.
        unsafe { add_rows::<i32>(to, from, rows, Indices::I32(&indices)).unwrap() };
        assert_eq!(out, expected);
    }
}
