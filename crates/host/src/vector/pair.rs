//! Two operations of float32 in one pass: the second on what the first makes and another operand, each rounded on its own.

use super::formula::{Formula, map};
use super::fused::FusedFunction;
use super::leveled;
use crate::native::lanes::Lanes;
use openmps_tile::{Binary, Scalar};

/// An operation that may be one of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `x + y`.
    Add,
    /// `x - y`.
    Subtract,
    /// `x * y`.
    Multiply,
    /// `x / y`.
    Divide,
}

impl Arithmetic {
    /// What an operation on a number type is, if it is one of these on float32.
    pub fn of(operation: Binary, scalar: Scalar) -> Option<Arithmetic> {
        match operation {
            _ if scalar != Scalar::F32 => None,
            Binary::Add => Some(Arithmetic::Add),
            Binary::Subtract => Some(Arithmetic::Subtract),
            Binary::Multiply => Some(Arithmetic::Multiply),
            Binary::Divide => Some(Arithmetic::Divide),
            _ => None,
        }
    }
}

/// Which operand of the second operation the first one's result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `first(x, y) second z`.
    Left,
    /// `z second first(x, y)`.
    Right,
}

/// Two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Of x and y.
    pub first: Arithmetic,
    /// Of what the first makes and z.
    pub second: Arithmetic,
    /// On which side of the second the first stands.
    pub side: Side,
}

#[inline(always)]
unsafe fn map_three<V: Lanes, F: Formula<3>>(to: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) {
    // SAFETY: passed on to the caller.
    unsafe { map::<V, F, 3>(to, operands, repeats, count) }
}

leveled! {
    fn leveled_map<F>(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) -> FusedFunction
    where { F: Formula<3> } = map_three by lanes
}

/// The function for a formula of three operands.
pub(super) fn of_three<F: Formula<3>>() -> FusedFunction {
    leveled_map::<F>()
}

/// Makes a zero-sized type for each pair and the table from operations to function.
macro_rules! table {
    ($($name:ident: $first:ident $second:ident $side:pat => |$x:ident, $y:ident, $z:ident| $f:expr;)+) => {
        $(pub(super) struct $name;
        impl Formula<3> for $name {
            #[inline(always)]
            unsafe fn of<V: Lanes>([$x, $y, $z]: [V; 3]) -> V {
                // SAFETY: the caller vouches for the instructions.
                unsafe { $f }
            }
        })+

        /// The function for `x first y`, and `second` with `z`, where there is one.
        pub fn pair(pair: Pair) -> Option<FusedFunction> {
            match (pair.first, pair.second, pair.side) {
                $((Arithmetic::$first, Arithmetic::$second, $side) => Some(leveled_map::<$name>()),)+
                _ => None,
            }
        }
    };
}
table! {
    AddAdd: Add Add _ => |x, y, z| x.add(y).add(z);
    AddSubtract: Add Subtract Side::Left => |x, y, z| x.add(y).sub(z);
    AddSubtractFrom: Add Subtract Side::Right => |x, y, z| z.sub(x.add(y));
    AddMultiply: Add Multiply _ => |x, y, z| x.add(y).mul(z);
    SubtractAdd: Subtract Add _ => |x, y, z| x.sub(y).add(z);
    SubtractSubtract: Subtract Subtract Side::Left => |x, y, z| x.sub(y).sub(z);
    SubtractSubtractFrom: Subtract Subtract Side::Right => |x, y, z| z.sub(x.sub(y));
    SubtractMultiply: Subtract Multiply _ => |x, y, z| x.sub(y).mul(z);
    MultiplyAdd: Multiply Add _ => |x, y, z| x.mul(y).add(z);
    MultiplySubtract: Multiply Subtract Side::Left => |x, y, z| x.mul(y).sub(z);
    MultiplySubtractFrom: Multiply Subtract Side::Right => |x, y, z| z.sub(x.mul(y));
    MultiplyMultiply: Multiply Multiply _ => |x, y, z| x.mul(y).mul(z);
    AddDivide: Add Divide Side::Left => |x, y, z| x.add(y).div(z);
    AddDivideFrom: Add Divide Side::Right => |x, y, z| z.div(x.add(y));
    SubtractDivide: Subtract Divide Side::Left => |x, y, z| x.sub(y).div(z);
    MultiplyDivide: Multiply Divide Side::Left => |x, y, z| x.mul(y).div(z);
    DivideMultiply: Divide Multiply _ => |x, y, z| x.div(y).mul(z);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_operations_are_done_to_every_element() {
        use Arithmetic::*;
        let once = |operation: Arithmetic, x: f32, y: f32| match operation {
            Add => x + y,
            Subtract => x - y,
            Multiply => x * y,
            Divide => x / y,
        };
        let mut found = 0;
        // None is 0, by which a quotient were NaN, perhaps.
        let numbers = |seed: f32| (0..200).map(|i| (i as f32 * seed).cos()).collect::<Vec<_>>();
        let operands = [numbers(0.3), numbers(0.7), numbers(1.1)];
        for (first, second, side) in [Add, Subtract, Multiply, Divide].into_iter().flat_map(|first| {
            let seconds = [Add, Subtract, Multiply, Divide];
            seconds.into_iter().flat_map(move |second| [Side::Left, Side::Right].map(|side| (first, second, side)))
        }) {
            let Some(function) = pair(Pair { first, second, side }) else { continue };
            found += 1;
            for (repeating, count) in (0..8).flat_map(|bits| [0, 1, 63, 64, 65, 200].map(|count| (bits, count))) {
                let repeats = [0, 1, 2].map(|i| repeating >> i & 1 == 1);
                let mut out = vec![f32::NAN; 201];
                let addresses = [0, 1, 2].map(|i| operands[i].as_ptr().cast());
                // SAFETY: each vector has more than `count` elements.
                unsafe { function(out.as_mut_ptr().cast(), addresses, repeats, count) };
                for (i, &result) in out.iter().enumerate() {
                    let [x, y, z] =
                        [0, 1, 2].map(|k| operands[k].get(if repeats[k] { 0 } else { i }).copied().unwrap_or(0.0));
                    let made = once(first, x, y);
                    let expected = if side == Side::Left { once(second, made, z) } else { once(second, z, made) };
                    let untouched = i >= count && result.is_nan();
                    assert!(untouched || result == expected, "{first:?} {second:?} {side:?}, {i} of {count}: {result}");
                }
            }
        }
        assert_eq!(found, 24);
    }
}
