//! Which register holds what.

use super::body::{Body, Value};

/// Numbers of registers that nobody uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free(u32);

impl Free {
    /// The registers from `first` on, up to `end`.
    pub fn between(first: u32, end: u32) -> Free {
        Free((u64::MAX << first & !(u64::MAX << end)) as u32)
    }

    pub fn take(&mut self) -> Option<u32> {
        let register = self.0.trailing_zeros();
        (register < 32).then(|| {
            self.0 &= !(1 << register);
            register
        })
    }

    pub fn give_back(&mut self, register: u32) {
        self.0 |= 1 << register;
    }
}

/// Values that are computed side by side at most.
pub(super) const SIDE_BY_SIDE: usize = 4;

/// Where the values of one round are, and how often each is still read.
#[derive(Debug)]
pub(super) struct Places {
    registers: Vec<[Option<u32>; SIDE_BY_SIDE]>,
    left: Vec<usize>,
}

impl Places {
    /// Before the first operation. What is constant may have its register already.
    pub fn new(body: &Body, constants: &[Option<u32>]) -> Places {
        let mut left = vec![0; body.operations.len()];
        let operands = body.operations.iter().flat_map(|operation| operation.operands()).flatten();
        let stored = body.stores.iter().map(|store| store.value);
        let totals = body.totals.iter().map(|total| total.value);
        operands.chain(stored).chain(totals).for_each(|value| left[value.0] += 1);
        Places { registers: constants.iter().map(|&register| [register; SIDE_BY_SIDE]).collect(), left }
    }

    /// The register of a value that is computed side by side with others.
    pub fn get(&self, value: Value, side: usize) -> Option<u32> {
        self.registers[value.0][side]
    }

    pub fn set(&mut self, value: Value, side: usize, register: u32) {
        self.registers[value.0][side] = Some(register);
    }

    /// Whether nobody reads a value any more but an operation that reads it so often.
    pub fn is_last(&self, value: Value, times: usize) -> bool {
        self.left[value.0] <= times
    }

    /// Notes that a value has been read once on all sides.
    pub fn note_read(&mut self, value: Value) {
        self.left[value.0] -= 1;
    }

    /// Whether anybody reads a value.
    pub fn is_read(&self, value: Value) -> bool {
        self.left[value.0] > 0
    }
}
