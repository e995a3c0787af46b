//! The native module of the wheel.
