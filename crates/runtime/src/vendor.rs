//! Calls that a device may hand to its vendor's libraries (MPS, MPSGraph): what is computed, from which addresses. A device without one
//! takes none, and the operator computes as it does anywhere.

pub use openmps_metal::engine::{Engine, Family};
pub use openmps_metal::graph;
use openmps_tile::DType;

/// Matrices of one shape in device memory, each row without gaps. Steps count elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrices {
    /// The first element.
    pub address: usize,
    /// The element type.
    pub dtype: DType,
    /// How many there are.
    pub matrices: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
    /// From one row to the next.
    pub row_step: usize,
    /// From one matrix to the next.
    pub matrix_step: usize,
}

impl Matrices {
    /// Whether nothing lies between rows and matrices.
    pub fn is_dense(&self) -> bool {
        (self.rows == 1 || self.row_step == self.columns)
            && (self.matrices == 1 || self.matrix_step == self.rows * self.columns)
    }
}

/// A dense tensor in device memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The first element.
    pub address: usize,
    /// The element type.
    pub dtype: DType,
    /// The lengths, the outermost first.
    pub shape: Vec<usize>,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub enum VendorCall {
    /// `out = alpha * left * right + beta * out`, for each matrix of a batch.
    Product {
        /// The left matrices.
        left: Matrices,
        /// The right ones.
        right: Matrices,
        /// The results.
        out: Matrices,
        /// Whether left and right are read transposed.
        transposed: [bool; 2],
        /// The factor of the product, and of what `out` holds.
        factors: [f64; 2],
    },
    /// Softmax of each row, or its logarithm.
    Softmax {
        /// The rows.
        input: Matrices,
        /// The results.
        out: Matrices,
        /// Whether the logarithm is computed.
        logarithm: bool,
    },
    /// Operations on dense tensors, as MPSGraph has them.
    Graph {
        /// What the choice of the engine depends on: the family,
        family: Family,
        /// the multiplications and additions, or elements where there are none,
        work: u64,
        /// and the innermost length.
        columns: usize,
        /// The operations.
        graph: graph::Graph,
        /// Fed to the graph's inputs, in order.
        inputs: Vec<Tensor>,
        /// Where the results go, in order.
        outputs: Vec<Tensor>,
    },
}

impl VendorCall {
    /// Shapes, for traces.
    pub(crate) fn detail(&self) -> String {
        let matrices = |of: &Matrices| format!("{}x{}x{}", of.matrices, of.rows, of.columns);
        match self {
            VendorCall::Product { left, right, .. } => format!("{} by {}", matrices(left), matrices(right)),
            VendorCall::Softmax { input, .. } => matrices(input),
            VendorCall::Graph { inputs, .. } => {
                let shapes: Vec<String> = inputs.iter().map(|tensor| format!("{:?}", tensor.shape)).collect();
                shapes.join(", ")
            }
        }
    }
}
