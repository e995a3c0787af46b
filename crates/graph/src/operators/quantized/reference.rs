//! The block formats, element by element, as their documents define them: <https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c>.

use super::BlockFormat;
use crate::reference::Array;
use openmps_tile::DType;

/// The weight's bytes as numbers.
pub(super) fn widened(format: BlockFormat, bytes: &Array) -> Array {
    let rank = bytes.shape.len();
    let mut shape = bytes.shape.to_vec();
    shape[rank - 1] = format.columns(shape[rank - 1]);
    Array::from_fn(&shape, DType::F32, |index| {
        let mut at = index.to_vec();
        let (block, element) = (index[rank - 1] / format.elements(), index[rank - 1] % format.elements());
        let byte = |i: usize| {
            let mut at = at.clone();
            at[rank - 1] = block * format.bytes() + i;
            bytes.at(&at) as u8
        };
        let value = value(format, &byte, element);
        at.clear();
        value
    })
}

/// One element of a block.
fn value(format: BlockFormat, byte: &dyn Fn(usize) -> u8, e: usize) -> f64 {
    let half = |at: usize| half::f16::from_le_bytes([byte(at), byte(at + 1)]).to_f64();
    let number = |at: usize| f64::from(byte(at));
    let nibble = |at: usize, upper: bool| f64::from(if upper { byte(at) >> 4 } else { byte(at) & 15 });
    match format {
        BlockFormat::Q4_0 => half(0) * (nibble(2 + e % 16, e >= 16) - 8.0),
        BlockFormat::Q4_1 => half(0) * nibble(4 + e % 16, e >= 16) + half(2),
        BlockFormat::Q8_0 => half(0) * f64::from(byte(2 + e) as i8),
        BlockFormat::Q4K | BlockFormat::Q5K => {
            let (group, place) = (e / 32, e % 32);
            let scale_of = |i: usize| byte(4 + i);
            let (scale, offset) = match group {
                0..4 => (scale_of(group) & 63, scale_of(group + 4) & 63),
                _ => (
                    (scale_of(group + 4) & 15) | ((scale_of(group - 4) >> 6) << 4),
                    (scale_of(group + 4) >> 4) | ((scale_of(group) >> 6) << 4),
                ),
            };
            let (nibbles, fifth) = match format {
                BlockFormat::Q4K => (16, 0.0),
                _ => (48, f64::from((byte(16 + place) >> group) & 1)),
            };
            let q = nibble(nibbles + group / 2 * 32 + place, group % 2 == 1) + 16.0 * fifth;
            half(0) * f64::from(scale) * q - half(2) * f64::from(offset)
        }
        BlockFormat::Q6K => {
            let (side, quarter, place) = (e / 128, e / 32 % 4, e % 32);
            let low = nibble(64 * side + quarter % 2 * 32 + place, quarter >= 2);
            let high = f64::from((byte(128 + 32 * side + place) >> (2 * quarter)) & 3);
            let scale = number(192 + e / 16) as u8 as i8;
            half(208) * f64::from(scale) * (low + 16.0 * high - 32.0)
        }
    }
}
