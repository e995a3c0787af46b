//! Batch norm of float32 with the batch's own statistics, and its gradient: a channel at a time, or a register of channels where they are neighbours.

use super::lanes::{Arithmetic, Lanes, SUMS, at_level};
use super::moments;
use crate::threads::parallel_for;

/// The sizes of a dense tensor of `outer` x `channels` x `inner`. Each channel has at least one element.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// What is before the channels: images, or all pixels where channels are last.
    pub outer: usize,
    /// Channels.
    pub channels: usize,
    /// Elements of a channel that are neighbours.
    pub inner: usize,
}

/// The addresses of a forward call's operands, all dense float32; those of channels have one element for each.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// What is normalised.
    pub x: usize,
    /// A factor for each channel.
    pub scale: Option<usize>,
    /// An addend for each channel.
    pub bias: Option<usize>,
    /// The result, which may be x.
    pub y: usize,
    /// The channels' means and variances.
    pub statistics: [usize; 2],
    /// Added to the variance.
    pub epsilon: f32,
}

/// The addresses of a gradient's operands, as [`Forward`].
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    /// What was normalised.
    pub x: usize,
    /// The gradient of the result.
    pub upstream: usize,
    /// The channels' means and the inverses of their deviations.
    pub statistics: [usize; 2],
    /// The factor of each channel.
    pub scale: Option<usize>,
    /// The gradient of x, which may be x or the upstream gradient.
    pub dx: usize,
    /// The gradients of scale and bias.
    pub weights: [usize; 2],
}

impl Channels {
    /// Elements of one channel.
    fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Calls `work` for each group of channels that are summed side by side: one, or as many neighbours as a register holds.
    fn each(&self, work: impl Fn(usize, usize) + Sync) {
        let side_by_side = if self.inner == 1 { SIDE_BY_SIDE } else { 1 };
        let groups = self.channels.div_ceil(side_by_side);
        parallel_for(groups, self.count() * side_by_side / 4 + 20, |from, to| {
            work(from * side_by_side, (to * side_by_side).min(self.channels));
        });
    }
}

/// Neighbouring channels of one task: a cache line.
const SIDE_BY_SIDE: usize = 16;
/// Rows of neighbouring channels that are summed in float32 before they are added to the others.
const ROWS: usize = 128;

/// Computes the result and the statistics.
///
/// # Safety
/// The operands have the elements that the sizes name, readable and writable, and overlap nothing but as said there.
pub unsafe fn forward(sizes: &Channels, operands: &Forward) {
    sizes.each(|begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(normalise(sizes: &Channels, operands: &Forward, begin: usize, end: usize)) }
    });
}

/// Computes all gradients.
///
/// # Safety
/// As [`forward`].
pub unsafe fn gradient(sizes: &Channels, operands: &Gradient) {
    sizes.each(|begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(derive(sizes: &Channels, operands: &Gradient, begin: usize, end: usize)) }
    });
}

/// Element `channel` of a weight or statistic.
unsafe fn of_channel<V: Arithmetic>(address: usize, channel: usize) -> V {
    // SAFETY: the caller vouches for V::N elements from there on.
    unsafe { V::load((address as *const f32).add(channel)) }
}

#[inline(always)]
unsafe fn normalise<V: Lanes>(sizes: &Channels, operands: &Forward, begin: usize, end: usize) {
    let mut channel = begin;
    // SAFETY: the caller's promise; whole registers of channels end at `end`.
    unsafe {
        while sizes.inner == 1 && channel + V::N <= end {
            normalise_columns::<V>(sizes, operands, channel);
            channel += V::N;
        }
        for channel in channel..end {
            if sizes.inner == 1 {
                normalise_columns::<super::epilogue::Single>(sizes, operands, channel);
            } else {
                normalise_planes::<V>(sizes, operands, channel);
            }
        }
    }
}

#[inline(always)]
unsafe fn derive<V: Lanes>(sizes: &Channels, operands: &Gradient, begin: usize, end: usize) {
    let mut channel = begin;
    // SAFETY: as in `normalise`.
    unsafe {
        while sizes.inner == 1 && channel + V::N <= end {
            derive_columns::<V>(sizes, operands, channel);
            channel += V::N;
        }
        for channel in channel..end {
            if sizes.inner == 1 {
                derive_columns::<super::epilogue::Single>(sizes, operands, channel);
            } else {
                derive_planes::<V>(sizes, operands, channel);
            }
        }
    }
}

/// The sum over a channel's planes of what `vector` and `single` make of the elements at an offset.
#[inline(always)]
unsafe fn plane_sums<V: Lanes, const T: usize>(
    sizes: &Channels,
    channel: usize,
    vector: impl Fn(usize) -> [V; T],
    single: impl Fn(usize) -> [f32; T],
) -> [f64; T] {
    let mut totals = [0.0f64; T];
    for outer in 0..sizes.outer {
        let first = (outer * sizes.channels + channel) * sizes.inner;
        // SAFETY: the caller vouches for the instructions of `V`.
        unsafe {
            let mut sums = [[V::splat(0.0); SUMS]; T];
            let mut at = 0;
            while at + SUMS * V::N <= sizes.inner {
                for i in 0..SUMS {
                    let terms = vector(first + at + i * V::N);
                    for t in 0..T {
                        sums[t][i] = sums[t][i].add(terms[t]);
                    }
                }
                at += SUMS * V::N;
            }
            while at + V::N <= sizes.inner {
                let terms = vector(first + at);
                for t in 0..T {
                    sums[t][0] = sums[t][0].add(terms[t]);
                }
                at += V::N;
            }
            let mut rest = [0.0f32; T];
            for i in at..sizes.inner {
                let terms = single(first + i);
                for t in 0..T {
                    rest[t] += terms[t];
                }
            }
            for t in 0..T {
                let [a, b, c, d] = sums[t];
                let lanes: f32 = if at > 0 { a.add(b).add(c.add(d)).lanes()[..V::N].iter().sum() } else { 0.0 };
                totals[t] += f64::from(lanes + rest[t]);
            }
        }
    }
    totals
}

