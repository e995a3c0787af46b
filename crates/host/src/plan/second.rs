//! Second plans of a kernel, for launches under whose arguments it is simpler than under any.

use super::Program;
use super::operand::Slot;

/// A loop from a known number in known steps to a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub lower: i64,
    /// The parameter's slot, which is its number.
    pub upper: Slot,
    pub step: i64,
}

impl Range {
    fn has_one(&self, arguments: &[u64]) -> bool {
        let upper = arguments[self.upper] as i64;
        self.lower < upper && upper <= self.lower.saturating_add(self.step)
    }
}

/// What must hold of a launch's arguments.
#[derive(Debug)]
pub(super) enum When {
    /// These loops run once.
    Once(Vec<Range>),
    /// These parameters are 1.
    One(Vec<Slot>),
}

/// A plan, and when it computes the same.
#[derive(Debug)]
pub(super) struct Second {
    pub when: When,
    pub program: Box<Program>,
}

impl Second {
    /// The plan, where it computes the same under these arguments.
    pub fn under(&self, arguments: &[u64]) -> Option<&Program> {
        let holds = match &self.when {
            When::Once(ranges) => ranges.iter().all(|range| range.has_one(arguments)),
            When::One(parameters) => parameters.iter().all(|&parameter| arguments[parameter] == 1),
        };
        holds.then_some(&self.program)
    }
}
