//! The same results from Candle's own operators, for what openmps's kernels do not take, and for gradients.

use candle_core::{D, Result, Tensor};

/// Softmax along an axis; a row of minus infinities gives zeros where `empty_rows` says so, else NaN.
pub(crate) fn softmax(x: &Tensor, dim: usize, empty_rows: bool) -> Result<Tensor> {
    let largest = x.max_keepdim(dim)?;
    let largest = if empty_rows { finite(&largest)? } else { largest };
    let exponentials = x.broadcast_sub(&largest)?.exp()?;
    let sum = exponentials.sum_keepdim(dim)?;
    let sum = if empty_rows { sum.eq(&sum.zeros_like()?)?.where_cond(&sum.ones_like()?, &sum)? } else { sum };
    exponentials.broadcast_div(&sum)
}

/// Zero in place of minus infinity.
fn finite(x: &Tensor) -> Result<Tensor> {
    let zeros = x.zeros_like()?;
    x.eq(&zeros.affine(1.0, f64::NEG_INFINITY)?)?.where_cond(&zeros, x)
}

pub(crate) fn log_softmax(x: &Tensor, dim: usize) -> Result<Tensor> {
    let shifted = x.broadcast_sub(&x.max_keepdim(dim)?)?;
    shifted.broadcast_sub(&shifted.exp()?.sum_keepdim(dim)?.log()?)
}

/// Rows brought to mean 0 (where `centred`) and mean square 1, and the factor of each row.
pub(crate) fn normalised(x: &Tensor, centred: bool, epsilon: f64) -> Result<(Tensor, Tensor)> {
    let x = if centred { x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)? } else { x.clone() };
    let inverse = (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?.sqrt()?.recip()?;
    Ok((x.broadcast_mul(&inverse)?, inverse))
}

pub(crate) fn norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, centred: bool, epsilon: f64) -> Result<Tensor> {
    let dtype = x.dtype();
    let (y, _) = normalised(&crate::reduce::widened(x)?, centred, epsilon)?;
    let y = y.to_dtype(dtype)?.broadcast_mul(weight)?;
    bias.map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
}

/// Which keys a query of attention sees.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub causal: bool,
    pub window: Option<usize>,
}

impl Seen {
    /// Minus infinity where query i does not see key j, none where every query sees every key.
    fn mask(self, rows: usize, keys: usize, like: &Tensor) -> Result<Option<Tensor>> {
        if !self.causal && self.window.is_none() {
            return Ok(None);
        }
        let behind = |i: usize, j: usize| self.causal && j + rows > i + keys;
        let before = |i: usize, j: usize| {
            self.window.is_some_and(|window| j.saturating_add(rows).saturating_add(window) <= i + keys)
        };
        let value = |i, j| if behind(i, j) || before(i, j) { f32::NEG_INFINITY } else { 0.0 };
        let values: Vec<f32> = (0..rows * keys).map(|at| value(at / keys, at % keys)).collect();
        Tensor::from_vec(values, (rows, keys), like.device())?.to_dtype(like.dtype()).map(Some)
    }
}

/// What is left of attention after scale, cap, mask and softmax, and the scores before masks: [batch, key heads, group, rows, keys].
pub(crate) fn probabilities(
    q: &Tensor,
    k: &Tensor,
    mask: Option<&Tensor>,
    seen: Seen,
    scale: f64,
    soft_cap: Option<f64>,
) -> Result<(Tensor, Tensor)> {
    let (batch, heads, rows, _) = q.dims4()?;
    let (_, key_heads, keys, _) = k.dims4()?;
    let mut grouped_scores = (crate::matmul(&grouped(q, key_heads)?, &k.unsqueeze(2)?.t()?)? * scale)?;
    if let Some(cap) = soft_cap {
        grouped_scores = ((grouped_scores / cap)?.tanh()? * cap)?;
    }
    let mut scores = grouped_scores.reshape((batch, heads, rows, keys))?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    if let Some(hidden) = seen.mask(rows, keys, &scores)? {
        scores = scores.broadcast_add(&hidden)?;
    }
    let weights = softmax(&scores, 3, true)?.reshape((batch, key_heads, heads / key_heads, rows, keys))?;
    Ok((weights, grouped_scores))
}

/// The derivative of a soft cap, by the capped scores: 1 less the tangent's square.
pub(crate) fn soft_cap_slope(scores: &Tensor, cap: f64) -> Result<Tensor> {
    (scores / cap)?.sqr()?.affine(-1.0, 1.0)
}

/// [batch, heads, ..] as [batch, key heads, group, ..].
pub(crate) fn grouped(q: &Tensor, key_heads: usize) -> Result<Tensor> {
    let (batch, heads, rows, depth) = q.dims4()?;
    q.reshape((batch, key_heads, heads / key_heads, rows, depth))
}
