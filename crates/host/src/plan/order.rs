//! Loads and stores in the order of the kernel: a load may stand for its register in memory only until a store changes it there.
//!
//! Nothing is assumed of pointers, which may all lead to the same memory. Where a store comes between a load and its last reader,
//! the load copies. Where the store's own step reads the loaded tile, a guard before it compares addresses at run time, and copies
//! what that step would otherwise overwrite before it has read it.

use super::effects::{map_target, operands, slots_written};
use super::lives::Lives;
use super::operand::{Address, Extents, Operand, Register, Slot, ViewKind};
use super::step::{GuardedLoad, Step, Writer};
use std::collections::{HashMap, HashSet};

/// Settles which loads may stand in memory and which numbers may stand for tiles, and puts guards in front of the stores that read those loads.
pub(super) fn settle(body: &mut Vec<Step>, lives: &Lives) {
    let (mut in_place, mut of_products, mut changed) = (Vec::new(), Vec::new(), HashSet::new());
    read(body, &is_read_in_place, &mut in_place);
    read(body, &|step| matches!(step, Step::Dot { .. } | Step::EndPieces { .. }), &mut of_products);
    find_changes(body, &mut changed);
    settle_numbers(body, &[&in_place[..], &of_products].concat(), &changed);
    let mut loads = HashMap::new();
    settle_loads(body, lives, &in_place, &mut loads);
    guard(body, &loads);
}

/// Whether registers must be where they are expected: those read while elements go to addresses known one by one, and those of steps that work on
/// whole tiles.
fn is_read_in_place(step: &Step) -> bool {
    match step {
        Step::Scatter { .. } | Step::Call(_) | Step::Fold(_) => true,
        Step::StoreTile { address, .. } => !address.spread.is_affine(),
        _ => false,
    }
}

/// Finds the registers that steps of a kind read.
fn read(body: &[Step], is_one: &impl Fn(&Step) -> bool, registers: &mut Vec<Register>) {
    for step in body {
        if is_one(step) {
            operands(step, |operand| {
                if let Operand::Register { register, .. } = operand {
                    registers.push(*register);
                }
            });
        }
        step.bodies().iter().for_each(|body| read(body, is_one, registers));
    }
}

/// Finds the slots that a step writes.
fn find_changes(body: &[Step], changed: &mut HashSet<Slot>) {
    for step in body {
        slots_written(step, |slot| _ = changed.insert(slot));
        step.bodies().iter().for_each(|body| find_changes(body, changed));
    }
}

/// What a loop adds to begins as a number in every element, which the first addition can read where it is: nothing is filled. Not so where elements are
/// read in the register itself, where a product reads or adds to them, or where the number may change.
fn settle_numbers(body: &mut [Step], in_place: &[Register], changed: &HashSet<Slot>) {
    for step in body {
        if let Step::CopyTile { target, source: Operand::Uniform(slot), direct, .. } = step {
            *direct = target.store.is_none() && !changed.contains(slot) && !in_place.contains(&target.register);
        }
        step.bodies_mut().iter_mut().for_each(|body| settle_numbers(body, in_place, changed));
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
