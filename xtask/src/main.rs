//! The task runner of openmps.
fn main() {}
