//! The gradient of attention: the probabilities are computed again, all query heads of a key head as rows of one matrix.

use super::Attention;
use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node};
use crate::operator::Meta;
use crate::operators::elementwise::{Binary, Elementwise, Unary};
use crate::operators::full::Full;
use crate::operators::reduce::Reduction;
use crate::operators::softmax::{Softmax, SoftmaxGradient};
use crate::operators::triangle::Triangle;
use crate::operators::words::Transposed::{No, Yes};
use crate::operators::words::Words;
use openmps_host::native::attention as native;
use openmps_tile::Number;

/// A mask of minus infinities beyond what a query sees.
fn causal_mask(b: &mut Backward<'_>, like: Node, rows: usize, keys: usize) -> Result<Node> {
    let (dims, value) = ([rows, keys].into_iter().collect(), Number::Float(f64::NEG_INFINITY));
    let all = b.one(Full { dims, dtype: b.dtype(like), value }, &[])?;
    b.one(Triangle { diagonal: keys as i64 - rows as i64 + 1, lower: false }, &[all])
}

/// A mask of minus infinities before what a query sees.
fn window_mask(b: &mut Backward<'_>, like: Node, s: &native::Attention, window: usize) -> Result<Node> {
    let (dims, value) = ([s.rows, s.keys].into_iter().collect(), Number::Float(f64::NEG_INFINITY));
    let all = b.one(Full { dims, dtype: b.dtype(like), value }, &[])?;
    b.one(Triangle { diagonal: s.keys as i64 - s.rows as i64 - window.min(s.keys) as i64, lower: true }, &[all])
}

/// Scores before masks [batch, key heads, rows of the group, keys], and the hyperbolic tangents that a soft cap makes of them.
fn scores(b: &mut Backward<'_>, [q, k]: [Node; 2], s: &native::Attention) -> Result<(Node, Option<Node>)> {
    let products = b.matmul((q, No), (k, Yes))?;
    let scaled = b.affine(products, s.scale, 0.0)?;
    let Some(cap) = s.soft_cap else { return Ok((scaled, None)) };
    let part = b.affine(scaled, 1.0 / cap, 0.0)?;
    let tangents = b.unary(Unary::Tanh, part)?;
    Ok((b.affine(tangents, cap, 0.0)?, Some(tangents)))
}

/// The probabilities [batch, key heads, rows of the group, keys]; rows that see nothing are zeros.
fn probabilities(b: &mut Backward<'_>, scores: Node, mask: Option<Node>, s: &native::Attention) -> Result<Node> {
    let group = s.heads / s.key_heads.max(1);
    let full = [s.batch, s.heads, s.rows, s.keys];
    let mut scores = b.reshape(scores, &full)?;
    if let Some(mask) = mask {
        scores = b.add(scores, mask)?;
    }
    if s.causal {
        let mask = causal_mask(b, scores, s.rows, s.keys)?;
        scores = b.add(scores, mask)?;
    }
    if let Some(window) = s.window {
        let mask = window_mask(b, scores, s, window)?;
        scores = b.add(scores, mask)?;
    }
    let mut weights = b.one(Softmax { axis: 3, logarithm: false }, &[scores])?;
    if mask.is_some() || s.causal && s.rows > s.keys {
        let largest = b.reduce(Reduction::Maximum, scores, &[3], true)?;
        let nothing = b.full_like(largest, f64::NEG_INFINITY)?;
        let is_empty = b.binary(Binary::Equal, largest, nothing)?;
        let zeros = b.zeros_like(largest)?;
        weights = b.map(Elementwise::Binary(Binary::Where), &[is_empty, zeros, weights], &[])?;
    }
    b.reshape(weights, &[s.batch, s.key_heads, group * s.rows, s.keys])
}

pub(super) fn gradient(operator: &Attention, b: &mut Backward<'_>) -> Result<Gradients> {
    let metas: Vec<Meta> = b.inputs.iter().map(|&input| b.recorder.meta(input)).collect();
    let s = operator.sizes(&metas)?;
    let dtype = metas[0].dtype;
    let rows = s.heads / s.key_heads.max(1) * s.rows;
    let mut wide = Vec::new();
    for &input in b.inputs {
        wide.push(b.cast(input, dtype.compute())?);
    }
    let q = b.reshape(wide[0], &[s.batch, s.key_heads, rows, s.depth])?;
    let (k, v) = (wide[1], wide[2]);
    let (scores, tangents) = scores(b, [q, k], &s)?;
    let weights = probabilities(b, scores, wide.get(3).copied(), &s)?;
    let dy = b.dy()?;
    let dy = b.cast(dy, dtype.compute())?;
    let dy = b.reshape(dy, &[s.batch, s.key_heads, rows, s.columns])?;
    let mut gradients = b.nothing();
    if b.wanted[2] {
        let of_v = b.matmul((weights, Yes), (dy, No))?;
        gradients[2] = Some(b.cast(of_v, dtype)?);
    }
    let of_weights = b.matmul((dy, No), (v, Yes))?;
    let of_masked = b.one(SoftmaxGradient { axis: 3, logarithm: false }, &[weights, of_weights])?;
    // The derivative of a soft cap is 1 less the tangent's square.
    let of_scores = match tangents {
        Some(tangents) => {
            let square = b.multiply(tangents, tangents)?;
            let slope = b.affine(square, -1.0, 1.0)?;
            b.multiply(of_masked, slope)?
        }
        None => of_masked,
    };
    if b.wanted[0] {
        let of_q = b.matmul((of_scores, No), (k, No))?;
        let of_q = b.affine(of_q, s.scale, 0.0)?;
        let of_q = b.reshape(of_q, &metas[0].shape)?;
        gradients[0] = Some(b.cast(of_q, dtype)?);
    }
    if b.wanted[1] {
        let of_k = b.matmul((of_scores, Yes), (q, No))?;
        let of_k = b.affine(of_k, s.scale, 0.0)?;
        gradients[1] = Some(b.cast(of_k, dtype)?);
    }
    if b.wanted.get(3) == Some(&true) {
        let of_mask = b.reshape(of_masked, &[s.batch, s.heads, s.rows, s.keys])?;
        let of_mask = b.sum_to(of_mask, &metas[3].shape)?;
        gradients[3] = Some(b.cast(of_mask, dtype)?);
    }
    Ok(gradients)
}
