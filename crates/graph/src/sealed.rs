//! What keeps the list of operators closed.

/// Implemented by the types in the list of `operators/mod.rs`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no operator of this crate",
    note = "a new operator gets its line in `crates/graph/src/operators/mod.rs`"
)]
pub trait Sealed {}
