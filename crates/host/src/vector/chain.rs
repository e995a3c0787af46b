//! Four operations of float32 in one pass: a pair of them on what another pair makes and two more operands, each rounded on its own. Of the pairs those
//! of normalizations, of their gradients, and of steps of optimizers.

use super::pair::{
    Arithmetic, Both, Chunks, MultiplyAdd, MultiplyMultiply, MultiplySubtractFrom, Pair, Side, SubtractMultiply,
    applied,
};
use super::{CHUNK, leveled};
use std::marker::PhantomData;

/// `destination[i] = second(first(operands[0..3])[i], operands[3..5])` for `i` in `0..count`; an operand that repeats is read at its first element
/// only.
pub type ChainFunction = unsafe fn(destination: *mut u8, operands: [*const u8; 5], repeats: [bool; 5], count: usize);

/// A pair whose first two operands change places.
pub(super) struct Swapped<P>(PhantomData<P>);

impl<P: Both> Both for Swapped<P> {
    #[inline(always)]
    fn apply(x: f32, y: f32, z: f32) -> f32 {
        P::apply(y, x, z)
    }
}

#[inline(always)]
unsafe fn map<P: Both, Q: Both>(destination: *mut u8, operands: [*const u8; 5], repeats: [bool; 5], count: usize) {
    if count == 0 {
        return;
    }
    let [x, y, z, u, v] = operands;
    // SAFETY: the caller's `count` elements are valid at each address that does not repeat, one at those that do.
    unsafe {
        let (mut x, mut y, mut z) =
            (Chunks::new(x, repeats[0]), Chunks::new(y, repeats[1]), Chunks::new(z, repeats[2]));
        let (mut u, mut v) = (Chunks::new(u, repeats[3]), Chunks::new(v, repeats[4]));
        let mut to = destination.cast::<f32>();
        for _ in 0..count / CHUNK {
            let first = applied::<P>(x.next(), y.next(), z.next());
            let results = applied::<Q>(first, u.next(), v.next());
            to.cast::<[f32; CHUNK]>().write_unaligned(results);
            to = to.add(CHUNK);
        }
        let rest = count % CHUNK;
        if rest > 0 {
            let first = applied::<P>(x.rest(rest), y.rest(rest), z.rest(rest));
            let results = applied::<Q>(first, u.rest(rest), v.rest(rest));
            results.as_ptr().cast::<u8>().copy_to_nonoverlapping(to.cast(), rest * size_of::<f32>());
        }
    }
}

leveled! {
    fn leveled_map<P, Q>(destination: *mut u8, operands: [*const u8; 5], repeats: [bool; 5], count: usize) -> ChainFunction
    where { P: Both, Q: Both } = map
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

fn behind<P: Both>(second: Pair, place: Side) -> Option<ChainFunction> {
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
                        pair(first)(of_first, [at[0], at[1], at[2]], [repeats[0], repeats[1], repeats[2]], count);
                        pair(second)(expected.as_mut_ptr().cast(), of_second, repeats_there, count);
                        function(out.as_mut_ptr().cast(), at, repeats, count);
                    }
                    assert_eq!(out, expected, "{first:?} {second:?} {place:?} {repeats:?} {count}");
                }
            }
        }
        assert!(found >= 15, "{found}");
    }
}
