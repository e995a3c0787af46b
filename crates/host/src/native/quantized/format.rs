//! The block formats of GGUF files: how many elements a block has and how many bytes.

/// How a row of weights is written: blocks of a few bits for each element, with scales.
///
/// A weight is `scale * q + offset`, where q is an integer of 4 to 8 bits and the scale and the offset are those of 16 or 32 neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// 32 elements of 4 bits, a scale; 8 is zero.
    Q4_0,
    /// 32 elements of 4 bits, a scale and an offset.
    Q4_1,
    /// 32 elements of 8 bits, a scale.
    Q8_0,
    /// 256 elements of 4 bits; each 32 have a scale and an offset of 6 bits, in units of the block's.
    Q4K,
    /// As [`BlockFormat::Q4K`], of 5 bits.
    Q5K,
    /// 256 elements of 6 bits; each 16 have a scale of 8 bits, in units of the block's; 32 is zero.
    Q6K,
}

impl BlockFormat {
    /// All of them.
    pub const ALL: [BlockFormat; 6] =
        [BlockFormat::Q4_0, BlockFormat::Q4_1, BlockFormat::Q8_0, BlockFormat::Q4K, BlockFormat::Q5K, BlockFormat::Q6K];

    /// As GGUF's documents call it.
    pub const fn name(self) -> &'static str {
        match self {
            BlockFormat::Q4_0 => "Q4_0",
            BlockFormat::Q4_1 => "Q4_1",
            BlockFormat::Q8_0 => "Q8_0",
            BlockFormat::Q4K => "Q4_K",
            BlockFormat::Q5K => "Q5_K",
            BlockFormat::Q6K => "Q6_K",
        }
    }

    /// Elements of a block.
    pub const fn elements(self) -> usize {
        match self {
            BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q8_0 => 32,
            BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            BlockFormat::Q4_0 => 2 + 16,
            BlockFormat::Q4_1 => 4 + 16,
            BlockFormat::Q8_0 => 2 + 32,
            BlockFormat::Q4K => 4 + 12 + 128,
            BlockFormat::Q5K => 4 + 12 + 32 + 128,
            BlockFormat::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of the whole blocks of a row of so many elements.
    pub const fn row_bytes(self, columns: usize) -> usize {
        columns / self.elements() * self.bytes()
    }

    /// Elements of the whole blocks of a row of so many bytes.
    pub const fn columns(self, row_bytes: usize) -> usize {
        row_bytes / self.bytes() * self.elements()
    }

    /// Whether q is signed; it fills 7 bits otherwise.
    pub(super) const fn is_signed(self) -> bool {
        matches!(self, BlockFormat::Q8_0 | BlockFormat::Q6K)
    }

    /// Whether each 16 elements have a scale of their own, not each 32.
    pub(super) const fn has_halves(self) -> bool {
        matches!(self, BlockFormat::Q6K)
    }
}
