//! Reverse mode: gradients of values by others, made of the operators' own and recorded beside them.

use crate::error::Result;
use crate::gradient::{Backward, Node, Recorder};
use crate::operator::Operator;
use crate::operators::elementwise::{Binary, Call, Elementwise};
use std::sync::Arc;

/// How a value of a recorder came about.
pub enum Origin {
    /// It was there, or is a constant.
    Given,
    /// The elements of another value.
    Reshaped(Node),
    /// One of an operator's outputs.
    Step(Step),
}

/// One operator with the values that it reads and writes.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed.
    pub operator: Arc<dyn Operator>,
    /// Of what.
    pub inputs: Vec<Node>,
    /// Its results, of which the first one is recorded first.
    pub outputs: Vec<Node>,
}

/// A recorder that knows how its values came about. Their numbers grow: nothing is computed of what is recorded later.
pub trait Record: Recorder {
    /// How this value came about.
    fn origin(&self, value: Node) -> Origin;
}

/// The gradients of `of`'s first values, weighted by their second ones and summed up, by others. They are values of the same record, of which
/// gradients may be taken in turn; `None` where nothing depends on it.
pub fn gradients(record: &mut dyn Record, of: &[(Node, Node)], by: &[Node]) -> Result<Vec<Option<Node>>> {
    let count = of.iter().map(|(value, _)| value.0 + 1).max().unwrap_or(0);
    let depends = dependents(record, by, count);
    let mut found: Vec<Option<Node>> = vec![None; count];
    for &(value, upstream) in of {
        accumulate(record, &mut found[value.0], upstream)?;
    }
    for index in (0..count).rev() {
        match record.origin(Node(index)) {
            Origin::Reshaped(from) if depends[index] => {
                if let Some(gradient) = found[index] {
                    let dims = record.meta(from).shape;
                    let reshaped = record.record_reshape(gradient, &dims)?;
                    accumulate(record, &mut found[from.0], reshaped)?;
                }
            }
            // The last one that is come to of a step's outputs: whatever reads one of them stands behind all of them.
            Origin::Step(step) if step.outputs[0].0 == index => step_back(record, &step, &depends, &mut found)?,
            _ => {}
        }
    }
    Ok(by.iter().map(|value| found.get(value.0).copied().flatten()).collect())
}

/// By value: whether it is one of `by` or computed from one.
fn dependents(record: &dyn Record, by: &[Node], count: usize) -> Vec<bool> {
    let mut depends = vec![false; count];
    for index in 0..count {
        let computed = match record.origin(Node(index)) {
            Origin::Given => false,
            Origin::Reshaped(from) => depends[from.0],
            Origin::Step(step) => step.inputs.iter().any(|input| depends[input.0]),
        };
        depends[index] = by.contains(&Node(index)) || computed && record.meta(Node(index)).dtype.is_float();
    }
    depends
}

/// Adds the gradients of a step's inputs to what they have already.
fn step_back(record: &mut dyn Record, step: &Step, depends: &[bool], found: &mut [Option<Node>]) -> Result<()> {
    // Of several outputs the last ones may be recorded after all that is differentiated.
    let of = |output: &Node| found.get(output.0).copied().flatten().filter(|_| depends[output.0]);
    let upstream: Vec<Option<Node>> = step.outputs.iter().map(of).collect();
    if upstream.iter().all(Option::is_none) {
        return Ok(());
    }
    let wanted: Vec<bool> = step.inputs.iter().map(|input| depends[input.0]).collect();
    let gradients = step.operator.gradient(&mut Backward {
        recorder: record,
        inputs: &step.inputs,
        outputs: &step.outputs,
        upstream: &upstream,
        wanted: &wanted,
    })?;
    for ((input, gradient), _) in step.inputs.iter().zip(gradients).zip(wanted).filter(|(_, wanted)| *wanted) {
        if let Some(gradient) = gradient {
            accumulate(record, &mut found[input.0], gradient)?;
        }
    }
    Ok(())
}

fn accumulate(record: &mut dyn Record, sum: &mut Option<Node>, gradient: Node) -> Result<()> {
    let add = Call::new(Elementwise::Binary(Binary::Add));
    *sum = match *sum {
        None => Some(gradient),
        Some(sum) => Some(record.record(Arc::new(add), &[sum, gradient])?[0]),
    };
    Ok(())
}
