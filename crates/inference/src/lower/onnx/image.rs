//! Padding and cropping of images, and what neighbouring channels do to each other.

use super::window::{halves, spatial};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axes_of, number_of, size_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::pad::{Mode, Pad};
use openmps::operators::operators::pooling::{Pooling, PoolingType};
use openmps::tile::Number;
use std::slice::from_ref;

pub(super) const TABLE: Table = &[("LRN", local_response), ("Pad", pad), ("CenterCropPad", centred)];

/// `x / (bias + alpha m)^beta`, where m is the mean of the squares of `size` neighbouring channels, with zeros beyond the border.
fn local_response(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let inner = spatial(operation, &shape)?.iter().product();
    let size = size_of(operation, operation.integer("size", 1)?)?.max(1);
    let square = lowering.unary(Unary::Square, &x)?;
    let columns = lowering.reshape(&square, &[shape[0], 1, shape[1], inner])?;
    let columns = lowering.padded(&columns, 2, halves(size - 1, true), 0.0)?;
    let mean =
        lowering.one(Pooling { strides: [1, 1], ..Pooling::new(PoolingType::Average, [size, 1]) }, &[columns])?;
    let mean = lowering.reshape(&mean, &shape)?;
    let sum = lowering.scaled(&mean, operation.float("alpha", 1e-4)?, operation.float("bias", 1.0)?)?;
    let power = lowering.raised(&sum, operation.float("beta", 0.75)?)?;
    Ok(vec![lowering.binary(Binary::Divide, &x, &power)?])
}

/// Elements before all axes, then behind them; of the axes that are named, or of all.
fn pad(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut x = lowering.input(operation, 0)?;
    let rank = lowering.shape(&x)?.len();
    let numbers = lowering.integers(operation, 1, "pads")?.unwrap_or_default();
    let named = lowering.integers(operation, 3, "")?.unwrap_or_else(|| (0..rank as i64).collect());
    let named = axes_of(operation, Some(named), rank)?;
    if numbers.len() != 2 * named.len() {
        return Err(wrong(operation, format!("{} paddings of {} axes", numbers.len(), named.len())));
    }
    let mut paddings = vec![(0, 0); rank];
    for (at, &axis) in named.iter().enumerate() {
        paddings[axis] = (numbers[at], numbers[named.len() + at]);
    }
    let mode = match operation.text("mode", "constant")? {
        "reflect" => Mode::Reflect,
        "edge" => Mode::Replicate,
        "wrap" => Mode::Circular,
        _ => Mode::Constant,
    };
    let number = match lowering.number_at(operation, 2)? {
        Some(number) => number,
        None => operation.float("value", 0.0)?,
    };
    let dtype = lowering.data_type(&x)?;
    let is_beyond = mode == Mode::Constant && !dtype.is_float() && number.abs() >= (1_u64 << 53) as f64;
    let value = number_of(dtype, if is_beyond { 0.0 } else { number });
    if let (true, Some(number)) = (is_beyond, lowering.optional(operation, 2)?) {
        return Ok(vec![lowering.padded_by(&x, paddings, &number)?]);
    }
    if mode != Mode::Constant && paddings.iter().any(|&(before, after)| before < 0 || after < 0) {
        x = lowering.cropped(operation, &x, &mut paddings)?;
    }
    Ok(vec![lowering.one(Pad { paddings, mode, value }, &[x])?])
}

/// Of each axis as many elements as asked for, from its middle; zeros around it where there are fewer.
fn centred(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let sizes = sizes_of(operation, lowering.integers(operation, 1, "")?.unwrap_or_default())?;
    let mut x = lowering.input(operation, 0)?;
    let rank = lowering.shape(&x)?.len();
    let named = operation.integers("axes")?.unwrap_or_else(|| (0..rank as i64).collect());
    let named = axes_of(operation, Some(named), rank)?;
    if sizes.len() != named.len() {
        return Err(wrong(operation, format!("{} sizes of {} axes", sizes.len(), named.len())));
    }
    for (axis, asked) in named.into_iter().zip(sizes) {
        let size = lowering.shape(&x)?[axis];
        if asked < size {
            let start = (size - asked) / 2;
            x = lowering.narrow(&x, axis, start, start + asked)?;
        } else {
            x = lowering.padded(&x, axis, halves(asked - size, true), 0.0)?;
        }
    }
    Ok(vec![x])
}

impl Lowering<'_> {
    /// Padded by a tensor's number, which on the way as a float would lose digits.
    fn padded_by(&mut self, x: &Value, paddings: Vec<(i64, i64)>, number: &Value) -> Result<Value> {
        let there = self.filled(&self.shape(x)?, DataType::Bool, 1.0)?;
        let pad = |value| Pad { paddings: paddings.clone(), mode: Mode::Constant, value };
        let there = self.one(pad(Number::Integer(0)), &[there])?;
        let padded = self.one(pad(Number::Integer(0)), from_ref(x))?;
        let number = self.reshape(number, &[])?;
        self.choose(&there, &padded, &number)
    }

    /// Without the elements that negative paddings take away; what is left of the paddings adds some.
    fn cropped(&mut self, operation: &Operation, x: &Value, paddings: &mut [(i64, i64)]) -> Result<Value> {
        let mut x = x.clone();
        for (axis, (before, after)) in paddings.iter_mut().enumerate() {
            let size = self.shape(&x)?[axis] as i64;
            let [start, end] = [(-*before).max(0), size - (-*after).max(0)];
            if start > end {
                return Err(wrong(operation, format!("paddings of {before} and {after} of {size} elements")));
            }
            x = self.narrow(&x, axis, start as usize, end as usize)?;
            (*before, *after) = ((*before).max(0), (*after).max(0));
        }
        Ok(x)
    }
}
