//! After lowering: stores join the step that computes what they store, and registers share scratch memory when their lives do
//! not overlap.

use super::effects::{map_target, only_computes, operands, stores_evenly, writes, writes_memory, written};
use super::lives::Lives;
use super::operand::{Address, Extents, Operand, Register, Slot, ViewKind, plain};
use super::step::Step;
use super::{branches, narrow, order, pairing, pass, pieces, shorten};
use crate::native::piecewise::Size;

/// What a program needs beside its steps.
pub(super) struct Assigned {
    /// Byte offset of each register in the scratch memory.
    pub offsets: Vec<usize>,
    pub scratch_bytes: usize,
    /// Products whose factors are packed on their own.
    pub products: Vec<Size>,
}

/// Finishes the steps: where registers are, and which products have their factors packed. `one` is the slot that always holds 1.
pub(super) fn assign(body: &mut Vec<Step>, sizes: &[usize], slots: usize, one: Option<Slot>) -> Assigned {
    let (mut sizes, mut reads) = (sizes.to_vec(), count_reads(body, sizes.len()));
    drop_unread(body, &mut reads);
    branches::store(body, &reads);
    forward_stores(body, &reads);
    narrow::narrow(body, sizes.len(), slots);
    clip_in_place(body, &reads);
    pass::copy_loads(body, &mut sizes, &mut reads);
    pass::gather(body, one, &reads);
    pairing::join(body, &reads);
    retarget_carried(body, &reads);
    let products = pieces::gather(body);
    let mut lives = Lives::new(sizes.len());
    lives.walk(body);
    order::settle(body, &lives);
    let (offsets, scratch_bytes) = place(&lives, &sizes);
    shorten::shorten(body, one);
    pass::check(body);
    Assigned { offsets, scratch_bytes, products }
}

/// Removes steps whose result nobody reads, from the last to the first: what they read may then be unread too.
fn drop_unread(body: &mut Vec<Step>, reads: &mut [usize]) {
    for at in (0..body.len()).rev() {
        body[at].bodies_mut().iter_mut().rev().for_each(|body| drop_unread(body, reads));
        let mut is_read = false;
        written(&body[at], |register| is_read |= reads[register] > 0);
        if only_computes(&body[at]) && !is_read {
            operands(&body.remove(at), |operand| {
                if let Operand::Register { register, .. } = operand {
                    reads[*register] -= 1;
                }
            });
        }
    }
}

fn count_reads(body: &[Step], registers: usize) -> Vec<usize> {
    fn walk(body: &[Step], reads: &mut [usize]) {
        for step in body {
            operands(step, |operand| {
                if let Operand::Register { register, .. } = operand {
                    reads[*register] += 1;
                }
            });
            step.bodies().iter().for_each(|body| walk(body, reads));
        }
    }
    let mut reads = vec![0; registers];
    walk(body, &mut reads);
    reads
}

/// Moves a computation down to the store that alone uses it, and lets it write to memory itself.
fn forward_stores(body: &mut Vec<Step>, reads: &[usize]) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| forward_stores(body, reads));
        if let Some((producer, address, extents)) = forwardable(body, at, reads) {
            let mut step = body.remove(producer);
            if let Some((target, step_extents)) = map_target(&mut step) {
                target.store = Some(address);
                *step_extents = extents;
            }
            // The producer's removal moved the store one place down.
            body[at - 1] = step;
        } else {
            at += 1;
        }
    }
}

/// Whether a computation may be done behind a step instead: what it reads in memory is looked at before each store that is even, and must not be read
/// behind others, which may release a lock.
fn may_be_passed(step: &Step) -> bool {
    step.bodies().is_empty() && (!writes_memory(step) || stores_evenly(step))
}

fn forwardable(body: &mut [Step], at: usize, reads: &[usize]) -> Option<(usize, Address, Extents)> {
    let Step::StoreTile { value: Operand::Register { register, view: ViewKind::Plain }, address, extents } = body[at]
    else {
        return None;
    };
    let producer = (0..at).rev().find(|&i| writes(&body[i], register))?;
    let quiet = body[producer + 1..at].iter().all(may_be_passed);
    let (target, _) = map_target(&mut body[producer])?;
    let fits = target.store.is_none() && target.size == address.size && address.spread.is_affine();
    (quiet && fits && reads[register] == 1).then_some((producer, address, extents))
}

/// Lets the step that computes what a clip keeps write it where the clip does, so that only the rest has to be filled: nothing, where a mask holds everywhere.
/// A clip of which nobody reads the rest goes.
fn clip_in_place(body: &mut Vec<Step>, reads: &[usize]) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| clip_in_place(body, reads));
        if let Some((producer, register)) = clipped(body, at, reads) {
            if let Some((target, _)) = map_target(&mut body[producer]) {
                target.register = register;
            }
            if let Step::MapClip { inside, clip, extents, .. } = &mut body[at] {
                *inside = plain(register);
                if clip == extents {
                    body.remove(at);
                    continue;
                }
            }
        }
        at += 1;
    }
}

