//! Kernels with their own algorithm, the host's counterpart of MPS: one file each, plain slices in and out, threads inside.
