//! What each step reads and writes.

use super::call::{Call, Effect, Written};
use super::operand::{Address, Extents, Operand, Places, Register, Slot, Target, plain};
use super::step::{Atomically, Rest, Step};
use std::collections::HashSet;

/// Calls `visit` with each operand that a step reads, without what the steps within it read.
pub(super) fn operands(step: &Step, mut visit: impl FnMut(&Operand)) {
    let mut parts = |address: &Address| address.spread.parts().for_each(|part| visit(&part.operand));
    match step {
        Step::LoadTile { address, rest, .. } => {
            parts(address);
            if let Rest::Other(other) = rest {
                visit(other);
            }
        }
        Step::StoreTile { value, address, .. } => {
            parts(address);
            visit(value);
        }
        Step::Offsets { sum, elements, bytes, .. } => {
            sum.spread.parts().for_each(|part| visit(&part.operand));
            elements.iter().map(|(operand, _)| operand).chain(bytes).for_each(visit);
        }
        Step::Gather { places, mask, other, .. } => {
            at(places, &mut visit);
            mask.iter().chain(other).for_each(visit);
        }
        Step::Scatter { value, places, mask, .. } | Step::Atomic(Atomically { value, places, mask, .. }) => {
            visit(value);
            at(places, &mut visit);
            mask.iter().for_each(visit);
        }
        Step::MapUnary { x, .. } => visit(x),
        Step::MapBinary { x, y, .. } => [x, y].into_iter().for_each(visit),
        Step::MapSelect { condition, x, y, .. } => [condition, x, y].into_iter().for_each(visit),
        Step::MapFused { operands, .. } => operands.iter().for_each(visit),
        Step::MapChain { operands, .. } => operands.iter().for_each(visit),
        Step::MapChoice { operands, .. } => operands.iter().for_each(visit),
        Step::SumOfPairs { operands, .. } => operands.iter().for_each(visit),
        Step::MapClip { inside, outside, .. } => [inside, outside].into_iter().for_each(visit),
        Step::Dot { x, y, sum, .. } => [x, y, sum].into_iter().for_each(visit),
        Step::CopyTile { source, .. }
        | Step::ReduceAll { source, .. }
        | Step::ReduceRows { source, .. }
        | Step::ReduceColumns { source, .. } => visit(source),
        Step::EndPieces { sum, .. } => visit(&plain(*sum)),
        Step::Call(call) => call.reads.iter().for_each(visit),
        Step::Fold(fold) => fold.parts.iter().flat_map(|part| [&part.source, &part.combined]).for_each(visit),
        _ => {}
    }
}

/// Calls `visit` with what says where elements lie.
fn at(places: &Places, mut visit: impl FnMut(&Operand)) {
    match places {
        Places::Sums(address) => address.spread.parts().for_each(|part| visit(&part.operand)),
        Places::Bytes { offsets, .. } => visit(offsets),
    }
}

/// Calls `visit` with each register that a step writes, without what the steps within it write.
pub(super) fn written(step: &Step, mut visit: impl FnMut(Register)) {
    match step {
        Step::LoadTile { register, .. } | Step::Gather { register, .. } => visit(*register),
        Step::EndPieces { sum, .. } => visit(*sum),
        Step::Atomic(atomic) => atomic.old.into_iter().for_each(visit),
        Step::Call(call) => call.writes.iter().filter_map(tile).for_each(visit),
        Step::Fold(fold) => {
            for part in &fold.parts {
                [part.work, part.left, part.right].into_iter().chain(tile(&part.result)).for_each(&mut visit);
            }
        }
        step => step.target().map(|target| target.register).into_iter().for_each(visit),
    }
}

/// The register of a result that is a tile.
pub(super) fn tile(written: &Written) -> Option<Register> {
    if let Written::Tile(target, _) = written { Some(target.register) } else { None }
}

fn number(written: &Written) -> Option<Slot> {
    if let Written::Number(slot, _) = written { Some(*slot) } else { None }
}

/// Whether a step writes this register.
pub(super) fn writes(step: &Step, register: Register) -> bool {
    let mut found = false;
    written(step, |other| found |= other == register);
    found
}

/// Calls `visit` with each slot that a step writes, without what the steps within it write.
pub(super) fn slots_written(step: &Step, mut visit: impl FnMut(Slot)) {
    match step {
        Step::Index { destination, .. }
        | Step::Place { destination, .. }
        | Step::Unary { destination, .. }
        | Step::Binary { destination, .. }
        | Step::Select { destination, .. }
        | Step::Copy { destination, .. }
        | Step::LoadScalar { destination, .. }
        | Step::ReduceAll { destination, .. }
        | Step::SumOfPairs { destination, .. } => visit(*destination),
        Step::Loop { index, .. } => visit(*index),
        Step::Call(call) => call.writes.iter().filter_map(number).for_each(visit),
        Step::Fold(fold) => {
            visit(fold.pairs);
            fold.parts.iter().filter_map(|part| number(&part.result)).for_each(visit);
        }
        _ => {}
    }
}

