//! Places for what a kernel computes, and steps as they are added to a plan.

use super::Lowering;
use crate::plan::call::{Call, Effect, Work, Written};
use crate::plan::operand::{Extents, Operand, Register, Sum, Target, Width, plain};
use crate::plan::step::Step;
use crate::plan::value::{Planned, width_of};
use openmps_tile::{Scalar, Value};
use std::collections::HashMap;

impl Lowering<'_> {
    /// A fresh register for a tile of `bytes`.
    pub fn register(&mut self, bytes: usize) -> Register {
        self.registers.push(bytes);
        self.registers.len() - 1
    }

    /// A fresh register as target for elements of `size` bytes.
    pub fn target(&mut self, extents: &Extents, size: usize) -> Target {
        let register = self.register(extents.len() * size);
        Target { register, size, store: None }
    }

    /// Adds a step on tiles of these extents and accounts for its time.
    pub fn emit_tile(&mut self, step: Step, extents: &Extents, ns_per_element: f64) {
        self.ns += self.ns_scale * (8.0 + ns_per_element * extents.len() as f64);
        self.emit(step);
    }

    /// Adds work on whole tiles.
    pub fn emit_work(
        &mut self,
        name: &'static str,
        reads: Vec<Operand>,
        writes: Vec<Written>,
        extents: &Extents,
        ns: f64,
        work: Work,
    ) {
        self.emit_tile(Step::Call(Call { name, reads, writes, effect: Effect::Nothing, work }), extents, ns);
    }

    /// Adds a call that has a tile, or one number, as its only result.
    pub fn emit_call(
        &mut self,
        name: &'static str,
        reads: Vec<Operand>,
        result: Value,
        ns: f64,
        work: Work,
    ) -> Planned {
        let (written, operand) = self.home(result);
        self.emit_work(name, reads, vec![written], &self.extents_of(result), ns, work);
        self.as_planned(result, operand)
    }

    /// A fresh place for a value's elements one row after the other.
    pub fn home(&mut self, value: Value) -> (Written, Operand) {
        self.home_of_size(value, self.width_of(value), self.element_size(value))
    }

    /// As [`Lowering::home`], for elements of another type.
    pub fn home_of(&mut self, value: Value, scalar: Scalar) -> (Written, Operand) {
        self.home_of_size(value, width_of(scalar), scalar.size())
    }

    fn home_of_size(&mut self, value: Value, width: Width, size: usize) -> (Written, Operand) {
        if self.is_one(value) {
            let slot = self.slot();
            return (Written::Number(slot, width), Operand::Uniform(slot));
        }
        let extents = self.extents_of(value);
        let target = self.target(&extents, size);
        (Written::Tile(target, extents), plain(target.register))
    }

    /// The step width of a value's slot.
    pub fn width_of(&self, value: Value) -> Width {
        if self.is_pointer(value) { Width::Whole } else { width_of(self.scalar_of(value)) }
    }

    /// What a value is whose elements are the operand's: numbers, or addresses.
    pub fn as_planned(&mut self, value: Value, operand: Operand) -> Planned {
        match (self.is_pointer(value), operand) {
            (true, Operand::Uniform(base)) => Planned::Pointer { base, offset: Sum::uniform(self.constant(0)) },
            (true, offsets) => Planned::Scattered { base: self.constant(0), offsets },
            (false, Operand::Uniform(slot)) => Planned::Uniform(slot),
            (false, data) => Planned::Data(data),
        }
    }

    /// Begins a list of steps within the innermost one.
    pub(super) fn begin(&mut self) {
        self.open.push(Vec::new());
        self.computed.push(HashMap::new());
    }

    /// Ends the innermost list.
    pub(super) fn end(&mut self) -> Vec<Step> {
        self.computed.pop();
        self.open.pop().unwrap_or_default()
    }

    /// Adds a step to the innermost list.
    pub fn emit(&mut self, step: Step) {
        if let Some(list) = self.open.last_mut() {
            list.push(step);
        }
    }
}
