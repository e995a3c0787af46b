//! Random numbers whose law each element of a tensor names: Poisson's, the gamma and the binomial distribution. All laws are exact, as far as the digits of float64 go.

use super::memory::{Element, slice, slice_mut};
use super::random::{Source, Stream};
use crate::Error;
use crate::threads::parallel_for;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The law of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Events where so many are expected: a number of 0 or more.
    Poisson,
    /// The gamma distribution of scale 1 and this shape: a number above 0.
    Gamma,
    /// Successes of so many trials with this probability: two numbers.
    Binomial,
}

impl Sampled {
    /// How many numbers it has.
    pub fn arguments(self) -> usize {
        if self == Sampled::Binomial { 2 } else { 1 }
    }

    fn draw(self, stream: &mut Stream, numbers: [f64; 2]) -> f64 {
        match self {
            Sampled::Poisson => poisson(stream, numbers[0]),
            Sampled::Gamma => gamma(stream, numbers[0]),
            Sampled::Binomial => binomial(stream, numbers[0], numbers[1]),
        }
    }

    /// Which of the numbers there is no law for.
    fn refused(self, [first, second]: [f64; 2]) -> Option<f64> {
        match self {
            Sampled::Poisson | Sampled::Gamma => {
                (first.is_nan() || first < 0.0 || first.is_infinite()).then_some(first)
            }
            Sampled::Binomial if first.is_nan() || first < 0.0 || first.is_infinite() => Some(first),
            Sampled::Binomial => (!(0.0..=1.0).contains(&second)).then_some(second),
        }
    }
}

/// One number for each element of the inputs: element `i` depends on the source, on `i` and on its own numbers alone.
///
/// # Safety
/// `len` elements of `T` at each of `inputs` must be readable, and of `Out` at `out` writable.
pub unsafe fn sampled<T: Element, Out: Element>(
    law: Sampled,
    inputs: &[usize],
    out: usize,
    len: usize,
    source: Source,
) -> Result<(), Error> {
    let wrong = AtomicUsize::new(usize::MAX);
    // SAFETY: promised by the caller.
    let inputs: Vec<&[T]> = inputs.iter().map(|&address| unsafe { slice::<T>(address, len) }).collect();
    let numbers = |i: usize| [inputs[0][i].to_f64(), inputs.get(1).map_or(0.0, |second| second[i].to_f64())];
    parallel_for(len, 60, |begin, end| {
        // SAFETY: promised by the caller; this thread alone has these elements.
        let out = unsafe { slice_mut::<Out>(out + begin * size_of::<Out>(), end - begin) };
        for (i, value) in (begin..end).zip(out) {
            let numbers = numbers(i);
            if law.refused(numbers).is_some() {
                wrong.fetch_min(i, Ordering::Relaxed);
                *value = Out::ZERO;
            } else {
                *value = Out::from_f64(law.draw(&mut Stream::new(source, i), numbers));
            }
        }
    });
    let position = wrong.into_inner();
    if position == usize::MAX {
        return Ok(());
    }
    let value = law.refused(numbers(position)).unwrap_or(f64::NAN);
    Err(Error::Invalid(format!("{value} at position {position} is no parameter of a law of {law:?}")))
}

/// Hörmann's method of transformed rejection (PTRS, 1993) where many are expected, else the distribution's sums up to a uniform number.
fn poisson(stream: &mut Stream, rate: f64) -> f64 {
    if rate < 10.0 {
        return count_below(stream, (-rate).exp(), |count| rate / count);
    }
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let reach = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let [u, us, v] = proposed(stream);
        let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
        if us >= 0.07 && v <= reach {
            return k;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let chance = k * rate.ln() - rate - libm::lgamma(k + 1.0);
        if v.ln() + inverse_alpha.ln() - (a / (us * us) + b).ln() <= chance {
            return k;
        }
    }
}