/// Calls `visit` with each slot that a step reads whose operands and addresses are known by slots, without what the steps within it read.
pub(super) fn slots_read(step: &Step, mut visit: impl FnMut(Slot)) {
    operands(step, |operand| {
        if let Operand::Uniform(slot) = operand {
            visit(*slot);
        }
    });
    let mut address = |address: &Address| {
        visit(address.base);
        [address.spread.row_stride, address.spread.column_stride].into_iter().flatten().for_each(&mut visit);
    };
    match step {
        Step::LoadTile { address: from, .. } => address(from),
        Step::StoreTile { address: to, .. } => address(to),
        step => step.target().and_then(|target| target.store.as_ref()).into_iter().for_each(address),
    }
    let clips = |extents: &Extents| [extents.rows.clip, extents.columns.clip].into_iter().flatten();
    match step {
        Step::Index { x, y, .. } => [*x, *y].into_iter().for_each(visit),
        Step::Place { base, offset, .. } => [*base, *offset].into_iter().for_each(visit),
        Step::Unary { x, .. } => visit(*x),
        Step::Binary { x, y, .. } => [*x, *y].into_iter().for_each(visit),
        Step::Select { condition, x, y, .. } => [*condition, *x, *y].into_iter().for_each(visit),
        Step::Copy { source, .. } => visit(*source),
        Step::LoadScalar { address, mask, other, .. } => {
            [Some(*address), *mask, *other].into_iter().flatten().for_each(visit);
        }
        Step::StoreScalar { address, value, mask, .. } => {
            [Some(*address), Some(*value), *mask].into_iter().flatten().for_each(visit);
        }
        Step::LoadTile { extents, .. }
        | Step::StoreTile { extents, .. }
        | Step::MapUnary { extents, .. }
        | Step::MapBinary { extents, .. }
        | Step::MapSelect { extents, .. }
        | Step::MapFused { extents, .. }
        | Step::CopyTile { extents, .. }
        | Step::ReduceAll { extents, .. }
        | Step::SumOfPairs { extents, .. } => clips(extents).for_each(visit),
        _ => {}
    }
}

/// Finds the slots that steps write, and those within them.
pub(super) fn find_changes(body: &[Step], changed: &mut HashSet<Slot>) {
    for step in body {
        slots_written(step, |slot| _ = changed.insert(slot));
        step.bodies().iter().for_each(|body| find_changes(body, changed));
    }
}

/// Whether a step does what others see while it runs.
pub(super) fn acts_outside(step: &Step) -> bool {
    matches!(step, Step::Atomic(_) | Step::Call(Call { effect: Effect::Outside, .. }))
}

/// Whether a step of a body, or one within it, does what others see while it runs.
pub(super) fn changes_outside(body: &[Step]) -> bool {
    body.iter().any(|step| acts_outside(step) || step.bodies().iter().any(|body| changes_outside(body)))
}

/// Target and extents of a step that may write anywhere: element by element, or a product.
pub(super) fn map_target(step: &mut Step) -> Option<(&mut Target, &mut Extents)> {
    match step {
        Step::MapUnary { target, extents, .. }
        | Step::MapBinary { target, extents, .. }
        | Step::MapSelect { target, extents, .. }
        | Step::MapFused { target, extents, .. }
        | Step::MapChain { target, extents, .. }
        | Step::MapChoice { target, extents, .. }
        | Step::MapClip { target, extents, .. }
        | Step::Dot { target, extents, .. }
        | Step::Offsets { target, extents, .. }
        | Step::CountUp { target, extents, .. } => Some((target, extents)),
        _ => None,
    }
}

/// The target of a step that may write anywhere.
fn target(step: &Step) -> Option<&Target> {
    match step {
        Step::MaskTile { .. } | Step::CopyTile { .. } | Step::ReduceRows { .. } | Step::ReduceColumns { .. } => None,
        step => step.target(),
    }
}

/// Whether a step is through with an element of its operands when it writes that element.
pub(super) fn goes_element_by_element(step: &Step) -> bool {
    target(step).is_some() && !matches!(step, Step::Dot { .. })
}

/// Whether nothing but registers is changed by a step.
pub(super) fn only_computes(step: &Step) -> bool {
    let is_tile = match step {
        Step::LoadTile { .. } | Step::Gather { .. } | Step::MaskTile { .. } => true,
        Step::Call(call) => {
            let tiles = !call.writes.is_empty() && call.writes.iter().all(|written| tile(written).is_some());
            tiles && call.effect == Effect::Nothing
        }
        step => target(step).is_some(),
    };
    is_tile && !writes_memory(step)
}

/// Whether a step stores to device memory.
pub(super) fn writes_memory(step: &Step) -> bool {
    match step {
        Step::StoreTile { .. } | Step::Scatter { .. } | Step::StoreScalar { .. } | Step::Atomic(_) => true,
        Step::Call(call) => call.effect == Effect::Outside,
        step => target(step).is_some_and(|target| target.store.is_some()),
    }
}

/// Whether a step that stores does so to rows and columns with strides.
pub(super) fn stores_evenly(step: &Step) -> bool {
    match step {
        Step::StoreTile { address, .. } => address.spread.is_affine(),
        Step::StoreScalar { .. } => true,
        step => target(step).is_some_and(|target| target.store.is_some_and(|address| address.spread.is_affine())),
    }
}
