//! Branches and loops.

use crate::error::{Error, Result};
use crate::lower::control::branch;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::{Block, Operation};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::concat::Stack;

pub(super) const TABLE: Table = &[("If", branch), ("Loop", repeat)];

/// Rounds at most and a condition, either of which may be missing; then what goes round. The body is given the round's number, the condition
/// and what goes round, and hands back the next condition, what goes round, and what is collected of each round along a new first axis.
fn repeat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let body = operation.blocks.first().ok_or_else(|| wrong(operation, "no body"))?;
    let rounds = lowering.number_at(operation, 0)?;
    let mut condition = lowering.optional(operation, 1)?;
    let carried = operation.inputs.len().saturating_sub(2);
    let collected = body.yields.len().checked_sub(1 + carried);
    let collected = collected.ok_or_else(|| wrong(operation, "a body that hands back less than it is given"))?;
    let mut going: Vec<Value> =
        (2..operation.inputs.len()).map(|at| lowering.input(operation, at)).collect::<Result<_>>()?;
    going.extend(vec![Value::List(Vec::new()); collected]);
    let mut round = 0.0;
    loop {
        // What goes round stays alive where the graph so far is run.
        for (id, value) in operation.outputs.iter().zip(&going) {
            id.iter().for_each(|&id| lowering.set(id, value.clone()));
        }
        let mut goes_on = rounds.is_none_or(|rounds| round < rounds);
        if let (true, Some(condition)) = (goes_on, &condition) {
            goes_on = lowering.condition(operation, condition)?;
        }
        lowering.run_if_long()?;
        for (id, value) in operation.outputs.iter().zip(&mut going) {
            if let Some(id) = id {
                *value = lowering.value_of(*id, "of a loop")?;
            }
        }
        if !goes_on {
            break;
        }
        if round >= lowering.longest_loop as f64 {
            let what = format!("more than {} rounds", lowering.longest_loop);
            return Err(Error::Operation { operation: operation.name.clone(), what });
        }
        let mut handed_back = lowering.inner(body, arguments(round, &going[..carried]))?.into_iter();
        condition = handed_back.next();
        for (at, value) in handed_back.enumerate() {
            match &mut going[at] {
                Value::List(members) if at >= carried => members.push(value),
                other => *other = value,
            }
        }
        round += 1.0;
    }
    if round == 0.0 && collected > 0 {
        let nothing = nothing_collected(lowering, body, &going[..carried])?;
        going.truncate(carried);
        going.extend(nothing);
    }
    for value in &mut going[carried..] {
        if let Value::List(members) = value {
            *value = lowering.one(Stack { axis: 0 }, &members.clone())?;
        }
    }
    Ok(going)
}

/// What is collected in no round: no elements of the shapes that a first round would have collected.
fn nothing_collected(lowering: &mut Lowering, body: &Block, carried: &[Value]) -> Result<Vec<Value>> {
    let handed_back = lowering.inner(body, arguments(0.0, carried))?;
    let mut collected = Vec::new();
    for value in handed_back.iter().skip(1 + carried.len()) {
        let shape = [&[0][..], &lowering.shape(value)?].concat();
        collected.push(lowering.filled(&shape, lowering.data_type(value)?, 0.0)?);
    }
    Ok(collected)
}

/// What the body is given in a round.
fn arguments(round: f64, carried: &[Value]) -> Vec<Value> {
    let number = Value::Known(Array::new(&[], vec![round], DataType::I64));
    let truth = Value::Known(Array::new(&[], vec![1.0], DataType::Bool));
    [&[number, truth], carried].concat()
}
