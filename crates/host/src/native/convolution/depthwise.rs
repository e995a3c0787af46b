//! Convolutions in which every filter sees one channel: a stencil over each plane.

use super::shape::Convolution;
use super::window::{SLACK, Window};
use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};
use crate::native::{Shared, scratch};
use crate::threads::parallel_for;

/// Numbers in a band's copy of the plane, so that it stays in the first-level cache while all taps read it.
const BAND: usize = 5 << 10;

/// `spacing` is the distance of the input's pixels from each other in `shape.input`, with zeros between them; other than 1 with steps of 1 only.
pub(crate) fn run(
    shape: &Convolution,
    spacing: [usize; 2],
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) {
    let [out_height, out_width] = shape.output();
    let taps = shape.kernel[0] * shape.kernel[1];
    let per_channel = shape.filters / shape.channels;
    let reach = (shape.kernel[0] - 1) * shape.dilation[0] / shape.stride[0];
    let row = Window::new(shape, 1, 8).channel / (1 + reach);
    let rows = (BAND / row).saturating_sub(reach).next_multiple_of(4).clamp(4, 64);
    let window = Window::new(shape, rows, 8);
    let offsets: Vec<usize> =
        (0..taps).map(|tap| window.offset(shape, tap / shape.kernel[1], tap % shape.kernel[1])).collect();
    let pixels = [0, 1].map(|axis| (shape.input[axis] - 1) / spacing[axis] + 1);
    let plane = pixels[0] * pixels[1];
    let output = Shared::new(output);
    let ns = (out_height * out_width * taps / 16 + plane / 8) * per_channel + 50;
    parallel_for(shape.batch * shape.channels, ns, |from, to| {
        scratch::with(window.channel + 8 * window.pitch + SLACK, |copy: &mut [f32]| {
            for task in from..to {
                let (image, channel) = (task / shape.channels, task % shape.channels);
                let plane = &input[task * plane..][..plane];
                for first in (0..out_height).step_by(rows) {
                    if spacing == [1, 1] {
                        window.fill(shape, plane, first, &mut copy[..window.channel]);
                    } else {
                        window.fill_spaced(shape, spacing, plane, first, &mut copy[..window.channel]);
                    }
                    let copy = &*copy;
                    for filter in channel * per_channel..(channel + 1) * per_channel {
                        let at = ((image * shape.filters + filter) * out_height + first) * out_width;
                        let band = Band {
                            copy,
                            pitch: window.pitch,
                            offsets: &offsets,
                            weight: &weight[filter * taps..][..taps],
                            rows: rows.min(out_height - first),
                            columns: out_width,
                            output,
                            at,
                            epilogue,
                            channel: filter,
                        };
                        let kind = (shape.kernel, shape.stride[0], shape.dilation);
                        // SAFETY: the offsets plus any pixel stay in the copy and its slack; this task alone writes the plane.
                        unsafe {
                            match kind {
                                ([3, 3], 1, [1, 1]) => at_level!(stencil_3(band: Band)),
                                ([5, 5], 1, [1, 1]) => at_level!(stencil_5(band: Band)),
                                _ => at_level!(stencil_any(band: Band)),
                            }
                        }
                    }
                }
            }
        });
    });
}

struct Band<'a> {
    copy: &'a [f32],
    pitch: usize,
    offsets: &'a [usize],
    weight: &'a [f32],
    rows: usize,
    columns: usize,
    output: Shared<f32>,
    at: usize,
    epilogue: &'a Epilogue<'a>,
    channel: usize,
}

#[inline(always)]
unsafe fn stencil_3<V: Lanes>(band: Band) {
    // SAFETY: the caller's promise.
    unsafe { stencil::<V, 3>(&band) }
}

#[inline(always)]
unsafe fn stencil_5<V: Lanes>(band: Band) {
    // SAFETY: the caller's promise.
    unsafe { stencil::<V, 5>(&band) }
}

#[inline(always)]
unsafe fn stencil_any<V: Lanes>(band: Band) {
    // SAFETY: the caller's promise.
    unsafe { stencil::<V, 0>(&band) }
}

/// `K` is the size of a square kernel whose taps of one column follow each other by rows (stride and dilation 1 vertically), known
/// so that the loops unroll; 0 is any other kernel.
#[inline(always)]
unsafe fn stencil<V: Lanes, const K: usize>(band: &Band) {
    for row in (0..band.rows).step_by(4) {
        let rows = 4.min(band.rows - row);
        let mut column = 0;
        while column < band.columns {
            let rest = band.columns - column;
            // SAFETY: rows past the band and columns past the end are computed from the copy's slack and not stored.
            unsafe {
                if rest > V::N {
                    tile::<V, K, 2>(band, row, rows, column);
                    column += 2 * V::N;
                } else {
                    tile::<V, K, 1>(band, row, rows, column);
                    column += V::N;
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Lanes, const K: usize, const W: usize>(band: &Band, row: usize, rows: usize, column: usize) {
    // The sums are indexed by constants only, so that they stay in registers.
    // SAFETY: the caller vouches for what the taps read around the tile; stores are cut to the band's rows and columns.
    unsafe {
        let mut sums = [[V::splat(0.0); W]; 4];
        let pitch = band.pitch;
        let base = band.copy.as_ptr().add(row * pitch + column);
        if K > 0 {
            for j in 0..K {
                let mut from = base.add(*band.offsets.get_unchecked(j));
                for i in 0..K {
                    let w = V::splat(*band.weight.get_unchecked(i * K + j));
                    for o in 0..4 {
                        for x in 0..W {
                            sums[o][x] = V::load(from.add(o * pitch + x * V::N)).fma(w, sums[o][x]);
                        }
                    }
                    from = from.add(pitch);
                }
            }
        } else {
            for tap in 0..band.weight.len() {
                let w = V::splat(*band.weight.get_unchecked(tap));
                let from = base.add(*band.offsets.get_unchecked(tap));
                for o in 0..4 {
                    for x in 0..W {
                        sums[o][x] = V::load(from.add(o * pitch + x * V::N)).fma(w, sums[o][x]);
                    }
                }
            }
        }
        let at = band.at + row * band.columns + column;
        if let Some((bias, low, high)) = band.epilogue.as_clamp()
            && rows == 4
            && column + W * V::N <= band.columns
        {
            let bias = V::splat(bias.map_or(0.0, |bias| bias[band.channel]));
            let (low, high) = (V::splat(low), V::splat(high));
            for o in 0..4 {
                for x in 0..W {
                    let value = sums[o][x].add(bias).max(low).min(high);
                    value.store(band.output.at(at + o * band.columns + x * V::N));
                }
            }
            return;
        }
        let mut lanes = [[0.0f32; 32]; 4];
        for o in 0..4 {
            for x in 0..W {
                sums[o][x].store(lanes[o].as_mut_ptr().add(x * V::N));
            }
        }
        let columns = (W * V::N).min(band.columns - column);
        let identity = band.epilogue.is_identity();
        for (o, lanes) in lanes.iter().enumerate().take(rows) {
            let at = at + o * band.columns;
            if identity {
                band.output.at(at).copy_from_nonoverlapping(lanes.as_ptr(), columns);
                continue;
            }
            let mut x = 0;
            while x + V::N <= columns {
                let value = band.epilogue.apply(V::load(lanes.as_ptr().add(x)), band.channel, at + x);
                value.store(band.output.at(at + x));
                x += V::N;
            }
            while x < columns {
                *band.output.at(at + x) = band.epilogue.apply_one(lanes[x], band.channel, at + x);
                x += 1;
            }
        }
    }
}