/// The step that computes what a clip keeps, if only the clip reads it, and the register of the result.
fn clipped(body: &mut [Step], at: usize, reads: &[usize]) -> Option<(usize, Register)> {
    let Step::MapClip { target, inside: Operand::Register { register, view: ViewKind::Plain }, outside, .. } = body[at]
    else {
        return None;
    };
    let producer = (0..at).rev().find(|&i| writes(&body[i], register))?;
    let (made, _) = map_target(&mut body[producer])?;
    let is_alone = reads[register] == 1 && made.store.is_none() && target.store.is_none() && made.size == target.size;
    // What is filled in is read behind what is kept.
    (is_alone && outside != plain(register)).then_some((producer, target.register))
}

/// Lets the step that computes a loop's next carried tile, or a branch's result, write it in place, so that the copy at the body's end goes.
fn retarget_carried(body: &mut [Step], reads: &[usize]) {
    for step in body {
        step.bodies_mut().iter_mut().for_each(|body| retarget_carried(body, reads));
        let (Step::Loop { .. } | Step::If { .. } | Step::While { .. } | Step::Pass { .. }) = step else { continue };
        step.bodies_mut().iter_mut().for_each(|body| retarget(body, reads));
    }
}

fn retarget(body: &mut Vec<Step>, reads: &[usize]) {
    let mut at = body.len();
    while at > 0 {
        at -= 1;
        if let Some(producer) = retargetable(body, at, reads) {
            let Step::CopyTile { target: carried, .. } = body[at] else { continue };
            if let Some((target, _)) = map_target(&mut body[producer]) {
                target.register = carried.register;
            }
            body.remove(at);
        }
    }
}

fn retargetable(body: &mut [Step], at: usize, reads: &[usize]) -> Option<usize> {
    let Step::CopyTile {
        target: carried, source: Operand::Register { register, view: ViewKind::Plain }, extents, ..
    } = body[at]
    else {
        return None;
    };
    let producer = (0..at).rev().find(|&i| writes(&body[i], register))?;
    let mut in_place = true;
    operands(&body[producer], |operand| {
        if let Operand::Register { register, view } = operand {
            in_place &= *register != carried.register || *view == ViewKind::Plain;
        }
    });
    if let Step::Dot { x, y, .. } = &body[producer] {
        // Every element of the result needs whole rows and columns of the factors.
        let carried =
            |operand: &Operand| matches!(operand, Operand::Register { register, .. } if *register == carried.register);
        in_place &= !carried(x) && !carried(y);
    }
    for step in &body[producer + 1..] {
        in_place &= step.bodies().is_empty();
        operands(step, |operand| {
            in_place &= !matches!(operand, Operand::Register { register, .. } if *register == carried.register);
        });
    }
    let (_, produced) = map_target(&mut body[producer])?;
    (in_place && *produced == extents && reads[register] == 1).then_some(producer)
}

/// Gives each register a place such that registers alive at the same moment do not overlap: the lowest that there is.
fn place(lives: &Lives, sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut order: Vec<Register> = (0..sizes.len()).filter(|&r| lives.first[r] != usize::MAX).collect();
    order.sort_by_key(|&register| lives.first[register]);
    let bytes: Vec<usize> = sizes.iter().map(|size| size.next_multiple_of(64)).collect();
    let mut offsets = vec![0; sizes.len()];
    let mut total = 0;
    for (rank, &register) in order.iter().enumerate() {
        // What is in use when the register is written, or read by the very step that writes it.
        let near = || order[..rank].iter().copied().filter(|&other| lives.last[other] + 1 >= lives.first[register]);
        let fits = |&offset: &usize| {
            near().all(|other| {
                offset + bytes[register] <= offsets[other]
                    || offsets[other] + bytes[other] <= offset
                    || offset == offsets[other] && may_be_in_place(lives, sizes, other, register)
            })
        };
        let begins_and_ends = near().flat_map(|other| [offsets[other], offsets[other] + bytes[other]]);
        let offset = begins_and_ends.chain([0]).filter(fits).min().unwrap_or(total);
        offsets[register] = offset;
        total = total.max(offset + bytes[register]);
    }
    (offsets, total)
}

/// Whether `later` may be written where `earlier` is read: by a step that is through with it element by element, in tiles of one size.
/// Anywhere but at the very same place it would overwrite what is still to be read.
fn may_be_in_place(lives: &Lives, sizes: &[usize], earlier: Register, later: Register) -> bool {
    lives.last[earlier] < lives.first[later] && sizes[earlier] == sizes[later]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_is_written_over_the_one_that_it_is_made_of_only_at_the_very_same_place() {
        let mut lives = Lives::new(4);
        // The first stays in use. The second is free when the fourth is made, element by element, of the third, which lies behind both.
        (lives.first, lives.last) = (vec![1, 1, 3, 9], vec![20, 5, 8, 20]);
        let (offsets, total) = place(&lives, &[64, 64, 192, 192]);
        assert_eq!(
            (offsets, total),
            (vec![0, 64, 128, 128], 320),
            "64 is free, but would overwrite the third before it is read"
        );
        let (offsets, _) = place(&lives, &[64, 64, 192, 128]);
        assert_eq!(offsets, [0, 64, 128, 320], "of another size");
    }
}
