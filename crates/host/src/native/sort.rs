//! Sorting lines along an axis with their indices: stable, NaN above every number, as Paddle orders them.

use super::lines::Lines;
use super::memory::{Element, slice, slice_mut};
use crate::threads;

/// Elements whose order is that of an unsigned integer.
pub trait Sortable: Element {
    /// An integer of the element's rank among its type: equal elements have equal keys, NaN the largest.
    fn key(self) -> u64;
    /// How many low bits of a key are in use.
    const BITS: u32;
}

macro_rules! sortable_integers {
    ($($type:ty: $flip:expr),*) => {$(
        impl Sortable for $type {
            const BITS: u32 = <$type>::BITS;
            #[inline]
            fn key(self) -> u64 {
                (self as u64 ^ $flip) & (u64::MAX >> (64 - <$type>::BITS))
            }
        }
    )*};
}
sortable_integers!(u8: 0, i8: 1 << 7, i16: 1 << 15, i32: 1 << 31, i64: 1 << 63);

macro_rules! sortable_floats {
    ($($type:ty: $bits:ty),*) => {$(
        impl Sortable for $type {
            const BITS: u32 = <$bits>::BITS;
            #[inline]
            fn key(self) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                let key = if self.is_nan() {
                    <$bits>::MAX
                } else if bits & SIGN == 0 {
                    bits | SIGN
                } else if bits == SIGN {
                    SIGN
                } else {
                    !bits
                };
                key as u64
            }
        }
    )*};
}
sortable_floats!(half::f16: u16, half::bf16: u16, f32: u32, f64: u64);

/// The first `keep` elements of each line in order, and where they stood in the line.
///
/// Elements that compare equal keep their order. `values` and `indices` are dense, `outer` x `keep` x `inner`.
///
/// # Safety
/// `x` must hold the lines; `values` (elements of `T`) and `indices` must hold `keep` elements for each line.
pub unsafe fn sort<T: Sortable>(x: usize, values: usize, indices: usize, lines: Lines, keep: usize, descending: bool) {
    let Lines { outer, size, inner } = lines;
    assert!(size <= u32::MAX as usize, "a line to sort has {size} elements, at most 2^32 are supported");
    let ns = size * (4 + size.max(2).ilog2() as usize);
    threads::parallel_for(outer * inner, ns, |begin, end| {
        let mut scratch = Scratch::default();
        for line in begin..end {
            let (outer, column) = (line / inner, line % inner);
            // SAFETY: the line lies inside the tensor, as the caller promised.
            let x = unsafe { slice::<T>(x + (outer * size * inner + column) * size_of::<T>(), (size - 1) * inner + 1) };
            let order = scratch.order(x, inner, size, keep, descending);
            let first = outer * keep * inner + column;
            for (k, &from) in order.iter().enumerate() {
                // SAFETY: inside the outputs; no other thread has this line.
                unsafe {
                    *(values as *mut T).add(first + k * inner) = x[from as usize * inner];
                    *(indices as *mut i64).add(first + k * inner) = from as i64;
                }
            }
        }
    });
}

/// Buffers that are used again for the next line.
#[derive(Default)]
struct Scratch {
    packed: Vec<u64>,
    other: Vec<u64>,
    wide: Vec<(u64, u32)>,
    order: Vec<u32>,
}

/// Lines this long are sorted by digits rather than by comparison.
const RADIX: usize = 4096;

impl Scratch {
    /// The positions of the line's first `keep` elements in order.
    fn order<T: Sortable>(&mut self, x: &[T], step: usize, size: usize, keep: usize, descending: bool) -> &[u32] {
        let flip = if descending { u64::MAX >> (64 - T::BITS) } else { 0 };
        let keys = (0..size).map(|i| x[i * step].key() ^ flip);
        self.order.clear();
        if T::BITS <= 32 {
            // Key and position in one integer: every comparison is one instruction, and ties fall by position.
            self.packed.clear();
            self.packed.extend(keys.zip(0..).map(|(key, i): (u64, u64)| key << 32 | i));
            select_and_sort(&mut self.packed, keep, |packed| {
                if packed.len() < RADIX { packed.sort_unstable() } else { radix_sort(packed, &mut self.other, T::BITS) }
            });
            self.order.extend(self.packed[..keep].iter().map(|&packed| packed as u32));
        } else {
            self.wide.clear();
            self.wide.extend(keys.zip(0..));
            select_and_sort(&mut self.wide, keep, |wide| wide.sort_unstable());
            self.order.extend(self.wide[..keep].iter().map(|&(_, i)| i));
        }
        &self.order
    }
}

/// Sorts the smallest `keep` elements to the front.
fn select_and_sort<K: Ord>(all: &mut Vec<K>, keep: usize, sort: impl FnOnce(&mut Vec<K>)) {
    if keep > 0 && keep * 4 < all.len() {
        all.select_nth_unstable(keep - 1);
        all.truncate(keep);
    }
    if keep > 0 {
        sort(all);
    }
}

