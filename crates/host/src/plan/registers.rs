//! After lowering: stores join the step that computes what they store, and registers share scratch memory when their lives do
//! not overlap.

use super::step::{Address, Extents, Operand, Register, Rest, Step, Target, ViewKind};
use super::{narrow, order};

/// Finishes the steps and returns each register's offset in the scratch memory, and the memory's size.
pub(super) fn assign(body: &mut Vec<Step>, sizes: &[usize], slots: usize) -> (Vec<usize>, usize) {
    let reads = count_reads(body, sizes.len());
    forward_stores(body, &reads);
    narrow::narrow(body, sizes.len(), slots);
    retarget_carried(body, &reads);
    let mut lives = Lives::new(sizes.len());
    lives.walk(body);
    order::settle(body, &lives);
    place(&lives, sizes)
}

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

/// Whether a step touches device memory.
fn touches_memory(step: &Step) -> bool {
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
fn writes_memory(step: &Step) -> bool {
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

fn count_reads(body: &[Step], registers: usize) -> Vec<usize> {
    fn walk(body: &[Step], reads: &mut [usize]) {
        for step in body {
            operands(step, |operand| {
                if let Operand::Register { register, .. } = operand {
                    reads[*register] += 1;
                }
            });
            if let Step::Loop { body, .. } = step {
                walk(body, reads);
            }
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
        if let Step::Loop { body, .. } = &mut body[at] {
            forward_stores(body, reads);
        }
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

fn forwardable(body: &mut [Step], at: usize, reads: &[usize]) -> Option<(usize, Address, Extents)> {
    let Step::StoreTile { value: Operand::Register { register, view: ViewKind::Plain }, address, extents } = body[at]
    else {
        return None;
    };
    let producer = (0..at).rev().find(|&i| written(&body[i]) == Some(register))?;
    let quiet = body[producer + 1..at].iter().all(|step| !touches_memory(step));
    let (target, _) = map_target(&mut body[producer])?;
    (quiet && reads[register] == 1 && target.store.is_none() && target.size == address.size)
        .then_some((producer, address, extents))
}

/// Lets the step that computes a loop's next carried tile write it in place, so that the copy at the body's end goes.
fn retarget_carried(body: &mut [Step], reads: &[usize]) {
    for step in body {
        let Step::Loop { body, .. } = step else { continue };
        retarget_carried(body, reads);
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
}

fn retargetable(body: &mut [Step], at: usize, reads: &[usize]) -> Option<usize> {
    let Step::CopyTile { target: carried, source: Operand::Register { register, view: ViewKind::Plain }, extents } =
        body[at]
    else {
        return None;
    };
    let producer = (0..at).rev().find(|&i| written(&body[i]) == Some(register))?;
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
        let is_loop = matches!(step, Step::Loop { .. });
        in_place &= !is_loop;
        operands(step, |operand| {
            in_place &= !matches!(operand, Operand::Register { register, .. } if *register == carried.register);
        });
    }
    let (_, produced) = map_target(&mut body[producer])?;
    (in_place && *produced == extents && reads[register] == 1).then_some(producer)
}

/// From where to where each register is in use. Each step has two moments: it reads at the first, writes at the second.
pub(super) struct Lives {
    moment: usize,
    pub first: Vec<usize>,
    pub last: Vec<usize>,
    /// The moments at which steps that store begin.
    pub stores: Vec<usize>,
}

impl Lives {
    fn new(registers: usize) -> Lives {
        Lives { moment: 0, first: vec![usize::MAX; registers], last: vec![0; registers], stores: Vec::new() }
    }

    fn walk(&mut self, body: &[Step]) {
        for step in body {
            let (reading, writing) = (self.moment, self.moment + 1);
            self.moment += 2;
            if let Step::Loop { body, .. } = step {
                self.walk(body);
                // What comes from before the loop is needed again in its next iteration.
                let end = self.moment;
                for register in 0..self.first.len() {
                    if self.first[register] < reading && self.last[register] > reading {
                        self.last[register] = end;
                    }
                }
                self.moment += 2;
                continue;
            }
            let elementwise = !matches!(step, Step::Dot { .. }) && map_target(&mut step.clone()).is_some();
            operands(step, |operand| {
                if let Operand::Register { register, view } = operand {
                    // Only an element-by-element step over the same layout may write where it reads.
                    let moment = if elementwise && *view == ViewKind::Plain { reading } else { writing };
                    self.last[*register] = self.last[*register].max(moment);
                }
            });
            if let Some(register) = written(step) {
                self.first[register] = self.first[register].min(writing);
                self.last[register] = self.last[register].max(writing);
            }
            if writes_memory(step) {
                self.stores.push(reading);
            }
        }
    }
}

/// Gives each register a place such that registers alive at the same moment do not overlap.
fn place(lives: &Lives, sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut order: Vec<Register> = (0..sizes.len()).filter(|&r| lives.first[r] != usize::MAX).collect();
    order.sort_by_key(|&register| lives.first[register]);
    let mut offsets = vec![0; sizes.len()];
    let mut total = 0;
    for (rank, &register) in order.iter().enumerate() {
        let bytes = sizes[register].next_multiple_of(64);
        let mut taken: Vec<(usize, usize)> = order[..rank]
            .iter()
            .filter(|&&other| overlaps(lives, sizes, other, register))
            .map(|&other| (offsets[other], sizes[other].next_multiple_of(64)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (begin, length) in taken {
            if offset + bytes <= begin {
                break;
            }
            offset = offset.max(begin + length);
        }
        offsets[register] = offset;
        total = total.max(offset + bytes);
    }
    (offsets, total)
}

/// Whether `earlier` is still in use when `later` is written; in place only between tiles of one size.
fn overlaps(lives: &Lives, sizes: &[usize], earlier: Register, later: Register) -> bool {
    let slack = usize::from(sizes[earlier] != sizes[later]);
    lives.last[earlier] + slack >= lives.first[later]
}
