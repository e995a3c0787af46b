//! Elements that change places with those whose numbers differ in given bits, or are put in order with them: what reversals and sorting networks are made of.
//!
//! A tile has a power of two elements. Those of a chunk change places in registers, chunks as they are.

use super::{CHUNK, leveled};
use openmps_tile::{Compare, Scalar};

/// Yes or no by the number of an element: whether it has an odd count of these bits, or the contrary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity {
    /// The bits that are counted.
    pub bits: usize,
    /// Whether the contrary holds.
    pub contrary: bool,
}

impl Parity {
    /// What it says of an element.
    pub fn holds(self, number: usize) -> bool {
        ((number & self.bits).count_ones() % 2 == 1) != self.contrary
    }
}

/// A step of a sorting network: of an element and the one at the other side of a bit either stays, the greater one where `keeps_greater` holds.
#[derive(Clone, Debug)]
pub struct Ordering {
    bit: usize,
    keeps_greater: Parity,
    /// For the elements of a chunk, and of one for which all is the other way round: 0 or 1, as wide as elements are.
    sides: [Vec<u64>; 2],
}

impl Ordering {
    /// A step for elements of `size` bytes.
    pub fn new(bit: usize, keeps_greater: Parity, size: usize) -> Ordering {
        let sides = [false, true].map(|contrary| {
            let holds = |number: usize| u64::from(keeps_greater.holds(number) != contrary);
            let bytes: Vec<u8> = (0..CHUNK).flat_map(|i| holds(i).to_le_bytes().into_iter().take(size)).collect();
            bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
        });
        Ordering { bit, keeps_greater, sides }
    }

    /// The sides of a chunk that begins with this element.
    #[inline(always)]
    fn sides<T: Copy>(&self, first: usize) -> [T; CHUNK] {
        let outer = Parity { contrary: false, ..self.keeps_greater };
        let sides = &self.sides[usize::from(outer.holds(first))];
        // SAFETY: there are as many elements of this size, which any bits are.
        unsafe { sides.as_ptr().cast::<[T; CHUNK]>().read_unaligned() }
    }
}

/// Does a step of a sorting network for `count` elements; both places may be one.
pub type OrderFunction = unsafe fn(to: *mut u8, from: *const u8, count: usize, ordering: &Ordering);

/// `to[i] = from[i ^ bits]` for `count` elements; both places may be one.
pub type ExchangeFunction = unsafe fn(to: *mut u8, from: *const u8, count: usize, bits: usize);

/// A number type by its bits, and which of two numbers is greater.
trait Greater {
    type Bits: Copy + Default + PartialEq;
    fn is_greater(x: Self::Bits, y: Self::Bits) -> bool;
}

macro_rules! order {
    ($($name:ident $bits:ident $scalar:ident $compare:ident: |$x:ident, $y:ident| $greater:expr;)+) => {
        $(struct $name;
        impl Greater for $name {
            type Bits = $bits;
            #[inline(always)]
            fn is_greater($x: $bits, $y: $bits) -> bool { $greater }
        })+

        /// The function for a comparison of a number type; none for what says not which of two numbers is greater.
        pub fn order(compare: Compare, scalar: Scalar) -> Option<OrderFunction> {
            match (compare, scalar) {
                $((Compare::$compare, Scalar::$scalar) => Some(leveled_order::<$name>()),)+
                _ => None,
            }
        }
    };
}
order! {
    Single u32 F32 Greater: |x, y| f32::from_bits(x) > f32::from_bits(y);
    Double u64 F64 Greater: |x, y| f64::from_bits(x) > f64::from_bits(y);
    Half u16 F16 Greater: |x, y| is_greater_half::<0x7c00>(x, y);
    Bfloat u16 BF16 Greater: |x, y| is_greater_half::<0x7f80>(x, y);
    Signed8 u8 I8 Greater: |x, y| x.cast_signed() > y.cast_signed();
    Signed16 u16 I16 Greater: |x, y| x.cast_signed() > y.cast_signed();
    Signed32 u32 I32 Greater: |x, y| x.cast_signed() > y.cast_signed();
    Signed64 u64 I64 Greater: |x, y| x.cast_signed() > y.cast_signed();
    Unsigned8 u8 I8 GreaterUnsigned: |x, y| x > y;
    Unsigned16 u16 I16 GreaterUnsigned: |x, y| x > y;
    Unsigned32 u32 I32 GreaterUnsigned: |x, y| x > y;
    Unsigned64 u64 I64 GreaterUnsigned: |x, y| x > y;
}

