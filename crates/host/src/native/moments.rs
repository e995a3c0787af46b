//! Mean and variance of numbers that all lie far from 0, compared with how far they lie apart.

/// The mean, and the mean square of the distances from it, of numbers of which a first mean and the mean square of the distances from that are
/// known. Where the deviation is small beside the mean, the mean of the distances says by how much rounding has moved the first mean, and equal
/// numbers are at a distance of exactly 0 from the second. (Chan, Golub and LeVeque: Algorithms for computing the sample variance, The American
/// Statistician 37, 1983.) Elsewhere this is rounding like any other, and not worth another pass.
#[inline(always)]
pub(super) fn centred(first: f32, square: f32, distance: impl FnOnce() -> f64) -> [f32; 2] {
    /// Beyond so many deviations from 0, squared.
    const FAR: f64 = 64.0;
    // In float64, where the square of no float32 is 0 or infinite.
    if f64::from(first) * f64::from(first) > FAR * f64::from(square) {
        let distance = distance();
        let variance = f64::from(square) - distance * distance;
        [(f64::from(first) + distance) as f32, variance.max(0.0) as f32]
    } else {
        [first, square]
    }
}
