//! The normal distribution's probability and its inverse, for truncated normal numbers and the inverse error function.

use crate::vector::double::{log, polynomial};

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

/// The `z` below which a standard normal number lies with this probability.
#[inline(always)]
pub fn quantile(probability: f64) -> f64 {
    let other = 1.0 - probability;
    quantile_beside_middle(probability - 0.5, if probability < other { probability } else { other })
}

/// Where the error function has this value: the quantile of as much of the normal distribution, whose z is larger by the square root of 2.
#[inline(always)]
pub fn inverse_erf(y: f64) -> f64 {
    quantile_beside_middle(0.5 * y, 0.5 * (1.0 - y.abs())) * std::f64::consts::FRAC_1_SQRT_2
}

/// The quantile of the probability `1/2 + beside`, of which `tail` is left to 0 or to 1, by Wichura's rational functions to all
/// digits (algorithm AS 241, Applied Statistics 37, 1988). Without branches, so that loops over it vectorise.
#[inline(always)]
fn quantile_beside_middle(beside: f64, tail: f64) -> f64 {
    let near = 0.180_625 - beside * beside;
    let in_middle = beside * (polynomial(near, MIDDLE[0]) / polynomial(near, MIDDLE[1]));
    let root = (-log(tail)).sqrt();
    let is_far = root > 5.0;
    let from = root - if is_far { 5.0 } else { 1.6 };
    let outside = polynomial(from, TAIL[0]) / polynomial(from, TAIL[1]);
    let far = polynomial(from, FAR_TAIL[0]) / polynomial(from, FAR_TAIL[1]);
    let outside = if is_far { far } else { outside };
    let outside = if tail == 0.0 { f64::INFINITY } else { outside };
    if beside.abs() <= 0.425 { in_middle } else { outside.copysign(beside) }
}

/// Above and below the fraction, the highest power first.
type Ratio = [[f64; 8]; 2];

const MIDDLE: Ratio = [
    [
        2_509.080_928_730_122_7,
        33_430.575_583_588_13,
        67_265.770_927_008_7,
        45_921.953_931_549_87,
        13_731.693_765_509_46,
        1_971.590_950_306_551_3,
        133.141_667_891_784_38,
        3.387_132_872_796_366_5,
    ],
    [
        5_226.495_278_852_854,
        28_729.085_735_721_943,
        39_307.895_800_092_71,
        21_213.794_301_586_597,
        5_394.196_021_424_751,
        687.187_007_492_057_9,
        42.313_330_701_600_91,
        1.0,
    ],
];
const TAIL: Ratio = [
    [
        7.745_450_142_783_414e-4,
        0.022_723_844_989_269_184,
        0.241_780_725_177_450_6,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        0.015_198_666_563_616_457,
        0.148_103_976_427_480_08,
        0.689_767_334_985_1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
];
const FAR_TAIL: Ratio = [
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        0.001_242_660_947_388_078_4,
        0.026_532_189_526_576_124,
        0.296_560_571_828_504_87,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_104,
    ],
    [
        2.044_263_103_389_939_8e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_8e-5,
        7.868_691_311_456_133e-4,
        0.014_875_361_290_850_615,
        0.136_929_880_922_735_8,
        0.599_832_206_555_888,
        1.0,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert!((below(1.0) - 0.841_344_746_068_542_9).abs() < 1e-14);
        assert!((below(-4.0) / 3.167_124_183_311_986e-5 - 1.0).abs() < 1e-12);
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
        assert_eq!((quantile(0.0), quantile(1.0), quantile(0.5)), (f64::NEG_INFINITY, f64::INFINITY, 0.0));
        assert!(quantile(-0.1).is_nan() && quantile(1.1).is_nan() && quantile(f64::NAN).is_nan());
        assert_eq!((inverse_erf(1.0), inverse_erf(-1.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(inverse_erf(-0.0).is_sign_negative() && inverse_erf(-1.01).is_nan() && inverse_erf(f64::NAN).is_nan());
    }

    /// The library's error function of what was found is what was asked for, as far as its slope lets digits through.
    #[test]
    fn error_function_and_its_inverse() {
        for i in 0..4000 {
            let size = if i < 2000 { i as f64 / 2000.0 } else { 1.0 - (-0.018 * (i - 2000) as f64).exp() };
            let x = inverse_erf(size);
            // Near 1 the digits are those of what is left to 1.
            let apart = if size < 0.5 { libm::erf(x) - size } else { (1.0 - size) - libm::erfc(x) };
            let slope = std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp();
            assert!(size == 1.0 || (apart / slope).abs() <= 1e-15 * x.max(1e-3) + 2e-16, "{size}: {x}");
            assert_eq!(inverse_erf(-size), -x);
        }
    }

    #[test]
    fn inverse_of_each_other() {
        for i in 1..200 {
            let z = (i - 100) as f64 / 20.0;
            assert!((quantile(below(z)) - z).abs() < 1e-8 * (1.0 + z.max(0.0).exp2().powi(4)), "{z}");
        }
    }
}
