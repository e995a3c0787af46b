//! Executes unchanged Metal Shading Language text on a CPU.

mod address_space;
mod cache;
mod compile;
mod dispatch;
mod error;
mod frame;
mod grid;
mod image;
mod library;
pub mod limits;
mod prelude;
mod source;
mod threadgroup;
mod toolchain;
mod trap;
mod watchdog;

pub use dispatch::{Argument, Dispatch, Report};
pub use error::{Error, Result};
pub use grid::{Grid, Schedule};
pub use library::{Function, Library};
