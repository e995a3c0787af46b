//! What both branches of a condition hand on to a store they store themselves, where they compute it: nothing is copied, and what the store leaves out
//! need not be there.

use super::effects::find_changes;
use super::operand::{Address, Extents, Operand, Register, Slot, ViewKind};
use super::step::Step;
use std::collections::HashSet;

/// Moves stores behind the conditions of a body, whose registers are read so often, into their branches.
pub(super) fn store(body: &mut Vec<Step>, reads: &[usize]) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| store(body, reads));
        while let Some(moved) = movable(body, at, reads) {
            let Step::StoreTile { address, extents, .. } = body.remove(moved.store) else { continue };
            // Arithmetic on addresses goes in front of the condition.
            body[at..moved.store].rotate_left(1);
            at = moved.store - 1;
            let Step::If { bodies, .. } = &mut body[at] else { continue };
            bodies.iter_mut().for_each(|branch| store_in(branch, moved.register, address, extents));
        }
        at += 1;
    }
}

/// A store, and the register that branches hand on to it.
struct Moved {
    store: usize,
    register: Register,
}

/// The next store behind the condition at this place that its branches can do.
fn movable(body: &[Step], at: usize, reads: &[usize]) -> Option<Moved> {
    let Step::If { bodies, .. } = &body[at] else { return None };
    let is_arithmetic = |step: &Step| matches!(step, Step::Index { .. } | Step::Place { .. });
    let store = (at + 1..body.len()).find(|&i| !is_arithmetic(&body[i]))?;
    let Step::StoreTile { value: Operand::Register { register, view: ViewKind::Plain }, address, extents } =
        &body[store]
    else {
        return None;
    };
    let mut changed = HashSet::new();
    bodies.iter().for_each(|branch| find_changes(branch, &mut changed));
    let spread = &address.spread;
    let clips = [extents.rows.clip, extents.columns.clip];
    let mut read: Vec<Slot> = [spread.row_stride, spread.column_stride].into_iter().chain(clips).flatten().collect();
    read.push(address.base);
    for step in &body[at + 1..store] {
        match step {
            Step::Index { x, y, .. } => read.extend([x, y]),
            Step::Place { base, offset, .. } => read.extend([base, offset]),
            _ => {}
        }
    }
    let is_known = spread.is_affine() && read.iter().all(|slot| !changed.contains(slot));
    let hands_on = |branch: &Vec<Step>| branch.iter().any(|step| copied(step, *register).is_some());
    (is_known && reads[*register] == 1 && bodies.iter().all(hands_on)).then_some(Moved { store, register: *register })
}

/// What a step copies to a register.
fn copied(step: &Step, register: Register) -> Option<Operand> {
    match step {
        Step::CopyTile { target, source, .. } if target.register == register => Some(*source),
        _ => None,
    }
}

/// Stores what a branch copied to a register.
fn store_in(branch: &mut Vec<Step>, register: Register, address: Address, extents: Extents) {
    let copy = branch.iter().rposition(|step| copied(step, register).is_some());
    if let Some(value) = copy.and_then(|at| copied(&branch.remove(at), register)) {
        branch.push(Step::StoreTile { value, address, extents });
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::tests::{ADD_UNDER_LOCKS, planned};
    use super::*;
    use crate::plan::row::Row;

    /// The branches of the only condition of a body.
    fn branches(body: &[Step]) -> &[Vec<Step>; 2] {
        let mut conditions = body.iter().filter_map(|step| match step {
            Step::If { bodies, .. } => Some(bodies),
            _ => None,
        });
        conditions.next().expect("a condition")
    }

    #[test]
    fn branches_store_where_they_compute() {
        let program = planned(ADD_UNDER_LOCKS);
        let [first, second] = branches(&program.body);
        let copies = |step: &Step| matches!(step, Step::CopyTile { .. });
        let stores = |step: &Step| matches!(step, Step::StoreTile { .. });
        assert!(first.iter().any(stores) && !first.iter().any(copies), "{first:?}");
        let computes = |step: &Step| matches!(step, Step::Row(Row { store: Some(_), .. }));
        assert!(second.iter().any(computes) && !second.iter().any(stores), "{second:?}");
        assert!(!program.body.iter().any(|step| stores(step) || copies(step)), "{program:?}");
    }

    #[test]
    fn a_store_to_where_a_branch_decides_stays_behind() {
        let text = ADD_UNDER_LOCKS
            .replace("%added = scf.if %is_first -> (tensor<128xf32>)", "%added, %by = scf.if %is_first -> (tensor<128xf32>, i32)")
            .replace("scf.yield %doubled : tensor<128xf32>", "scf.yield %doubled, %c0 : tensor<128xf32>, i32")
            .replace("scf.yield %both : tensor<128xf32>", "scf.yield %both, %c1 : tensor<128xf32>, i32")
            .replace("tt.store %to, %added", "%there = tt.splat %by : i32 -> tensor<128xi32>\n    %moved = tt.addptr %to, %there : tensor<128x!tt.ptr<f32>>, tensor<128xi32>\n    tt.store %moved, %added");
        let program = planned(&text);
        assert!(program.body.iter().any(|step| matches!(step, Step::StoreTile { .. })), "{program:?}");
    }
}
