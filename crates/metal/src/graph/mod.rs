//! Graphs of operators for MPSGraph, as plain values: built with their shapes checked, compared as a whole (they are the cache's key), and
//! lowered by `apple::graph` one operation at a time.

mod build;
pub mod operation;
mod shape;
#[cfg(test)]
mod tests;

pub use build::Builder;
pub use operation::{Binary, Operation, Reduction, ScatterMode, Unary, Window};

use openmps_tile::DType;

/// A tensor's type and lengths, the outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The lengths.
    pub shape: Vec<usize>,
}

/// A tensor of a graph: the inputs come first, then one for each operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor(pub(crate) usize);

/// One operation on earlier tensors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// What is computed.
    pub operation: Operation,
    /// From what.
    pub inputs: Vec<Tensor>,
    /// The result's type and lengths.
    pub result: TensorType,
}

/// A checked graph. Made by [`Builder`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    pub(crate) inputs: Vec<TensorType>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<Tensor>,
}

impl Graph {
    /// The inputs' types, in the order in which they are fed.
    pub fn inputs(&self) -> &[TensorType] {
        &self.inputs
    }

    /// The operations in an order in which each comes after what it reads.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The results, in the order in which they are written.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// A tensor's type.
    pub fn type_of(&self, tensor: Tensor) -> &TensorType {
        match self.inputs.get(tensor.0) {
            Some(input) => input,
            None => &self.nodes[tensor.0 - self.inputs.len()].result,
        }
    }

    /// Whether some operation is there only from macOS 15 on.
    pub fn needs_attention(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.operation, Operation::Attention { .. }))
    }
}
