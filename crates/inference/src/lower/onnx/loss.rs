//! Losses of classes, which exported models may end with.

use super::reduction::Over;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::gather::{Gather, Negative, TakeAlongAxis};
use openmps::operators::operators::reduce::Reduction;
use openmps::operators::operators::softmax::Softmax;

pub(super) const TABLE: Table = &[("NegativeLogLikelihoodLoss", of_logarithms), ("SoftmaxCrossEntropyLoss", of_scores)];

fn of_logarithms(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let logarithms = lowering.input(operation, 0)?;
    Ok(vec![loss(lowering, operation, &logarithms)?])
}

/// Outputs: the loss, and the logarithms of probabilities.
fn of_scores(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let scores = lowering.input(operation, 0)?;
    let logarithms = lowering.one(Softmax { axis: 1, logarithm: true }, &[scores])?;
    Ok(vec![loss(lowering, operation, &logarithms)?, logarithms])
}

/// Logarithms of probabilities `[batch, classes, ..]`, the class of each place, and a weight for each class.
fn loss(lowering: &mut Lowering, operation: &Operation, logarithms: &Value) -> Result<Value> {
    let (shape, dtype) = (lowering.shape(logarithms)?, lowering.data_type(logarithms)?);
    let labels = lowering.input(operation, 1)?;
    let mut labels = lowering.cast(&labels, DataType::I64)?;
    let places = lowering.shape(&labels)?;
    if shape.len() < 2 || [&shape[..1], &shape[2..]].concat() != places {
        return Err(wrong(operation, format!("classes of shape {places:?} for {shape:?}")));
    }
    let mut weight = None;
    if operation.attributes.contains_key("ignore_index") {
        let ignored = lowering.number_like(&labels, operation.integer("ignore_index", 0)? as f64)?;
        let counts = lowering.binary(Binary::NotEqual, &labels, &ignored)?;
        // It may be none of the classes.
        let any = lowering.number_like(&labels, 0.0)?;
        labels = lowering.choose(&counts, &labels, &any)?;
        weight = Some(lowering.cast(&counts, dtype)?);
    }
    if let Some(weights) = lowering.optional(operation, 2)? {
        let own = lowering.one(Gather { axis: 0 }, &[weights, labels.clone()])?;
        weight = Some(match weight {
            Some(counts) => lowering.binary(Binary::Multiply, &counts, &own)?,
            None => own,
        });
    }
    let index = lowering.reshape(&labels, &[&shape[..1], &[1], &shape[2..]].concat())?;
    let take = TakeAlongAxis { axis: 1, negative: Negative::Refused };
    let own = lowering.one(take, &[logarithms.clone(), index])?;
    let own = lowering.reshape(&own, &places)?;
    let mut loss = lowering.unary(Unary::Negate, &own)?;
    if let Some(weight) = &weight {
        loss = lowering.binary(Binary::Multiply, &loss, weight)?;
    }
    let all = Over { axes: Vec::new(), keep_dims: false };
    match (operation.text("reduction", "mean")?, weight) {
        ("none", _) => Ok(loss),
        ("sum", _) => lowering.reduced(Reduction::Sum, &loss, &all),
        (_, None) => lowering.reduced(Reduction::Mean, &loss, &all),
        (_, Some(weight)) => {
            let sum = lowering.reduced(Reduction::Sum, &loss, &all)?;
            let weights = lowering.reduced(Reduction::Sum, &weight, &all)?;
            lowering.binary(Binary::Divide, &sum, &weights)
        }
    }
}
