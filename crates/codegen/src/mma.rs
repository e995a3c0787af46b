//! The matrix units' shapes: Apple's simdgroup matrices of 8 x 8, and for half types Apple's tensor operations of 16 x 32 x 16 and more, NVIDIA's
//! `mma` of 16 x 8 x 16 and `wgmma` of 64 x 8 x 16; the layouts of products that are computed on them.

use crate::arrangement::Arrangement;
use crate::layout::{IndexBit, Layout, bits_of};
use crate::target::{MatrixUnit, Target};
use openmps_tile::Scalar;

/// Elements that lines of a staged factor are longer than what is in them, so that eight lines of eight elements, a matrix unit's block, lie in
/// different banks.
pub(crate) const PADDING: usize = 8;

/// The shape of a matrix unit's multiply-accumulate: its block of the product, and where the bits of a block's index are kept.
pub(crate) struct MmaShape {
    pub unit: MatrixUnit,
    /// Rows, columns and depth of a block, as numbers of bits.
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    pub of_rows: &'static [IndexBit],
    pub of_columns: &'static [IndexBit],
    /// Registers of a block, as a number of bits.
    pub registers: u8,
}

/// `simdgroup_matrix<T, 8, 8>`: `thread_elements()` are two neighbours along a row.
static SIMDGROUP: MmaShape = MmaShape {
    unit: MatrixUnit::Simdgroup,
    rows: 3,
    columns: 3,
    depth: 3,
    of_rows: &[IndexBit::Thread(1), IndexBit::Thread(2), IndexBit::Thread(4)],
    of_columns: &[IndexBit::Register(0), IndexBit::Thread(0), IndexBit::Thread(3)],
    registers: 1,
};

/// `mpp::tensor_ops::matmul2d`: where a simdgroup's lanes keep a block while it is summed up is Apple's affair. This is where they get it
/// afterwards, four neighbours along a row in a thread.
static TENSOR_OPS: MmaShape = MmaShape {
    unit: MatrixUnit::TensorOps,
    rows: 4,
    columns: 5,
    depth: 4,
    of_rows: &[IndexBit::Thread(1), IndexBit::Thread(2), IndexBit::Thread(4), IndexBit::Register(2)],
    of_columns: &[
        IndexBit::Register(0),
        IndexBit::Register(1),
        IndexBit::Thread(0),
        IndexBit::Thread(3),
        IndexBit::Register(3),
    ],
    registers: 4,
};

/// `mma.sync.aligned.m16n8k16` with float32 sums.
static WARP: MmaShape = MmaShape {
    unit: MatrixUnit::Warp,
    rows: 4,
    columns: 3,
    depth: 4,
    of_rows: &[IndexBit::Thread(2), IndexBit::Thread(3), IndexBit::Thread(4), IndexBit::Register(1)],
    of_columns: &[IndexBit::Register(0), IndexBit::Thread(0), IndexBit::Thread(1)],
    registers: 2,
};

/// `wgmma.mma_async.m64n8k16` and its multiples along the columns, with float32 sums: each of four warps has the rows and columns of an `mma`.
static WARPGROUP: MmaShape = MmaShape {
    unit: MatrixUnit::Warpgroup,
    rows: 6,
    of_rows: &[
        IndexBit::Thread(2),
        IndexBit::Thread(3),
        IndexBit::Thread(4),
        IndexBit::Register(1),
        IndexBit::Thread(5),
        IndexBit::Thread(6),
    ],
    ..WARP
};

