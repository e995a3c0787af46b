//! Where in a kernel something went wrong.

use crate::kernel::{Instruction, Kernel};
use std::fmt;

/// A place in a kernel, named in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The kernel as a whole.
    Kernel,
    /// A parameter, by name.
    Parameter(String),
    /// An instruction.
    Instruction {
        /// Its index in the kernel's body, then in each block on the way.
        path: Vec<usize>,
        /// The operation's name.
        operation: String,
        /// The line of the program that it was made from, as `file:line:column`.
        line: Option<String>,
    },
}

impl Location {
    /// The place of an instruction.
    pub(crate) fn instruction(kernel: &Kernel, path: &[usize], instruction: &Instruction) -> Location {
        let line = instruction.line.and_then(|line| kernel.lines.get(line as usize).cloned());
        Location::Instruction { path: path.to_vec(), operation: instruction.operation.name().into_owned(), line }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Kernel => f.write_str("the kernel"),
            Location::Parameter(name) => write!(f, "parameter `{name}`"),
            Location::Instruction { operation, line: Some(line), .. } => write!(f, "{line} ({operation})"),
            Location::Instruction { path, operation, line: None } => {
                let path: Vec<String> = path.iter().map(usize::to_string).collect();
                write!(f, "instruction {} ({operation})", path.join("/"))
            }
        }
    }
}
