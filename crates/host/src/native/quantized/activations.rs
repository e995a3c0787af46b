//! Numbers of 8 bits for every 32 neighbours of x, with a scale.

use super::BlockFormat;
use super::planes::{GROUP, padded};
use crate::native::Shared;
use crate::native::lanes::{Lanes, at_level};
use crate::threads::parallel_for;
use crate::vector::math::{half_to_single, single_to_half};

/// What is rounded to float16.
#[derive(Clone, Copy)]
enum Stored {
    /// Nothing: llama.cpp has blocks of 256 beside the _K formats, with scales of float32.
    Singles,
    /// Scales, as in its blocks Q8_0.
    HalfScales,
    /// Scales and sums, as in its blocks Q8_1.
    Halves,
}

impl Stored {
    /// Beside weights of this format.
    const fn beside(format: BlockFormat) -> Stored {
        match format {
            BlockFormat::Q4_0 | BlockFormat::Q8_0 => Stored::HalfScales,
            BlockFormat::Q4_1 => Stored::Halves,
            BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => Stored::Singles,
        }
    }
}

/// The number as float16 has it; one beyond its range stays as it is.
#[inline(always)]
fn halved(x: f32) -> f32 {
    let half = half_to_single(single_to_half(x));
    if half.is_finite() && (half != 0.0 || x == 0.0) { half } else { x }
}

/// Rows of x: an element is `scale * byte`. Sums are those of each group's elements as they are now. Scales are rounded to float16 after the
/// bytes are chosen, and so are sums where weights have an offset of their own: llama.cpp stores both as float16 (`quantize_row_q8_0` and
/// `quantize_row_q8_1` of its `ggml-cpu/quants.c`), and a text generated here is to be the text generated there.
pub(super) struct Activations<'a> {
    groups: usize,
    memory: &'a [f32],
}

/// One of its rows.
pub(super) struct Row<'a> {
    pub bytes: &'a [i8],
    pub scales: &'a [f32],
    pub sums: &'a [f32],
}

impl<'a> Activations<'a> {
    const fn singles_of_row(groups: usize) -> usize {
        groups * GROUP / 4 + 2 * padded(groups)
    }

    /// Float32 numbers whose memory they take.
    pub fn singles(rows: usize, groups: usize) -> usize {
        rows * Activations::singles_of_row(groups)
    }

    /// Rounds rows of x in this memory, which has room for them.
    pub fn new(format: BlockFormat, x: &[f32], rows: usize, groups: usize, memory: &'a mut [f32]) -> Activations<'a> {
        let each = Activations::singles_of_row(groups);
        let stored = Stored::beside(format);
        let to = Shared::new(memory);
        parallel_for(rows, groups * GROUP / 4, |begin, end| {
            for row in begin..end {
                let x = &x[row * groups * GROUP..][..groups * GROUP];
                // SAFETY: the row's memory is this task's; the level in use is one that the CPU has.
                unsafe {
                    let to = to.part(row * each, each);
                    at_level!(round(x: &[f32], to: &mut [f32], groups: usize, stored: Stored));
                }
            }
        });
        Activations { groups, memory }
    }

    /// One row.
    pub fn row(&self, row: usize) -> Row<'_> {
        let each = Activations::singles_of_row(self.groups);
        let (bytes, rest) = self.memory[row * each..][..each].split_at(self.groups * GROUP / 4);
        let (scales, sums) = rest.split_at(padded(self.groups));
        // SAFETY: float32 numbers are four bytes each.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.groups * GROUP) };
        Row { bytes, scales, sums }
    }
}

/// The largest of 32 numbers becomes 127; the others are rounded to nearest, ties to even.
#[inline(always)]
unsafe fn round<V: Lanes>(x: &[f32], to: &mut [f32], groups: usize, stored: Stored) {
    let (bytes, rest) = to.split_at_mut(groups * GROUP / 4);
    let (scales, sums) = rest.split_at_mut(padded(groups));
    // SAFETY: float32 numbers are four bytes each.
    let bytes: &mut [i8] = unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), groups * GROUP) };
    scales[groups..].fill(0.0);
    sums[groups..].fill(0.0);
    let pairs = x.as_chunks::<GROUP>().0.iter().zip(bytes.as_chunks_mut::<GROUP>().0);
    for (group, (x, bytes)) in pairs.enumerate() {
        let mut largest = [0.0f32; 8];
        for x in x.as_chunks::<8>().0 {
            for (largest, x) in largest.iter_mut().zip(x) {
                *largest = if x.abs() > *largest { x.abs() } else { *largest };
            }
        }
        let largest = largest.into_iter().fold(0.0, f32::max);
        // What is not a number, or infinite, stays visible in the scale.
        let scale = if x.iter().all(|x| x.is_finite()) { largest / 127.0 } else { f32::NAN };
        let inverse = if scale > 0.0 { 127.0 / largest } else { 0.0 };
        let mut sum = 0i32;
        for (byte, x) in bytes.iter_mut().zip(x) {
            // Adding 1.5 * 2^23 rounds to an integer in the last bits of the sum.
            // It wraps for what is not finite, whose scale is NaN.
            let rounded = ((x * inverse + 12_582_912.0).to_bits() as i32).wrapping_sub(12_582_912f32.to_bits() as i32);
            *byte = rounded as i8;
            sum = rounded.wrapping_add(sum);
        }
        (scales[group], sums[group]) = match stored {
            Stored::Singles => (scale, scale * sum as f32),
            Stored::HalfScales => (halved(scale), halved(scale) * sum as f32),
            Stored::Halves => (halved(scale), halved(scale * sum as f32)),
        };
    }
}