/// Sorts by the `bits` bits above the 32 low ones, byte by byte; a byte that all keys share costs only its count.
fn radix_sort(keys: &mut Vec<u64>, other: &mut Vec<u64>, bits: u32) {
    // Without the positions in order a stable pass over the key would not order ties; a selection shuffles them.
    if !keys.is_sorted_by_key(|&key| key as u32) {
        return keys.sort_unstable();
    }
    let digits = bits as usize / 8;
    let mut counts = [[0_u32; 256]; 4];
    for &key in keys.iter() {
        for (digit, counts) in counts[..digits].iter_mut().enumerate() {
            counts[(key >> (32 + 8 * digit)) as usize & 255] += 1;
        }
    }
    other.resize(keys.len(), 0);
    for (digit, counts) in counts[..digits].iter_mut().enumerate() {
        if counts.iter().any(|&count| count as usize == keys.len()) {
            continue;
        }
        let mut next = 0;
        for count in counts.iter_mut() {
            next += std::mem::replace(count, next);
        }
        for &key in keys.iter() {
            let place = &mut counts[(key >> (32 + 8 * digit)) as usize & 255];
            other[*place as usize] = key;
            *place += 1;
        }
        std::mem::swap(keys, other);
    }
}

/// The `k`-th smallest (from 0) element of each line and where it stands, one of each for each line.
///
/// # Safety
/// `x` must hold the lines; `values` (elements of `T`) and `indices` must hold one element for each line.
pub unsafe fn kth<T: Sortable>(x: usize, values: usize, indices: usize, lines: Lines, k: usize) {
    let Lines { outer, size, inner } = lines;
    threads::parallel_for(outer * inner, 4 * size, |begin, end| {
        let mut keys: Vec<(u64, u32)> = Vec::with_capacity(size);
        for line in begin..end {
            let first = line / inner * size * inner + line % inner;
            // SAFETY: the line lies inside the tensor, as the caller promised.
            let x = unsafe { slice::<T>(x + first * size_of::<T>(), (size - 1) * inner + 1) };
            keys.clear();
            keys.extend((0..size).map(|i| (x[i * inner].key(), i as u32)));
            let found = keys.select_nth_unstable(k).1.1;
            // SAFETY: one element for each line; no other thread has this line.
            unsafe {
                slice_mut::<T>(values, outer * inner)[line] = x[found as usize * inner];
                slice_mut::<i64>(indices, outer * inner)[line] = found as i64;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Sortable + std::fmt::Debug>(lines: Lines, keep: usize, descending: bool, value: impl Fn(usize) -> T) {
        let Lines { outer, size, inner } = lines;
        let x: Vec<T> = (0..outer * size * inner).map(|i| value(i * 7919 % 10007)).collect();
        let mut values = vec![T::ZERO; outer * keep * inner];
        let mut indices = vec![0_i64; values.len()];
        let (to, at) = (values.as_mut_ptr() as usize, indices.as_mut_ptr() as usize);
        // SAFETY: the vectors have the sizes named.
        unsafe { sort::<T>(x.as_ptr() as usize, to, at, lines, keep, descending) };
        for line in 0..outer * inner {
            let (o, c) = (line / inner, line % inner);
            let at = |i: usize| x[(o * size + i) * inner + c];
            let mut order: Vec<usize> = (0..size).collect();
            order.sort_by(|&a, &b| {
                let (a, b) = if descending { (at(b), at(a)) } else { (at(a), at(b)) };
                a.is_nan().cmp(&b.is_nan()).then(a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal))
            });
            let got: Vec<usize> = (0..keep).map(|k| indices[(o * keep + k) * inner + c] as usize).collect();
            assert_eq!(got, order[..keep], "{lines:?} keep {keep} descending {descending}");
            for (k, &index) in got.iter().enumerate() {
                let value = values[(o * keep + k) * inner + c];
                assert!(value == at(index) || value.is_nan() && at(index).is_nan());
            }
        }
    }

    #[test]
    fn equals_a_stable_sort() {
        let float = |i: usize| match i % 11 {
            0 => f32::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f32::NEG_INFINITY,
            _ => (i % 97) as f32 - 50.0,
        };
        for descending in [false, true] {
            for (outer, size, inner) in [(1, 1, 1), (3, 7, 1), (2, 5, 3), (1, 600, 2), (2, 5000, 1)] {
                let lines = Lines { outer, size, inner };
                for keep in [0, 1, size.div_ceil(5), size] {
                    check::<f32>(lines, keep, descending, float);
                    check::<f64>(lines, keep, descending, |i| float(i) as f64);
                    check::<half::bf16>(lines, keep, descending, |i| half::bf16::from_f32(float(i)));
                    check::<u8>(lines, keep, descending, |i| i as u8);
                    check::<i16>(lines, keep, descending, |i| i as i16 - 5000);
                    check::<i64>(lines, keep, descending, |i| (i as i64 - 5000) << 40);
                }
            }
        }
    }

    #[test]
    fn kth_is_the_sorted_one() {
        let x = [3.0_f32, f32::NAN, 1.0, 2.0, 1.0];
        for (k, (value, index)) in [(1.0, 2), (1.0, 4), (2.0, 3), (3.0, 0)].into_iter().enumerate() {
            let (mut values, mut indices) = ([0.0_f32], [0_i64]);
            let lines = Lines { outer: 1, size: 5, inner: 1 };
            let (to, at) = (values.as_mut_ptr() as usize, indices.as_mut_ptr() as usize);
            // SAFETY: one line, one result.
            unsafe { kth::<f32>(x.as_ptr() as usize, to, at, lines, k) };
            assert_eq!((values[0], indices[0]), (value, index));
        }
    }
}
