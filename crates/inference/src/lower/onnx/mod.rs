//! ONNX's operators (<https://onnx.ai/onnx/operators>), one function each, of the versions from set 7 on: where a later version has an input for
//! what was an attribute, either is taken.

mod arithmetic;
mod attention;
mod control;
mod convolution;
mod detection;
mod einsum;
mod image;
mod movement;
mod normalisation;
mod part;
mod pooling;
mod product;
mod quantized;
mod recurrent;
mod reduction;
mod resize;
mod sequence;
mod window;

use super::{Lowering, Table, Value, axis_of, wrong};
use crate::error::Result;
use crate::program::{Dialect, Operation};
use openmps::DataType;
use openmps::operators::Array;

pub(super) const TABLES: [Table; 17] = [
    arithmetic::TABLE,
    attention::TABLE,
    control::TABLE,
    convolution::TABLE,
    detection::TABLE,
    einsum::TABLE,
    image::TABLE,
    movement::TABLE,
    normalisation::TABLE,
    part::TABLE,
    pooling::TABLE,
    product::TABLE,
    quantized::TABLE,
    recurrent::TABLE,
    reduction::TABLE,
    resize::TABLE,
    sequence::TABLE,
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

    /// An axis that is an attribute.
    fn axis(&self, operation: &Operation, x: &Value, default: i64) -> Result<usize> {
        axis_of(operation, operation.integer("axis", default)?, self.shape(x)?.len())
    }
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
