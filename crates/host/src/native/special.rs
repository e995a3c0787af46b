//! Special functions in float64: gamma and its relatives, the inverse error function, modified Bessel functions.
//!
//! Formulas are those of the NIST Digital Library of Mathematical Functions (DLMF), <https://dlmf.nist.gov>.

use super::memory::{Element, slice, slice_mut};
use super::normal_distribution::inverse_erf;
use crate::threads::parallel_for;
use crate::vector::leveled;
use std::f64::consts::PI;

/// A function of one or two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The logarithm of the gamma function's magnitude.
    LogGamma,
    /// The `order`-th derivative of digamma, the slope of [`Function::LogGamma`].
    Polygamma {
        /// 0 is digamma itself.
        order: u32,
    },
    /// The share of the gamma function's integral that lies above the second number.
    UpperGamma,
    /// Where the error function has this value.
    InverseErf,
    /// The modified Bessel function of the first kind, of order 0 or 1.
    Bessel {
        /// Of order 1.
        first: bool,
        /// Times e^-|x|.
        scaled: bool,
    },
}

impl Function {
    /// How many numbers it takes.
    pub fn arguments(self) -> usize {
        if self == Function::UpperGamma { 2 } else { 1 }
    }

    /// Its value; the second number counts where the function takes two.
    pub fn value(self, x: f64, y: f64) -> f64 {
        match self {
            Function::LogGamma => libm::lgamma(x),
            Function::Polygamma { order } => polygamma(order, x),
            Function::UpperGamma => upper_gamma(x, y),
            Function::InverseErf => inverse_erf(x),
            Function::Bessel { first, scaled } => bessel(first, scaled, x),
        }
    }
}

/// Computes the function of each element.
///
/// # Safety
/// `len` elements of `T` at each input, which nobody writes; as many at `out`, which are nobody else's.
pub unsafe fn special<T: Element>(function: Function, inputs: &[usize], out: usize, len: usize) {
    let run = leveled_run::<T>();
    let second = inputs.get(1).copied().unwrap_or(inputs[0]);
    let ns = if function == Function::InverseErf { 4 } else { 100 };
    parallel_for(len, ns, |begin, end| {
        let [x, y, out] = [inputs[0], second, out].map(|address| address + begin * size_of::<T>());
        // SAFETY: promised by the caller; tasks have different elements.
        unsafe { run(function, x, y, out, end - begin) }
    });
}

type Run = unsafe fn(Function, usize, usize, usize, usize);

leveled! {
    fn leveled_run<T>(function: Function, x: usize, y: usize, out: usize, len: usize) -> Run where { T: Element } = run
}

/// # Safety
/// As of [`special`].
#[inline(always)]
unsafe fn run<T: Element>(function: Function, x: usize, y: usize, out: usize, len: usize) {
    // SAFETY: promised by the caller.
    let (x, y, out) = unsafe { (slice::<T>(x, len), slice::<T>(y, len), slice_mut::<T>(out, len)) };
    // A loop of its own, which vectorises.
    if function == Function::InverseErf {
        for (out, x) in out.iter_mut().zip(x) {
            *out = T::from_f64(inverse_erf(x.to_f64()));
        }
        return;
    }
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = T::from_f64(function.value(x.to_f64(), y.to_f64()));
    }
}

/// Numbers of Bernoulli with even index, from B2 on (DLMF 24.2).
const BERNOULLI: [f64; 8] =
    [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0, -3617.0 / 510.0];

/// Digamma and its derivatives: upwards by the recurrence (DLMF 5.15.5) to where the asymptotic series (5.15.8) has all digits.
fn polygamma(order: u32, x: f64) -> f64 {
    if order == 0 {
        return digamma(x);
    }
    if x.is_nan() || x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    if x == f64::INFINITY {
        return 0.0;
    }
    let n = f64::from(order);
    let sign = if order % 2 == 1 { 1.0 } else { -1.0 };
    // All but the sign: n! times Hurwitz' zeta function of n + 1 (DLMF 25.11.12).
    let factorial = libm::tgamma(n + 1.0);
    if x <= 0.0 && x == x.floor() {
        return f64::INFINITY;
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 20.0 + n {
        sum += x.powf(-n - 1.0);
        x += 1.0;
    }
    sum += x.powf(-n) / n + 0.5 * x.powf(-n - 1.0);
    let mut rising = n + 1.0;
    let mut factor = 1.0;
    for (k, b) in BERNOULLI.iter().enumerate() {
        let twice = 2.0 * (k as f64 + 1.0);
        factor *= rising / ((twice - 1.0) * twice);
        sum += b * factor * x.powf(-n - twice);
        rising = (n + twice) * (n + twice + 1.0);
    }
    sign * factorial * sum
}

/// The slope of the logarithm of gamma (DLMF 5.11.2), of negative numbers by reflection (5.5.4).
fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY.copysign(-x);
    }
    if x == f64::NEG_INFINITY || x < 0.0 && x == x.floor() {
        return f64::NAN;
    }
    if x < 0.0 {
        // The cotangent repeats itself, and has its digits of the distance from a whole number.
        return digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    // B_2k / (2k x^2k), the last term first.
    let terms = BERNOULLI.iter().zip(1..9).rev();
    let series = terms.fold(0.0, |rest, (b, k)| (rest + b / f64::from(2 * k)) * square);
    sum + x.ln() - 0.5 * inverse - series
}

