//! ONNX's operators (<https://onnx.ai/onnx/operators>) and some of ONNX Runtime's, one function each, of the versions from set 7 on: where a later version has an input for
//! what was an attribute, either is taken.

mod arithmetic;
mod attention;
mod columns;
mod control;
mod convolution;
mod detection;
mod einsum;
mod image;
mod loss;
mod microsoft;
mod movement;
mod normalisation;
mod part;
mod pooling;
mod product;
mod quantized;
mod recurrent;
mod reduction;
mod regions;
mod resize;
mod rotary;
mod sequence;
mod signal;
mod unique;
pub(super) mod window;

use super::{Lowering, Table, Value, axis_of, wrong};
use crate::error::Result;
use crate::program::{Dialect, Operation};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::expand::Expand;
use std::slice::from_ref;

pub(super) const TABLES: [Table; 27] = [
    arithmetic::TABLE,
    attention::TABLE,
    columns::TABLE,
    control::TABLE,
    convolution::TABLE,
    detection::TABLE,
    einsum::TABLE,
    image::TABLE,
    loss::TABLE,
    microsoft::ATTENTION,
    microsoft::GROUPED,
    microsoft::QUANTIZED,
    microsoft::TABLE,
    movement::TABLE,
    normalisation::TABLE,
    part::TABLE,
    pooling::TABLE,
    product::TABLE,
    quantized::TABLE,
    recurrent::TABLE,
    reduction::TABLE,
    regions::TABLE,
    resize::TABLE,
    rotary::TABLE,
    sequence::TABLE,
    signal::TABLE,
    unique::TABLE,
];

impl Lowering<'_> {
    /// The version of the set of operators that the model uses.
    fn opset(&self) -> i64 {
        match self.dialect {
            Dialect::Onnx { opset } => opset,
            Dialect::Paddle => 0,
        }
    }

    /// All inputs of an operator that takes any number.
    fn inputs(&self, operation: &Operation) -> Result<Vec<Value>> {
        (0..operation.inputs.len()).map(|at| self.input(operation, at)).collect()
    }

    /// A number that is an input; none where it is missing or empty.
    fn number_at(&mut self, operation: &Operation, at: usize) -> Result<Option<f64>> {
        match self.optional(operation, at)? {
            Some(value) => Ok(self.known(&value)?.data.first().copied()),
            None => Ok(None),
        }
    }

    /// The next term of a sum that began with nothing.
    pub(super) fn added(&mut self, sum: Option<Value>, term: Value) -> Result<Value> {
        match sum {
            Some(sum) => self.binary(Binary::Add, &sum, &term),
            None => Ok(term),
        }
    }

    /// The value plus an input, where there is one.
    fn plus_input(&mut self, operation: &Operation, x: Value, at: usize) -> Result<Value> {
        match self.optional(operation, at)? {
            Some(more) => self.binary(Binary::Add, &x, &more),
            None => Ok(x),
        }
    }

    /// The value with dimensions of size 1 before its own, as many as make `rank`.
    fn of_rank(&mut self, x: &Value, rank: usize) -> Result<Value> {
        let mut shape = self.shape(x)?;
        shape.splice(0..0, vec![1; rank.saturating_sub(shape.len())]);
        self.reshape(x, &shape)
    }

    /// Repeated along dimensions of size 1.
    fn expanded(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        let dims = dims.iter().map(|&size| size as i64).collect();
        self.one(Expand { dims }, from_ref(x))
    }

    /// One number for each slice of `like` along an axis, under the shape in which they broadcast to it.
    fn spread_along(&mut self, numbers: &Value, like: &Value, axis: usize) -> Result<Value> {
        let count = self.shape(numbers)?.iter().product();
        let shape = along(self.shape(like)?.len(), axis, count);
        self.reshape(numbers, &shape)
    }

    /// An axis that is an attribute.
    fn axis(&self, operation: &Operation, x: &Value, default: i64) -> Result<usize> {
        axis_of(operation, operation.integer("axis", default)?, self.shape(x)?.len())
    }
}

/// A shape of ones but for one axis: what broadcasts along all the others.
fn along(rank: usize, axis: usize, size: usize) -> Vec<usize> {
    (0..rank).map(|at| if at == axis { size } else { 1 }).collect()
}

/// Integers that are known.
fn integers(data: impl IntoIterator<Item = i64>) -> Value {
    let data: Vec<f64> = data.into_iter().map(|number| number as f64).collect();
    Value::Known(Array::new(&[data.len()], data, DataType::I64))
}

/// Refuses what makes a model one that is being trained.
fn refuse_training(operation: &Operation, trains: bool) -> Result<()> {
    if trains { Err(wrong(operation, "in training mode: export the model in evaluation mode")) } else { Ok(()) }
}
