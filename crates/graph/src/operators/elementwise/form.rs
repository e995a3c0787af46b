//! What elementwise kernels are told apart by.

use arrayvec::ArrayVec;
use openmps_tile::DType;

/// Element types of an operator's inputs.
pub type DTypes = ArrayVec<DType, 5>;

/// What a kernel depends on besides the operator: everything else is an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Dimensions outside the tile, one program each.
    pub outer: usize,
    /// Rows of a tile; none for a tile of one dimension.
    pub rows: Option<usize>,
    /// Columns of a tile.
    pub columns: usize,
}