/// Floats of 16 bits by integers: their magnitudes with a sign, of which 0 has none, and no NaN, which is beyond infinity.
#[inline(always)]
fn is_greater_half<const INFINITY: i16>(x: u16, y: u16) -> bool {
    let [x, y] = [x, y].map(u16::cast_signed);
    let [of_x, of_y] = [x & i16::MAX, y & i16::MAX];
    let signed = |magnitude: i16, sign: i16| (magnitude ^ sign).wrapping_sub(sign);
    (signed(of_x, x >> 15) > signed(of_y, y >> 15)) & (of_x <= INFINITY) & (of_y <= INFINITY)
}

#[inline(always)]
unsafe fn put_in_order<F: Greater>(to: *mut u8, from: *const u8, count: usize, ordering: &Ordering) {
    let (to, from) = (to.cast::<F::Bits>(), from.cast::<F::Bits>());
    // SAFETY: the caller's elements; chunks begin at multiples of their length, which divides `count`, or are one that is padded.
    unsafe {
        if count < CHUNK {
            let mut x = [F::Bits::default(); CHUNK];
            from.copy_to_nonoverlapping(x.as_mut_ptr(), count);
            let kept = kept::<F>(x, exchanged(x, ordering.bit), ordering.sides(0));
            kept.as_ptr().copy_to_nonoverlapping(to, count);
            return;
        }
        for first in (0..count).step_by(CHUNK) {
            if ordering.bit < CHUNK {
                let x = read(from, first);
                write(to, first, kept::<F>(x, exchanged(x, ordering.bit), ordering.sides(first)));
            } else if first & ordering.bit == 0 {
                let second = first + ordering.bit;
                let (x, y) = (read(from, first), read(from, second));
                write(to, first, kept::<F>(x, y, ordering.sides(first)));
                write(to, second, kept::<F>(y, x, ordering.sides(second)));
            }
        }
    }
}

/// Of each two elements the one that stays in the place of the first.
#[inline(always)]
fn kept<F: Greater>(x: [F::Bits; CHUNK], y: [F::Bits; CHUNK], keeps_greater: [F::Bits; CHUNK]) -> [F::Bits; CHUNK] {
    let mut kept = x;
    for i in 0..CHUNK {
        let goes = F::is_greater(x[i], y[i]) != (keeps_greater[i] != F::Bits::default());
        kept[i] = if goes { y[i] } else { x[i] };
    }
    kept
}

#[inline(always)]
unsafe fn change_places<T: Copy + Default>(to: *mut u8, from: *const u8, count: usize, bits: usize) {
    let (to, from) = (to.cast::<T>(), from.cast::<T>());
    let (inner, outer) = (bits % CHUNK, bits - bits % CHUNK);
    // SAFETY: as in `put_in_order`; both chunks are read before either is written.
    unsafe {
        if count < CHUNK {
            let mut x = [T::default(); CHUNK];
            from.copy_to_nonoverlapping(x.as_mut_ptr(), count);
            let y = exchanged(x, inner);
            y.as_ptr().copy_to_nonoverlapping(to, count);
            return;
        }
        for first in (0..count).step_by(CHUNK) {
            let second = first ^ outer;
            if first <= second {
                let (x, y) = (read(from, first), read(from, second));
                write(to, first, exchanged(y, inner));
                write(to, second, exchanged(x, inner));
            }
        }
    }
}

#[inline(always)]
unsafe fn read<T>(from: *const T, first: usize) -> [T; CHUNK] {
    // SAFETY: the caller's chunk.
    unsafe { from.add(first).cast::<[T; CHUNK]>().read_unaligned() }
}

#[inline(always)]
unsafe fn write<T>(to: *mut T, first: usize, chunk: [T; CHUNK]) {
    // SAFETY: the caller's chunk.
    unsafe { to.add(first).cast::<[T; CHUNK]>().write_unaligned(chunk) };
}

/// A chunk's elements, each in the place of the one whose number differs in these bits.
#[inline(always)]
fn exchanged<T: Copy>(x: [T; CHUNK], bits: usize) -> [T; CHUNK] {
    const { assert!(CHUNK == 64, "the bits below") };
    let mut y = x;
    if bits == CHUNK - 1 {
        (0..CHUNK).for_each(|i| y[i] = x[CHUNK - 1 - i]);
        return y;
    }
    let mut left = bits;
    while left != 0 {
        let bit = left & left.wrapping_neg();
        y = match bit {
            1 => across::<T, 1>(y),
            2 => across::<T, 2>(y),
            4 => across::<T, 4>(y),
            8 => across::<T, 8>(y),
            16 => across::<T, 16>(y),
            _ => across::<T, 32>(y),
        };
        left ^= bit;
    }
    y
}

#[inline(always)]
fn across<T: Copy, const BIT: usize>(x: [T; CHUNK]) -> [T; CHUNK] {
    let mut y = x;
    for first in (0..CHUNK).step_by(2 * BIT) {
        // Not as copies of slices: the compiler makes shuffles of it.
        #[allow(clippy::manual_memcpy)]
        for i in first..first + BIT {
            y[i] = x[i + BIT];
            y[i + BIT] = x[i];
        }
    }
    y
}

