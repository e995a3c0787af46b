//! Channels that are neighbours: a register of them at a time.

use super::{Channels, Forward, Gradient, SIDE_BY_SIDE};
use crate::native::lanes::Arithmetic;
use crate::native::moments;

/// Rows of neighbouring channels that are summed in float32 before they are added to the others.
const ROWS: usize = 128;

/// Element `channel` of a weight or statistic.
pub(super) unsafe fn of_channel<V: Arithmetic>(address: usize, channel: usize) -> V {
    // SAFETY: the caller vouches for V::N elements from there on.
    unsafe { V::load((address as *const f32).add(channel)) }
}

/// Sums over all rows, for V::N channels side by side, in float64.
#[inline(always)]
unsafe fn column_sums<V: Arithmetic, const T: usize>(
    sizes: &Channels,
    channel: usize,
    terms: impl Fn(usize) -> [V; T],
) -> [[f64; SIDE_BY_SIDE]; T] {
    let mut totals = [[0.0f64; SIDE_BY_SIDE]; T];
    for from in (0..sizes.outer).step_by(ROWS) {
        // SAFETY: the caller vouches for the instructions of `V`; no register is wider.
        unsafe {
            let mut sums = [V::splat(0.0); T];
            for row in from..(from + ROWS).min(sizes.outer) {
                let terms = terms(row * sizes.channels + channel);
                for t in 0..T {
                    sums[t] = sums[t].add(terms[t]);
                }
            }
            for t in 0..T {
                let mut lanes = [0.0f32; SIDE_BY_SIDE];
                sums[t].store(lanes.as_mut_ptr());
                totals[t].iter_mut().zip(lanes).for_each(|(total, sum)| *total += f64::from(sum));
            }
        }
    }
    totals
}

/// Numbers of channels as a register.
unsafe fn register<V: Arithmetic>(values: [f64; SIDE_BY_SIDE]) -> V {
    // SAFETY: the caller vouches for the instructions of `V`; no register is wider.
    unsafe { V::load(values.map(|value| value as f32).as_ptr()) }
}

#[inline(always)]
pub(super) unsafe fn normalise<V: Arithmetic>(sizes: &Channels, operands: &Forward, channel: usize) {
    let x = operands.x as *const f32;
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: offsets are those of the elements of V::N channels; the caller vouches for them.
    unsafe {
        let [sums] = column_sums::<V, 1>(sizes, channel, |at| [V::load(x.add(at))]);
        let firsts = sums.map(|sum| (sum * over) as f32);
        let from = V::load(firsts.as_ptr());
        let [squares] = column_sums::<V, 1>(sizes, channel, |at| {
            let distance = V::load(x.add(at)).sub(from);
            [distance.mul(distance)]
        });
        // Of all channels where the first of them asks.
        let mut distances = None;
        let mut statistics = [[0.0f32; 2]; SIDE_BY_SIDE];
        for (i, statistic) in statistics.iter_mut().enumerate() {
            let distance = || {
                let each = |at: usize| [V::load(x.add(at)).sub(from)];
                distances.get_or_insert_with(|| column_sums::<V, 1>(sizes, channel, each)[0])[i] * over
            };
            *statistic = moments::centred(firsts[i], (squares[i] * over) as f32, distance);
        }
        let variances = statistics.map(|[_, variance]| f64::from(variance));
        let [mean, variance]: [V; 2] = [register(statistics.map(|[mean, _]| f64::from(mean))), register(variances)];
        for (to, value) in operands.statistics.into_iter().zip([mean, variance]) {
            value.store((to as *mut f32).add(channel));
        }
        write::<V>(operands, sizes, channel, mean, variances);
    }
}

/// The result's columns of neighbouring channels, of their statistics.
#[inline(always)]
pub(super) unsafe fn write<V: Arithmetic>(
    operands: &Forward,
    sizes: &Channels,
    channel: usize,
    mean: V,
    variances: [f64; SIDE_BY_SIDE],
) {
    let (x, y) = (operands.x as *const f32, operands.y as *mut f32);
    // SAFETY: the caller's promise.
    unsafe {
        let inverse: V = register(variances.map(|v| 1.0 / (v + f64::from(operands.epsilon)).sqrt()));
        let factor = operands.scale.map_or(inverse, |scale| inverse.mul(of_channel(scale, channel)));
        let bias = operands.bias.map_or(V::splat(0.0), |bias| of_channel(bias, channel));
        for row in 0..sizes.outer {
            let at = row * sizes.channels + channel;
            V::load(x.add(at)).sub(mean).fma(factor, bias).store(y.add(at));
        }
    }
}

#[inline(always)]
pub(super) unsafe fn derive<V: Arithmetic>(sizes: &Channels, operands: &Gradient, channel: usize) {
    let (x, g) = (operands.x as *const f32, operands.upstream as *const f32);
    let dx = operands.dx as *mut f32;
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: as in `normalise`.
    unsafe {
        let [mean, inverse]: [V; 2] = operands.statistics.map(|address| of_channel(address, channel));
        let [sums, alongs] = column_sums::<V, 2>(sizes, channel, |at| {
            let up = V::load(g.add(at));
            [up, V::load(x.add(at)).sub(mean).mul(up)]
        });
        let (sum, along): (V, V) = (register(sums), register::<V>(alongs).mul(inverse));
        for (to, value) in operands.weights.into_iter().zip([along, sum]) {
            value.store((to as *mut f32).add(channel));
        }
        let factor = operands.scale.map_or(inverse, |scale| inverse.mul(of_channel(scale, channel)));
        let (slope, average): (V, V) = (
            register::<V>(alongs.map(|along| -along * over)).mul(inverse).mul(inverse),
            register(sums.map(|sum| sum * over)),
        );
        for row in 0..sizes.outer {
            let at = row * sizes.channels + channel;
            let distance = V::load(x.add(at)).sub(mean);
            distance.fma(slope, V::load(g.add(at)).sub(average)).mul(factor).store(dx.add(at));
        }
    }
}
