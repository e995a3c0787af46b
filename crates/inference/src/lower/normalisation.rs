//! Norms. Batch norm is a factor and an addend for each channel, which the graph's passes give to the convolution before it.

use super::{Lowering, Table, Value, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::layer_norm::LayerNorm;
use openmps::operators::operators::reduce::Reduction;

pub(super) const TABLE: Table = &[
    ("batch_norm", batch_norm),
    ("sync_batch_norm", batch_norm),
    ("layer_norm", layer_norm),
    ("instance_norm", instance_norm),
    ("group_norm", group_norm),
    ("p_norm", p_norm),
];

/// The shape under which one number for each channel broadcasts.
fn along_channels(operation: &Operation, rank: usize, channels: usize) -> Result<Vec<usize>> {
    let last = operation.text("data_format", "NCHW")?.ends_with('C') || rank < 3;
    let mut shape = vec![1; rank];
    shape[if last { rank - 1 } else { 1 }] = channels;
    Ok(shape)
}

fn batch_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let is_stored = operation.flag("is_test", false)? || operation.flag("use_global_stats", false)?;
    if !is_stored {
        return Err(wrong(operation, "it takes the batch's own statistics: save the program in evaluation mode"));
    }
    let (x, mean, variance) =
        (lowering.input(operation, 0)?, lowering.input(operation, 1)?, lowering.input(operation, 2)?);
    let (rank, channels) = (lowering.shape(&x)?.len(), lowering.shape(&mean)?.iter().product());
    if rank < 2 {
        return Err(wrong(operation, format!("an input of {rank} dimensions")));
    }
    let parts = [lowering.optional(operation, 3)?, lowering.optional(operation, 4)?];
    let along = along_channels(operation, rank, channels)?;
    let epsilon = operation.float("epsilon", 1e-5)?;
    Ok(vec![lowering.batch_normalised(&x, [&mean, &variance], parts, epsilon, &along)?])
}

impl Lowering<'_> {
    /// Channels less their means over their deviations, times a scale, plus a bias: one factor and one addend for each, under the shape `along`.
    pub(super) fn batch_normalised(
        &mut self,
        x: &Value,
        [mean, variance]: [&Value; 2],
        [scale, bias]: [Option<Value>; 2],
        epsilon: f64,
        along: &[usize],
    ) -> Result<Value> {
        let shifted = self.scaled(variance, 1.0, epsilon)?;
        let mut factor = self.unary(Unary::Rsqrt, &shifted)?;
        if let Some(scale) = scale {
            factor = self.binary(Binary::Multiply, &factor, &scale)?;
        }
        let moved = self.binary(Binary::Multiply, mean, &factor)?;
        let addend = match bias {
            Some(bias) => self.binary(Binary::Subtract, &bias, &moved)?,
            None => self.scaled(&moved, -1.0, 0.0)?,
        };
        let dtype = self.data_type(x)?;
        let mut parts = Vec::with_capacity(2);
        for part in [factor, addend] {
            let part = self.cast(&part, dtype)?;
            parts.push(self.reshape(&part, along)?);
        }
        let product = self.binary(Binary::Multiply, x, &parts[0])?;
        self.binary(Binary::Add, &product, &parts[1])
    }
}

fn layer_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let [scale, bias] = [1, 2].map(|at| lowering.optional(operation, at));
    let (scale, bias) = (scale?, bias?);
    let norm = LayerNorm {
        begin: operation.integer("begin_norm_axis", 1)?,
        epsilon: operation.float("epsilon", 1e-5)?,
        scale: scale.is_some(),
        bias: bias.is_some(),
        centred: true,
        statistics: false,
    };
    let inputs: Vec<Value> = [Some(x), scale, bias].into_iter().flatten().collect();
    Ok(vec![lowering.one(norm, &inputs)?])
}

impl Lowering<'_> {
    /// Rows of `[groups, size]` brought to mean 0 and variance 1.
    pub(super) fn normalised_rows(&mut self, x: &Value, groups: usize, epsilon: f64) -> Result<Value> {
        let shape = self.shape(x)?;
        let size = shape.iter().product::<usize>() / groups.max(1);
        let rows = self.reshape(x, &[groups, size])?;
        let norm = LayerNorm { begin: -1, epsilon, scale: false, bias: false, centred: true, statistics: false };
        let rows = self.one(norm, &[rows])?;
        self.reshape(&rows, &shape)
    }

    fn scaled_channels(&mut self, operation: &Operation, x: Value) -> Result<Value> {
        let (mut y, rank) = (x.clone(), self.shape(&x)?.len());
        for (at, binary) in [(1, Binary::Multiply), (2, Binary::Add)] {
            if let Some(part) = self.optional(operation, at)? {
                let channels = self.shape(&part)?.iter().product();
                let part = self.reshape(&part, &along_channels(operation, rank, channels)?)?;
                y = self.binary(binary, &y, &part)?;
            }
        }
        Ok(y)
    }
}

fn instance_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let groups = shape.iter().take(2).product();
    let y = lowering.normalised_rows(&x, groups, operation.float("epsilon", 1e-5)?)?;
    Ok(vec![lowering.scaled_channels(operation, y)?])
}

fn group_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    if operation.text("data_format", "NCHW")?.ends_with('C') {
        return Err(wrong(operation, "channels last"));
    }
    let groups = operation.integer("groups", 1)? as usize * lowering.shape(&x)?.first().copied().unwrap_or(0);
    let y = lowering.normalised_rows(&x, groups, operation.float("epsilon", 1e-5)?)?;
    Ok(vec![lowering.scaled_channels(operation, y)?])
}

fn p_norm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    if operation.float("porder", 2.0)? != 2.0 {
        return Err(wrong(operation, "a norm other than the second"));
    }
    let axes = if operation.flag("asvector", false)? { Vec::new() } else { vec![operation.integer("axis", -1)?] };
    let square = lowering.unary(Unary::Square, &x)?;
    let sum = lowering.reduce(Reduction::Sum, &square, &axes, operation.flag("keepdim", false)?)?;
    Ok(vec![lowering.unary(Unary::Sqrt, &sum)?])
}
