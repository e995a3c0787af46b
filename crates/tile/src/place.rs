//! Where in a kernel something went wrong.

use crate::kernel::{Instruction, Kernel};
use std::fmt;

/// A place in a kernel, named in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

impl Place {
    /// The place of an instruction.
    pub(crate) fn instruction(kernel: &Kernel, path: &[usize], instruction: &Instruction) -> Place {
        let line = instruction.line.and_then(|line| kernel.lines.get(line as usize).cloned());
        Place::Instruction { path: path.to_vec(), operation: instruction.operation.name().into_owned(), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernel => f.write_str("the kernel"),
            Place::Parameter(name) => write!(f, "parameter `{name}`"),
            Place::Instruction { operation, line: Some(line), .. } => write!(f, "{line} ({operation})"),
            Place::Instruction { path, operation, line: None } => {
                let path: Vec<String> = path.iter().map(usize::to_string).collect();
                write!(f, "instruction {} ({operation})", path.join("/"))
            }
        }
    }
}
