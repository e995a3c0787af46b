//! The transform of filters.

use super::{ALONG, DOWN, FAR, NEAR, one_position};
use crate::native::Shared;
use crate::native::convolution::shape::Convolution;
use crate::native::lanes::{Arithmetic, Lanes, WIDEST, at_level};
use crate::native::panels::Panels;
use crate::threads::parallel_for;

/// The transform of a filter's column: its polynomial at 0, 1, -1 and infinity.
#[inline(always)]
unsafe fn filter_down<V: Arithmetic>([a, b, c]: [V; 3]) -> [V; DOWN] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let half = V::splat(0.5);
        let (even, odd) = (a.add(c).mul(half), b.mul(half));
        [a, even.add(odd), even.sub(odd), c]
    }
}

/// The transform of a filter's row: its polynomial at 0, NEAR, -NEAR, FAR, -FAR and infinity.
#[inline(always)]
unsafe fn filter_along<V: Arithmetic>([a, b, c]: [V; 3]) -> [V; ALONG] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (near, far) = (V::splat(NEAR / 1.5), V::splat(FAR / 6.0));
        let (near_less, far_less) = (V::splat(-NEAR / 1.5), V::splat(-FAR / 6.0));
        let even = c.fma(V::splat(0.5), a).mul(V::splat(-1.0 / 1.5));
        let even2 = c.fma(V::splat(2.0), a).mul(V::splat(1.0 / 6.0));
        [a, b.fma(near_less, even), b.fma(near, even), b.fma(far, even2), b.fma(far_less, even2), c]
    }
}

/// Transforms the filters, straight into the panels of the products.
pub(in crate::native::convolution) fn pack(shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
    let (panels, packed) = (Panels::new(shape.filters), Shared::new(packed));
    let packed = &packed;
    parallel_for(panels.count, panels.height * shape.channels * 4, |from, to| {
        for p in from..to {
            // SAFETY: this task alone writes panel `p`.
            unsafe {
                at_level!(panel_in(shape: &Convolution, weight: &[f32], panels: Panels, p: usize, packed: &Shared<f32>))
            };
        }
    });
}

/// Transforms the filters of panel `p`, in the order in which they lie in it: channel by channel, side by side.
#[inline(always)]
unsafe fn panel_in<V: Lanes>(shape: &Convolution, weight: &[f32], panels: Panels, p: usize, packed: &Shared<f32>) {
    let (channels, height) = (shape.channels, panels.height);
    let (begin, end) = (panels.start(p), panels.start(p + 1));
    let len = channels * height;
    let (mut channel, mut filter) = (0, begin);
    for first in (0..len).step_by(V::N) {
        let count = V::N.min(len - first);
        let mut taps = [[0.0f32; WIDEST]; 9];
        for lane in 0..count {
            if filter < end {
                let own = &weight[(filter * channels + channel) * 9..][..9];
                taps.iter_mut().zip(own).for_each(|(to, &tap)| to[lane] = tap);
            }
            filter += 1;
            if filter == begin + height {
                (channel, filter) = (channel + 1, begin);
            }
        }
        // SAFETY: a row of taps holds a vector; the caller alone writes this panel.
        unsafe {
            let mut columns = [[V::splat(0.0); DOWN]; 3];
            for (j, column) in columns.iter_mut().enumerate() {
                let tap = |i: usize| taps[3 * i + j].as_ptr();
                *column = filter_down([V::load(tap(0)), V::load(tap(1)), V::load(tap(2))]);
            }
            for y in 0..DOWN {
                let row = filter_along([columns[0][y], columns[1][y], columns[2][y]]);
                for (x, value) in row.into_iter().enumerate() {
                    let mut lanes = [0.0f32; WIDEST];
                    value.store(lanes.as_mut_ptr());
                    let at = (y * ALONG + x) * one_position(panels, channels) + p * len + first;
                    packed.part(at, count).copy_from_slice(&lanes[..count]);
                }
            }
        }
    }
}
