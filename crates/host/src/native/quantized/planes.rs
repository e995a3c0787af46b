//! A row of weights unpacked: a byte for each element, scales and offsets for each 32.

use super::BlockFormat;
use crate::native::lanes::{Lanes, at_level};
use crate::native::stored::widened;
use crate::vector::math::half_to_single;
use half::f16;

/// Elements that share scales and offsets.
pub(super) const GROUP: usize = 32;
/// Groups whose scales are multiplied at once, those of a block of the _K formats: arrays of them are padded to a multiple.
pub(super) const AT_ONCE: usize = 8;

/// What an array of one number for each group takes, padded.
pub(super) const fn padded(groups: usize) -> usize {
    groups.next_multiple_of(AT_ONCE)
}

/// A row's elements are `scale * byte + offset`. Of formats with halves, `scales` are those of a group's first 16 elements and `others` those of
/// its last 16; elsewhere `others` has no meaning.
pub(super) struct Planes<'a> {
    pub bytes: &'a mut [u8],
    pub scales: &'a mut [f32],
    pub others: &'a mut [f32],
    pub offsets: &'a mut [f32],
}

impl<'a> Planes<'a> {
    /// Float32 numbers whose memory a row takes.
    pub fn singles(groups: usize) -> usize {
        groups * GROUP / 4 + 3 * padded(groups)
    }

    /// In this memory, which has room for it.
    pub fn new(groups: usize, memory: &'a mut [f32]) -> Planes<'a> {
        let (bytes, rest) = memory.split_at_mut(groups * GROUP / 4);
        let (scales, rest) = rest.split_at_mut(padded(groups));
        let (others, rest) = rest.split_at_mut(padded(groups));
        let offsets = &mut rest[..padded(groups)];
        // What pads them counts for nothing.
        for plane in [&mut *scales, &mut *others, &mut *offsets] {
            plane[groups..].fill(0.0);
        }
        // SAFETY: float32 numbers are four bytes each.
        let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), groups * GROUP) };
        Planes { bytes, scales, others, offsets }
    }

    /// Several rows in memory that has room for them.
    pub fn several<const N: usize>(groups: usize, memory: &'a mut [f32]) -> [Planes<'a>; N] {
        let mut parts = memory.chunks_exact_mut(Planes::singles(groups));
        std::array::from_fn(|_| Planes::new(groups, parts.next().expect("room for every row")))
    }

    /// Unpacks a row of whole blocks, as many as there is room for.
    pub fn unpack(&mut self, format: BlockFormat, row: &[u8]) {
        debug_assert_eq!(row.len() * format.elements(), self.bytes.len() * format.bytes(), "{}", format.name());
        let planes = self;
        // SAFETY: the level in use is one that the CPU has; slices only.
        unsafe { at_level!(unpack(planes: &mut Planes, format: BlockFormat, row: &[u8])) }
    }

    /// The row as float32.
    pub fn widen(&self, format: BlockFormat, to: &mut [f32]) {
        let planes = self;
        // SAFETY: as above.
        unsafe { at_level!(widen(planes: &Planes, format: BlockFormat, to: &mut [f32])) }
    }
}

#[inline(always)]
unsafe fn widen<V: Lanes>(planes: &Planes, format: BlockFormat, to: &mut [f32]) {
    let groups = planes.bytes.as_chunks::<GROUP>().0.iter().zip(to.as_chunks_mut::<GROUP>().0);
    for (group, (bytes, to)) in groups.enumerate() {
        let (scale, offset) = (planes.scales[group], planes.offsets[group]);
        if !format.is_signed() {
            to.iter_mut().zip(bytes).for_each(|(to, &q)| *to = scale * f32::from(q) + offset);
            continue;
        }
        let other = if format.has_halves() { planes.others[group] } else { scale };
        for i in 0..GROUP {
            to[i] = if i < GROUP / 2 { scale } else { other } * f32::from(bytes[i] as i8);
        }
    }
}

