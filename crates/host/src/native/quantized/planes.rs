//! A row of weights unpacked: a byte for each element, scales and offsets for each 32.

use super::BlockFormat;
use crate::native::lanes::{Lanes, at_level};
use crate::vector::math::half_to_single;

/// Elements that share scales and offsets.
pub(super) const GROUP: usize = 32;
/// Groups whose scales are multiplied at once: arrays of them are padded to a multiple.
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
    match format {
        BlockFormat::Q4_0 => nibbles::<18, 2>(planes, row, |d, _| (d, -8.0 * d)),
        BlockFormat::Q4_1 => nibbles::<20, 4>(planes, row, |d, m| (d, m)),
        BlockFormat::Q8_0 => bytes(planes, row),
        BlockFormat::Q4K => fours_and_fives::<144>(planes, row),
        BlockFormat::Q5K => fours_and_fives::<176>(planes, row),
        BlockFormat::Q6K => sixes(planes, row),
    }
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> f32 {
    half_to_single(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// 16 bytes: element i in the low half of byte i, element 16 + i in the high half.
#[inline(always)]
fn nibbles<const BYTES: usize, const HEAD: usize>(
    planes: &mut Planes,
    row: &[u8],
    scales: impl Fn(f32, f32) -> (f32, f32),
) {
    let blocks = row.as_chunks::<BYTES>().0.iter().zip(planes.bytes.as_chunks_mut::<GROUP>().0);
    for (group, (block, bytes)) in blocks.enumerate() {
        for i in 0..GROUP / 2 {
            bytes[i] = block[HEAD + i] & 15;
            bytes[GROUP / 2 + i] = block[HEAD + i] >> 4;
        }
        let second = if HEAD == 4 { half(block, 2) } else { 0.0 };
        (planes.scales[group], planes.offsets[group]) = scales(half(block, 0), second);
    }
}

/// A scale, then 32 bytes.
#[inline(always)]
fn bytes(planes: &mut Planes, row: &[u8]) {
    let blocks = row.as_chunks::<34>().0.iter().zip(planes.bytes.as_chunks_mut::<GROUP>().0);
    for (group, (block, bytes)) in blocks.enumerate() {
        bytes.copy_from_slice(&block[2..]);
        (planes.scales[group], planes.offsets[group]) = (half(block, 0), 0.0);
    }
}

/// The scale and the offset of 6 bits of group `i` of 8, which share 12 bytes.
#[inline(always)]
fn six_bits(packed: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (packed[i] & 63, packed[i + 4] & 63);
    }
    let scale = (packed[i + 4] & 15) | ((packed[i - 4] >> 6) << 4);
    (scale, (packed[i + 4] >> 4) | ((packed[i] >> 6) << 4))
}

/// Q4_K and Q5_K: two units, twelve bytes of scales and offsets, where there are five bits those of all elements' fifth, and the nibbles: each
/// 32 bytes are two groups, the low halves and the high ones.
#[inline(always)]
fn fours_and_fives<const BYTES: usize>(planes: &mut Planes, row: &[u8]) {
    const HEAD: usize = 16;
    let has_fifth = BYTES == BlockFormat::Q5K.bytes();
    let nibbles = if has_fifth { HEAD + GROUP } else { HEAD };
    let blocks = row.as_chunks::<BYTES>().0.iter().zip(planes.bytes.as_chunks_mut::<256>().0);
    for (index, (block, bytes)) in blocks.enumerate() {
        let (scale_unit, offset_unit) = (half(block, 0), half(block, 2));
        for group in 0..8 {
            let from = &block[nibbles + group / 2 * GROUP..][..GROUP];
            let to = &mut bytes[group * GROUP..][..GROUP];
            let shift = group % 2 * 4;
            for i in 0..GROUP {
                let fifth = if has_fifth { ((block[HEAD + i] >> group) & 1) << 4 } else { 0 };
                to[i] = (from[i] >> shift) & 15 | fifth;
            }
            let (scale, offset) = six_bits(&block[4..HEAD], group);
            planes.scales[8 * index + group] = scale_unit * f32::from(scale);
            planes.offsets[8 * index + group] = -offset_unit * f32::from(offset);
        }
    }
}

/// Q6_K: low halves of all elements, then two more bits of each, 16 scales and their unit. Twice 128 elements, whose four groups share 64 bytes
/// of low halves and 32 bytes of upper bits.
#[inline(always)]
fn sixes(planes: &mut Planes, row: &[u8]) {
    let blocks = row.as_chunks::<210>().0.iter().zip(planes.bytes.as_chunks_mut::<256>().0);
    for (index, (block, bytes)) in blocks.enumerate() {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let unit = half(rest, 16);
        for group in 0..8 {
            let (side, quarter) = (group / 4, group % 4);
            let low = &low[64 * side + quarter % 2 * GROUP..][..GROUP];
            let high = &high[GROUP * side..][..GROUP];
            let to = &mut bytes[group * GROUP..][..GROUP];
            for i in 0..GROUP {
                let upper = ((high[i] >> (2 * quarter)) & 3) << 4;
                to[i] = ((low[i] >> (quarter / 2 * 4)) & 15 | upper).wrapping_sub(32);
            }
            let scale = |half: usize| unit * f32::from(rest[2 * group + half] as i8);
            (planes.scales[8 * index + group], planes.others[8 * index + group]) = (scale(0), scale(1));
            planes.offsets[8 * index + group] = 0.0;
        }
    }
}
