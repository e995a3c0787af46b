//! How an operator says its gradient: as operators on its inputs, its outputs and the gradients of these. Who records them (a graph under
//! construction, tensors that are computed at once, the float64 references of a test) is a [`Recorder`].

use crate::error::Result;
use crate::meta::Meta;
use crate::operator::Operator;
use std::sync::Arc;

/// A tensor of a recorder, by a number that only the recorder gives and knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node(pub usize);

/// Where the operators of a gradient are written down.
pub trait Recorder {
    /// A value's shape and element type.
    fn meta(&self, value: Node) -> Meta;

    /// The outputs of an operator.
    fn record(&mut self, operator: Arc<dyn Operator>, inputs: &[Node]) -> Result<Vec<Node>>;

    /// The same elements in the same order under another shape of as many.
    fn record_reshape(&mut self, x: Node, dims: &[usize]) -> Result<Node>;
}

/// For each input of an operator its gradient; `None` where it is zero, as that of an index is.
pub type Gradients = Vec<Option<Node>>;

/// One step backwards: an operator's call, and the gradients of its outputs. The words in which operators say theirs are a recorder's methods, in
/// `operators/words.rs`.
pub struct Backward<'a> {
    /// Where the operators are written down.
    pub recorder: &'a mut dyn Recorder,
    /// What the operator was called with.
    pub inputs: &'a [Node],
    /// The results of the forward pass, which a gradient may read instead of computing them again.
    pub outputs: &'a [Node],
    /// The gradient of each output; `None` where nothing depends on it.
    pub upstream: &'a [Option<Node>],
    /// Of which inputs the gradient is asked for; others may be `None` in the answer.
    pub wanted: &'a [bool],
}
