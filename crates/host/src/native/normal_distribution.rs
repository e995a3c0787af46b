//! The normal distribution's probability and its inverse, for truncated normal numbers.

/// The probability that a standard normal number is below `z` (W. J. Cody's way through the error function's tail).
pub fn below(z: f64) -> f64 {
    if z > 0.0 {
        return 1.0 - below(-z);
    }
    // Continued fraction far out, a series near zero; both converge to double precision in these ranges.
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    if z < -3.0 {
        let x = -z;
        let fraction = (1..=60).rev().fold(x, |below, k| x + k as f64 / below);
        return density / fraction;
    }
    let (mut term, mut sum) = (z, z);
    for k in 1..60 {
        term *= z * z / (2 * k + 1) as f64;
        sum += term;
    }
    0.5 + density * sum
}

/// The `z` below which a standard normal number lies with this probability: Acklam's approximation and one step of
/// Halley's method, which makes it exact to double precision.
pub fn quantile(probability: f64) -> f64 {
    if probability <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if probability >= 1.0 {
        return f64::INFINITY;
    }
    if probability > 0.5 {
        return -quantile(1.0 - probability);
    }
    let z = approximate_quantile(probability);
    let error = (below(z) - probability) * std::f64::consts::TAU.sqrt() * (0.5 * z * z).exp();
    z - error / (1.0 + 0.5 * z * error)
}

/// Acklam's rational approximation for probabilities up to one half, to about 1e-9.
fn approximate_quantile(probability: f64) -> f64 {
    let ratio = |x: f64, above: &[f64], below: &[f64]| {
        let series = |terms: &[f64]| terms.iter().fold(0.0, |sum, term| sum * x + term);
        series(above) / (series(below) * x + 1.0)
    };
    if probability < 0.02425 {
        let q = (-2.0 * probability.ln()).sqrt();
        let above = [
            -7.784894002430293e-03,
            -3.223964580411365e-01,
            -2.400_758_277_161_838,
            -2.549732539343734,
            4.374664141464968,
            2.938163982698783,
        ];
        let below = [7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996, 3.754408661907416];
        return ratio(q, &above, &below);
    }
    let q = probability - 0.5;
    let above = [
        -3.969683028665376e+01,
        2.209460984245205e+02,
        -2.759285104469687e+02,
        1.38357751867269e+02,
        -3.066479806614716e+01,
        2.506628277459239,
    ];
    let below = [
        -5.447609879822406e+01,
        1.615858368580409e+02,
        -1.556989798598866e+02,
        6.680131188771972e+01,
        -1.328068155288572e+01,
    ];
    q * ratio(q * q, &above, &below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert!((below(1.0) - 0.841_344_746_068_542_9).abs() < 1e-14);
        assert!((below(-4.0) / 3.167_124_183_311_986e-5 - 1.0).abs() < 1e-12);
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
    }

    #[test]
    fn inverse_of_each_other() {
        for i in 1..200 {
            let z = (i - 100) as f64 / 20.0;
            assert!((quantile(below(z)) - z).abs() < 1e-8 * (1.0 + z.max(0.0).exp2().powi(4)), "{z}");
        }
    }
}