/// The regularised upper incomplete gamma function Q(a, x): 1 less the power series (DLMF 8.11.4) below a + 1, above it the continued
/// fraction (8.9.2) by Lentz' method.
fn upper_gamma(a: f64, x: f64) -> f64 {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 || a == 0.0 && x == 0.0 || a.is_infinite() && x.is_infinite() {
        return f64::NAN;
    }
    if x == 0.0 || a.is_infinite() {
        return 1.0;
    }
    if a == 0.0 || x.is_infinite() {
        return 0.0;
    }
    let scale = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut k) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-17 {
            k += 1.0;
            term *= x / k;
            sum += term;
        }
        return 1.0 - scale * sum;
    }
    let tiny = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / tiny, 1.0 / b);
    let mut fraction = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let numerator = -i * (i - a);
        b += 2.0;
        d = 1.0 / nonzero(numerator * d + b, tiny);
        c = nonzero(b + numerator / c, tiny);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    scale * fraction
}

fn nonzero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// The power series (DLMF 10.25.2), whose terms are positive, or the asymptotic one (10.40.1) where that has all digits.
fn bessel(first: bool, scaled: bool, x: f64) -> f64 {
    let size = x.abs();
    if size.is_nan() {
        return f64::NAN;
    }
    let order = f64::from(u8::from(first));
    let value = if size <= 40.0 {
        let square = size * size / 4.0;
        let (mut term, mut sum, mut k) = (if first { size / 2.0 } else { 1.0 }, 0.0, 0.0);
        while term > sum * 1e-18 {
            sum += term;
            k += 1.0;
            term *= square / (k * (k + order));
        }
        if scaled { sum * (-size).exp() } else { sum }
    } else if size.is_infinite() {
        if scaled { 0.0 } else { f64::INFINITY }
    } else {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..30 {
            let odd = f64::from(2 * k - 1);
            term *= (odd * odd - 4.0 * order) / (f64::from(k) * 8.0 * size);
            sum += term;
        }
        let root = (2.0 * PI * size).sqrt();
        if scaled { sum / root } else { (size / 2.0).exp() / root * sum * (size / 2.0).exp() }
    };
    if first { value.copysign(x) } else { value }
}

#[cfg(test)]
mod tests {
    use super::Function::*;
    use super::*;

    /// Values of the tables in Abramowitz and Stegun, and of sums that are known in closed form.
    #[test]
    fn values_that_are_known() {
        let euler = 0.577_215_664_901_532_9;
        let bessel = |first, scaled| Bessel { first, scaled };
        for (function, x, y, expected) in [
            (Polygamma { order: 0 }, 1.0, 0.0, -euler),
            (Polygamma { order: 0 }, 0.5, 0.0, -euler - 2.0 * 2f64.ln()),
            (Polygamma { order: 0 }, -0.5, 0.0, 2.0 - euler - 2.0 * 2f64.ln()),
            (Polygamma { order: 1 }, 1.0, 0.0, PI * PI / 6.0),
            (Polygamma { order: 1 }, 0.5, 0.0, PI * PI / 2.0),
            (Polygamma { order: 1 }, -0.5, 0.0, PI * PI / 2.0 + 4.0),
            (Polygamma { order: 2 }, 1.0, 0.0, -2.0 * 1.202_056_903_159_594_2),
            (Polygamma { order: 3 }, 1.0, 0.0, PI.powi(4) / 15.0),
            (LogGamma, 0.5, 0.0, PI.sqrt().ln()),
            (UpperGamma, 1.0, 2.0, (-2f64).exp()),
            (UpperGamma, 3.0, 2.0, 5.0 * (-2f64).exp()),
            (UpperGamma, 0.5, 4.0, libm::erfc(2.0)),
            (UpperGamma, 0.5, 0.01, libm::erfc(0.1)),
            (InverseErf, libm::erf(0.3), 0.0, 0.3),
            (InverseErf, libm::erf(-2.0), 0.0, -2.0),
            (bessel(false, false), 1.0, 0.0, 1.266_065_877_752_008_4),
            (bessel(true, false), -1.0, 0.0, -0.565_159_103_992_485),
            (bessel(false, true), 100.0, 0.0, 0.039_944_379_299_096_68),
        ] {
            let value = function.value(x, y);
            assert!(
                (value - expected).abs() <= 1e-14 * expected.abs().max(0.1),
                "{function:?} {x} {y}: {value}, {expected}"
            );
        }
    }

    #[test]
    fn both_series_meet() {
        for (first, scaled) in [(false, false), (false, true), (true, false), (true, true)] {
            let [below, above] = [40.0, 40.0 + 1e-12].map(|x| bessel(first, scaled, x));
            assert!((below / above - 1.0).abs() < 1e-11, "{below}, {above}");
        }
    }
}