#[inline(always)]
unsafe fn unpack<V: Lanes>(planes: &mut Planes, format: BlockFormat, row: &[u8]) {
    // SAFETY: passed on to the caller.
    unsafe {
        match format {
            BlockFormat::Q4_0 => {
                nibbles::<18>(planes, row);
                numbers::<V, 18>(planes, row, Offset::Scales(-8.0));
            }
            BlockFormat::Q4_1 => {
                nibbles::<20>(planes, row);
                numbers::<V, 20>(planes, row, Offset::Second);
            }
            BlockFormat::Q8_0 => {
                bytes(planes, row);
                numbers::<V, 34>(planes, row, Offset::Scales(0.0));
            }
            BlockFormat::Q4K => fours_and_fives::<144>(planes, row),
            BlockFormat::Q5K => fours_and_fives::<176>(planes, row),
            BlockFormat::Q6K => sixes(planes, row),
        }
    }
}

/// N bytes from `at` on, by value: the compiler does not know that a row is no part of its own planes, and would go byte by byte.
#[inline(always)]
fn copied<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    *block[at..].first_chunk().expect("bytes of a block")
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    half_to_single(u16::from_le_bytes(copied(block, at)))
}

/// The scales of blocks of 32 elements, which are the first of their bytes, and their offsets.
#[inline(always)]
unsafe fn numbers<V: Lanes, const BYTES: usize>(planes: &mut Planes, row: &[u8], offset: Offset) {
    let mut eights = planes.scales.as_chunks_mut::<AT_ONCE>().0.iter_mut().zip(planes.offsets.as_chunks_mut().0);
    let (blocks, rest) = row.as_chunks::<BYTES>().0.as_chunks::<AT_ONCE>();
    for (blocks, to) in blocks.iter().zip(&mut eights) {
        // SAFETY: passed on to the caller.
        unsafe { numbers_of_eight::<V, BYTES>(blocks, to, offset) };
    }
    if let Some(to) = eights.next() {
        let mut blocks = [[0; BYTES]; AT_ONCE];
        blocks[..rest.len()].copy_from_slice(rest);
        // SAFETY: passed on to the caller.
        unsafe { numbers_of_eight::<V, BYTES>(&blocks, to, offset) };
    }
}

/// What a block's offset is.
#[derive(Clone, Copy)]
enum Offset {
    /// Its scale times a number.
    Scales(f32),
    /// A float16 behind the scale.
    Second,
}

#[inline(always)]
unsafe fn numbers_of_eight<V: Lanes, const BYTES: usize>(
    blocks: &[[u8; BYTES]; AT_ONCE],
    (scales, offsets): (&mut [f32; AT_ONCE], &mut [f32; AT_ONCE]),
    offset: Offset,
) {
    let mut halves = [[f16::ZERO; AT_ONCE]; 2];
    for i in 0..AT_ONCE {
        halves[0][i] = f16::from_le_bytes(copied(&blocks[i], 0));
        halves[1][i] = f16::from_le_bytes(copied(&blocks[i], 2));
    }
    let mut singles = [[0.0; AT_ONCE]; 2];
    // SAFETY: as many numbers; the caller vouches for the instructions.
    unsafe { widened::<V, f16>(halves.as_ptr().cast(), singles.as_mut_ptr().cast(), 2 * AT_ONCE) };
    [*scales, *offsets] = singles;
    if let Offset::Scales(times) = offset {
        for i in 0..AT_ONCE {
            offsets[i] = times * scales[i];
        }
    }
}

/// The elements of blocks that end with 16 bytes: element i is the low half of byte i, element 16 + i the high half.
#[inline(always)]
fn nibbles<const BYTES: usize>(planes: &mut Planes, row: &[u8]) {
    let blocks = row.as_chunks::<BYTES>().0.iter().zip(planes.bytes.as_chunks_mut::<GROUP>().0);
    for (block, bytes) in blocks {
        let packed: [u8; GROUP / 2] = copied(block, BYTES - GROUP / 2);
        for i in 0..GROUP / 2 {
            bytes[i] = packed[i] & 15;
            bytes[GROUP / 2 + i] = packed[i] >> 4;
        }
    }
}

/// The elements of blocks that end with a byte for each.
#[inline(always)]
fn bytes(planes: &mut Planes, row: &[u8]) {
    let blocks = row.as_chunks::<34>().0.iter().zip(planes.bytes.as_chunks_mut::<GROUP>().0);
    blocks.for_each(|(block, bytes)| *bytes = copied(block, 2));
}

