//! Where in a kernel something went wrong.

use crate::kernel::Instruction;
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
        /// Its index in the kernel's body, then in the block of each loop on the way.
        path: Vec<usize>,
        /// The operation's name.
        operation: String,
    },
}

impl Place {
    /// The place of an instruction.
    pub(crate) fn instruction(path: &[usize], instruction: &Instruction) -> Place {
        Place::Instruction { path: path.to_vec(), operation: instruction.operation.name().into_owned() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernel => f.write_str("the kernel"),
            Place::Parameter(name) => write!(f, "parameter `{name}`"),
            Place::Instruction { path, operation } => {
                let path: Vec<String> = path.iter().map(usize::to_string).collect();
                write!(f, "instruction {} ({operation})", path.join("/"))
            }
        }
    }
}
