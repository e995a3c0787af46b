//! Norms. Batch norm is a factor and an addend for each channel, which the graph's passes give to the convolution before it.

use super::reduction::Over;
use super::{along, refuse_training};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axis_of, size_of, wrong};
use crate::program::Operation;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::layer_norm::LayerNorm;
use openmps::operators::operators::reduce::Reduction;

pub(super) const TABLE: Table = &[
    ("BatchNormalization", batch_norm),
    ("InstanceNormalization", instance_norm),
    ("GroupNormalization", group_norm),
    ("LayerNormalization", layer_norm),
    ("RMSNormalization", rms_norm),
    // ONNX Runtime's name for it, in ONNX's domain.
    ("SimplifiedLayerNormalization", rms_norm),
    ("LpNormalization", lp_norm),
    ("MeanVarianceNormalization", mean_variance),
];

fn batch_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    refuse_training(operation, operation.flag("training_mode", false)?)?;
    let [x, scale, bias, mean, variance] = [0, 1, 2, 3, 4].map(|at| lowering.input(operation, at));
    let (x, epsilon) = (x?, operation.float("epsilon", 1e-5)?);
    let shape = lowering.shape(&x)?;
    let channels = *shape.get(1).ok_or_else(|| wrong(operation, "an input without channels"))?;
    let along = along(shape.len(), 1, channels);
    Ok(vec![lowering.batch_normalised(&x, [&mean?, &variance?], [Some(scale?), Some(bias?)], epsilon, &along)?])
}

fn instance_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let groups = lowering.shape(&x)?.iter().take(2).product();
    let y = lowering.normalised_rows(&x, groups, operation.float("epsilon", 1e-5)?)?;
    scaled(lowering, operation, y)
}

/// Scale and bias of each channel; before set 21 of each group.
fn group_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let groups = size_of(operation, operation.integer("num_groups", 1)?)?;
    let [batch, channels, ..] = shape[..] else { return Err(wrong(operation, format!("an image of shape {shape:?}"))) };
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(wrong(operation, format!("{channels} channels in {groups} groups")));
    }
    let y = lowering.normalised_rows(&x, batch * groups, operation.float("epsilon", 1e-5)?)?;
    let of = lowering.shape(&lowering.input(operation, 1)?)?;
    if of[..] != [groups] || groups == channels {
        return scaled(lowering, operation, y);
    }
    let inner = shape[1..].iter().product::<usize>() / groups;
    let rows = lowering.reshape(&y, &[batch, groups, inner])?;
    let rows = scaled(lowering, operation, rows)?.remove(0);
    Ok(vec![lowering.reshape(&rows, &shape)?])
}

/// The second and third inputs, one number for each channel.
fn scaled(lowering: &mut Lowering, operation: &Operation, mut y: Value) -> Result<Vec<Value>> {
    for (at, binary) in [(1, Binary::Multiply), (2, Binary::Add)] {
        let part = lowering.input(operation, at)?;
        let part = lowering.spread_along(&part, &y, 1)?;
        y = lowering.binary(binary, &y, &part)?;
    }
    Ok(vec![y])
}

fn layer_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let y = own_row_norm(lowering, operation, &x, true)?;
    if !operation.outputs.iter().skip(1).any(Option::is_some) {
        return Ok(vec![y]);
    }
    // The rows' means, and the inverses of their deviations.
    let rank = lowering.shape(&x)?.len() as i64;
    let over = Over { axes: (lowering.axis(operation, &x, -1)? as i64..rank).collect(), keep_dims: true };
    let mean = lowering.reduced(Reduction::Mean, &x, &over)?;
    let difference = lowering.binary(Binary::Subtract, &x, &mean)?;
    let square = lowering.unary(Unary::Square, &difference)?;
    let variance = lowering.reduced(Reduction::Mean, &square, &over)?;
    let variance = lowering.scaled(&variance, 1.0, operation.float("epsilon", 1e-5)?)?;
    let inverse = lowering.unary(Unary::Rsqrt, &variance)?;
    Ok(vec![y, mean, inverse])
}

fn rms_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![own_row_norm(lowering, operation, &x, false)?])
}

/// With the scale and the bias that are the second and the third input.
fn own_row_norm(lowering: &mut Lowering, operation: &Operation, x: &Value, centred: bool) -> Result<Value> {
    let parts = [lowering.optional(operation, 1)?, lowering.optional(operation, 2)?];
    let (axis, epsilon) = (operation.integer("axis", -1)?, operation.float("epsilon", 1e-5)?);
    lowering.row_norm(operation, x, parts, RowNorm { axis, epsilon, centred })
}

/// A norm of rows from `axis` on.
pub(super) struct RowNorm {
    pub axis: i64,
    pub epsilon: f64,
    /// Whether the mean is taken away.
    pub centred: bool,
}

impl Lowering<'_> {
    /// Scale and bias may be smaller than a row, and broadcast.
    pub(super) fn row_norm(
        &mut self,
        operation: &Operation,
        x: &Value,
        parts: [Option<Value>; 2],
        RowNorm { axis, epsilon, centred }: RowNorm,
    ) -> Result<Value> {
        let (shape, dtype) = (self.shape(x)?, self.data_type(x)?);
        let axis = axis_of(operation, axis, shape.len())?;
        if !dtype.is_float() {
            return Err(wrong(operation, format!("rows of {dtype}")));
        }
        let size = shape[axis..].iter().product::<usize>();
        let (mut inputs, mut fused, mut later) = (vec![x.clone()], [false; 2], Vec::new());
        for (at, part) in parts.into_iter().enumerate() {
            let Some(part) = part else { continue };
            if later.is_empty() && self.shape(&part)?.iter().product::<usize>() == size {
                inputs.push(self.reshape(&part, &[size])?);
                fused[at] = true;
            } else {
                later.push(([Binary::Multiply, Binary::Add][at], part));
            }
        }
        let [scale, bias] = fused;
        let norm = LayerNorm { begin: axis as i64, epsilon, scale, bias, centred, statistics: false };
        let mut y = self.one(norm, &inputs)?;
        for (binary, part) in later {
            y = self.binary(binary, &y, &part)?;
        }
        Ok(y)
    }
}

fn lp_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let reduction = match operation.integer("p", 2)? {
        1 => Reduction::SumOfAbsolutes,
        2 => Reduction::Norm,
        other => return Err(wrong(operation, format!("a norm of order {other}"))),
    };
    let over = Over { axes: vec![operation.integer("axis", -1)?], keep_dims: true };
    let norm = lowering.reduced(reduction, &x, &over)?;
    let quotient = lowering.binary(Binary::Divide, &x, &norm)?;
    // A row of zeros stays one.
    let zero = lowering.number_like(&norm, 0.0)?;
    let is_zero = lowering.binary(Binary::Equal, &norm, &zero)?;
    Ok(vec![lowering.choose(&is_zero, &zero, &quotient)?])
}

/// `(x - mean) / deviation` along axes.
fn mean_variance(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let over = Over { axes: operation.integers("axes")?.unwrap_or_else(|| vec![0, 2, 3]), keep_dims: true };
    let mean = lowering.reduced(Reduction::Mean, &x, &over)?;
    let difference = lowering.binary(Binary::Subtract, &x, &mean)?;
    let square = lowering.unary(Unary::Square, &difference)?;
    let variance = lowering.reduced(Reduction::Mean, &square, &over)?;
    let deviation = lowering.unary(Unary::Sqrt, &variance)?;
    let deviation = lowering.scaled(&deviation, 1.0, 1e-9)?;
    Ok(vec![lowering.binary(Binary::Divide, &difference, &deviation)?])
}
