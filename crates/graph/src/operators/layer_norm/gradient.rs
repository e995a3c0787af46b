//! The gradients of layer norm and RMS norm, in the compute type.

use super::LayerNorm;
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::operators::elementwise::Unary;
use crate::operators::reduce::Reduction;
use crate::operators::words::Words;

pub(super) fn gradient(operator: &LayerNorm, b: &mut Backward<'_>) -> Result<Gradients> {
    if b.upstream[1..].iter().any(Option::is_some) {
        return Err(Error::NoGradient { operator: "a norm's statistics" });
    }
    let (dims, dtype) = (b.shape(b.inputs[0]), b.dtype(b.inputs[0]));
    let begin = operator.begin(dims.len())?;
    let axes: Vec<usize> = (begin..dims.len()).collect();
    let dy = b.dy()?;
    let (x, dy) = (b.cast(b.inputs[0], dtype.compute())?, b.cast(dy, dtype.compute())?);
    let (y, inverse) = normalised(operator, b, x, &axes)?;
    let mut gradients = vec![None];
    let mut scaled = dy;
    for (&weight, is_scale) in b.inputs[1..].iter().zip([operator.scale, false]) {
        let of_weight = if is_scale { b.multiply(dy, y)? } else { dy };
        let of_weight = b.sum_to(of_weight, &dims[begin..])?;
        let (own, own_type) = (b.shape(weight), b.dtype(weight));
        let of_weight = b.reshape(of_weight, &own)?;
        gradients.push(Some(b.cast(of_weight, own_type)?));
        if is_scale {
            let wide = b.cast(weight, dtype.compute())?;
            let wide = b.reshape(wide, &dims[begin..])?;
            scaled = b.multiply(dy, wide)?;
        }
    }
    if b.wanted[0] {
        let along = b.multiply(scaled, y)?;
        let along = b.reduce(Reduction::Mean, along, &axes, true)?;
        let along = b.multiply(y, along)?;
        let mut rest = b.subtract(scaled, along)?;
        if operator.centred {
            let mean = b.reduce(Reduction::Mean, scaled, &axes, true)?;
            rest = b.subtract(rest, mean)?;
        }
        let of_x = b.multiply(rest, inverse)?;
        gradients[0] = Some(b.cast(of_x, dtype)?);
    }
    Ok(gradients)
}

/// The rows brought to mean 0 and mean square 1, and the factor of each.
fn normalised(operator: &LayerNorm, b: &mut Backward<'_>, x: Node, axes: &[usize]) -> Result<(Node, Node)> {
    let mut x = x;
    if operator.centred {
        let mean = b.reduce(Reduction::Mean, x, axes, true)?;
        x = b.subtract(x, mean)?;
    }
    let squares = b.unary(Unary::Square, x)?;
    let variance = b.reduce(Reduction::Mean, squares, axes, true)?;
    let shifted = b.affine(variance, 1.0, operator.epsilon)?;
    let inverse = b.unary(Unary::Rsqrt, shifted)?;
    Ok((b.multiply(x, inverse)?, inverse))
}
