//! How work along one axis of a dense tensor is laid out.

/// A dense tensor seen as lines: `outer` x `size` x `inner`; a line steps over `inner`.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Product of the dimensions before the axis.
    pub outer: usize,
    /// Elements of a line.
    pub size: usize,
    /// Product of the dimensions after the axis.
    pub inner: usize,
}
