//! After lowering, where every step computes whole tiles: each is narrowed to what is read of its result.
//!
//! A mask `index < bound` of a store or a selection so saves the work outside of it, and a load under the same mask need not
//! fill what nobody reads. What a value is never depends on this: only how much of it is computed.

use super::effects::{map_target, operands, slots_written, written};
use super::operand::{Extent, Extents, Operand, Register, ViewKind};
use super::step::{Rest, Step};

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
            let moment = self.moment;
            slots_written(step, |slot| {
                self.set[slot] = if self.set[slot] == Set::Before { Set::At(moment) } else { Set::Often };
            });
            written(step, |register| self.writes[register] += 1);
            step.bodies().iter().for_each(|body| self.walk(body));
        }
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
            self.narrow(step);
            self.read(step);
            step.bodies_mut().iter_mut().rev().for_each(|body| self.walk(body));
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
        match step {
            Step::LoadTile { register, extents, rest, .. } if self.part(*register) == Some(*extents) => {
                *rest = Rest::Unread;
            }
            Step::MaskTile { target, extents, .. } => {
                *extents = self.part(target.register).unwrap_or(*extents);
            }
            step => {
                if let Some((target, extents)) = map_target(step) {
                    *extents = self.part(target.register).unwrap_or(*extents);
                }
            }
        }
    }

    /// Adds what a step reads to the demands.
    fn read(&mut self, step: &Step) {
        match step {
            Step::StoreTile { value, address, extents } => {
                self.demand(value, Some(*extents));
                address.spread.parts().for_each(|part| self.demand(&part.operand, None));
            }
            Step::MapUnary { extents, .. }
            | Step::MapBinary { extents, .. }
            | Step::MapSelect { extents, .. }
            | Step::MapFused { extents, .. }
            | Step::MapChain { extents, .. }
            | Step::MapChoice { extents, .. }
            | Step::ReduceAll { extents, .. }
            | Step::SumOfPairs { extents, .. }
            | Step::ReduceRows { extents, .. }
            | Step::ReduceColumns { extents, .. } => operands(step, |operand| self.demand(operand, Some(*extents))),
            Step::MapClip { clip, inside, outside, extents, .. } => {
                self.demand(inside, Some(if extents.is_whole() { *clip } else { *extents }));
                self.demand(outside, Some(*extents));
            }
            _ => operands(step, |operand| self.demand(operand, None)),
        }
    }

    /// Notes that a step reads a part of an operand; none is all of it.
    fn demand(&mut self, operand: &Operand, part: Option<Extents>) {
        let Operand::Register { register, view } = *operand else { return };
        let demand = match part.map(|part| seen_through(view, part)) {
            Some(part) if !part.is_whole() => Demand::Part(part),
            _ => Demand::Whole,
        };
        self.demands[register] = match self.demands[register] {
            Demand::Nothing => demand,
            before if before == demand => demand,
            _ => Demand::Whole,
        };
    }
}

/// The part of a register that is read where this part of a view of it is.
fn seen_through(view: ViewKind, part: Extents) -> Extents {
    let one = Extent { full: 1, clip: None };
    match view {
        ViewKind::Plain => part,
        ViewKind::Column => Extents { rows: one, columns: part.rows },
        ViewKind::RepeatColumns => Extents { rows: part.rows, columns: one },
        ViewKind::RepeatRows => Extents { rows: one, columns: part.columns },
        ViewKind::Transposed => Extents { rows: part.columns, columns: part.rows },
    }
}
