//! A step on one row of neighbours in its short form, from which fewer questions remain for each run.

use super::operand::{Extents, Register, Slot};
use crate::vector::binary::BinaryFunction;
use crate::vector::chain::ChainFunction;
use crate::vector::choice::ChoiceFunction;
use crate::vector::fused::FusedFunction;
use crate::vector::unary::UnaryFunction;

/// What is read for each element of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Number(Slot),
    Row(Register),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Memory stands for the register.
    Load(Slot),
    Unary(UnaryFunction, Part),
    Binary(BinaryFunction, [Part; 2]),
    Fused(FusedFunction, [Part; 3]),
    Chain(ChainFunction, [Part; 5]),
    Choice(ChoiceFunction, [Part; 4]),
}

/// A step on one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub work: Work,
    pub register: Register,
    /// Where in memory the result goes, if not to the register.
    pub store: Option<Slot>,
    /// Bytes of an element of the result.
    pub size: usize,
    /// Bytes of an element of what is read.
    pub part_size: usize,
    /// One row, or none.
    pub extents: Extents,
}

impl Row {
    /// Bytes that go to memory at most.
    pub fn stored(&self) -> usize {
        if self.store.is_some() { self.extents.len() * self.size } else { 0 }
    }

    /// Whether it leaves a tile in scratch memory for later steps.
    pub fn keeps_a_tile(&self) -> bool {
        self.store.is_none() && !matches!(self.work, Work::Load(_))
    }
}
