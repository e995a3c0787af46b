//! Sums of what becomes of pairs of float32, in one pass: of products, and of squared differences.

use super::formula::{Formula, Operands};
use super::reduce::{BLOCK, sum_of_lanes};
use super::{CHUNK, leveled};
use crate::native::lanes::Lanes;

/// `destination[0]` is the sum over `i` in `0..count` of what becomes of `operands[0][i]` and `operands[1][i]`; an operand that repeats is read at its first
/// element only.
pub type PairSumFunction = unsafe fn(destination: *mut u8, operands: [*const u8; 2], repeats: [bool; 2], count: usize);

/// What becomes of each two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairSum {
    /// `x * y`.
    Products,
    /// `(x - y) * (x - y)`.
    SquaredDifferences,
}

/// Registers of a chunk at most: none has fewer lanes than four.
const MOST_REGISTERS: usize = CHUNK / 4;

struct Product;
impl Formula<2> for Product {
    #[inline(always)]
    unsafe fn of<V: Lanes>([x, y]: [V; 2]) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe { x.mul(y) }
    }
}

struct SquaredDifference;
impl Formula<2> for SquaredDifference {
    #[inline(always)]
    unsafe fn of<V: Lanes>([x, y]: [V; 2]) -> V {
        // SAFETY: as above.
        unsafe {
            let difference = x.sub(y);
            difference.mul(difference)
        }
    }
}

/// The sum of what becomes of pairs, lane by lane as [`reduce`](super::reduce::reduce) sums a tile of it.
#[inline(always)]
unsafe fn add_pairs<V: Lanes, F: Formula<2>>(
    destination: *mut u8,
    operands: [*const u8; 2],
    repeats: [bool; 2],
    count: usize,
) {
    // SAFETY: passed on to the caller; the four instances differ in what is known to repeat only.
    unsafe {
        match repeats {
            [false, false] => add_known_pairs::<V, F>(destination, operands, [false, false], count),
            [true, false] => add_known_pairs::<V, F>(destination, operands, [true, false], count),
            [false, true] => add_known_pairs::<V, F>(destination, operands, [false, true], count),
            [true, true] => add_known_pairs::<V, F>(destination, operands, [true, true], count),
        }
    }
}

#[inline(always)]
unsafe fn add_known_pairs<V: Lanes, F: Formula<2>>(
    destination: *mut u8,
    operands: [*const u8; 2],
    repeats: [bool; 2],
    count: usize,
) {
    let mut lanes = [0.0; CHUNK];
    if count > 0 {
        // SAFETY: the caller's `count` elements are valid at an address that does not repeat, one at one that does.
        unsafe {
            let operands = Operands::<V, 2>::new(operands, repeats);
            let whole = count - count % CHUNK;
            for begin in (0..whole).step_by(BLOCK * CHUNK) {
                let mut block = [V::splat(0.0); MOST_REGISTERS];
                for chunk in (begin..whole.min(begin + BLOCK * CHUNK)).step_by(CHUNK) {
                    for register in 0..CHUNK / V::N {
                        block[register] = block[register].add(F::of(operands.read(chunk + register * V::N)));
                    }
                }
                for register in 0..CHUNK / V::N {
                    let lanes = lanes.as_mut_ptr().add(register * V::N);
                    V::load(lanes).add(block[register]).store(lanes);
                }
            }
            let rest = count % V::N;
            for from in (whole..count - rest).step_by(V::N) {
                let lanes = lanes.as_mut_ptr().add(from - whole);
                V::load(lanes).add(F::of(operands.read(from))).store(lanes);
            }
            if rest > 0 {
                let summands = F::of(operands.read_rest(count - rest, rest)).lanes();
                for (lane, summand) in lanes[count - rest - whole..].iter_mut().zip(&summands[..rest]) {
                    *lane += summand;
                }
            }
        }
    }
    // SAFETY: the destination is valid for one element.
    unsafe { destination.cast::<f32>().write_unaligned(sum_of_lanes(lanes)) };
}

leveled! {
    fn leveled_pairs<F>(destination: *mut u8, operands: [*const u8; 2], repeats: [bool; 2], count: usize) -> PairSumFunction
    where { F: Formula<2> } = add_pairs by lanes
}

/// The sum of the products of float32, each rounded before it is added.
pub fn sum_of_products() -> PairSumFunction {
    leveled_pairs::<Product>()
}

/// As [`sum_of_products`], of the squares of `x - y`.
pub fn sum_of_squares() -> PairSumFunction {
    leveled_pairs::<SquaredDifference>()
}

#[cfg(test)]
mod tests {
    use super::super::reduce::reduce;
    use super::*;
    use openmps_tile::{Combine, Scalar};

    #[test]
    fn what_becomes_of_pairs_is_summed_as_if_it_was_a_tile() {
        let most = 2 * BLOCK * CHUNK + 100;
        let numbers = |seed: f32| (0..most).map(|i| (i as f32 * seed).sin()).collect::<Vec<_>>();
        let (x, y) = (numbers(0.3), numbers(0.7));
        let whole = reduce(Combine::Sum, Scalar::F32).expect("a sum of float32");
        let square = |x: f32, y: f32| (x - y) * (x - y);
        let sums: [(PairSumFunction, fn(f32, f32) -> f32); 2] =
            [(sum_of_products(), |x, y| x * y), (sum_of_squares(), square)];
        let cases = (0..4).flat_map(|bits| [0, 1, 63, 64, 65, 127, 200, most].map(|count| (bits, count)));
        for ((repeating, count), (sum, of)) in cases.flat_map(|case| sums.map(|sum| (case, sum))) {
            let repeats = [repeating & 1 == 1, repeating & 2 == 2];
            let summands: Vec<f32> =
                (0..count).map(|i| of(x[if repeats[0] { 0 } else { i }], y[if repeats[1] { 0 } else { i }])).collect();
            let (mut found, mut expected) = (f32::NAN, f32::NAN);
            // SAFETY: `count` elements of each operand, and one of each result.
            unsafe {
                sum((&raw mut found).cast(), [x.as_ptr().cast(), y.as_ptr().cast()], repeats, count);
                whole((&raw mut expected).cast(), summands.as_ptr().cast(), count);
            }
            assert_eq!(found.to_bits(), expected.to_bits(), "{repeating} {count}");
        }
    }

    #[test]
    fn what_lies_behind_the_last_product_does_not_count() {
        let (x, y) = ([1.0_f32, f32::NAN], [f32::INFINITY, 0.0]);
        let mut found = 0.0_f32;
        // SAFETY: one element of each operand, and one result.
        unsafe { sum_of_products()((&raw mut found).cast(), [x.as_ptr().cast(), y.as_ptr().cast()], [false; 2], 1) };
        assert_eq!(found, f32::INFINITY);
    }
}
