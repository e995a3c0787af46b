//! The operators of openmps: what to compute. Each is declared once, with its rules, kernels, reference and edge cases.

pub mod cache;
pub mod entry;
pub mod error;
pub mod formula;
pub mod gradient;
pub mod image;
pub mod layout;
mod meta;
mod movement;
pub mod operator;
pub mod operators;
pub mod prepared;
pub mod program;
mod queue;
pub mod reference;
pub mod reverse;
pub mod rows;
mod sealed;
pub mod tape;
mod tiles;
mod vendor;
pub mod view;
mod walk;

pub use error::{Error, Result};
pub use openmps_tile::DType;
pub use operator::{Meta, Operator};
pub use queue::Queue;
pub use reference::Array;
pub use view::{Shape, Strides, View};
