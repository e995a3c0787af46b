//! Answers held against float64, in a fraction of the problem's own work: instead of each element, sums of sixteen or so with random signs are
//! computed, for which an operand is summed up first (R. Freivalds, "Probabilistic machines can use less running time", 1977). An element that
//! is wrong shows in its sum; errors of rounding grow with the root of the number of elements only.

use openmps_tile::DType;

/// Elements of one sum.
const BLOCK: usize = 16;

/// `rows x depth` times `depth x columns`.
pub(super) struct Product {
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
}

/// As many channels of results as of images; zeros around.
pub(super) struct Convolution {
    pub channels: usize,
    pub side: usize,
    pub window: usize,
}

/// As many keys as rows, no mask.
pub(super) struct Attention {
    pub heads: usize,
    pub rows: usize,
    pub depth: usize,
    pub scale: f64,
}

impl Product {
    /// Of the operands, and of the result.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        vec![vec![self.rows, self.depth], vec![self.depth, self.columns], vec![self.rows, self.columns]]
    }

    /// The error in units of what is allowed.
    pub fn worst(&self, left: &[f64], right: &[f64], out: &[f64], dtype: DType) -> f64 {
        let right = sums(right, self.columns);
        let blocks = self.columns / BLOCK;
        let expected = left.chunks_exact(self.depth).flat_map(|row| {
            let mut sums = vec![0.0; blocks];
            for (factor, of_depth) in row.iter().zip(right.chunks_exact(blocks)) {
                sums.iter_mut().zip(of_depth).for_each(|(sum, value)| *sum += factor * value);
            }
            sums
        });
        worst(expected, &sums(out, self.columns), allowed(dtype, self.depth))
    }
}

impl Convolution {
    /// Of the image, the weights and the result.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        let image = vec![1, self.channels, self.side, self.side];
        vec![image.clone(), vec![self.channels, self.channels, self.window, self.window], image]
    }

    /// The error in units of what is allowed.
    pub fn worst(&self, image: &[f64], weights: &[f64], out: &[f64], dtype: DType) -> f64 {
        let (plane, taps) = (self.side * self.side, self.window * self.window);
        // Channels of the result become the last axis, over which is summed.
        let weights = sums(&transposed(weights, self.channels, self.channels * taps), self.channels);
        let out = sums(&transposed(out, self.channels, plane), self.channels);
        let blocks = self.channels / BLOCK;
        let around = self.window / 2;
        let inside = |at: usize, tap: usize| (at + tap).checked_sub(around).filter(|&at| at < self.side);
        let expected = (0..plane).flat_map(|pixel| {
            let (row, column) = (pixel / self.side, pixel % self.side);
            let mut sums = vec![0.0; blocks];
            for tap in 0..taps {
                let place = (inside(row, tap / self.window), inside(column, tap % self.window));
                let (Some(row), Some(column)) = place else { continue };
                for channel in 0..self.channels {
                    let value = image[channel * plane + row * self.side + column];
                    let of_tap = &weights[(channel * taps + tap) * blocks..][..blocks];
                    sums.iter_mut().zip(of_tap).for_each(|(sum, weight)| *sum += value * weight);
                }
            }
            sums
        });
        worst(expected, &out, allowed(dtype, self.channels * taps))
    }
}

impl Attention {
    /// Of the queries, keys, values and the result.
    pub fn shapes(&self) -> Vec<Vec<usize>> {
        vec![vec![1, self.heads, self.rows, self.depth]; 4]
    }

    /// The error in units of what is allowed.
    pub fn worst(&self, [queries, keys, values]: [&[f64]; 3], out: &[f64], dtype: DType) -> f64 {
        let (values, blocks) = (sums(values, self.depth), self.depth / BLOCK);
        let head = self.rows * self.depth;
        let expected = queries.chunks_exact(self.depth).enumerate().flat_map(|(row, query)| {
            let of_head = row / self.rows;
            let keys = keys[of_head * head..][..head].chunks_exact(self.depth);
            let score = |key: &[f64]| self.scale * query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
            let scores: Vec<f64> = keys.map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f64 = weights.iter().sum();
            let values = values[of_head * self.rows * blocks..].chunks_exact(blocks);
            let mut sums = vec![0.0; blocks];
            for (weight, value) in weights.iter().zip(values) {
                sums.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight / total * value);
            }
            sums
        });
        // A weight is off by what its score is, which is some units; a sum of `BLOCK` results between -1 and 1 by as much.
        worst(expected, &sums(out, self.depth), 2.0 * allowed(dtype, 1))
    }
}

/// What rounding may do to one sum: `depth` terms of about 1 each add up to about the root of `depth`, and so do their `BLOCK` sums. Sixteen bits
/// are given more, for libraries that keep sums in them on the way.
fn allowed(dtype: DType, depth: usize) -> f64 {
    let (unit, slack) = match dtype {
        DType::F16 => (2f64.powi(-11), 32.0),
        DType::BF16 => (2f64.powi(-8), 2.0),
        _ => (2f64.powi(-24), 64.0),
    };
    slack * unit * BLOCK as f64 * (depth as f64).sqrt()
}

/// The largest difference in units of what is allowed; infinite where something is no number.
fn worst(expected: impl Iterator<Item = f64>, found: &[f64], allowed: f64) -> f64 {
    let error = |(expected, found): (f64, &f64)| (expected - found).abs() / allowed;
    expected.zip(found).map(error).fold(0.0, |most, error| if error.is_nan() { f64::INFINITY } else { most.max(error) })
}

/// Rows of `columns` elements as sums of `BLOCK` of them, with random signs that are the same in each row.
fn sums(rows: &[f64], columns: usize) -> Vec<f64> {
    let mut seed = 7;
    let signs: Vec<f64> = (0..columns).map(|_| if random(&mut seed) & 1 == 0 { 1.0 } else { -1.0 }).collect();
    let sum =
        |(values, signs): (&[f64], &[f64])| values.iter().zip(signs).map(|(value, sign)| value * sign).sum::<f64>();
    let row = |row: &[f64]| row.chunks_exact(BLOCK).zip(signs.chunks_exact(BLOCK)).map(sum).collect::<Vec<_>>();
    rows.chunks_exact(columns).flat_map(row).collect()
}

/// `rows x columns` elements as `columns x rows`.
fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| values[row * columns + column])).collect()
}

/// Some bits, the same in every run (Knuth's MMIX generator).
pub(super) fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}