/// Marsaglia and Tsang's method (2000); a shape below 1 is one more, times a power of a uniform number.
pub(super) fn gamma(stream: &mut Stream, shape: f64) -> f64 {
    if shape == 0.0 {
        return 0.0;
    }
    if shape < 1.0 {
        let larger = gamma(stream, shape + 1.0);
        return larger * (-stream.exponential() / shape).exp();
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = stream.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - stream.unit()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

/// A number of -1/2 to 1/2, how far it is from their nearer one, which is above 0, and a number of 0 to 1.
fn proposed(stream: &mut Stream) -> [f64; 3] {
    loop {
        let u = stream.unit() - 0.5;
        let v = 1.0 - stream.unit();
        let us = 0.5 - u.abs();
        if us > 0.0 {
            return [u, us, v];
        }
    }
}

/// How many probabilities, each the one before times a factor, a uniform number is above the sum of.
#[inline(always)]
fn count_below(stream: &mut Stream, first: f64, factor: impl Fn(f64) -> f64) -> f64 {
    let (mut left, mut probability, mut count) = (stream.unit(), first, 0.0);
    // What rounding leaves of the sum is nobody's probability.
    while left >= probability && probability > 0.0 {
        left -= probability;
        count += 1.0;
        probability *= factor(count);
    }
    count
}

/// Hörmann's method of transformed rejection (BTRS, 1993) where both successes and failures are many, else as Poisson's law.
fn binomial(stream: &mut Stream, trials: f64, chance: f64) -> f64 {
    let trials = trials.floor();
    if chance > 0.5 {
        return trials - binomial(stream, trials, 1.0 - chance);
    }
    if chance == 0.0 {
        return 0.0;
    }
    let odds = chance / (1.0 - chance);
    let expected = trials * chance;
    if expected < 10.0 {
        let none = (trials * (-chance).ln_1p()).exp();
        return count_below(stream, none, |count| odds * (trials + 1.0 - count) / count).min(trials);
    }
    let deviation = (expected * (1.0 - chance)).sqrt();
    let b = 1.15 + 2.53 * deviation;
    let a = -0.0873 + 0.0248 * b + 0.01 * chance;
    let alpha = (2.83 + 5.1 / b) * deviation;
    let mode = ((trials + 1.0) * chance).floor();
    let above_mode = trials - mode + 1.0;
    // The logarithm of a count's probability over the mode's, by Stirling's series: the factorials themselves are too large to be subtracted.
    let share = |k: f64| {
        let above = trials - k + 1.0;
        (mode + 0.5) * ((mode + 1.0) / (odds * above_mode)).ln()
            + (trials + 1.0) * ((k - mode) / above).ln_1p()
            + (k + 0.5) * (above * odds / (k + 1.0)).ln()
            + left_by_stirling(mode)
            + left_by_stirling(trials - mode)
            - left_by_stirling(k)
            - left_by_stirling(trials - k)
    };
    loop {
        let [u, us, v] = proposed(stream);
        let k = ((2.0 * a / us + b) * u + expected + 0.5).floor();
        if us >= 0.07 && v <= 0.92 - 4.2 / b {
            return k;
        }
        if k < 0.0 || k > trials {
            continue;
        }
        if (v * alpha / (a / (us * us) + b)).ln() <= share(k) {
            return k;
        }
    }
}

/// What Stirling's formula about k + 1 leaves of the logarithm of k's factorial.
fn left_by_stirling(k: f64) -> f64 {
    if k < 10.0 {
        let about = k + 1.0;
        return libm::lgamma(about) - ((k + 0.5) * about.ln() - about + 0.5 * std::f64::consts::TAU.ln());
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 40_000;

    fn moments(law: Sampled, numbers: [f64; 2]) -> [f64; 2] {
        let inputs = numbers.map(|number| vec![number; COUNT]);
        let mut out = vec![0.0_f64; COUNT];
        let addresses: Vec<usize> = inputs.iter().take(law.arguments()).map(|input| input.as_ptr() as usize).collect();
        let source = Source { seed: 7, offset: 0 };
        // SAFETY: arrays of this many elements.
        unsafe { sampled::<f64, f64>(law, &addresses, out.as_mut_ptr() as usize, COUNT, source) }.unwrap();
        let mean = out.iter().sum::<f64>() / COUNT as f64;
        [mean, out.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / COUNT as f64]
    }

    /// Mean and variance are those of the law within five deviations of what so many draws have.
    fn assert_law(law: Sampled, numbers: [f64; 2], [mean, variance]: [f64; 2], excess: f64) {
        let found = moments(law, numbers);
        let of_mean = (variance / COUNT as f64).sqrt();
        let of_variance = variance * ((2.0 + excess) / COUNT as f64).sqrt();
        assert!((found[0] - mean).abs() <= 5.0 * of_mean, "{law:?} {numbers:?}: mean {}, of the law {mean}", found[0]);
        let apart = (found[1] - variance).abs();
        assert!(apart <= 5.0 * of_variance, "{law:?} {numbers:?}: variance {}, of the law {variance}", found[1]);
    }

    #[test]
    fn moments_are_those_of_the_laws() {
        for rate in [0.0, 0.3, 4.0, 9.99, 10.0, 35.5, 1e4] {
            assert_law(Sampled::Poisson, [rate, 0.0], [rate, rate], if rate > 0.0 { 1.0 / rate } else { 0.0 });
        }
        for shape in [0.05, 0.5, 1.0, 2.5, 100.0] {
            assert_law(Sampled::Gamma, [shape, 0.0], [shape, shape], 6.0 / shape);
        }
        for (trials, chance) in [
            (0.0, 0.5),
            (1.0, 0.25),
            (16.0, 0.9),
            (17.0, 0.1),
            (200.0, 0.5),
            (1e5, 0.003),
            (1e6, 1e-6),
            (1e9, 0.7),
            (1e12, 0.3),
            (50.0, 1.0),
        ] {
            let variance = trials * chance * (1.0 - chance);
            let excess = if variance > 0.0 { (1.0 - 6.0 * chance * (1.0 - chance)) / variance } else { 0.0 };
            assert_law(Sampled::Binomial, [trials, chance], [trials * chance, variance], excess);
        }
    }

    #[test]
    fn what_is_no_parameter_is_told() {
        for (law, numbers) in [
            (Sampled::Poisson, [-1.0, 0.0]),
            (Sampled::Gamma, [f64::NAN, 0.0]),
            (Sampled::Binomial, [3.0, 1.5]),
            (Sampled::Binomial, [f64::INFINITY, 0.5]),
        ] {
            let addresses = [0, 1].map(|at| &numbers[at] as *const f64 as usize);
            let mut out = 1.0_f64;
            // SAFETY: arrays of one element.
            let result = unsafe {
                sampled::<f64, f64>(
                    law,
                    &addresses[..law.arguments()],
                    &mut out as *mut f64 as usize,
                    1,
                    Source { seed: 1, offset: 0 },
                )
            };
            assert!(result.unwrap_err().to_string().contains("at position 0"), "{law:?}");
        }
    }
}
