//! Every environment variable that openmps reads, in one table: `table.rs`. A variable is read when its value is first asked for, checked, and
//! keeps that value. When the first of all is asked for, the whole environment is looked through: each wrong value and each `OPENMPS_` name
//! that is none is said once on standard error, with what is allowed and what is used instead.

mod document;
mod environment;
#[cfg(unix)]
pub mod folder;
mod kind;
mod setting;
mod table;

pub use document::{document, table_for_readme};
pub use environment::say;
pub use kind::Order;
pub use setting::{Audience, Row, Setting};
pub use table::*;

/// What is wrong with the environment as it is now.
pub fn problems() -> Vec<String> {
    environment::problems(TABLE)
}

/// The row of a name such as `OPENMPS_DEVICE`.
pub fn named(name: &str) -> Option<&'static dyn Row> {
    TABLE.iter().copied().find(|row| row.name() == name)
}
