//! What is known of a tensor before it exists.

use crate::error::Result;
use crate::view::Shape;
use openmps_tile::DType;

/// Shape and element type of a tensor that need not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The type of its elements.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Shape,
}

impl Meta {
    /// How many bytes it has as a dense tensor.
    pub fn bytes(&self) -> Result<usize> {
        crate::view::bytes(self.dtype, &self.shape)
    }

    /// How many elements it has.
    pub fn count(&self) -> u64 {
        self.shape.iter().fold(1, |count, &size| count.saturating_mul(size as u64))
    }
}
