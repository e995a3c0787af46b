//! What can go wrong while a kernel runs.

use super::memory::MemoryError;
use crate::location::Location;
use thiserror::Error;

/// A run of a kernel that has no defined result.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("kernel `{kernel}`, {place}, program {program:?}{element}: {problem}", element = element_text(*.element))]
pub struct InterpretError {
    /// The kernel's name.
    pub kernel: String,
    /// The instruction, or the kernel when the run could not begin.
    pub place: Location,
    /// The program's place on the grid.
    pub program: [usize; 3],
    /// The index of the tile's element, in row-major order.
    pub element: Option<usize>,
    /// The rule of the kernel language that was broken while it ran.
    pub problem: Box<InterpretProblem>,
}

fn element_text(element: Option<usize>) -> String {
    element.map_or_else(String::new, |index| format!(", element {index}"))
}

/// Why a program was stopped.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InterpretProblem {
    /// Too few or too many arguments.
    #[error("{found} arguments, expected {expected}")]
    Arguments {
        /// How many were given.
        found: usize,
        /// How many parameters the kernel has.
        expected: usize,
    },
    /// A grid whose places are not i32.
    #[error("axis {axis} of the grid has {size} programs, expected at most 2147483647")]
    Grid {
        /// The axis.
        axis: usize,
        /// How many programs it asks for along that axis.
        size: usize,
    },
    /// The memory refused an access.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// An undefined element where its value matters.
    #[error("{0} is undefined")]
    Undefined(&'static str),
    /// An index outside the axis that is gathered from.
    #[error("index {index} is outside 0 to {length}")]
    Index {
        /// The index.
        index: i64,
        /// The axis's length.
        length: usize,
    },
    /// `tt.assert`.
    #[error("assertion failed: {0}")]
    Assert(String),
    /// A loop that does not advance.
    #[error("the loop's step is {0}, expected at least 1")]
    Step(i64),
}
