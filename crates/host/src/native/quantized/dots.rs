//! Sums of products of unpacked weights with rounded activations: 32 products of bytes at a time, then one multiplication by both scales.

use super::activations::Row;
use super::planes::{AT_ONCE, GROUP, Planes, padded};
use super::products::{Instructions, Products, at_products};
use super::{BlockFormat, SIDE_BY_SIDE};

/// The sums of several rows of weights, each with the row of x.
pub(super) fn dots(
    instructions: Instructions,
    format: BlockFormat,
    weights: &[Planes; SIDE_BY_SIDE],
    x: &Row,
) -> [f32; SIDE_BY_SIDE] {
    check(weights, x);
    // SAFETY: all rows have as many groups, and numbers for these and for what pads them; the instructions are the CPU's.
    unsafe {
        at_products!(instructions, sums(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE])
    }
}

fn check(weights: &[Planes; SIDE_BY_SIDE], x: &Row) {
    let bytes = x.bytes.len();
    let groups = padded(bytes / GROUP);
    for planes in weights {
        let numbers = [&planes.scales, &planes.others, &planes.offsets];
        assert!(planes.bytes.len() == bytes && numbers.iter().all(|plane| plane.len() >= groups), "rows of one length");
    }
    assert!(x.scales.len() >= groups && x.sums.len() >= groups, "rows of one length");
}

#[inline(always)]
unsafe fn sums<P: Products>(format: BlockFormat, weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    // SAFETY: passed on to the caller.
    unsafe {
        match (format.is_signed(), format.has_halves()) {
            (false, _) => sums_of::<P, UNSIGNED>(weights, x),
            (true, false) => sums_of::<P, SIGNED>(weights, x),
            (true, true) => sums_of::<P, HALVES>(weights, x),
        }
    }
}

/// What the elements are, as constants; of halves, the last 16 of a group have a scale of their own.
const UNSIGNED: u8 = 0;
const SIGNED: u8 = 1;
const HALVES: u8 = 2;

#[inline(always)]
unsafe fn sums_of<P: Products, const KIND: u8>(weights: &[Planes; SIDE_BY_SIDE], x: &Row) -> [f32; SIDE_BY_SIDE] {
    let groups = x.bytes.len() / GROUP;
    // SAFETY: `check` has seen that all planes have as many groups, and numbers for what pads them.
    unsafe {
        let mut sums = [P::zero(); SIDE_BY_SIDE];
        let mut offsets = [[0.0f32; AT_ONCE]; SIDE_BY_SIDE];
        for first in (0..groups).step_by(AT_ONCE) {
            let mut scales = [[[0.0f32; AT_ONCE]; 2]; SIDE_BY_SIDE];
            for j in 0..SIDE_BY_SIDE {
                for i in 0..AT_ONCE {
                    let of_x = *x.scales.as_ptr().add(first + i);
                    scales[j][0][i] = of_x * *weights[j].scales.as_ptr().add(first + i);
                    if KIND == HALVES {
                        scales[j][1][i] = of_x * *weights[j].others.as_ptr().add(first + i);
                    }
                    if KIND == UNSIGNED {
                        offsets[j][i] += *x.sums.as_ptr().add(first + i) * *weights[j].offsets.as_ptr().add(first + i);
                    }
                }
            }
            for i in 0..AT_ONCE.min(groups - first) {
                let at = (first + i) * GROUP;
                let x = x.bytes.as_ptr().add(at);
                for j in 0..SIDE_BY_SIDE {
                    let q = P::load(weights[j].bytes.as_ptr().add(at));
                    let [scale, other] = [scales[j][0][i], scales[j][1][i]];
                    sums[j] = match KIND {
                        UNSIGNED => sums[j].add(q, x, scale),
                        SIGNED => sums[j].add_signed(q, x, scale),
                        _ => sums[j].add_halves(q, x, [scale, other]),
                    };
                }
            }
        }
        let mut result = [0.0; SIDE_BY_SIDE];
        for j in 0..SIDE_BY_SIDE {
            result[j] = sums[j].sum() + offsets[j].iter().sum::<f32>();
        }
        result
    }
}
