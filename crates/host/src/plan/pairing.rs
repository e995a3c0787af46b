//! Operations become one step, which reads and writes the first-level cache once: an addition, subtraction or multiplication of float32 whose result only
//! another one reads, two such pairs, and a difference of which only the squares are summed.

use super::effects::{operands, slots_written, writes, writes_memory};
use super::operand::{Operand, Register, Target, ViewKind, plain};
use super::step::Step;
use crate::vector::chain::chain;
use crate::vector::pair::{Arithmetic, Pair, Side, pair};
use crate::vector::sum_of_pairs;

/// Joins the steps of a body, whose registers are read so often.
pub(super) fn join(body: &mut Vec<Step>, reads: &[usize]) {
    // Pairs first: a chain is two of them.
    join_by(body, reads, joined);
    join_by(body, reads, chained);
}

/// What two steps become, of which the second alone reads what the first makes.
type Join = fn(&Step, &Step) -> Option<Step>;

fn join_by(body: &mut Vec<Step>, reads: &[usize], join: Join) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| join_by(body, reads, join));
        match with_operand(body, at, reads, join) {
            Some((first, step)) => {
                body[at] = step;
                body.remove(first);
            }
            None => at += 1,
        }
    }
}

/// A step that makes an operand of this one and may be done as late as this, and what both become.
fn with_operand(body: &[Step], at: usize, reads: &[usize], join: Join) -> Option<(usize, Step)> {
    let (Step::MapBinary { arithmetic: Some(_), .. } | Step::MapFused { pair: Some(_), .. } | Step::SumOfPairs { .. }) =
        &body[at]
    else {
        return None;
    };
    let mut read: Vec<Register> = Vec::new();
    operands(&body[at], |operand| {
        if let Operand::Register { register, view: ViewKind::Plain } = *operand {
            read.push(register);
        }
    });
    read.iter().find_map(|&register| {
        if reads[register] != read.iter().filter(|&&other| other == register).count() {
            return None;
        }
        let first = (0..at).rev().find(|&i| writes(&body[i], register))?;
        let step = join(&body[first], &body[at])?;
        let between = &body[first + 1..at];
        (!between.iter().any(|step| changes_operands(step, &body[first]))).then_some((first, step))
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

/// Two operations, or a difference and the sum of its squares.
fn joined(first: &Step, second: &Step) -> Option<Step> {
    let Step::MapBinary { arithmetic: Some(inner), target, x, y, extents: within, .. } = first else { return None };
    let made = made_in_register(target)?;
    match second {
        Step::MapBinary { arithmetic: Some(outer), target, x: left, y: right, extents, .. } if within == extents => {
            let (side, z) = if *left == made { (Side::Left, right) } else { (Side::Right, left) };
            let of = Pair { first: *inner, second: *outer, side };
            let (function, operands) = (pair(of), [*x, *y, *z]);
            let step = Step::MapFused { function, pair: Some(of), target: *target, operands, extents: *extents };
            (*z != made).then_some(step)
        }
        Step::SumOfPairs { destination, operands, extents, .. }
            if *inner == Arithmetic::Subtract && *operands == [made; 2] && within == extents =>
        {
            let (function, destination, operands) = (sum_of_pairs::sum_of_squares(), *destination, [*x, *y]);
            Some(Step::SumOfPairs { function, destination, operands, extents: *extents })
        }
        _ => None,
    }
}

/// Two pairs, where there is a function for them.
fn chained(first: &Step, second: &Step) -> Option<Step> {
    let Step::MapFused { pair: Some(inner), target, operands: [x, y, z], extents: within, .. } = first else {
        return None;
    };
    let made = made_in_register(target)?;
    let Step::MapFused { pair: Some(outer), target, operands, extents, .. } = second else { return None };
    let (place, u, v) = match *operands {
        [of, u, v] if of == made => (Side::Left, u, v),
        [u, of, v] if of == made => (Side::Right, u, v),
        _ => return None,
    };
    let is_one = u != made && v != made && within == extents;
    let function = chain(*inner, *outer, place).filter(|_| is_one)?;
    Some(Step::MapChain { function, target: *target, operands: [*x, *y, *z, u, v], extents: *extents })
}

/// What a step makes, where it does not store it.
fn made_in_register(target: &Target) -> Option<Operand> {
    target.store.is_none().then(|| plain(target.register))
}
