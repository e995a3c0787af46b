//! Branches and loops.

use crate::error::{Error, Result};
use crate::lower::control::branch;
use crate::lower::{Lowering, Table, Value, axis_of, wrong};
use crate::program::{Block, Operation};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::concat::Stack;

pub(super) const TABLE: Table = &[("If", branch), ("Loop", repeat), ("Scan", scan), ("SequenceMap", map)];

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
        keep(lowering, operation, &going);
        let mut goes_on = rounds.is_none_or(|rounds| round < rounds);
        if let (true, Some(condition)) = (goes_on, &condition) {
            goes_on = lowering.condition(operation, condition)?;
        }
        lowering.run_if_long()?;
        kept(lowering, operation, &mut going)?;
        if !goes_on {
            break;
        }
        if round >= lowering.longest_loop as f64 {
            return Err(too_long(lowering, operation));
        }
        let mut handed_back = lowering.inner(body, arguments(round, &going[..carried]))?.into_iter();
        condition = handed_back.next();
        kept(lowering, operation, &mut going)?;
        advance(&mut going, carried, handed_back);
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

/// What goes round is the operation's outputs on the way: so it stays alive where the graph so far is run.
fn keep(lowering: &mut Lowering, operation: &Operation, going: &[Value]) {
    for (id, value) in operation.outputs.iter().zip(going) {
        id.iter().for_each(|&id| lowering.set(id, value.clone()));
    }
}

/// What goes round after the graph may have been run, as it may be in a round, too.
fn kept(lowering: &Lowering, operation: &Operation, going: &mut [Value]) -> Result<()> {
    for (id, value) in operation.outputs.iter().zip(going) {
        if let Some(id) = id {
            *value = lowering.value_of(*id, "of a loop")?;
        }
    }
    Ok(())
}

/// What a round hands back: first what goes round, then what is collected.
fn advance(going: &mut [Value], carried: usize, handed_back: impl Iterator<Item = Value>) {
    for (at, (own, value)) in going.iter_mut().zip(handed_back).enumerate() {
        match own {
            Value::List(members) if at >= carried => members.push(value),
            other => *other = value,
        }
    }
}

fn too_long(lowering: &Lowering, operation: &Operation) -> Error {
    wrong(operation, format!("more than {} rounds", lowering.longest_loop))
}

/// Axes and directions of a scan's inputs or outputs.
fn ways(operation: &Operation, of: &str, count: usize) -> Result<Vec<(i64, bool)>> {
    let numbers = |name: String| -> Result<Vec<i64>> {
        let numbers = operation.integers(&name)?.filter(|numbers| !numbers.is_empty());
        let numbers = numbers.unwrap_or_else(|| vec![0; count]);
        if numbers.len() == count { Ok(numbers) } else { Err(wrong(operation, format!("{name} of {numbers:?}"))) }
    };
    let (axes, directions) = (numbers(format!("scan_{of}_axes"))?, numbers(format!("scan_{of}_directions"))?);
    Ok(axes.into_iter().zip(directions.into_iter().map(|direction| direction != 0)).collect())
}

/// What goes round, then tensors of which the body is given a slice in each round; it hands back what goes round, and what is collected.
fn scan(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    if lowering.opset() < 9 {
        return Err(wrong(operation, "batches of sequences, as sets of operators before 9 have them"));
    }
    let body = operation.blocks.first().ok_or_else(|| wrong(operation, "no body"))?;
    let scanned = usize::try_from(operation.integer("num_scan_inputs", 0)?).unwrap_or(0);
    let carried = operation.inputs.len().checked_sub(scanned).filter(|_| scanned > 0);
    let carried = carried.ok_or_else(|| wrong(operation, format!("{scanned} inputs that are scanned")))?;
    let collected = body.yields.len().checked_sub(carried);
    let collected = collected.ok_or_else(|| wrong(operation, "a body that hands back less than it is given"))?;
    let (inputs, outputs) = (ways(operation, "input", scanned)?, ways(operation, "output", collected)?);
    let mut going = (0..carried).map(|at| lowering.input(operation, at)).collect::<Result<Vec<_>>>()?;
    going.extend(vec![Value::List(Vec::new()); collected]);
    let rounds = rounds(lowering, operation, carried, &inputs)?;
    for round in 0..rounds {
        keep(lowering, operation, &going);
        lowering.run_if_long()?;
        kept(lowering, operation, &mut going)?;
        let mut arguments = going[..carried].to_vec();
        for (at, &(axis, backwards)) in inputs.iter().enumerate() {
            let x = lowering.input(operation, carried + at)?;
            let axis = axis_of(operation, axis, lowering.shape(&x)?.len())?;
            let place = if backwards { rounds - 1 - round } else { round };
            let slice = lowering.narrow(&x, axis, place, place + 1)?;
            arguments.push(lowering.without(&slice, &[axis])?);
        }
        let handed_back = lowering.inner(body, arguments)?;
        kept(lowering, operation, &mut going)?;
        advance(&mut going, carried, handed_back.into_iter());
    }
    for (value, (axis, backwards)) in going[carried..].iter_mut().zip(outputs) {
        let Value::List(members) = value else { continue };
        if members.is_empty() {
            return Err(wrong(operation, "no rounds: the shape of what is collected is not known"));
        }
        if backwards {
            members.reverse();
        }
        *value = lowering.one(Stack { axis }, &members.clone())?;
    }
    Ok(going)
}

/// The slices of what is scanned, of which all have as many.
fn rounds(lowering: &Lowering, operation: &Operation, carried: usize, inputs: &[(i64, bool)]) -> Result<usize> {
    let mut sizes = Vec::with_capacity(inputs.len());
    for (at, &(axis, _)) in inputs.iter().enumerate() {
        let shape = lowering.shape(&lowering.input(operation, carried + at)?)?;
        let axis = axis_of(operation, axis, shape.len())?;
        sizes.push(*shape.get(axis).ok_or_else(|| wrong(operation, "a scanned input without dimensions"))?);
    }
    match sizes[..] {
        [first, ref rest @ ..] if rest.iter().all(|&size| size == first) => match first > lowering.longest_loop {
            true => Err(too_long(lowering, operation)),
            false => Ok(first),
        },
        _ => Err(wrong(operation, format!("scanned inputs of {sizes:?} slices"))),
    }
}

/// The body for each member of a list; other inputs are lists as long, or the same in each round.
fn map(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let body = operation.blocks.first().ok_or_else(|| wrong(operation, "no body"))?;
    let count = lowering.list(operation, 0)?.len();
    let mut going = vec![Value::List(Vec::new()); body.yields.len()];
    for round in 0..count {
        keep(lowering, operation, &going);
        lowering.run_if_long()?;
        kept(lowering, operation, &mut going)?;
        let mut arguments = Vec::with_capacity(operation.inputs.len());
        for at in 0..operation.inputs.len() {
            arguments.push(match lowering.input(operation, at)? {
                Value::List(members) => {
                    let member = members.get(round).cloned();
                    member.ok_or_else(|| wrong(operation, format!("lists of {count} and {} members", members.len())))?
                }
                same => same,
            });
        }
        let handed_back = lowering.inner(body, arguments)?;
        kept(lowering, operation, &mut going)?;
        advance(&mut going, 0, handed_back.into_iter());
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
