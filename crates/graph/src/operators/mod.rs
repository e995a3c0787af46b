//! Every operator: one file each, or one table for a family whose members are a single expression.

use crate::entry::Entry;

/// The list of operators, by family. Tests, benches and documents iterate over it.
pub static ENTRIES: &[&[&Entry]] = &[];
