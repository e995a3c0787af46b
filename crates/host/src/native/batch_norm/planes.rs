//! Channels whose elements are planes of neighbours.

use super::{Channels, Forward, Gradient};
use crate::native::lanes::{Lanes, SUMS};
use crate::native::moments;

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
pub(super) unsafe fn normalise<V: Lanes>(sizes: &Channels, operands: &Forward, channel: usize) {
    let x = operands.x as *const f32;
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
        for (to, value) in operands.statistics.into_iter().zip([mean, variance]) {
            *(to as *mut f32).add(channel) = value;
        }
        write::<V>(operands, sizes, channel, [mean, variance]);
    }
}

/// The result's planes of a channel, of its statistics.
#[inline(always)]
pub(super) unsafe fn write<V: Lanes>(operands: &Forward, sizes: &Channels, channel: usize, [mean, variance]: [f32; 2]) {
    let (x, y) = (operands.x as *const f32, operands.y as *mut f32);
    // SAFETY: the caller's promise.
    unsafe {
        let weight = |address: Option<usize>, none: f32| address.map_or(none, |a| *(a as *const f32).add(channel));
        let factor = weight(operands.scale, 1.0) / (variance + operands.epsilon).sqrt();
        let bias = weight(operands.bias, 0.0);
        let (means, factors, biases) = (V::splat(mean), V::splat(factor), V::splat(bias));
        plane_each::<V>(
            sizes,
            channel,
            |at| V::load(x.add(at)).sub(means).fma(factors, biases).store(y.add(at)),
            |at| *y.add(at) = (*x.add(at) - mean) * factor + bias,
        );
    }
}

#[inline(always)]
pub(super) unsafe fn derive<V: Lanes>(sizes: &Channels, operands: &Gradient, channel: usize) {
    let (x, g) = (operands.x as *const f32, operands.upstream as *const f32);
    let dx = operands.dx as *mut f32;
    let over = 1.0 / sizes.count() as f64;
    // SAFETY: as in `normalise`.
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
