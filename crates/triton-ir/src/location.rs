//! Where an operation comes from.

use std::sync::Arc;

/// A place in a program, with the names and the calls that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Location {
    /// Nobody said.
    #[default]
    Unknown,
    /// A place in a file.
    Place {
        /// The file.
        file: Arc<str>,
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
    },
    /// The value that a variable of this name holds.
    Named(Arc<str>, Arc<Location>),
    /// An operation of a function that was put in the place of a call.
    Inlined {
        /// The place in the function.
        callee: Arc<Location>,
        /// The place of the call.
        caller: Arc<Location>,
    },
}

impl Location {
    /// The variable's name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Location::Named(name, _) => Some(name),
            Location::Inlined { callee, .. } => callee.name(),
            _ => None,
        }
    }

    /// This place under another name.
    pub fn named(&self, name: &str) -> Location {
        let inner = match self {
            Location::Named(_, inner) => inner.clone(),
            other => Arc::new(other.clone()),
        };
        Location::Named(name.into(), inner)
    }
}
