//! Lists, branches and loops.

use super::{Lowering, Table, Value, wrong};
use crate::error::{Error, Result};
use crate::program::{Block, Operation, ValueId};

pub(super) const TABLE: Table = &[
    ("combine", combine),
    ("builtin.split", take_apart),
    ("builtin.slice", member),
    ("if", branch),
    ("while", repeat),
    ("depend", first),
];

/// Runs of a loop's body at most.
const LONGEST_LOOP: usize = 1 << 20;

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

fn first(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![lowering.input(operation, 0)?])
}

impl Lowering<'_> {
    fn condition(&mut self, operation: &Operation, value: &Value) -> Result<bool> {
        let known = self.known(value)?;
        let [truth] = known.data[..] else {
            return Err(wrong(operation, format!("a condition of shape {:?}", known.shape)));
        };
        Ok(truth != 0.0)
    }

    /// Lowers a block with these arguments; what it hands back.
    fn inner(&mut self, block: &Block, arguments: Vec<Value>) -> Result<Vec<Value>> {
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

fn branch(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
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
    for _ in 0..LONGEST_LOOP {
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
    Err(Error::Operation { operation: operation.name.clone(), what: format!("more than {LONGEST_LOOP} rounds") })
}