leveled! {
    fn leveled_order<F>(to: *mut u8, from: *const u8, count: usize, ordering: &Ordering) -> OrderFunction
    where { F: Greater } = put_in_order
}

leveled! {
    fn leveled_exchange<T>(to: *mut u8, from: *const u8, count: usize, bits: usize) -> ExchangeFunction
    where { T: Copy + Default } = change_places
}

/// The function for elements of so many bytes.
pub fn exchange(size: usize) -> ExchangeFunction {
    match size {
        1 => leveled_exchange::<u8>(),
        2 => leveled_exchange::<u16>(),
        4 => leveled_exchange::<u32>(),
        _ => leveled_exchange::<u64>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    const COUNTS: [usize; 6] = [2, 8, 32, 64, 128, 512];

    /// Numbers some of which are equal, of both signs, infinite or none, as bits.
    fn numbers(scalar: Scalar, count: usize) -> Vec<u64> {
        let number = |i: usize| match i * 7 % 23 {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            3 => f64::INFINITY,
            4 => f64::NEG_INFINITY,
            at => (at as f64 - 12.0) * 0.75,
        };
        let bits = |i: usize| match scalar {
            Scalar::F16 => f16::from_f64(number(i)).to_bits().into(),
            Scalar::BF16 => bf16::from_f64(number(i)).to_bits().into(),
            Scalar::F32 => (number(i) as f32).to_bits().into(),
            Scalar::F64 => number(i).to_bits(),
            _ => (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 8 * scalar.size()),
        };
        (0..count).map(bits).collect()
    }

    fn is_greater(compare: Compare, scalar: Scalar, x: u64, y: u64) -> bool {
        let signed = |x: u64| (x << (64 - 8 * scalar.size())).cast_signed();
        match scalar {
            Scalar::F16 => f16::from_bits(x as u16) > f16::from_bits(y as u16),
            Scalar::BF16 => bf16::from_bits(x as u16) > bf16::from_bits(y as u16),
            Scalar::F32 => f32::from_bits(x as u32) > f32::from_bits(y as u32),
            Scalar::F64 => f64::from_bits(x) > f64::from_bits(y),
            _ if compare == Compare::Greater => signed(x) > signed(y),
            _ => x > y,
        }
    }

    fn packed(numbers: &[u64], size: usize) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes().into_iter().take(size)).collect()
    }

    #[test]
    fn of_two_elements_the_greater_stays_where_it_is_to_be_kept() {
        let integers = [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64];
        let floats = [Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64].map(|scalar| (Compare::Greater, scalar));
        let of = |compare| integers.map(|scalar| (compare, scalar));
        for (compare, scalar) in [floats, of(Compare::Greater), of(Compare::GreaterUnsigned)].concat() {
            let function = order(compare, scalar).expect("a function");
            for count in COUNTS {
                let x = numbers(scalar, count);
                for bit in (0..count.ilog2()).map(|bit| 1 << bit) {
                    for other in [0, 1, 4, 64, 256].into_iter().filter(|other| other & bit == 0) {
                        let keeps_greater = Parity { bits: bit | other, contrary: other == 4 };
                        let kept = |i: usize| {
                            let (x, y) = (x[i], x[i ^ bit]);
                            if is_greater(compare, scalar, x, y) == keeps_greater.holds(i) { x } else { y }
                        };
                        let expected: Vec<u64> = (0..count).map(kept).collect();
                        let (size, mut found) = (scalar.size(), packed(&x, scalar.size()));
                        let to = found.as_mut_ptr();
                        // SAFETY: `count` elements, where they are.
                        unsafe { function(to, to, count, &Ordering::new(bit, keeps_greater, size)) };
                        assert_eq!(found, packed(&expected, size), "{compare:?} {scalar:?} {count} {bit} {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn elements_change_places_where_they_are_and_elsewhere() {
        for (scalar, count) in [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64].iter().zip([COUNTS; 4]) {
            for count in count {
                let (x, size) = (numbers(*scalar, count), scalar.size());
                for bits in (0..count).step_by(if count > 64 { 7 } else { 1 }).chain([count - 1]) {
                    let expected: Vec<u64> = (0..count).map(|i| x[i ^ bits]).collect();
                    let (from, mut to) = (packed(&x, size), vec![0; count * size]);
                    let mut place = from.clone();
                    // SAFETY: `count` elements each.
                    unsafe {
                        exchange(size)(to.as_mut_ptr(), from.as_ptr(), count, bits);
                        let at = place.as_mut_ptr();
                        exchange(size)(at, at, count, bits);
                    }
                    assert_eq!(to, packed(&expected, size), "{scalar:?} {count} {bits}");
                    assert_eq!(place, to, "in place: {scalar:?} {count} {bits}");
                }
            }
        }
    }
}
