//! The verifier: what a [`Kernel`] must be for its meaning to be defined. Never panics, whatever it is given.

mod error;
mod rules;
#[cfg(test)]
mod tests;

pub use error::{Problem, VerifyError};

use crate::kernel::*;
use crate::location::Location;
use crate::types::{Scalar, Type};
use rules::BlockRule;
use std::collections::HashSet;

/// The most elements a tile may have, as in Triton.
pub const MAX_TILE_ELEMENTS: usize = 1 << 20;

/// The most loops in each other.
pub const MAX_LOOP_DEPTH: usize = 32;

/// A kernel that [`verify()`] accepted: the proof that interpreters, executors and generators of code take.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a>(&'a Kernel);

impl<'a> Verified<'a> {
    /// The kernel.
    pub fn kernel(self) -> &'a Kernel {
        self.0
    }
}

/// A kernel that was accepted once and cannot change: the proof goes with it.
#[derive(Clone, Debug)]
pub struct VerifiedKernel(Kernel);

impl VerifiedKernel {
    /// The kernel, once [`verify()`] has accepted it.
    pub fn new(kernel: Kernel) -> Result<VerifiedKernel, VerifyError> {
        verify(&kernel)?;
        Ok(VerifiedKernel(kernel))
    }

    /// The proof, which takes no time.
    pub fn verified(&self) -> Verified<'_> {
        Verified(&self.0)
    }
}

impl std::ops::Deref for VerifiedKernel {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.0
    }
}

/// Checks that a kernel is one of the language: every value defined once and before its use in an enclosing block, every
/// operation with operands and results of the types its rule asks for, and every inner block ended by a fitting yield or condition.
pub fn verify(kernel: &Kernel) -> Result<Verified<'_>, VerifyError> {
    let states = vec![State::Undefined; kernel.types.len()];
    let mut verifier = Verifier { kernel, states, path: Vec::new() };
    verifier.parameters()?;
    if let Err(problem) = rules::count("block arguments", kernel.body.arguments.len(), 0) {
        return Err(verifier.error(Location::Kernel, problem));
    }
    verifier.instructions(&kernel.body, None)?;
    Ok(Verified(kernel))
}

/// What is known of a value at the point that the verifier has reached.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    InScope,
    /// Defined in a block that has ended.
    OutOfScope,
}

struct Verifier<'a> {
    kernel: &'a Kernel,
    /// By [`Value`].
    states: Vec<State>,
    /// Of the instruction at hand.
    path: Vec<usize>,
}

impl<'a> Verifier<'a> {
    fn error(&self, place: Location, problem: Problem) -> VerifyError {
        VerifyError { kernel: self.kernel.name.clone(), place, problem: Box::new(problem) }
    }

    fn parameters(&mut self) -> Result<(), VerifyError> {
        let mut names = HashSet::new();
        for parameter in &self.kernel.parameters {
            let unique = names.insert(parameter.name.as_str());
            let result = if unique { self.parameter(parameter.value) } else { Err(Problem::DuplicateName) };
            result.map_err(|problem| self.error(Location::Parameter(parameter.name.clone()), problem))?;
        }
        Ok(())
    }

    fn parameter(&mut self, value: Value) -> Result<(), Problem> {
        let found = self.well_formed(value)?;
        if !found.is_scalar() {
            let expected = "a scalar".to_owned();
            return Err(Problem::Type { what: "the parameter".to_owned(), found: found.clone(), expected });
        }
        self.define(value)
    }

    /// Checks a block's instructions; `rule` says what a block within an instruction must end with.
    fn instructions(&mut self, block: &'a Block, rule: Option<&BlockRule>) -> Result<(), VerifyError> {
        let last = block.instructions.len().wrapping_sub(1);
        for (i, instruction) in block.instructions.iter().enumerate() {
            self.path.push(i);
            self.operation(instruction, rule.filter(|_| i == last))
                .map_err(|problem| self.error(Location::instruction(self.kernel, &self.path, instruction), problem))?;
            for index in 0..instruction.blocks.len() {
                self.inner_block(instruction, index)?;
            }
            self.define_all(&instruction.results)
                .map_err(|problem| self.error(Location::instruction(self.kernel, &self.path, instruction), problem))?;
            self.path.pop();
        }
        Ok(())
    }

