//! The operators that each of Apple's engines must take; `cargo xtask mac-selftest` runs these with the engine forced.

/// Operators that MPS must have taken in at least one of their cases.
pub const OF_MPS: &[&str] = &["matmul", "softmax", "log_softmax"];

/// And those that MPSGraph must have taken: the methods of its tables first.
pub const OF_MPSGRAPH: &[&str] = &[
    "add",
    "multiply",
    "subtract",
    "divide",
    "abs",
    "exp",
    "log",
    "sqrt",
    "maximum",
    "relu",
    "sigmoid",
    "matmul",
    "softmax",
    "log_softmax",
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "layer_norm",
    "convolution",
    "convolution_transpose",
    "pooling",
    "bilinear_interpolation",
    "attention",
    "gather",
    "embedding",
    "gather_nd",
    "take_along_axis",
    "scatter",
    "scatter_nd_add",
    "index_add",
    "put_along_axis",
    "embedding_gradient",
];
