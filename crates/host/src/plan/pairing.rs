//! Two operations become one step, which reads and writes the first-level cache once: an addition, subtraction or multiplication of float32 whose result
//! only another one reads.

use super::effects::{operands, slots_written, writes, writes_memory};
use super::operand::{Operand, plain};
use super::step::Step;
use crate::vector::pair::{Side, pair};

/// Joins the pairs of a body, whose registers are read so often.
pub(super) fn join(body: &mut Vec<Step>, reads: &[usize]) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| join(body, reads));
        match first_of(body, at, reads).and_then(|first| Some((first, joined(&body[first], &body[at])?))) {
            Some((first, step)) => {
                body[at] = step;
                body.remove(first);
            }
            None => at += 1,
        }
    }
}

/// The step that makes an operand of this one, where it may be done as late as this.
fn first_of(body: &[Step], at: usize, reads: &[usize]) -> Option<usize> {
    let Step::MapBinary { arithmetic: Some(_), x, y, .. } = &body[at] else { return None };
    [x, y].into_iter().find_map(|operand| {
        let Operand::Register { register, .. } = *operand else { return None };
        if reads[register] != 1 || *operand != plain(register) {
            return None;
        }
        let first = (0..at).rev().find(|&i| writes(&body[i], register))?;
        let between = &body[first + 1..at];
        (!between.iter().any(|step| changes_operands(step, &body[first]))).then_some(first)
    })
}

/// Whether a step changes what another one reads.
fn changes_operands(step: &Step, of: &Step) -> bool {
    let mut changes = writes_memory(step) || !step.bodies().is_empty();
    operands(of, |operand| match *operand {
        Operand::Register { register, .. } => changes |= writes(step, register),
        Operand::Uniform(slot) => slots_written(step, |written| changes |= written == slot),
    });
    changes
}

/// Both as one.
fn joined(first: &Step, second: &Step) -> Option<Step> {
    let Step::MapBinary { arithmetic: Some(inner), target: made, x, y, extents: within, .. } = first else {
        return None;
    };
    let Step::MapBinary { arithmetic: Some(outer), target, x: left, y: right, extents, .. } = second else {
        return None;
    };
    if made.store.is_some() || within != extents {
        return None;
    }
    let (side, z) = if *left == plain(made.register) { (Side::Left, right) } else { (Side::Right, left) };
    let function = pair(*inner, *outer, side);
    Some(Step::MapFused { function, target: *target, operands: [*x, *y, *z], extents: *extents })
}
