//! The rows of a pass, and what is looked at before it runs.

use crate::jit::Compiled;
use crate::plan::operand::{Extents, Register, Slot};
use std::sync::Arc;

/// A row that a pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) struct Input {
    pub register: Register,
    /// Bytes of an element.
    pub size: usize,
    /// Whether steps that are no part of the pass read it, too.
    pub is_read_elsewhere: bool,
}

/// A row that a pass writes.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct Output {
    pub register: Register,
    /// Bytes of an element.
    pub size: usize,
    /// Where in memory the row goes, if not to its register.
    pub store: Option<Slot>,
}

/// A row in memory that a pass or a step behind it reads, and a row that the pass stores.
#[derive(Clone, Copy, Debug)]
pub(in crate::plan) struct Check {
    pub register: Register,
    /// Bytes of an element.
    pub size: usize,
    /// Which output is stored.
    pub output: usize,
    /// Whether both may be the same elements.
    pub may_be_same: bool,
}

/// A pass.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Pass {
    pub compiled: Arc<Compiled>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub checks: Vec<Check>,
    /// One row, or none.
    pub extents: Extents,
}

impl Pass {
    /// Bytes that go to memory at most.
    pub fn stored(&self) -> usize {
        let stored = self.outputs.iter().filter(|output| output.store.is_some());
        stored.map(|output| output.size * self.extents.len()).sum()
    }

    /// Whether it leaves a tile in scratch memory for later steps.
    pub fn keeps_a_tile(&self) -> bool {
        self.outputs.iter().any(|output| output.store.is_none())
    }
}
