//! After lowering, where every step computes whole tiles: each is narrowed to what is read of its result.
//!
//! A mask `index < bound` of a store or a selection so saves the work outside of it, and a load under the same mask need not
//! fill what nobody reads. What a value is never depends on this: only how much of it is computed.

use super::effects::{map_target, operands, written};
use super::step::{Extent, Extents, Operand, Register, Rest, Slot, Step, ViewKind};

/// Narrows the steps of a body that uses so many registers and slots.
pub(super) fn narrow(body: &mut [Step], registers: usize, slots: usize) {
    let mut order = Order { moment: 0, set: vec![Set::Before; slots], writes: vec![0; registers] };
    order.walk(body);
    let mut pass = Pass { moment: order.moment, order, demands: vec![Demand::Nothing; registers] };
    pass.walk(body);
}

/// How much of a register is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    Nothing,
    Part(Extents),
    Whole,
}

/// When a slot gets its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    /// Before the body.
    Before,
    /// By one step of the body.
    At(usize),
    /// By several: what it holds depends on when it is read.
    Often,
}

/// When slots and how often registers are written, in the order of the steps.
struct Order {
    moment: usize,
    set: Vec<Set>,
    writes: Vec<usize>,
}

impl Order {
    fn walk(&mut self, body: &[Step]) {
        for step in body {
            self.moment += 1;
            if let Some(slot) = slot_written(step) {
                self.set[slot] = if self.set[slot] == Set::Before { Set::At(self.moment) } else { Set::Often };
            }
            if let Some(register) = written(step) {
                self.writes[register] += 1;
            }
            if let Step::Loop { body, .. } = step {
                self.walk(body);
            }
        }
    }
}

fn slot_written(step: &Step) -> Option<Slot> {
    match *step {
        Step::Index { destination, .. }
        | Step::Unary { destination, .. }
        | Step::Binary { destination, .. }
        | Step::Select { destination, .. }
        | Step::Copy { destination, .. }
        | Step::LoadScalar { destination, .. }
        | Step::ReduceAll { destination, .. } => Some(destination),
        Step::Loop { index, .. } => Some(index),
        _ => None,
    }
}

/// The walk from the last step to the first, which meets all readers of a register before its writer.
struct Pass {
    moment: usize,
    order: Order,
    demands: Vec<Demand>,
}

impl Pass {
    fn walk(&mut self, body: &mut [Step]) {
        for step in body.iter_mut().rev() {
            match step {
                Step::Loop { body, .. } => self.walk(body),
                step => {
                    self.narrow(step);
                    self.read(step);
                }
            }
            self.moment -= 1;
        }
    }

    /// The part of a register that is read, where it has one writer, at which the part's bounds are known.
    fn part(&self, register: Register) -> Option<Extents> {
        let Demand::Part(extents) = self.demands[register] else { return None };
        let known = |extent: Extent| match extent.clip.map(|slot| self.order.set[slot]) {
            None | Some(Set::Before) => true,
            Some(Set::At(moment)) => moment < self.moment,
            Some(Set::Often) => false,
        };
        (self.order.writes[register] == 1 && known(extents.rows) && known(extents.columns)).then_some(extents)
    }

    fn narrow(&self, step: &mut Step) {
        let Some(part) = written(step).and_then(|register| self.part(register)) else { return };
        match step {
            Step::LoadTile { extents, rest, .. } if *extents == part => *rest = Rest::Unread,
            Step::MaskTile { extents, .. } => *extents = part,
            step => {
                if let Some((_, extents)) = map_target(step) {
                    *extents = part;
                }
            }
        }
    }

    /// Adds what a step reads to the demands.
    fn read(&mut self, step: &Step) {
        match step {
            Step::StoreTile { extents, .. }
            | Step::MapUnary { extents, .. }
            | Step::MapBinary { extents, .. }
            | Step::MapSelect { extents, .. }
            | Step::ReduceAll { extents, .. }
            | Step::ReduceRows { extents, .. }
            | Step::ReduceColumns { extents, .. } => operands(step, |operand| self.demand(operand, Some(*extents))),
            Step::MapClip { clip, inside, outside, extents, .. } => {
                self.demand(inside, Some(if is_whole(*extents) { *clip } else { *extents }));
                self.demand(outside, Some(*extents));
            }
            _ => operands(step, |operand| self.demand(operand, None)),
        }
    }

    /// Notes that a step reads a part of an operand; none is all of it.
    fn demand(&mut self, operand: &Operand, part: Option<Extents>) {
        let Operand::Register { register, view } = *operand else { return };
        let demand = match part.map(|part| seen_through(view, part)) {
            Some(part) if !is_whole(part) => Demand::Part(part),
            _ => Demand::Whole,
        };
        self.demands[register] = match self.demands[register] {
            Demand::Nothing => demand,
            before if before == demand => demand,
            _ => Demand::Whole,
        };
    }
}

fn is_whole(extents: Extents) -> bool {
    extents.rows.clip.is_none() && extents.columns.clip.is_none()
}

/// The part of a register that is read where this part of a view of it is.
fn seen_through(view: ViewKind, part: Extents) -> Extents {
    let one = Extent { full: 1, clip: None };
    match view {
        ViewKind::Plain => part,
        ViewKind::Column => Extents { rows: one, columns: part.rows },
        ViewKind::RepeatColumns => Extents { rows: part.rows, columns: one },
        ViewKind::RepeatRows => Extents { rows: one, columns: part.columns },
    }
}