/// The scales and the offsets of 6 bits of eight groups, which share 12 bytes: of the first four groups the low 6 bits of a byte, of the last four
/// 4 bits beside the other's and the top 2 of an earlier byte.
#[inline(always)]
pub(super) fn six_bits(packed: [u8; 12]) -> ([u8; 8], [u8; 8]) {
    let word = |i: usize| u32::from_le_bytes(copied(&packed, 4 * i));
    let (scales, offsets, both) = (word(0), word(1), word(2));
    let top = |word: u32| ((word >> 6) & 0x0303_0303) << 4;
    let eight = |first: u32, last: u32| (u64::from(last) << 32 | u64::from(first)).to_le_bytes();
    (
        eight(scales & 0x3f3f_3f3f, both & 0x0f0f_0f0f | top(scales)),
        eight(offsets & 0x3f3f_3f3f, (both >> 4) & 0x0f0f_0f0f | top(offsets)),
    )
}

/// Q4_K and Q5_K: two units, twelve bytes of scales and offsets, where there are five bits those of all elements' fifth, and the nibbles: each
/// 32 bytes are two groups, the low halves and the high ones.
#[inline(always)]
fn fours_and_fives<const BYTES: usize>(planes: &mut Planes, row: &[u8]) {
    const HEAD: usize = 16;
    let has_fifth = BYTES == BlockFormat::Q5K.bytes();
    let nibbles = if has_fifth { HEAD + GROUP } else { HEAD };
    let numbers = planes.scales.as_chunks_mut::<8>().0.iter_mut().zip(planes.offsets.as_chunks_mut::<8>().0);
    let blocks = row.as_chunks::<BYTES>().0.iter().zip(planes.bytes.as_chunks_mut::<256>().0);
    for ((block, bytes), (scales, offsets)) in blocks.zip(numbers) {
        let fifths: [u8; GROUP] = if has_fifth { copied(block, HEAD) } else { [0; GROUP] };
        let groups = bytes.as_chunks_mut::<GROUP>().0;
        for (group, to) in groups.iter_mut().enumerate() {
            let packed: [u8; GROUP] = copied(block, nibbles + group / 2 * GROUP);
            let shift = group % 2 * 4;
            for i in 0..GROUP {
                to[i] = (packed[i] >> shift) & 15 | ((fifths[i] >> group) & 1) << 4;
            }
        }
        let (scale_unit, offset_unit) = (half(block, 0), half(block, 2));
        let (packed_scales, packed_offsets) = six_bits(copied(block, 4));
        for group in 0..8 {
            scales[group] = scale_unit * f32::from(packed_scales[group]);
            offsets[group] = -offset_unit * f32::from(packed_offsets[group]);
        }
    }
}

/// Q6_K: low halves of all elements, then two more bits of each, 16 scales and their unit. Twice 128 elements, whose four groups share 64 bytes
/// of low halves and 32 bytes of upper bits.
#[inline(always)]
fn sixes(planes: &mut Planes, row: &[u8]) {
    const HIGH: usize = 128;
    const SCALES: usize = HIGH + 64;
    let numbers = planes.scales.as_chunks_mut::<8>().0.iter_mut().zip(planes.others.as_chunks_mut::<8>().0);
    let blocks = row.as_chunks::<210>().0.iter().zip(planes.bytes.as_chunks_mut::<256>().0);
    for ((block, bytes), (scales, others)) in blocks.zip(numbers) {
        for (group, to) in bytes.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let (side, quarter) = (group / 4, group % 4);
            let low: [u8; GROUP] = copied(block, 64 * side + quarter % 2 * GROUP);
            let high: [u8; GROUP] = copied(block, HIGH + GROUP * side);
            let (shift, upper) = (quarter / 2 * 4, 2 * quarter);
            for i in 0..GROUP {
                to[i] = ((low[i] >> shift) & 15 | ((high[i] >> upper) & 3) << 4).wrapping_sub(32);
            }
        }
        let (packed, unit): ([u8; 16], f32) = (copied(block, SCALES), half(block, SCALES + 16));
        for group in 0..8 {
            scales[group] = unit * f32::from(packed[2 * group] as i8);
            others[group] = unit * f32::from(packed[2 * group + 1] as i8);
        }
    }
    planes.offsets.fill(0.0);
}
