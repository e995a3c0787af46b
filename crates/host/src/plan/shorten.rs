//! After everything else: steps on one row of neighbours, which most steps of a kernel with a row a program are, get their short form.

use super::operand::{Operand, Slot, Spread, ViewKind};
use super::row::{Part, Row, Work};
use super::step::{Rest, Step};

/// Shortens the steps of a body and of those within it; `one` is the slot that always holds 1.
pub(super) fn shorten(body: &mut [Step], one: Option<Slot>) {
    for step in body {
        if let Some(row) = row(step, one) {
            *step = Step::Row(row);
        }
        step.bodies_mut().iter_mut().for_each(|body| shorten(body, one));
    }
}

/// The short form of a step that has one.
fn row(step: &Step, one: Option<Slot>) -> Option<Row> {
    if let Step::LoadTile { register, address, extents, full, rest: Rest::Unread, direct: true } = *step {
        let is_row = full == (1, extents.columns.full) && are_neighbours(&address.spread, one);
        let work = Work::Load(address.base);
        let size = address.size;
        return is_row.then_some(Row { work, register, store: None, size, part_size: size, extents });
    }
    let (work, target, part_size, extents) = match step {
        Step::MapUnary { function, target, x, x_size, extents, .. } => {
            (Work::Unary(*function, part(x)?), target, *x_size, extents)
        }
        Step::MapBinary { function, target, x, y, size, extents, .. } => {
            (Work::Binary(*function, [part(x)?, part(y)?]), target, *size, extents)
        }
        Step::MapFused { function, target, operands: [x, y, z], extents, .. } => {
            (Work::Fused(*function, [part(x)?, part(y)?, part(z)?]), target, target.size, extents)
        }
        Step::MapChain { function, target, operands: [x, y, z, u, v], extents } => {
            let parts = [part(x)?, part(y)?, part(z)?, part(u)?, part(v)?];
            (Work::Chain(*function, parts), target, target.size, extents)
        }
        Step::MapChoice { function, target, operands: [x, y, u, v], extents, .. } => {
            let parts = [part(x)?, part(y)?, part(u)?, part(v)?];
            (Work::Choice(*function, parts), target, target.size, extents)
        }
        _ => return None,
    };
    let is_row = extents.rows.full == 1 && target.store.is_none_or(|address| are_neighbours(&address.spread, one));
    let store = target.store.map(|address| address.base);
    is_row.then_some(Row { work, register: target.register, store, size: target.size, part_size, extents: *extents })
}

/// Whether the columns of a row are known to follow each other.
fn are_neighbours(spread: &Spread, one: Option<Slot>) -> bool {
    spread.is_affine() && one.is_some() && spread.column_stride == one
}

/// How a step on one row reads an operand; none of columns, of which it may have as many as elements.
fn part(operand: &Operand) -> Option<Part> {
    match *operand {
        Operand::Uniform(slot) => Some(Part::Number(slot)),
        Operand::Register { register, view: ViewKind::Plain | ViewKind::RepeatRows } => Some(Part::Row(register)),
        Operand::Register { .. } => None,
    }
}