    /// Checks what an instruction reads and the types of what it defines.
    fn operation(&self, instruction: &'a Instruction, end: Option<&BlockRule>) -> Result<(), Problem> {
        let operands = self.all(&instruction.operands, |value| self.read(value))?;
        let results = self.all(&instruction.results, |value| self.well_formed(value))?;
        rules::count("blocks", instruction.blocks.len(), rules::blocks(&instruction.operation))?;
        rules::check(&instruction.operation, &operands, &results)?;
        match (&instruction.operation, end) {
            (Operation::Yield, Some(BlockRule { condition: false, ends_with, .. })) => {
                each_same("operands", "yielded value", &operands, ends_with)
            }
            (Operation::Condition, Some(BlockRule { condition: true, ends_with, .. })) => {
                each_same("operands", "value passed on", &operands[1..], ends_with)
            }
            (Operation::Yield | Operation::Condition, _) => Err(Problem::MisplacedEnd),
            (_, Some(_)) => Err(Problem::MissingEnd),
            (_, None) => Ok(()),
        }
    }

    /// Checks a block within an instruction, whose values go out of scope at its end.
    fn inner_block(&mut self, instruction: &'a Instruction, index: usize) -> Result<(), VerifyError> {
        let (place, block) = (Location::instruction(self.kernel, &self.path, instruction), &instruction.blocks[index]);
        let rule = self.enter(instruction, index).map_err(|problem| self.error(place, problem))?;
        self.instructions(block, Some(&rule))?;
        let inner = block.instructions.iter().flat_map(|x| &x.results);
        for value in block.arguments.iter().chain(inner) {
            self.states[value.0 as usize] = State::OutOfScope;
        }
        Ok(())
    }

    /// Defines the arguments of a block; returns what it must end with.
    fn enter(&mut self, instruction: &'a Instruction, index: usize) -> Result<BlockRule, Problem> {
        if self.path.len() > MAX_LOOP_DEPTH {
            return Err(Problem::Depth { limit: MAX_LOOP_DEPTH });
        }
        let block = &instruction.blocks[index];
        if block.instructions.is_empty() {
            return Err(Problem::MissingEnd);
        }
        let found = self.all(&block.arguments, |value| self.well_formed(value))?;
        let operands = self.all(&instruction.operands, |value| self.read(value))?;
        let results = self.all(&instruction.results, |value| self.well_formed(value))?;
        let rule = rules::block(&instruction.operation, index, &operands, &results);
        each_same("block arguments", "block argument", &found, &rule.arguments)?;
        self.define_all(&block.arguments)?;
        Ok(rule)
    }

    fn all(
        &self,
        values: &[Value],
        check: impl Fn(Value) -> Result<&'a Type, Problem>,
    ) -> Result<Vec<&'a Type>, Problem> {
        values.iter().map(|&value| check(value)).collect()
    }

    /// The type of a value that is in scope.
    fn read(&self, value: Value) -> Result<&'a Type, Problem> {
        let ty = self.known(value)?;
        if self.states[value.0 as usize] == State::InScope { Ok(ty) } else { Err(Problem::Undefined(value)) }
    }

    fn known(&self, value: Value) -> Result<&'a Type, Problem> {
        let types = &self.kernel.types;
        types.get(value.0 as usize).ok_or(Problem::Unknown { value, known: types.len() })
    }

    /// The type of a value about to be defined, when it is one that a value may have.
    fn well_formed(&self, value: Value) -> Result<&'a Type, Problem> {
        let found = self.known(value)?;
        let elements = found.dims.iter().try_fold(1, |product: usize, &size| product.checked_mul(size));
        let expected = if found.target() == Some(Scalar::I1) {
            "pointers to what has an address".to_owned()
        } else if elements.is_none_or(|elements| elements == 0 || elements > MAX_TILE_ELEMENTS) {
            format!("1 to {MAX_TILE_ELEMENTS} elements")
        } else {
            return Ok(found);
        };
        Err(Problem::MalformedType { value, found: found.clone(), expected })
    }

    fn define_all(&mut self, values: &[Value]) -> Result<(), Problem> {
        values.iter().try_for_each(|&value| self.define(value))
    }

    fn define(&mut self, value: Value) -> Result<(), Problem> {
        let known = self.states.len();
        let state = self.states.get_mut(value.0 as usize).ok_or(Problem::Unknown { value, known })?;
        if *state != State::Undefined {
            return Err(Problem::Redefined(value));
        }
        *state = State::InScope;
        Ok(())
    }
}

/// Requires the same types in the same order.
fn each_same(plural: &'static str, singular: &str, found: &[&Type], expected: &[Type]) -> Result<(), Problem> {
    rules::count(plural, found.len(), expected.len())?;
    let mut pairs = found.iter().zip(expected).enumerate();
    pairs.try_for_each(|(i, (found, expected))| rules::same(&format!("{singular} {i}"), found, expected))
}
