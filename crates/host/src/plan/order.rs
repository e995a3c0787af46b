//! Loads and stores in the order of the kernel: a load may stand for its register in memory only until a store changes it there.
//!
//! Nothing is assumed of pointers, which may all lead to the same memory. Where a store comes between a load and its last reader,
//! the load copies. Where the store's own step reads the loaded tile, a guard before it compares addresses at run time, and copies
//! what that step would otherwise overwrite before it has read it.

use super::effects::{map_target, operands};
use super::lives::Lives;
use super::operand::{Address, Extents, Operand, Register, ViewKind};
use super::step::{GuardedLoad, Step, Writer};
use std::collections::HashMap;

/// Settles which loads may stand in memory, and puts guards in front of the stores that read them.
pub(super) fn settle(body: &mut Vec<Step>, lives: &Lives) {
    let mut in_place = Vec::new();
    read_in_place(body, &mut in_place);
    let mut loads = HashMap::new();
    settle_loads(body, lives, &in_place, &mut loads);
    guard(body, &loads);
}

/// Registers that must be where they are expected: those read while elements go to addresses known one by one, and those of steps that
/// work on whole tiles.
fn read_in_place(body: &[Step], registers: &mut Vec<Register>) {
    for step in body {
        let is_one = match step {
            Step::Scatter { .. } | Step::Call(_) | Step::Fold(_) => true,
            Step::StoreTile { address, .. } => !address.spread.is_affine(),
            _ => false,
        };
        if is_one {
            operands(step, |operand| {
                if let Operand::Register { register, .. } = operand {
                    registers.push(*register);
                }
            });
        }
        step.bodies().iter().for_each(|body| read_in_place(body, registers));
    }
}

/// A load that may stand in memory.
#[derive(Clone, Copy)]
struct Load {
    size: usize,
    extents: Extents,
}

fn settle_loads(body: &mut [Step], lives: &Lives, in_place: &[Register], loads: &mut HashMap<Register, Load>) {
    for step in body {
        if let Step::LoadTile { register, direct, address, extents, .. } = step {
            let (first, last) = (lives.first[*register], lives.last[*register]);
            let overwritten = lives.stores.iter().any(|&store| store > first && store + 1 < last);
            *direct &= !overwritten && !in_place.contains(register);
            if *direct {
                loads.insert(*register, Load { size: address.size, extents: *extents });
            }
        }
        step.bodies_mut().iter_mut().for_each(|body| settle_loads(body, lives, in_place, loads));
    }
}

fn guard(body: &mut Vec<Step>, loads: &HashMap<Register, Load>) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| guard(body, loads));
        if let Some(guard) = guard_of(&mut body[at], loads) {
            body.insert(at, guard);
            at += 1;
        }
        at += 1;
    }
}

/// The guard that a step needs, if it stores while it reads what may stand in memory.
fn guard_of(step: &mut Step, loads: &HashMap<Register, Load>) -> Option<Step> {
    let (address, extents, writer) = stored(step)?;
    let mut guarded: Vec<GuardedLoad> = Vec::new();
    operands(step, |operand| {
        let Operand::Register { register, view } = *operand else { return };
        let Some(load) = loads.get(&register) else { return };
        let in_place = view == ViewKind::Plain && writer != Writer::Product && load.size == address.size;
        match guarded.iter_mut().find(|guarded| guarded.register == register) {
            Some(guarded) => guarded.in_place &= in_place,
            None => guarded.push(GuardedLoad { register, size: load.size, extents: load.extents, in_place }),
        }
    });
    (!guarded.is_empty()).then_some(Step::Guard { address, extents, writer, loads: guarded })
}

/// Where a step stores, and how.
fn stored(step: &mut Step) -> Option<(Address, Extents, Writer)> {
    match step {
        Step::StoreTile { address, extents, .. } if address.spread.is_affine() => {
            Some((*address, *extents, Writer::Copy))
        }
        step => {
            let writer = if matches!(step, Step::Dot { .. }) { Writer::Product } else { Writer::Elements };
            let (target, extents) = map_target(step)?;
            Some((target.store?, *extents, writer))
        }
    }
}