/// Calls one of the two for all elements of a channel's planes, by their offsets.
#[inline(always)]
unsafe fn plane_each<V: Lanes>(sizes: &Channels, channel: usize, vector: impl Fn(usize), single: impl Fn(usize)) {
    for outer in 0..sizes.outer {
        let first = (outer * sizes.channels + channel) * sizes.inner;
        let whole = sizes.inner / V::N * V::N;
        (0..whole).step_by(V::N).for_each(|at| vector(first + at));
        (whole..sizes.inner).for_each(|at| single(first + at));
    }
}

#[inline(always)]
unsafe fn normalise_planes<V: Lanes>(sizes: &Channels, operands: &Forward, channel: usize) {
    let (x, y) = (operands.x as *const f32, operands.y as *mut f32);
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: offsets are those of the channel's elements; the caller vouches for them.
    unsafe {
        let [sum] = plane_sums::<V, 1>(sizes, channel, |at| [V::load(x.add(at))], |at| [*x.add(at)]);
        let first = (sum * over) as f32;
        let from = V::splat(first);
        let vector = |at: usize| {
            let distance = V::load(x.add(at)).sub(from);
            [distance.mul(distance)]
        };
        let single = |at: usize| [(*x.add(at) - first) * (*x.add(at) - first)];
        let [squares] = plane_sums::<V, 1>(sizes, channel, vector, single);
        let distance = || {
            let vector = |at: usize| [V::load(x.add(at)).sub(from)];
            let [sum] = plane_sums::<V, 1>(sizes, channel, vector, |at| [*x.add(at) - first]);
            sum * over
        };
        let [mean, variance] = moments::centred(first, (squares * over) as f32, distance);
        let means = V::splat(mean);
        for (to, value) in operands.statistics.into_iter().zip([mean, variance]) {
            *(to as *mut f32).add(channel) = value;
        }
        let weight = |address: Option<usize>, none: f32| address.map_or(none, |a| *(a as *const f32).add(channel));
        let factor = weight(operands.scale, 1.0) / (variance + operands.epsilon).sqrt();
        let bias = weight(operands.bias, 0.0);
        let (factors, biases) = (V::splat(factor), V::splat(bias));
        plane_each::<V>(
            sizes,
            channel,
            |at| V::load(x.add(at)).sub(means).fma(factors, biases).store(y.add(at)),
            |at| *y.add(at) = (*x.add(at) - mean) * factor + bias,
        );
    }
}

#[inline(always)]
unsafe fn derive_planes<V: Lanes>(sizes: &Channels, operands: &Gradient, channel: usize) {
    let (x, g) = (operands.x as *const f32, operands.upstream as *const f32);
    let dx = operands.dx as *mut f32;
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: as in `normalise_planes`.
    unsafe {
        let [mean, inverse] = operands.statistics.map(|address| *(address as *const f32).add(channel));
        let means = V::splat(mean);
        let [sum, along] = plane_sums::<V, 2>(
            sizes,
            channel,
            |at| {
                let up = V::load(g.add(at));
                [up, V::load(x.add(at)).sub(means).mul(up)]
            },
            |at| [*g.add(at), (*x.add(at) - mean) * *g.add(at)],
        );
        let along = along * f64::from(inverse);
        for (to, value) in operands.weights.into_iter().zip([along, sum]) {
            *(to as *mut f32).add(channel) = value as f32;
        }
        let factor = inverse * operands.scale.map_or(1.0, |scale| *(scale as *const f32).add(channel));
        // factor * (g - mean(g) - n * mean(g n)) with n = (x - mean) * inverse
        let (slope, average) = (-(along * over * f64::from(inverse)) as f32, (sum * over) as f32);
        let (factors, slopes, averages) = (V::splat(factor), V::splat(slope), V::splat(average));
        plane_each::<V>(
            sizes,
            channel,
            |at| {
                let distance = V::load(x.add(at)).sub(means);
                distance.fma(slopes, V::load(g.add(at)).sub(averages)).mul(factors).store(dx.add(at));
            },
            |at| *dx.add(at) = ((*x.add(at) - mean) * slope + (*g.add(at) - average)) * factor,
        );
    }
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
unsafe fn normalise_columns<V: Arithmetic>(sizes: &Channels, operands: &Forward, channel: usize) {
    let (x, y) = (operands.x as *const f32, operands.y as *mut f32);
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
unsafe fn derive_columns<V: Arithmetic>(sizes: &Channels, operands: &Gradient, channel: usize) {
    let (x, g) = (operands.x as *const f32, operands.upstream as *const f32);
    let dx = operands.dx as *mut f32;
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: as in `normalise_columns`.
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

#[cfg(test)]
mod tests;
