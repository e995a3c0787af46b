//! Lowers loops and conditions: what they hand on has slots and registers of its own.

use super::{Loops, Lowered, Lowering, Stop, refuse};
use crate::plan::operand::{Extents, Operand, Register, Slot, Sum, Target, plain};
use crate::plan::second::Range;
use crate::plan::step::Step;
use crate::plan::value::Planned;
use openmps_tile::{Block, Instruction, Scalar, Value};

/// A guess at how often a loop runs whose bounds are not known here: it is assumed to be worth a thread.
const REPEATS: f64 = 8.0;

/// Where a value is that a loop or a condition hands on.
#[derive(Clone, Copy)]
enum Place {
    Slot(Slot),
    Tile { register: Register, size: usize, extents: Extents },
}

impl Place {
    fn operand(self) -> Operand {
        match self {
            Place::Slot(slot) => Operand::Uniform(slot),
            Place::Tile { register, .. } => plain(register),
        }
    }
}

/// A copy to a place, and what is copied.
type Move = (Place, Operand);

impl Lowering<'_> {
    pub(super) fn for_loop(&mut self, instruction: &Instruction) -> Lowered<()> {
        let [lower, upper, step] = [0, 1, 2].map(|i| self.slot_of(instruction.operands[i]));
        let (lower, upper, step) = (lower?, upper?, step?);
        let block = &instruction.blocks[0];
        if let Some(range) = self.range(lower, upper, step) {
            self.ranges.push(range);
            if self.loops == Loops::Once {
                return self.only_iteration(instruction, lower);
            }
        }
        let initial = &instruction.operands[3..];
        let index = self.slot();
        self.planned.insert(block.arguments[0], Planned::Uniform(index));
        let mut carried = Vec::new();
        for (&argument, &initial) in block.arguments[1..].iter().zip(initial) {
            let planned = self.carry(argument, initial)?;
            self.planned.insert(argument, planned);
            carried.push(planned);
        }
        let body =
            self.body(block, REPEATS, |lowering, next| lowering.advance(&block.arguments[1..], &carried, next))?;
        self.emit(Step::Loop { index, lower, upper, step, body });
        self.planned.extend(instruction.results.iter().copied().zip(carried));
        Ok(())
    }

    /// The range of a loop from a known number in known steps to a parameter.
    fn range(&self, lower: Slot, upper: Slot, step: Slot) -> Option<Range> {
        let is_parameter = upper < self.kernel.parameters.len();
        let (lower, step) = (self.known(lower)?, self.known(step).filter(|&step| step > 0)?);
        is_parameter.then_some(Range { lower, upper, step })
    }

    /// A loop that runs once: its block, in which what is carried is what it is at first.
    fn only_iteration(&mut self, instruction: &Instruction, lower: Slot) -> Lowered<()> {
        let block = &instruction.blocks[0];
        self.planned.insert(block.arguments[0], Planned::Uniform(lower));
        for carried in instruction.carried() {
            let initial = self.get(carried.initial)?;
            self.planned.insert(carried.argument, initial);
        }
        self.block(block)?;
        for carried in instruction.carried() {
            let next = self.get(carried.next)?;
            self.planned.insert(carried.result, next);
        }
        Ok(())
    }

    pub(super) fn if_else(&mut self, instruction: &Instruction) -> Lowered<()> {
        let condition = self.slot_of(instruction.operands[0])?;
        let places: Vec<Place> = instruction.results.iter().map(|&result| self.place(result)).collect();
        let mut bodies = [Vec::new(), Vec::new()];
        for (body, block) in bodies.iter_mut().zip(&instruction.blocks) {
            *body = self.body(block, 0.5, |lowering, ends| lowering.hand_on(&places, ends))?;
        }
        self.emit(Step::If { condition, bodies });
        self.define(&instruction.results, &places);
        Ok(())
    }

    pub(super) fn while_loop(&mut self, instruction: &Instruction) -> Lowered<()> {
        let [before, after] = &instruction.blocks[..] else { return refuse("scf.while of one block") };
        let carried: Vec<Place> = before.arguments.iter().map(|&argument| self.place(argument)).collect();
        let passed: Vec<Place> = instruction.results.iter().map(|&result| self.place(result)).collect();
        let condition = self.slot();
        self.hand_on(&carried, &instruction.operands)?;
        self.define(&before.arguments, &carried);
        let first = self.body(before, REPEATS, |lowering, ends| {
            let source = lowering.slot_of(ends[0])?;
            lowering.emit(Step::Copy { destination: condition, source });
            lowering.hand_on(&passed, &ends[1..])
        })?;
        self.define(&after.arguments, &passed);
        let second = self.body(after, REPEATS, |lowering, ends| lowering.hand_on(&carried, ends))?;
        self.emit(Step::While { condition, bodies: [first, second] });
        self.define(&instruction.results, &passed);
        Ok(())
    }

    /// The steps of a block, which `end` ends with what it hands on.
    pub(super) fn body(
        &mut self,
        block: &Block,
        repeats: f64,
        end: impl FnOnce(&mut Self, &[Value]) -> Lowered<()>,
    ) -> Lowered<Vec<Step>> {
        self.begin();
        let scale = self.ns_scale;
        self.ns_scale *= repeats;
        self.block(block)?;
        end(self, block.ends())?;
        self.ns_scale = scale;
        Ok(self.end())
    }

    /// The slot of a scalar: a number, or an address.
    pub(super) fn slot_of(&mut self, value: Value) -> Lowered<Slot> {
        match self.data(value)? {
            Operand::Uniform(slot) => Ok(slot),
            Operand::Register { .. } => refuse("a tile where a scalar is expected"),
        }
    }

    /// A fresh place for a value.
    fn place(&mut self, value: Value) -> Place {
        if self.is_one(value) {
            return Place::Slot(self.slot());
        }
        let (extents, size) = (self.extents_of(value), self.element_size(value));
        Place::Tile { register: self.register(extents.len() * size), size, extents }
    }

    fn define(&mut self, values: &[Value], places: &[Place]) {
        for (&value, place) in values.iter().zip(places) {
            let planned = self.as_planned(value, place.operand());
            self.planned.insert(value, planned);
        }
    }

    /// Copies values to places that none of them is made of.
    fn hand_on(&mut self, places: &[Place], values: &[Value]) -> Lowered<()> {
        let mut moves = Vec::new();
        for (&place, &value) in places.iter().zip(values) {
            moves.push((place, self.data(value)?));
        }
        self.copy_all(&moves);
        Ok(())
    }

    /// Makes slots and registers for a carried value and copies the initial one there.
    fn carry(&mut self, argument: Value, initial: Value) -> Lowered<Planned> {
        let scalar = self.scalar_of(initial);
        let is_data = scalar.is_float() || scalar == Scalar::I1;
        let as_data = self.forced.contains(&argument)
            || !self.kernel.type_of(initial).is_scalar() && is_data && !self.is_pointer(initial);
        Ok(match self.get(initial)? {
            Planned::Pointer { base, offset } if !as_data => {
                let address = self.byte_address(base, offset.base, scalar.size());
                let zero = self.constant(0);
                Planned::Pointer { base: self.carried_slot(address), offset: Sum { base: zero, ..offset } }
            }
            Planned::Scattered { base, offsets } if !as_data => {
                Planned::Scattered { base: self.carried_slot(base), offsets }
            }
            Planned::Uniform(slot) if !as_data => Planned::Uniform(self.carried_slot(slot)),
            Planned::Index(sum) if !as_data => Planned::Index(Sum { base: self.carried_slot(sum.base), ..sum }),
            _ => {
                let place = self.place(argument);
                self.hand_on(&[place], &[initial])?;
                self.as_planned(argument, place.operand())
            }
        })
    }

    fn carried_slot(&mut self, source: Slot) -> Slot {
        let destination = self.slot();
        self.emit(Step::Copy { destination, source });
        destination
    }

    /// Ends a loop's body: the next carried values take the place of the present ones, all at once.
    fn advance(&mut self, arguments: &[Value], carried: &[Planned], next: &[Value]) -> Lowered<()> {
        let mut moves: Vec<Move> = Vec::new();
        for ((&argument, carried), &next_value) in arguments.iter().zip(carried).zip(next) {
            if self.forced.contains(&argument) || matches!(carried, Planned::Data(_)) {
                let (Planned::Data(now) | Planned::Scattered { offsets: now, .. }) = *carried else {
                    return refuse("a carried value that changes its form");
                };
                let source = self.data(next_value)?;
                let Operand::Register { register, .. } = now else { return refuse("a carried value without a place") };
                let (size, extents) = (self.element_size(argument), self.extents_of(argument));
                moves.push((Place::Tile { register, size, extents }, source));
                continue;
            }
            let slots = match (*carried, self.get(next_value)?) {
                (Planned::Uniform(slot), Planned::Uniform(next)) => Some((slot, next)),
                (Planned::Index(now), Planned::Index(next)) if now.spread == next.spread => Some((now.base, next.base)),
                (Planned::Pointer { base, offset }, Planned::Pointer { base: next_base, offset: next })
                    if offset.spread == next.spread =>
                {
                    let size = self.scalar_of(next_value).size();
                    Some((base, self.byte_address(next_base, next.base, size)))
                }
                (Planned::Scattered { base, offsets }, Planned::Scattered { base: next_base, offsets: next })
                    if offsets == next =>
                {
                    Some((base, next_base))
                }
                _ => None,
            };
            let Some((slot, next)) = slots else { return Err(Stop::CarriedAsData(argument)) };
            moves.push((Place::Slot(slot), Operand::Uniform(next)));
        }
        self.move_all(moves);
        Ok(())
    }

    /// Copies to places of which some may be read by later copies: those are kept aside first.
    fn move_all(&mut self, mut moves: Vec<Move>) {
        for at in 0..moves.len() {
            let (place, source) = moves[at];
            let is_overwritten = moves[..at].iter().any(|(earlier, _)| shares(earlier.operand(), source));
            if !is_overwritten || source == place.operand() {
                continue;
            }
            let aside = match place {
                Place::Slot(_) => Place::Slot(self.slot()),
                Place::Tile { size, extents, .. } => {
                    Place::Tile { register: self.register(extents.len() * size), size, extents }
                }
            };
            self.copy_all(&[(aside, source)]);
            moves[at].1 = aside.operand();
        }
        self.copy_all(&moves);
    }

    /// Copies in order.
    fn copy_all(&mut self, moves: &[Move]) {
        for &(place, source) in moves.iter().filter(|(place, source)| place.operand() != *source) {
            match (place, source) {
                (Place::Slot(destination), Operand::Uniform(source)) => self.emit(Step::Copy { destination, source }),
                (Place::Slot(_), Operand::Register { .. }) => {}
                (Place::Tile { register, size, extents }, source) => {
                    let target = Target { register, size, store: None };
                    self.emit_tile(Step::CopyTile { target, source, extents, direct: false }, &extents, 0.1);
                }
            }
        }
    }
}

/// Whether two operands are of one slot or register.
fn shares(x: Operand, y: Operand) -> bool {
    match (x, y) {
        (Operand::Uniform(x), Operand::Uniform(y)) => x == y,
        (Operand::Register { register: x, .. }, Operand::Register { register: y, .. }) => x == y,
        _ => false,
    }
}
