//! Loads and stores in the order of the kernel: a load may stand for its register in memory only until a store changes it there.
//!
//! Nothing is assumed of pointers, which may all lead to the same memory. A guard before a store compares addresses at run time, and copies what
//! the store would otherwise overwrite before its last reader has read it. Where a store cannot be looked at so, the loads that are
//! read behind it copy at once.

use super::effects::{find_changes, map_target, operands, writes_memory};
use super::lives::{Lives, Store};
use super::operand::{Address, Extents, Operand, Register, Slot, Spread, ViewKind};
use super::step::{GuardedLoad, Reader, Step, Writer};
use std::collections::{BTreeMap, HashSet};

/// Settles which loads may stand in memory and which numbers may stand for tiles, and puts guards in front of the stores that read those loads.
pub(super) fn settle(body: &mut Vec<Step>, lives: &Lives) {
    let (mut in_place, mut of_products, mut changed) = (Vec::new(), Vec::new(), HashSet::new());
    read(body, &is_read_in_place, &mut in_place);
    read(body, &|step| matches!(step, Step::Dot { .. } | Step::EndPieces { .. }), &mut of_products);
    find_changes(body, &mut changed);
    settle_numbers(body, &[&in_place[..], &of_products].concat(), &changed);
    let mut loads = BTreeMap::new();
    settle_loads(body, lives, &in_place, &mut loads);
    guard(body, lives, &mut lives.stores.iter(), &loads);
}

/// Whether registers must be where they are expected: those read while elements go to addresses known one by one, and those of steps that work on
/// whole tiles.
fn is_read_in_place(step: &Step) -> bool {
    match step {
        Step::Scatter { .. } | Step::Atomic(_) | Step::Call(_) | Step::Fold(_) => true,
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

fn settle_loads(body: &mut [Step], lives: &Lives, in_place: &[Register], loads: &mut BTreeMap<Register, Load>) {
    for step in body {
        if let Step::LoadTile { register, direct, address, extents, .. } = step {
            *direct &= !lives.may_be_overwritten(*register) && !in_place.contains(register);
            if *direct {
                loads.insert(*register, Load { size: address.size, extents: *extents });
            }
        }
        step.bodies_mut().iter_mut().for_each(|body| settle_loads(body, lives, in_place, loads));
    }
}

fn guard(
    body: &mut Vec<Step>,
    lives: &Lives,
    stores: &mut std::slice::Iter<'_, Store>,
    loads: &BTreeMap<Register, Load>,
) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| guard(body, lives, stores, loads));
        if writes_memory(&body[at])
            && let Some(store) = stores.next()
            && store.is_even
            && let Some(guard) = guard_of(&mut body[at], store.moment, lives, loads)
        {
            body.insert(at, guard);
            at += 1;
        }
        at += 1;
    }
}

/// The guard that a step needs, if it stores at this moment while it or a later one reads what may stand in memory.
fn guard_of(step: &mut Step, moment: usize, lives: &Lives, loads: &BTreeMap<Register, Load>) -> Option<Step> {
    let (address, extents, writer) = stored(step)?;
    let mut readers: BTreeMap<Register, Reader> = BTreeMap::new();
    operands(step, |operand| {
        let Operand::Register { register, view } = *operand else { return };
        let Some(load) = loads.get(&register) else { return };
        let by_element = view == ViewKind::Plain && writer != Writer::Product && load.size == address.size;
        let reader = readers.entry(register).or_insert(Reader::Element);
        if !by_element {
            *reader = Reader::Step;
        }
    });
    let is_read_later = |register: Register| lives.first[register] < moment && lives.last[register] > moment + 1;
    readers
        .extend(loads.keys().filter(|&&register| is_read_later(register)).map(|&register| (register, Reader::Later)));
    let guarded: Vec<GuardedLoad> = readers
        .into_iter()
        .map(|(register, reader)| {
            let Load { size, extents } = loads[&register];
            GuardedLoad { register, size, extents, reader }
        })
        .collect();
    (!guarded.is_empty()).then_some(Step::Guard { address, extents, writer, loads: guarded })
}

/// Where a step that stores evenly does so, and how.
fn stored(step: &mut Step) -> Option<(Address, Extents, Writer)> {
    match step {
        Step::StoreTile { address, extents, .. } => Some((*address, *extents, Writer::Copy)),
        Step::StoreScalar { address, size, .. } => {
            let address = Address { base: *address, spread: Spread::NONE, size: *size };
            Some((address, Extents::full(1, 1), Writer::Copy))
        }
        step => {
            let writer = if matches!(step, Step::Dot { .. }) { Writer::Product } else { Writer::Elements };
            let (target, extents) = map_target(step)?;
            Some((target.store?, *extents, writer))
        }
    }
}
