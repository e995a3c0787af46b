//! Triton's intermediate representation without LLVM: what Triton's front end builds where its own native library is not.
//!
//! A [`Context`] holds operations with their blocks and values; a [`Builder`] appends to it; [`passes`] inline calls and simplify; [`print()`]
//! writes TTIR, MLIR's text of a module, which `openmps_tile::parse` reads. Knows no Python, no kernel language and no device.
//!
//! The forms of the text are those of MLIR's dialects: <https://mlir.llvm.org/docs/Dialects> (`arith`, `math`, `scf`, `cf`) and
//! <https://triton-lang.org/main/dialects/TritonOps.html> (`tt`).

pub mod attribute;
pub mod build;
pub mod context;
pub mod location;
pub mod passes;
pub mod print;
pub mod types;
mod verify;

pub use attribute::Attribute;
pub use build::{Builder, Point};
pub use context::{BlockId, Context, Operation, OperationId, RegionId, ValueId};
pub use location::Location;
pub use print::print;
pub use types::{Float, Sign, Space, Type};
pub use verify::verify;

/// What cannot be built, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A result, or why there is none.
pub type Built<T> = Result<T, Refused>;
