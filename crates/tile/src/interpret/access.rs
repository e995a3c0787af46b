//! Loads, stores and atomic operations.

use super::tile::{Bits, Tile};
use super::{Failure, InterpretProblem, Program, element};
use crate::kernel::{Atomic, Instruction};
use crate::types::Scalar;

impl Program<'_> {
    /// What the pointers of an access point to.
    pub(super) fn target(&self, instruction: &Instruction) -> Scalar {
        self.kernel.type_of(instruction.operands[0]).target().unwrap_or(Scalar::I8)
    }

    pub(super) fn load(&mut self, operands: &[Tile], target: Scalar) -> Result<Tile, Failure> {
        let (pointers, mask, other) = (&operands[0], operands.get(1), operands.get(2));
        let mut load = |(i, &pointer): (usize, &Bits)| {
            if !is_on(mask, i)? {
                return Ok(other.and_then(|other| other[i]));
            }
            let address = defined(pointer, "the address", i)?;
            self.memory.read(address, target.size()).map(Some).map_err(|problem| at(i, problem))
        };
        pointers.iter().enumerate().map(&mut load).collect()
    }

    pub(super) fn store(&mut self, operands: &[Tile], target: Scalar) -> Result<(), Failure> {
        let (pointers, values, mask) = (&operands[0], &operands[1], operands.get(2));
        for (i, &pointer) in pointers.iter().enumerate() {
            if !is_on(mask, i)? {
                continue;
            }
            let address = defined(pointer, "the address", i)?;
            let bits = defined(values[i], "the stored value", i)?;
            self.memory.write(address, target.size(), bits).map_err(|problem| at(i, problem))?;
        }
        Ok(())
    }

    /// Programs run one after the other, so that reading and then writing is one step.
    pub(super) fn atomic(&mut self, operation: Atomic, operands: &[Tile], target: Scalar) -> Result<Tile, Failure> {
        let (pointers, values, mask) = (&operands[0], &operands[1], operands.get(2));
        let mut exchange = |(i, &pointer): (usize, &Bits)| {
            if !is_on(mask, i)? {
                return Ok(None);
            }
            if !operation.writes() {
                let address = defined(pointer, "the address", i)?;
                return self.memory.acquire(address, target.size()).map(Some).map_err(|problem| at(i, problem));
            }
            let value = defined(values[i], "the value", i)?;
            let combine = |old: u64| match operation.operation() {
                Some(binary) => element::binary(binary, target, old, value),
                None => value,
            };
            self.replace(i, pointer, target, combine).map(Some)
        };
        pointers.iter().enumerate().map(&mut exchange).collect()
    }

    pub(super) fn compare_swap(&mut self, operands: &[Tile], target: Scalar) -> Result<Tile, Failure> {
        let [pointers, expected, values] = operands else { return Ok(Tile::default()) };
        let mut swap = |(i, &pointer): (usize, &Bits)| {
            let expected = defined(expected[i], "the expected value", i)?;
            let value = defined(values[i], "the value", i)?;
            self.replace(i, pointer, target, |old| if old == expected { value } else { old }).map(Some)
        };
        pointers.iter().enumerate().map(&mut swap).collect()
    }

    /// Replaces one element in memory; what was there.
    fn replace(&mut self, i: usize, pointer: Bits, target: Scalar, new: impl Fn(u64) -> u64) -> Result<u64, Failure> {
        let address = defined(pointer, "the address", i)?;
        self.memory.replace(address, target.size(), &new).map_err(|problem| at(i, problem))
    }
}

pub(super) fn at(element: usize, problem: impl Into<InterpretProblem>) -> Failure {
    Failure { element: Some(element), problem: problem.into() }
}

pub(super) fn defined(bits: Bits, what: &'static str, element: usize) -> Result<u64, Failure> {
    bits.ok_or_else(|| at(element, InterpretProblem::Undefined(what)))
}

fn is_on(mask: Option<&Tile>, element: usize) -> Result<bool, Failure> {
    mask.map_or(Ok(true), |mask| Ok(defined(mask[element], "the mask", element)? != 0))
}
