//! Numbers in slots: constants, and arithmetic that is folded where it is known and done once a launch where it depends on the arguments only.

use super::{Lowered, Lowering, refuse};
use crate::plan::operand::{Slot, Width};
use crate::plan::step::{IndexOperation, Step};
use crate::plan::value::{Computed, Planned, width_of};
use crate::vector::{binary, cast, unary};
use openmps_tile::interpret::element;
use openmps_tile::{Binary, Number, Scalar, Value};

impl Lowering<'_> {
    /// A fresh slot.
    pub fn slot(&mut self) -> Slot {
        self.slots.push(0);
        self.slots.len() - 1
    }

    /// The slot of an integer constant.
    pub fn constant(&mut self, value: i64) -> Slot {
        if let Some(&slot) = self.slot_of_constant.get(&value) {
            return slot;
        }
        let slot = self.bits(value as u64);
        self.constants.insert(slot, value);
        self.slot_of_constant.insert(value, slot);
        slot
    }

    /// A slot that holds these bits from the start.
    pub(super) fn bits(&mut self, bits: u64) -> Slot {
        let slot = self.slot();
        self.slots[slot] = bits;
        self.invariant.insert(slot);
        self.literals.insert(slot);
        slot
    }

    /// The constant in a slot, if it is one.
    pub fn known(&self, slot: Slot) -> Option<i64> {
        self.constants.get(&slot).copied()
    }

    /// The bits in a slot, if they are known.
    pub fn literal(&self, slot: Slot) -> Option<u64> {
        self.literals.contains(&slot).then(|| self.slots[slot])
    }

    pub(super) fn number(&mut self, number: Number, result: Value) -> Planned {
        let scalar = self.scalar_of(result);
        let bits = element::constant(number, scalar);
        let slot =
            if scalar.is_float() { self.bits(bits) } else { self.constant(width_of(scalar).extend(bits) as i64) };
        Planned::Uniform(slot)
    }

    /// Adds a scalar step, to the prologue when all it reads depends on the arguments only.
    pub fn emit_scalar(&mut self, reads: &[Slot], make: impl FnOnce(Slot) -> Step) -> Slot {
        let destination = self.slot();
        let step = make(destination);
        if reads.iter().all(|slot| self.invariant.contains(slot)) {
            self.invariant.insert(destination);
            self.prologue.push(step);
        } else {
            self.ns += self.ns_scale * 2.0;
            self.emit(step);
        }
        destination
    }

    /// The slot of what may have been computed before, in this list of steps or in one around it.
    fn arithmetic(&mut self, what: Computed) -> Slot {
        if let Some(&slot) = self.computed.iter().find_map(|computed| computed.get(&what)) {
            return slot;
        }
        let slot = match what {
            Computed::Index { operation, x, y, width } => {
                self.emit_scalar(&[x, y], |destination| Step::Index { operation, destination, x, y, width })
            }
            Computed::Place { base, offset, size } => {
                self.emit_scalar(&[base, offset], |destination| Step::Place { destination, base, offset, size })
            }
        };
        // The prologue comes before all lists.
        let list = if self.invariant.contains(&slot) { 0 } else { self.computed.len() - 1 };
        self.computed[list].insert(what, slot);
        slot
    }

    /// Arithmetic on 64-bit slots, folded where the operands are known.
    pub fn index(&mut self, operation: IndexOperation, x: Slot, y: Slot, width: Width) -> Slot {
        use IndexOperation::{Add, Multiply, SaturatingSubtract, Subtract};
        match (operation, self.known(x), self.known(y)) {
            (operation, Some(x), Some(y)) => {
                let raw = crate::plan::execute::index_operation(operation, x, y);
                return self.constant(width.extend(raw as u64) as i64);
            }
            (Add, Some(0), _) | (Multiply, Some(1), _) => return y,
            (Add | Subtract | SaturatingSubtract, _, Some(0)) | (Multiply, _, Some(1)) => return x,
            (Multiply, Some(0), _) | (Multiply, _, Some(0)) => return self.constant(0),
            _ => {}
        }
        self.arithmetic(Computed::Index { operation, x, y, width })
    }

    /// A primitive on one slot.
    pub fn scalar_unary(&mut self, function: unary::UnaryFunction, x: Slot, width: Width) -> Slot {
        self.emit_scalar(&[x], |destination| Step::Unary { function, destination, x, width })
    }

    /// A primitive on two slots.
    pub fn scalar_binary(&mut self, function: binary::BinaryFunction, x: Slot, y: Slot, width: Width) -> Slot {
        self.emit_scalar(&[x, y], |destination| Step::Binary { function, destination, x, y, width })
    }

    /// A choice between two slots.
    pub fn scalar_select(&mut self, condition: Slot, x: Slot, y: Slot) -> Slot {
        self.emit_scalar(&[condition, x, y], |destination| Step::Select { destination, condition, x, y })
    }

    /// A conversion of a slot. Integers are sign-extended already, so widening them is a copy.
    pub fn scalar_cast(&mut self, kind: openmps_tile::Cast, from: Scalar, to: Scalar, x: Slot) -> Lowered<Slot> {
        if let (openmps_tile::Cast::Signed, true) = (kind, to.size() >= from.size() && to != Scalar::I1) {
            return Ok(x);
        }
        if let (Some(value), openmps_tile::Cast::Signed) = (self.known(x), kind) {
            return Ok(self.constant(width_of(to).extend(value as u64) as i64));
        }
        match cast::cast(kind, from, to) {
            Some(function) => Ok(self.scalar_unary(function, x, width_of(to))),
            None => refuse(format!("{} from {} to {}", kind.text(), from.name(), to.name())),
        }
    }

    /// `base + offset * size`.
    pub fn byte_address(&mut self, base: Slot, offset: Slot, size: usize) -> Slot {
        let size = size as i64;
        if let Some(offset) = self.known(offset) {
            let bytes = self.constant(offset.wrapping_mul(size));
            return self.index(IndexOperation::Add, base, bytes, Width::Whole);
        }
        self.arithmetic(Computed::Place { base, offset, size })
    }

    /// The index operation that a binary operation on integers is, if the plan does it symbolically.
    pub fn index_operation(operation: Binary) -> Option<IndexOperation> {
        Some(match operation {
            Binary::Add => IndexOperation::Add,
            Binary::Subtract => IndexOperation::Subtract,
            Binary::Multiply => IndexOperation::Multiply,
            Binary::Divide => IndexOperation::Divide,
            Binary::Remainder => IndexOperation::Remainder,
            Binary::Minimum => IndexOperation::Minimum,
            Binary::Maximum => IndexOperation::Maximum,
            _ => return None,
        })
    }
}
