//! Paddle's inference programs without Paddle: read, lowered to [`openmps::Graph`], compiled for the shapes at hand, run.
//!
//! Both forms are read: PIR (`inference.json`) and the legacy protobuf (`.pdmodel`), with their parameters (`.pdiparams`). One
//! function for each operation makes operators of openmps of it (`lower`); the passes of the graph fold what is constant, give factors,
//! addends and activations to the convolutions and products before them, and find attention.
//!
//! [`Model`] is the way in.

mod course;
mod courses;
mod error;
mod lower;
mod model;
mod onnx;
mod parameters;
pub mod pdmodel;
pub mod pir;
pub mod program;
mod storage;
mod told;

pub use error::{Error, Result};
pub use model::{Format, Model, read_program, supported, unsupported};
