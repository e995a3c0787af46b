//! Steps on the elements of rows that are one pass over them, compiled, where the CPU and the system allow it.
//!
//! Steps on one row each, of equally many columns, are gathered where what lies between them does not depend on them; a sum over the row is known behind the
//! pass that it is part of. What one step makes for another stays in registers. The steps themselves stay, too: they run where rows overlap in memory
//! other than element by element, or where an operand is one element repeated.

mod check;
mod copy;
mod gather;
mod recipe;
pub(super) mod rows;

pub(super) use check::check;
pub(super) use copy::copy_loads;
pub(super) use gather::gather;
