//! Sums of products with blocks where they lie, for few rows of x: to unpack them first would be most of the work.

use super::activations::Row;
use super::planes::{GROUP, six_bits};
use super::products::{Instructions, Products, at_products};
use super::{BlockFormat, SIDE_BY_SIDE};

/// Rows of x from which on blocks are unpacked once for all of them.
pub(super) const WORTH_UNPACKING: usize = 6;

/// Bytes ahead of the first row at which lines are asked for: the next four rows, since four short streams are nothing that a processor sees, but
/// no further than the second-level cache holds, and not so near that the memory is not there in time.
const AHEAD: [usize; 2] = [4096, 65_536];

/// Several rows of weights.
type Lines<'a> = [&'a [u8]; SIDE_BY_SIDE];

/// The sums of several rows of weights, each with the row of x.
pub(super) fn dots(instructions: Instructions, format: BlockFormat, weights: Lines, x: &Row) -> [f32; SIDE_BY_SIDE] {
    check(format, weights, x);
    // SAFETY: all rows have as many blocks as x has groups for; the instructions are the CPU's.
    unsafe { at_products!(instructions, sums(format: BlockFormat, weights: Lines, x: &Row) -> [f32; SIDE_BY_SIDE]) }
}

fn check(format: BlockFormat, weights: Lines, x: &Row) {
    let (elements, groups) = (x.bytes.len(), x.bytes.len() / GROUP);
    assert!(elements.is_multiple_of(format.elements()), "whole blocks");
    assert!(weights.iter().all(|row| row.len() == format.row_bytes(elements)), "rows of one length");
    assert!(x.scales.len() >= groups && x.sums.len() >= groups, "rows of one length");
}

#[inline(always)]
unsafe fn sums<P: Products>(format: BlockFormat, weights: Lines, x: &Row) -> [f32; SIDE_BY_SIDE] {
    // SAFETY: passed on to the caller.
    unsafe {
        match format {
            BlockFormat::Q4_0 => sums_of::<P, Q4_0>(weights, x),
            BlockFormat::Q4_1 => sums_of::<P, Q4_1>(weights, x),
            BlockFormat::Q8_0 => sums_of::<P, Q8_0>(weights, x),
            BlockFormat::Q4K => sums_of::<P, FoursAndFives<144>>(weights, x),
            BlockFormat::Q5K => sums_of::<P, FoursAndFives<176>>(weights, x),
            BlockFormat::Q6K => sums_of::<P, Q6K>(weights, x),
        }
    }
}

/// How blocks of a format are multiplied.
trait Block {
    const FORMAT: BlockFormat;
    /// What products with offsets are added up in.
    type Offsets<P: Products>: Offsets;

    /// `sums` and the block's products with a part of x.
    ///
    /// # Safety
    /// The block, and as many elements and numbers of x; the CPU has the instructions.
    unsafe fn add<P: Products>(sums: P, offsets: &mut Self::Offsets<P>, block: *const u8, x: Part) -> P;
}

/// Sums of offsets. Methods are unsafe because the CPU must have the instructions.
trait Offsets: Copy {
    unsafe fn none() -> Self;
    unsafe fn sum(self) -> f32;
}

impl Offsets for () {
    #[inline(always)]
    unsafe fn none() {}
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        0.0
    }
}

impl Offsets for [f32; 8] {
    #[inline(always)]
    unsafe fn none() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.iter().sum()
    }
}

/// Of pairs of products with a scale and an offset, whose second numbers count.
#[derive(Clone, Copy)]
struct Seconds<P: Products>(P::Pair);

impl<P: Products> Offsets for Seconds<P> {
    #[inline(always)]
    unsafe fn none() -> Seconds<P> {
        // SAFETY: the trait's contract.
        Seconds(unsafe { P::no_pair() })
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe { P::second(self.0) }
    }
}

/// Elements of x from a block's first on, and scales and sums of their groups.
#[derive(Clone, Copy)]
struct Part {
    bytes: *const i8,
    scales: *const f32,
    sums: *const f32,
}

#[inline(always)]
unsafe fn sums_of<P: Products, B: Block>(weights: Lines, x: &Row) -> [f32; SIDE_BY_SIDE] {
    let (elements, bytes) = (B::FORMAT.elements(), B::FORMAT.bytes());
    let ahead = weights[0].as_ptr().wrapping_add((SIDE_BY_SIDE * weights[0].len()).clamp(AHEAD[0], AHEAD[1]));
    // SAFETY: `check` has seen that all rows have as many blocks as x.
    unsafe {
        let mut sums = [P::zero(); SIDE_BY_SIDE];
        let mut offsets = [B::Offsets::<P>::none(); SIDE_BY_SIDE];
        for i in 0..x.bytes.len() / elements {
            for line in (0..SIDE_BY_SIDE * bytes).step_by(64) {
                P::prefetch(ahead.wrapping_add(i * SIDE_BY_SIDE * bytes + line));
            }
            let group = i * elements / GROUP;
            let part = Part {
                bytes: x.bytes.as_ptr().add(i * elements),
                scales: x.scales.as_ptr().add(group),
                sums: x.sums.as_ptr().add(group),
            };
            for j in 0..SIDE_BY_SIDE {
                sums[j] = B::add(sums[j], &mut offsets[j], weights[j].as_ptr().add(i * bytes), part);
            }
        }
        let mut result = [0.0; SIDE_BY_SIDE];
        for j in 0..SIDE_BY_SIDE {
            result[j] = sums[j].sum() + offsets[j].sum();
        }
        result
    }
}

