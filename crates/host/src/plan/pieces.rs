//! Products whose factors are packed on their own. Those that a loop adds to, where nothing else in the loop sees the sum, are multiplied when enough of
//! them have come.
//!
//! A packed factor serves the launch's later programs, too, if they read it where it was read. That what lies there has not changed is known where nothing
//! is stored before the loop or in it: what another program stores, the kernel could not wait for without an atomic operation or a loop of its own.

use super::effects::{acts_outside, operands, writes, writes_memory};
use super::operand::{Operand, Register, Target, plain};
use super::product::{Pieces, ProductKind, When};
use super::step::Step;
use crate::native::piecewise::{Elements, Size};
use std::collections::HashSet;

/// Lets products be multiplied so, and returns their sizes.
pub(super) fn gather(body: &mut Vec<Step>) -> Vec<Size> {
    let waits = any(body, &|step| matches!(step, Step::While { .. }) || acts_outside(step));
    let mut pass = Pass { sizes: Vec::new(), loaded: HashSet::new() };
    find_loads(body, &mut pass.loaded);
    pass.walk(body, !waits);
    pass.sizes
}

fn find_loads(body: &[Step], loaded: &mut HashSet<Register>) {
    for step in body {
        if let Step::LoadTile { register, .. } = step {
            loaded.insert(*register);
        }
        step.bodies().iter().for_each(|body| find_loads(body, loaded));
    }
}

struct Pass {
    sizes: Vec<Size>,
    /// Registers that memory may stand for.
    loaded: HashSet<Register>,
}

impl Pass {
    fn walk(&mut self, body: &mut Vec<Step>, mut stay: bool) {
        let mut at = 0;
        while at < body.len() {
            // A product that stores its result has read its factors before.
            self.keep_factors(&mut body[at], stay);
            stay &= !any(&body[at..=at], &writes_memory);
            let mut ends = Vec::new();
            if let Step::Loop { body, .. } = &mut body[at] {
                for step in 0..body.len() {
                    ends.extend(self.add_later(body, step, stay));
                }
            }
            body[at].bodies_mut().iter_mut().for_each(|body| self.walk(body, stay));
            at += 1;
            body.splice(at..at, ends);
        }
    }

    /// A product of a loop's body is multiplied later, if it can be; the step that ends it belongs behind the loop. A left factor that is computed is better
    /// read where it lies, unless the sum is much wider.
    fn add_later(&mut self, body: &mut [Step], at: usize, stay: bool) -> Option<Step> {
        let (target, size, elements) = product(&body[at])?;
        let is_alone = body.iter().enumerate().all(|(i, step)| i == at || !uses(step, target.register));
        let Step::Dot { x, sum, pieces, .. } = &mut body[at] else { return None };
        if *sum != plain(target.register) || target.store.is_some() || !is_alone {
            return None;
        }
        let (_, columns, depth) = size;
        let is_loaded = matches!(x, Operand::Register { register, .. } if self.loaded.contains(register));
        if columns < 2 * depth && !is_loaded {
            return None;
        }
        let made = self.add(Size::new(size, elements)?, stay, When::Later);
        *pieces = Some(made);
        Some(Step::EndPieces { product: made.product, sum: target.register })
    }

    /// A product that is multiplied at once finds what comes from memory packed, and reads what does not where it lies.
    fn keep_factors(&mut self, step: &mut Step, stay: bool) {
        let Some((_, size, elements)) = product(step) else { return };
        let (Step::Dot { pieces, .. }, Some(size)) = (step, Size::one_by_one(size, elements)) else { return };
        *pieces = Some(self.add(size, stay, When::AtOnce));
    }

    fn add(&mut self, size: Size, stay: bool, when: When) -> Pieces {
        self.sizes.push(size);
        Pieces { product: self.sizes.len() - 1, stay: stay && size.is_worth_keeping(), when }
    }
}

/// The target, rows, columns and depth of one product with sums of float32 that has no factors packed yet, and what its factors' elements are.
fn product(step: &Step) -> Option<(Target, (usize, usize, usize), Elements)> {
    match *step {
        Step::Dot { target, kind: ProductKind::Single(elements), batch: 1, depth, extents, pieces: None, .. }
            if extents.is_whole() =>
        {
            Some((target, (extents.rows.full, extents.columns.full, depth), elements))
        }
        _ => None,
    }
}

/// Whether this holds for a step, or for one within it.
fn any(body: &[Step], holds: &impl Fn(&Step) -> bool) -> bool {
    body.iter().any(|step| holds(step) || step.bodies().iter().any(|body| any(body, holds)))
}

/// Whether a step, or one within it, reads or writes a register.
fn uses(step: &Step, register: Register) -> bool {
    any(std::slice::from_ref(step), &|step| {
        let mut found = writes(step, register);
        operands(step, |operand| found |= matches!(operand, Operand::Register { register: r, .. } if *r == register));
        found
    })
}
