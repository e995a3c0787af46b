//! Deep learning on Metal Performance Shaders, without lock-in: the public Rust API.

pub use openmps_graph as graph;
pub use openmps_runtime as runtime;
pub use openmps_tile as tile;