struct Q4_0;

impl Block for Q4_0 {
    const FORMAT: BlockFormat = BlockFormat::Q4_0;
    type Offsets<P: Products> = Seconds<P>;
    #[inline(always)]
    unsafe fn add<P: Products>(sums: P, offsets: &mut Seconds<P>, block: *const u8, x: Part) -> P {
        // SAFETY: the trait's contract.
        unsafe {
            let numbers = P::times(P::twice(block), [*x.scales, -8.0 * *x.sums]);
            offsets.0 = P::plus(offsets.0, numbers);
            sums.add_by_first(P::nibbles(block.add(2)), x.bytes, numbers)
        }
    }
}

struct Q4_1;

impl Block for Q4_1 {
    const FORMAT: BlockFormat = BlockFormat::Q4_1;
    type Offsets<P: Products> = Seconds<P>;
    #[inline(always)]
    unsafe fn add<P: Products>(sums: P, offsets: &mut Seconds<P>, block: *const u8, x: Part) -> P {
        // SAFETY: the trait's contract.
        unsafe {
            let numbers = P::times(P::pair(block), [*x.scales, *x.sums]);
            offsets.0 = P::plus(offsets.0, numbers);
            sums.add_by_first(P::nibbles(block.add(4)), x.bytes, numbers)
        }
    }
}

struct Q8_0;

impl Block for Q8_0 {
    const FORMAT: BlockFormat = BlockFormat::Q8_0;
    type Offsets<P: Products> = ();
    #[inline(always)]
    unsafe fn add<P: Products>(sums: P, (): &mut (), block: *const u8, x: Part) -> P {
        // SAFETY: the trait's contract.
        unsafe {
            let scale = P::times(P::twice(block), [*x.scales, 0.0]);
            sums.add_signed_by_first(P::load(block.add(2)), x.bytes, scale)
        }
    }
}

/// Q4_K and Q5_K, by the bytes of a block, which lies as `planes` says.
struct FoursAndFives<const BYTES: usize>;

impl<const BYTES: usize> Block for FoursAndFives<BYTES> {
    const FORMAT: BlockFormat = if BYTES == 144 { BlockFormat::Q4K } else { BlockFormat::Q5K };
    type Offsets<P: Products> = [f32; 8];
    #[inline(always)]
    unsafe fn add<P: Products>(mut sums: P, offsets: &mut [f32; 8], block: *const u8, x: Part) -> P {
        const GROUPS: usize = 8;
        // SAFETY: the trait's contract.
        unsafe {
            let (packed_scales, packed_offsets) = six_bits(*block.add(4).cast());
            let (unit, offset_unit) = (P::half(block), -P::half(block.add(2)));
            let mut scales = [0.0f32; GROUPS];
            for i in 0..GROUPS {
                scales[i] = unit * f32::from(packed_scales[i]) * *x.scales.add(i);
                offsets[i] += offset_unit * f32::from(packed_offsets[i]) * *x.sums.add(i);
            }
            let has_fifth = BYTES == BlockFormat::Q5K.bytes();
            let fifths = if has_fifth { P::load(block.add(16)) } else { P::load(block) };
            let nibbles = block.add(if has_fifth { 16 + GROUP } else { 16 });
            macro_rules! pair {
                ($($pair:literal: $first:literal $second:literal),*) => { $(
                    let both = P::load(nibbles.add($pair * GROUP));
                    let (mut low, mut high) = (P::bits::<0>(both, 15), P::bits::<4>(both, 15));
                    if has_fifth {
                        low = P::below(low, P::bits::<$first>(fifths, 1));
                        high = P::below(high, P::bits::<$second>(fifths, 1));
                    }
                    sums = sums.add(low, x.bytes.add($first * GROUP), scales[$first]);
                    sums = sums.add(high, x.bytes.add($second * GROUP), scales[$second]);
                )* };
            }
            pair!(0: 0 1, 1: 2 3, 2: 4 5, 3: 6 7);
        }
        sums
    }
}

/// Q6_K, whose blocks lie as `planes` says.
struct Q6K;

impl Block for Q6K {
    const FORMAT: BlockFormat = BlockFormat::Q6K;
    type Offsets<P: Products> = ();
    #[inline(always)]
    unsafe fn add<P: Products>(mut sums: P, (): &mut (), block: *const u8, x: Part) -> P {
        // SAFETY: the trait's contract.
        unsafe {
            let packed: [u8; 16] = *block.add(192).cast();
            let unit = P::half(block.add(208));
            let mut scales = [0.0f32; 16];
            for i in 0..16 {
                scales[i] = unit * f32::from(packed[i] as i8) * *x.scales.add(i / 2);
            }
            for side in 0..2 {
                let low = block.add(64 * side);
                let (first, second, upper) =
                    (P::load(low), P::load(low.add(GROUP)), P::load(block.add(128 + GROUP * side)));
                let groups = [
                    P::below(P::bits::<0>(first, 15), P::bits::<0>(upper, 3)),
                    P::below(P::bits::<0>(second, 15), P::bits::<2>(upper, 3)),
                    P::below(P::bits::<4>(first, 15), P::bits::<4>(upper, 3)),
                    P::below(P::bits::<4>(second, 15), P::bits::<6>(upper, 3)),
                ];
                for i in 0..4 {
                    let group = 4 * side + i;
                    let scales = [scales[2 * group], scales[2 * group + 1]];
                    sums = sums.add_halves(P::less(groups[i], 32), x.bytes.add(group * GROUP), scales);
                }
            }
        }
        sums
    }
}
