//! What each step reads and writes.

use super::step::{Extents, Operand, Register, Rest, Step, Target};

/// Calls `visit` with each operand that a step reads.
pub(super) fn operands(step: &Step, mut visit: impl FnMut(&Operand)) {
    match step {
        Step::LoadTile { rest: Rest::Other(other), .. } => visit(other),
        Step::StoreTile { value, .. } => visit(value),
        Step::Gather { offsets, mask, other, .. } => {
            visit(offsets);
            mask.iter().chain(other).for_each(visit);
        }
        Step::Scatter { value, offsets, mask, .. } => {
            visit(value);
            visit(offsets);
            mask.iter().for_each(visit);
        }
        Step::MapUnary { x, .. } => visit(x),
        Step::MapBinary { x, y, .. } => [x, y].into_iter().for_each(visit),
        Step::MapSelect { condition, x, y, .. } => [condition, x, y].into_iter().for_each(visit),
        Step::MapClip { inside, outside, .. } => [inside, outside].into_iter().for_each(visit),
        Step::Dot { x, y, sum, .. } => [x, y, sum].into_iter().for_each(visit),
        Step::CopyTile { source, .. }
        | Step::ReduceAll { source, .. }
        | Step::ReduceRows { source, .. }
        | Step::ReduceColumns { source, .. } => visit(source),
        _ => {}
    }
}

/// The register that a step writes.
pub(super) fn written(step: &Step) -> Option<Register> {
    match step {
        Step::LoadTile { register, .. } | Step::Gather { register, .. } => Some(*register),
        Step::CountUp { target, .. }
        | Step::MaskTile { target, .. }
        | Step::MapUnary { target, .. }
        | Step::MapBinary { target, .. }
        | Step::MapSelect { target, .. }
        | Step::MapClip { target, .. }
        | Step::Dot { target, .. }
        | Step::CopyTile { target, .. }
        | Step::ReduceRows { target, .. }
        | Step::ReduceColumns { target, .. } => Some(target.register),
        _ => None,
    }
}

/// Target and extents of a step that may write anywhere: element by element, or a product.
pub(super) fn map_target(step: &mut Step) -> Option<(&mut Target, &mut Extents)> {
    match step {
        Step::MapUnary { target, extents, .. }
        | Step::MapBinary { target, extents, .. }
        | Step::MapSelect { target, extents, .. }
        | Step::MapClip { target, extents, .. }
        | Step::Dot { target, extents, .. }
        | Step::CountUp { target, extents, .. } => Some((target, extents)),
        _ => None,
    }
}

/// Whether nothing but a register is changed by a step.
pub(super) fn only_computes(step: &Step) -> bool {
    let is_tile = matches!(
        step,
        Step::LoadTile { .. }
            | Step::Gather { .. }
            | Step::MaskTile { .. }
            | Step::CountUp { .. }
            | Step::MapUnary { .. }
            | Step::MapBinary { .. }
            | Step::MapSelect { .. }
            | Step::MapClip { .. }
            | Step::Dot { .. }
    );
    is_tile && !writes_memory(step)
}

/// Whether a step touches device memory.
pub(super) fn touches_memory(step: &Step) -> bool {
    match step {
        Step::LoadTile { .. }
        | Step::StoreTile { .. }
        | Step::Gather { .. }
        | Step::Scatter { .. }
        | Step::LoadScalar { .. }
        | Step::StoreScalar { .. }
        | Step::Loop { .. } => true,
        other => writes_memory(other),
    }
}

/// Whether a step stores to device memory.
pub(super) fn writes_memory(step: &Step) -> bool {
    match step {
        Step::StoreTile { .. } | Step::Scatter { .. } | Step::StoreScalar { .. } => true,
        Step::MapUnary { target, .. }
        | Step::MapBinary { target, .. }
        | Step::MapSelect { target, .. }
        | Step::MapClip { target, .. }
        | Step::Dot { target, .. }
        | Step::CountUp { target, .. } => target.store.is_some(),
        _ => false,
    }
}
