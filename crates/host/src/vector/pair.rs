//! Two operations of float32 in one pass: the second on what the first makes and another operand, each rounded on its own.

use super::fused::FusedFunction;
use super::{CHUNK, leveled};
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
}

impl Arithmetic {
    /// What an operation on a number type is, if it is one of these on float32.
    pub fn of(operation: Binary, scalar: Scalar) -> Option<Arithmetic> {
        match operation {
            _ if scalar != Scalar::F32 => None,
            Binary::Add => Some(Arithmetic::Add),
            Binary::Subtract => Some(Arithmetic::Subtract),
            Binary::Multiply => Some(Arithmetic::Multiply),
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

/// Both operations on elements.
pub(super) trait Both {
    fn apply(x: f32, y: f32, z: f32) -> f32;
}

/// Where an operand's chunks are: one after the other, or the same one again.
pub(super) struct Chunks {
    at: *const f32,
    repeats: bool,
    /// The first element, 64 times.
    first: [f32; CHUNK],
}

impl Chunks {
    /// # Safety
    /// There is an element.
    #[inline(always)]
    pub unsafe fn new(from: *const u8, repeats: bool) -> Chunks {
        let at = from.cast::<f32>();
        // SAFETY: the caller's promise.
        let first = unsafe { at.read_unaligned() };
        Chunks { at, repeats, first: [first; CHUNK] }
    }

    /// The next chunk.
    ///
    /// # Safety
    /// There are 64 more elements.
    #[inline(always)]
    pub unsafe fn next(&mut self) -> [f32; CHUNK] {
        if self.repeats {
            return self.first;
        }
        // SAFETY: the caller's promise.
        let chunk = unsafe { self.at.cast::<[f32; CHUNK]>().read_unaligned() };
        self.at = self.at.wrapping_add(CHUNK);
        chunk
    }

    /// The last elements, and the first one behind them.
    ///
    /// # Safety
    /// There are so many more elements, fewer than 64.
    #[inline(always)]
    pub unsafe fn rest(&self, count: usize) -> [f32; CHUNK] {
        let mut chunk = self.first;
        if !self.repeats {
            // SAFETY: the caller's promise.
            unsafe { self.at.cast::<u8>().copy_to_nonoverlapping(chunk.as_mut_ptr().cast(), count * size_of::<f32>()) };
        }
        chunk
    }
}

#[inline(always)]
unsafe fn map<P: Both>(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) {
    if count == 0 {
        return;
    }
    let [x, y, z] = operands;
    // SAFETY: the caller's `count` elements are valid at each address that does not repeat, one at those that do.
    unsafe {
        let (mut x, mut y, mut z) =
            (Chunks::new(x, repeats[0]), Chunks::new(y, repeats[1]), Chunks::new(z, repeats[2]));
        let mut to = destination.cast::<f32>();
        for _ in 0..count / CHUNK {
            let results = applied::<P>(x.next(), y.next(), z.next());
            to.cast::<[f32; CHUNK]>().write_unaligned(results);
            to = to.add(CHUNK);
        }
        let rest = count % CHUNK;
        if rest > 0 {
            let results = applied::<P>(x.rest(rest), y.rest(rest), z.rest(rest));
            results.as_ptr().cast::<u8>().copy_to_nonoverlapping(to.cast(), rest * size_of::<f32>());
        }
    }
}

#[inline(always)]
pub(super) fn applied<P: Both>(x: [f32; CHUNK], y: [f32; CHUNK], z: [f32; CHUNK]) -> [f32; CHUNK] {
    let mut results = [0.0; CHUNK];
    for i in 0..CHUNK {
        results[i] = P::apply(x[i], y[i], z[i]);
    }
    results
}

leveled! {
    fn leveled_map<P>(destination: *mut u8, operands: [*const u8; 3], repeats: [bool; 3], count: usize) -> FusedFunction
    where { P: Both } = map
}

/// Makes a zero-sized type for each pair and the table from operations to function.
macro_rules! table {
    ($($name:ident: $first:ident $second:ident $side:pat => |$x:ident, $y:ident, $z:ident| $f:expr;)+) => {
        $(pub(super) struct $name;
        impl Both for $name {
            #[inline(always)]
            fn apply($x: f32, $y: f32, $z: f32) -> f32 { $f }
        })+

        /// The function for `x first y`, and `second` with `z`.
        pub fn pair(pair: Pair) -> FusedFunction {
            match (pair.first, pair.second, pair.side) {
                $((Arithmetic::$first, Arithmetic::$second, $side) => leveled_map::<$name>(),)+
            }
        }
    };
}
table! {
    AddAdd: Add Add _ => |x, y, z| (x + y) + z;
    AddSubtract: Add Subtract Side::Left => |x, y, z| (x + y) - z;
    AddSubtractFrom: Add Subtract Side::Right => |x, y, z| z - (x + y);
    AddMultiply: Add Multiply _ => |x, y, z| (x + y) * z;
    SubtractAdd: Subtract Add _ => |x, y, z| (x - y) + z;
    SubtractSubtract: Subtract Subtract Side::Left => |x, y, z| (x - y) - z;
    SubtractSubtractFrom: Subtract Subtract Side::Right => |x, y, z| z - (x - y);
    SubtractMultiply: Subtract Multiply _ => |x, y, z| (x - y) * z;
    MultiplyAdd: Multiply Add _ => |x, y, z| x * y + z;
    MultiplySubtract: Multiply Subtract Side::Left => |x, y, z| x * y - z;
    MultiplySubtractFrom: Multiply Subtract Side::Right => |x, y, z| z - x * y;
    MultiplyMultiply: Multiply Multiply _ => |x, y, z| (x * y) * z;
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
        };
        let numbers = |seed: f32| (0..200).map(|i| (i as f32 * seed).sin()).collect::<Vec<_>>();
        let operands = [numbers(0.3), numbers(0.7), numbers(1.1)];
        for (first, second, side) in [Add, Subtract, Multiply].into_iter().flat_map(|first| {
            let seconds = [Add, Subtract, Multiply];
            seconds.into_iter().flat_map(move |second| [Side::Left, Side::Right].map(|side| (first, second, side)))
        }) {
            let function = pair(Pair { first, second, side });
            for (repeating, count) in (0..8).flat_map(|bits| [0, 1, 63, 64, 65, 200].map(|count| (bits, count))) {
                let repeats = [0, 1, 2].map(|i| repeating >> i & 1 == 1);
                let mut out = vec![f32::NAN; 201];
                let addresses = [0, 1, 2].map(|i| operands[i].as_ptr().cast());
                // SAFETY: each vector has more than `count` elements.
                unsafe { function(out.as_mut_ptr().cast(), addresses, repeats, count) };
                for (i, &found) in out.iter().enumerate() {
                    let [x, y, z] =
                        [0, 1, 2].map(|k| operands[k].get(if repeats[k] { 0 } else { i }).copied().unwrap_or(0.0));
                    let made = once(first, x, y);
                    let expected = if side == Side::Left { once(second, made, z) } else { once(second, z, made) };
                    let untouched = i >= count && found.is_nan();
                    assert!(untouched || found == expected, "{first:?} {second:?} {side:?}, {i} of {count}: {found}");
                }
            }
        }
    }
}
