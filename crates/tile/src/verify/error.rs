//! What the verifier finds wrong.

use crate::kernel::Value;
use crate::location::Location;
use crate::types::{Scalar, Type};
use thiserror::Error;

/// A kernel that is not one of the language.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("kernel `{kernel}`, {place}: {problem}")]
pub struct VerifyError {
    /// The kernel's name.
    pub kernel: String,
    /// Where the problem is.
    pub place: Location,
    /// The rule that is broken, with the types concerned.
    pub problem: Box<Problem>,
}

/// A rule of the language that does not hold.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Problem {
    /// A number of operands, results, blocks or block arguments.
    #[error("{found} {what}, expected {expected}")]
    Count {
        /// Operands, results, blocks or block arguments.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        expected: String,
    },
    /// The type of an operand, a result or a block argument.
    #[error("{what} has type {found}, expected {expected}")]
    Type {
        /// Whose type it is.
        what: String,
        /// The type that the operand has.
        found: Type,
        /// The type it should have, or a description of those it may have.
        expected: String,
    },
    /// A type that no value may have.
    #[error("%{} has type {found}, expected {expected}", value.0)]
    MalformedType {
        /// The value.
        value: Value,
        /// The type that the value has.
        found: Type,
        /// What holds for every type.
        expected: String,
    },
    /// A value without an entry in the kernel's types.
    #[error("%{} has no type, the kernel has types of {known} values", value.0)]
    Unknown {
        /// The value.
        value: Value,
        /// How many types there are.
        known: usize,
    },
    /// A value read where it is not defined: never, only later, or in a block that has ended.
    #[error("%{} is not defined here", .0.0)]
    Undefined(Value),
    /// A value defined more than once.
    #[error("%{} is defined already", .0.0)]
    Redefined(Value),
    /// Two parameters of one name.
    #[error("another parameter has this name")]
    DuplicateName,
    /// An axis of a tile or of the grid.
    #[error("axis {found}, expected one below {limit}")]
    Axis {
        /// The axis.
        found: usize,
        /// The first that does not exist.
        limit: usize,
    },
    /// A constant that its type does not have.
    #[error("the constant {found} is not of type {}", expected.name())]
    Constant {
        /// The constant as text.
        found: String,
        /// The number type.
        expected: Scalar,
    },
    /// A range that leaves i32.
    #[error("the range {start}.. of {size} elements leaves i32")]
    Range {
        /// The first element.
        start: i32,
        /// How many elements.
        size: usize,
    },
    /// A conversion between number types that it is not for.
    #[error("no conversion from {from} to {to}", from = .from.name(), to = .to.name())]
    Cast {
        /// The operand's number type.
        from: Scalar,
        /// The type that the cast asks for.
        to: Scalar,
    },
    /// A block within an instruction that does not end as it must.
    #[error("the block does not end in scf.yield, or scf.condition where a loop asks")]
    MissingEnd,
    /// A yield or condition elsewhere than at the end of a block that asks for it.
    #[error("scf.yield or scf.condition stands elsewhere than at the end of a block that asks for it")]
    MisplacedEnd,
    /// Loops in loops beyond what tools need to handle.
    #[error("more than {limit} loops in each other")]
    Depth {
        /// How many may be.
        limit: usize,
    },
}
