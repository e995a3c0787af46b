//! Moving elements: strided copies, repetition, counting, selection. Sizes are 1, 2, 4 or 8 bytes an element.

use super::{CHUNK, leveled};
use crate::native::memory::{by_size, move_bytes};

/// `destination[i] = condition[i] ? x[i] : y[i]`; an operand that repeats is read at its first element only.
pub type SelectFunction = unsafe fn(
    destination: *mut u8,
    condition: *const u8,
    condition_repeats: bool,
    x: *const u8,
    x_repeats: bool,
    y: *const u8,
    y_repeats: bool,
    count: usize,
);

/// The bits of an element.
trait Bits: Copy + Default {
    /// One of two, without a branch or a choice of addresses, which compilers make of an `if`.
    fn choose(condition: u8, x: Self, y: Self) -> Self;
}

macro_rules! bits {
    ($($T:ty)*) => {
        $(impl Bits for $T {
            #[inline(always)]
            fn choose(condition: u8, x: Self, y: Self) -> Self {
                let mask = <$T>::from(condition != 0).wrapping_neg();
                x & mask | y & !mask
            }
        })*
    };
}
bits!(u8 u16 u32 u64);

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn select_body<T: Bits>(
    destination: *mut u8,
    condition: *const u8,
    condition_repeats: bool,
    x: *const u8,
    x_repeats: bool,
    y: *const u8,
    y_repeats: bool,
    count: usize,
) {
    // SAFETY: the caller's `count` elements are valid at each address that does not repeat, one at those that do.
    unsafe {
        let chunk = |from: *const T, repeats: bool, at: usize| {
            if repeats { [from.read_unaligned(); CHUNK] } else { from.add(at).cast::<[T; CHUNK]>().read_unaligned() }
        };
        let mut done = 0;
        while done + CHUNK <= count {
            let conditions = if condition_repeats {
                [condition.read(); CHUNK]
            } else {
                condition.add(done).cast::<[u8; CHUNK]>().read_unaligned()
            };
            let (xs, ys) = (chunk(x.cast(), x_repeats, done), chunk(y.cast(), y_repeats, done));
            let mut results = [T::default(); CHUNK];
            for i in 0..CHUNK {
                results[i] = T::choose(conditions[i], xs[i], ys[i]);
            }
            destination.cast::<T>().add(done).cast::<[T; CHUNK]>().write_unaligned(results);
            done += CHUNK;
        }
        while done < count {
            let at = |repeats: bool| if repeats { 0 } else { done };
            let from = if condition.add(at(condition_repeats)).read() != 0 {
                x.cast::<T>().add(at(x_repeats))
            } else {
                y.cast::<T>().add(at(y_repeats))
            };
            destination.cast::<T>().add(done).write_unaligned(from.read_unaligned());
            done += 1;
        }
    }
}

leveled! {
    fn leveled_select<T>(destination: *mut u8, condition: *const u8, condition_repeats: bool, x: *const u8, x_repeats: bool,
        y: *const u8, y_repeats: bool, count: usize) -> SelectFunction
    where { T: Bits } = select_body
}

/// The selection for an element of `size` bytes.
pub fn select(size: usize) -> SelectFunction {
    match size {
        1 => leveled_select::<u8>(),
        2 => leveled_select::<u16>(),
        4 => leveled_select::<u32>(),
        _ => leveled_select::<u64>(),
    }
}

/// Copies `count` elements of `size` bytes between strides given in bytes; a source stride of 0 repeats.
///
/// # Safety
/// Every element on either side lies in valid memory, and the two sides do not overlap unless they are the same.
pub unsafe fn copy_strided(
    destination: *mut u8,
    destination_stride: isize,
    source: *const u8,
    source_stride: isize,
    size: usize,
    count: usize,
) {
    // SAFETY: the caller's promise covers each element.
    unsafe {
        if source_stride == size as isize && destination_stride == size as isize {
            // What is clipped is often where it was made.
            if source == destination.cast_const() {
                return;
            }
            return move_bytes(source, destination, count * size);
        }
        if source_stride == 0 && destination_stride == size as isize {
            fill(destination, source, size, count);
            return;
        }
        by_size!(size, T => for i in 0..count as isize {
            let element = source.offset(i * source_stride).cast::<T>().read_unaligned();
            destination.offset(i * destination_stride).cast::<T>().write_unaligned(element);
        });
    }
}

/// Writes one element `count` times.
///
/// # Safety
/// `destination` is valid for `count` elements of `size` bytes, `element` for one if there are any.
pub unsafe fn fill(destination: *mut u8, element: *const u8, size: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { by_size!(size, T => leveled_fill::<T>()(destination, element, count)) }
}

/// Writes one element `count` times.
type FillFunction = unsafe fn(destination: *mut u8, element: *const u8, count: usize);

#[inline(always)]
unsafe fn fill_body<T: Copy>(destination: *mut u8, element: *const u8, count: usize) {
    if count == 0 {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let element = element.cast::<T>().read_unaligned();
        for i in 0..count {
            destination.cast::<T>().add(i).write_unaligned(element);
        }
    }
}

leveled! {
    fn leveled_fill<T>(destination: *mut u8, element: *const u8, count: usize) -> FillFunction
    where { T: Copy } = fill_body
}

/// Writes `start, start + step, ..` as integers of `size` bytes.
///
/// # Safety
/// `destination` is valid for `count` elements of `size` bytes.
pub unsafe fn count_up(destination: *mut u8, start: i64, step: i64, size: usize, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        by_size!(size, T => {
            // In the integers' own width, where sums wrap to the same bits.
            let (mut value, step) = (start as T, step as T);
            for i in 0..count {
                destination.cast::<T>().add(i).write_unaligned(value);
                value = value.wrapping_add(step);
            }
        });
    }
}

/// Adds `scale` times so many integers to as many sums.
type ScaledFunction = unsafe fn(sums: *mut i64, integers: *const u8, scale: i64, count: usize);

#[inline(always)]
unsafe fn add_scaled_body<T: Copy + Into<i64>>(sums: *mut i64, integers: *const u8, scale: i64, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's integers and sums.
        unsafe {
            let integer: i64 = integers.cast::<T>().add(i).read_unaligned().into();
            *sums.add(i) = (*sums.add(i)).wrapping_add(integer.wrapping_mul(scale));
        }
    }
}

leveled! {
    fn leveled_scaled<T>(sums: *mut i64, integers: *const u8, scale: i64, count: usize) -> ScaledFunction
    where { T: Copy + Into<i64> } = add_scaled_body
}

/// The function for integers of 4 or 8 bytes.
pub fn add_scaled(size: usize) -> ScaledFunction {
    if size == 4 { leveled_scaled::<i32>() } else { leveled_scaled::<i64>() }
}
