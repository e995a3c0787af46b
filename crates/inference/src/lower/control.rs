//! Lists, branches and loops.

use super::{Lowering, Table, Value, axis_of, size_of, wrong};
use crate::error::{Error, Result};
use crate::program::{Block, Operation, ValueId};
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::concat::{Concat, Stack};

pub(super) const TABLE: Table = &[
    ("combine", combine),
    ("builtin.split", take_apart),
    ("builtin.slice", member),
    ("if", branch),
    ("while", repeat),
    ("depend", first),
    ("select_input", select_input),
    ("create_array", create_array),
    ("array_write", array_write),
    ("array_read", array_read),
    ("array_length", array_length),
    ("array_to_tensor", array_to_tensor),
];

fn combine(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = (0..operation.inputs.len()).filter_map(|at| lowering.optional(operation, at).transpose());
    Ok(vec![Value::List(members.collect::<Result<_>>()?)])
}

fn take_apart(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    lowering.list(operation, 0)
}

fn member(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let at = operation.integer("index", 0)?;
    let found = usize::try_from(at).ok().and_then(|at| members.into_iter().nth(at));
    Ok(vec![found.ok_or_else(|| wrong(operation, format!("no member {at}")))?])
}

/// The member that a mask chooses: what one of two branches made.
fn select_input(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let at = size_of(operation, lowering.number(operation, 0, "Mask", 0.0)? as i64)?;
    let found = lowering.list(operation, 1)?.into_iter().nth(at);
    Ok(vec![found.ok_or_else(|| wrong(operation, format!("no member {at}")))?])
}

fn create_array(_: &mut Lowering, _: &Operation) -> Result<Vec<Value>> {
    Ok(vec![Value::List(Vec::new())])
}

/// Members of an array of tensors at most: their places are numbers that a run computes.
const LONGEST_ARRAY: usize = 1 << 20;

/// Inputs: array, member, place. The array is written in place: whoever reads it after this sees the member.
fn array_write(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let at = place_in_array(lowering, operation, 2)?;
    let (mut members, member) = (lowering.list(operation, 0)?, lowering.input(operation, 1)?);
    if at >= members.len() {
        members.resize(at + 1, Value::List(Vec::new()));
    }
    members[at] = member;
    let written = Value::List(members);
    if let Some(array) = operation.inputs.first().copied().flatten() {
        lowering.set(array, written.clone());
    }
    Ok(vec![written])
}

fn array_read(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let at = place_in_array(lowering, operation, 1)?;
    let found = lowering.list(operation, 0)?.into_iter().nth(at);
    Ok(vec![found.ok_or_else(|| wrong(operation, format!("no member {at}")))?])
}

fn place_in_array(lowering: &mut Lowering, operation: &Operation, input: usize) -> Result<usize> {
    let at = size_of(operation, lowering.number(operation, input, "i", 0.0)? as i64)?;
    if at < LONGEST_ARRAY { Ok(at) } else { Err(wrong(operation, format!("place {at} of an array of tensors"))) }
}

fn array_length(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let length = lowering.list(operation, 0)?.len() as f64;
    Ok(vec![Value::Known(Array::new(&[1], vec![length], DataType::I64))])
}

/// The members along an axis or as a new one, and the size of each along it.
fn array_to_tensor(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let members = lowering.list(operation, 0)?;
    let (axis, stacked) = (operation.integer("axis", 0)?, operation.flag("use_stack", false)?);
    let mut sizes = Vec::with_capacity(members.len());
    for member in &members {
        let shape = lowering.shape(member)?;
        let along = if stacked { 1 } else { *shape.get(axis_of(operation, axis, shape.len())?).unwrap_or(&0) };
        sizes.push(along as f64);
    }
    let whole = match stacked {
        true => lowering.one(Stack { axis }, &members)?,
        false => lowering.one(Concat { axis }, &members)?,
    };
    Ok(vec![whole, Value::Known(Array::new(&[sizes.len()], sizes, DataType::I32))])
}

fn first(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![lowering.input(operation, 0)?])
}

impl Lowering<'_> {
    pub(super) fn condition(&mut self, operation: &Operation, value: &Value) -> Result<bool> {
        let known = self.known(value)?;
        let [truth] = known.data[..] else {
            return Err(wrong(operation, format!("a condition of shape {:?}", known.shape)));
        };
        Ok(truth != 0.0)
    }

    /// Lowers a block with these arguments; what it hands back.
    pub(super) fn inner(&mut self, block: &Block, arguments: Vec<Value>) -> Result<Vec<Value>> {
        block.arguments.iter().zip(arguments).for_each(|(&id, value)| self.set(id, value));
        self.block(block)?;
        let handed_back = block.yields.iter().map(|&id| self.value_of(id, "handed back by a block")).collect();
        // Nothing outside a block reads what was made in it: what is not handed back need not be kept when the graph runs.
        self.forget(made_in(block));
        handed_back
    }
}

fn made_in(block: &Block) -> Vec<ValueId> {
    let made = block.operations.iter().flat_map(|operation| operation.outputs.iter().copied().flatten());
    block.arguments.iter().copied().chain(made).collect()
}

pub(super) fn branch(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let condition = lowering.input(operation, 0)?;
    let taken = usize::from(!lowering.condition(operation, &condition)?);
    match operation.blocks.get(taken) {
        Some(block) => lowering.inner(block, Vec::new()),
        None => Ok(Vec::new()),
    }
}

/// The body hands back the next condition and the values that go round.
fn repeat(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let body = operation.blocks.first().ok_or_else(|| wrong(operation, "no body"))?;
    if body.yields.first().is_none_or(|condition| !made_in(body).contains(condition)) {
        return Err(wrong(operation, "a body that does not change the condition"));
    }
    let mut condition = lowering.input(operation, 0)?;
    let mut round: Vec<Value> =
        (1..operation.inputs.len()).map(|at| lowering.input(operation, at)).collect::<Result<_>>()?;
    // What goes round is alive while the graph so far is run for the condition.
    let keep = |lowering: &mut Lowering, round: &[Value]| {
        operation.outputs.iter().zip(round).for_each(|(id, value)| {
            if let Some(id) = id {
                lowering.set(*id, value.clone());
            }
        });
    };
    let longest = lowering.longest_loop;
    for _ in 0..longest {
        keep(lowering, &round);
        let go_on = lowering.condition(operation, &condition)?;
        lowering.run_if_long()?;
        for (id, value) in operation.outputs.iter().zip(&mut round) {
            if let Some(id) = id {
                *value = lowering.value_of(*id, "of a loop")?;
            }
        }
        if !go_on {
            return Ok(round);
        }
        let mut handed_back = lowering.inner(body, round)?.into_iter();
        condition = handed_back.next().ok_or_else(|| wrong(operation, "a body that hands back no condition"))?;
        round = handed_back.collect();
    }
    Err(Error::Operation { operation: operation.name.clone(), what: format!("more than {longest} rounds") })
}