impl MmaShape {
    /// The unit for factors of a type in a product of these sizes; none where they are too small, or there is no unit for them.
    pub fn of(target: &Target, factor: Scalar, x: &[usize], y: &[usize]) -> Option<&'static MmaShape> {
        // Batches of products are computed thread by thread.
        if x.len() != 2 {
            return None;
        }
        let shapes: &[&'static MmaShape] = match (target.matrix_unit, factor) {
            (MatrixUnit::Simdgroup, Scalar::F16 | Scalar::BF16 | Scalar::F32) => &[&SIMDGROUP],
            (MatrixUnit::TensorOps, Scalar::F16 | Scalar::BF16) => &[&TENSOR_OPS, &SIMDGROUP],
            // They would round float32, which no kernel here asks for.
            (MatrixUnit::TensorOps, Scalar::F32) => &[&SIMDGROUP],
            (MatrixUnit::Warp, Scalar::F16 | Scalar::BF16) => &[&WARP],
            (MatrixUnit::Warpgroup, Scalar::F16 | Scalar::BF16) => &[&WARPGROUP, &WARP],
            _ => return None,
        };
        shapes.iter().copied().find(|shape| shape.fits(padded(x, y), target.thread_bits()))
    }

    fn fits(&self, [rows, depth, columns]: [usize; 3], thread_bits: usize) -> bool {
        let blocks = bits_of(rows) >= self.rows && bits_of(columns) >= self.columns && bits_of(depth) >= self.depth;
        blocks && thread_bits >= usize::from(self.thread_bits())
    }

    /// Threads that have a block together, as a number of bits.
    fn thread_bits(&self) -> u8 {
        let bit = |place: &IndexBit| if let IndexBit::Thread(bit) = place { bit + 1 } else { 0 };
        self.of_rows.iter().chain(self.of_columns).map(bit).max().unwrap_or(0)
    }

    /// The layout of a left factor whose registers are the unit's blocks already, for the rows that each simdgroup has; none where a
    /// simdgroup has no whole rows, or the unit reads memory only.
    pub fn left_layout(
        &self,
        [rows, depth]: [usize; 2],
        thread_bits: usize,
        arrangement: Arrangement,
    ) -> Option<Layout> {
        let groups = thread_bits - usize::from(self.thread_bits());
        let whole = arrangement == Arrangement::Rows && self.rows + groups <= bits_of(rows);
        let registers = whole && self.unit != MatrixUnit::TensorOps;
        registers.then(|| self.layout([rows, depth], thread_bits, arrangement))
    }

    /// Of a left factor in that layout, how many registers each element of the depth counts for.
    pub fn depth_per_register(&self) -> usize {
        (1 << self.columns) >> self.registers
    }

    /// The depth of a block.
    pub fn depth(&self) -> usize {
        1 << self.depth
    }

    /// The layout of a product: blocks beside each other go to simdgroups (warpgroups) as they are arranged, and then to further registers. Where
    /// a simdgroup multiplies all of its blocks at once, they lie beside each other instead.
    pub fn layout(&self, [rows, columns]: [usize; 2], thread_bits: usize, arrangement: Arrangement) -> Layout {
        let (mut of_rows, mut of_columns) = (self.of_rows.to_vec(), self.of_columns.to_vec());
        let (rows, columns) = (bits_of(rows), bits_of(columns));
        let mut group = self.thread_bits();
        let (mut row_groups, mut column_groups) = (Vec::new(), Vec::new());
        while usize::from(group) < thread_bits {
            let left_rows = rows - of_rows.len() - row_groups.len();
            let left_columns = columns - of_columns.len() - column_groups.len();
            if left_rows + left_columns == 0 {
                break;
            }
            let by_row = match (arrangement, self.unit) {
                // A warpgroup multiplies all columns at once; the rows of a block are read for each of their parts.
                (Arrangement::Rows, _) | (_, MatrixUnit::Warpgroup) => left_rows > 0,
                // What counts is all that a simdgroup has, not how many blocks.
                (_, MatrixUnit::TensorOps) => {
                    left_columns == 0 || left_rows > 0 && rows - row_groups.len() >= columns - column_groups.len()
                }
                (Arrangement::Square, _) => left_columns == 0 || (left_rows > 0 && left_rows >= left_columns),
            };
            if by_row { &mut row_groups } else { &mut column_groups }.push(IndexBit::Thread(group));
            group += 1;
        }
        let mut register = self.registers;
        for (bits, groups, count) in [(&mut of_columns, column_groups, columns), (&mut of_rows, row_groups, rows)] {
            let end = register + (count - bits.len() - groups.len()) as u8;
            let registers = (register..end).map(IndexBit::Register);
            match self.unit {
                MatrixUnit::TensorOps => bits.extend(registers.chain(groups)),
                _ => bits.extend(groups.into_iter().chain(registers)),
            }
            register = end;
        }
        of_columns.extend(of_rows);
        Layout::new(of_columns)
    }
}

/// Rows, depth and columns of a product, each padded to a power of two.
pub(crate) fn padded(x: &[usize], y: &[usize]) -> [usize; 3] {
    let (of_x, of_y) = (&x[x.len() - 2..], &y[y.len() - 2..]);
    [of_x[0], of_x[1], of_y[1]].map(usize::next_power_of_two)
}
