//! Four operations of float32 in one pass: a pair of them on what another pair makes and two more operands, each rounded on its own. Of the pairs those
//! of normalizations, of their gradients, and of steps of optimizers.

use super::formula::{Formula, map};
use super::leveled;
use super::pair::{Arithmetic, MultiplyAdd, MultiplyMultiply, MultiplySubtractFrom, Pair, Side, SubtractMultiply};
use crate::native::lanes::Lanes;
use std::marker::PhantomData;

/// `destination[i] = second(first(operands[0..3])[i], operands[3..5])` for `i` in `0..count`; an operand that repeats is read at its first element
/// only.
pub type ChainFunction = unsafe fn(destination: *mut u8, operands: [*const u8; 5], repeats: [bool; 5], count: usize);

/// A pair whose first two operands change places.
struct Swapped<P>(PhantomData<P>);

impl<P: Formula<3>> Formula<3> for Swapped<P> {
    #[inline(always)]
    unsafe fn of<V: Lanes>([x, y, z]: [V; 3]) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe { P::of([y, x, z]) }
    }
}

/// One pair after the other.
struct Chained<P, Q>(PhantomData<(P, Q)>);

impl<P: Formula<3>, Q: Formula<3>> Formula<5> for Chained<P, Q> {
    #[inline(always)]
    unsafe fn of<V: Lanes>([x, y, z, u, v]: [V; 5]) -> V {
        // SAFETY: the caller vouches for the instructions.
        unsafe { Q::of([P::of([x, y, z]), u, v]) }
    }
}

#[inline(always)]
unsafe fn map_five<V: Lanes, P: Formula<3>, Q: Formula<3>>(
    destination: *mut u8,
    operands: [*const u8; 5],
    repeats: [bool; 5],
    count: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe { map::<V, Chained<P, Q>, 5>(destination, operands, repeats, count) }
}

leveled! {
    fn leveled_map<P, Q>(destination: *mut u8, operands: [*const u8; 5], repeats: [bool; 5], count: usize) -> ChainFunction
    where { P: Formula<3>, Q: Formula<3> } = map_five by lanes
}

/// The function for the second pair on what the first one makes, which stands at `place` of it (x, y) beside two more operands. None where there is none.
pub fn chain(first: Pair, second: Pair, place: Side) -> Option<ChainFunction> {
    use Arithmetic::{Add, Multiply, Subtract};
    match (first.first, first.second, first.side) {
        (Subtract, Multiply, _) => behind::<SubtractMultiply>(second, place),
        (Multiply, Multiply, _) => behind::<MultiplyMultiply>(second, place),
        (Multiply, Add, _) => behind::<MultiplyAdd>(second, place),
        _ => None,
    }
}

fn behind<P: Formula<3>>(second: Pair, place: Side) -> Option<ChainFunction> {
    use Arithmetic::{Add, Multiply, Subtract};
    Some(match (second.first, second.second, second.side, place) {
        (Multiply, Add, ..) => leveled_map::<P, MultiplyAdd>(),
        (Multiply, Multiply, ..) => leveled_map::<P, MultiplyMultiply>(),
        (Multiply, Subtract, Side::Right, _) => leveled_map::<P, MultiplySubtractFrom>(),
        (Subtract, Multiply, _, Side::Left) => leveled_map::<P, SubtractMultiply>(),
        (Subtract, Multiply, _, Side::Right) => leveled_map::<P, Swapped<SubtractMultiply>>(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::pair::pair;
    use super::*;

    #[test]
    fn a_chain_is_one_pair_after_the_other() {
        use Arithmetic::*;
        let numbers = |seed: f32| (0..200).map(|i| (i as f32 * seed).sin()).collect::<Vec<_>>();
        let operands = [0.3, 0.7, 1.1, 1.3, 1.9].map(numbers);
        let arithmetic = [Add, Subtract, Multiply];
        let pairs: Vec<Pair> = arithmetic
            .into_iter()
            .flat_map(|first| arithmetic.map(|second| (first, second)))
            .flat_map(|(first, second)| [Side::Left, Side::Right].map(|side| Pair { first, second, side }))
            .collect();
        let mut found = 0;
        for (&first, &second) in pairs.iter().flat_map(|first| pairs.iter().map(move |second| (first, second))) {
            for place in [Side::Left, Side::Right] {
                let Some(function) = chain(first, second, place) else { continue };
                found += 1;
                for (repeating, count) in (0..32).flat_map(|bits| [0, 1, 63, 64, 65, 200].map(|count| (bits, count))) {
                    let repeats = [0, 1, 2, 3, 4].map(|i| repeating >> i & 1 == 1);
                    let at = [0, 1, 2, 3, 4].map(|i| operands[i].as_ptr().cast::<u8>());
                    let (mut made, mut expected, mut out) = (vec![0_f32; 201], vec![-9_f32; 201], vec![-9_f32; 201]);
                    let of_first = made.as_mut_ptr().cast::<u8>();
                    let (of_second, repeats_there) = match place {
                        Side::Left => ([of_first.cast_const(), at[3], at[4]], [false, repeats[3], repeats[4]]),
                        Side::Right => ([at[3], of_first.cast_const(), at[4]], [repeats[3], false, repeats[4]]),
                    };
                    // SAFETY: each vector has more than `count` elements.
                    unsafe {
                        pair(first).expect("sums and products")(
                            of_first,
                            [at[0], at[1], at[2]],
                            [repeats[0], repeats[1], repeats[2]],
                            count,
                        );
                        pair(second).expect("sums and products")(
                            expected.as_mut_ptr().cast(),
                            of_second,
                            repeats_there,
                            count,
                        );
                        function(out.as_mut_ptr().cast(), at, repeats, count);
                    }
                    assert_eq!(out, expected, "{first:?} {second:?} {place:?} {repeats:?} {count}");
                }
            }
        }
        assert!(found >= 15, "{found}");
    }
}
