//! Factors in threadgroup memory: which are there, how their elements lie, and how much of the depth fits at a time.

use crate::layout::Layout;
use crate::mma::{MmaShape, PADDING};
use crate::target::MatrixUnit;
use openmps_tile::Scalar;

/// Where a product takes its left factor from.
#[derive(Clone, PartialEq)]
pub(super) enum Left {
    /// Registers in this layout: the matrix unit's blocks, for the rows that each simdgroup sums up.
    Registers(Layout),
    /// Threadgroup memory.
    Memory,
}

/// How a product is computed.
#[derive(Clone)]
pub(super) struct Way {
    pub mma: Option<&'static MmaShape>,
    pub left: Left,
    /// The axis of the left factor along which neighbours lie beside each other: 0 the rows, 1 the depth.
    pub left_inner: usize,
    /// The same of the right factor: 0 the depth, 1 the columns.
    pub right_inner: usize,
}

/// A factor in threadgroup memory.
pub(super) struct Factor {
    /// The axis along which neighbours lie beside each other, and which of both is the depth.
    pub inner: usize,
    depth_axis: usize,
    /// Elements along the other axis.
    lines: usize,
    order: Order,
}

/// Where the elements of a factor are, in elements from its beginning.
enum Order {
    /// Line after line, from one to the next.
    Lines { pitch: usize },
    /// `wgmma`'s core matrices of 8 lines of 16 bytes each, from one to the next along the inner axis and along the other one.
    CoreMatrices { along: usize, across: usize },
}

/// Elements of a side of a core matrix, for the half types that `wgmma` takes.
const CORE: usize = 8;

impl Factor {
    fn new(dims: [usize; 2], [inner, depth_axis]: [usize; 2], padding: usize, unit: Option<MatrixUnit>) -> Factor {
        let (length, lines) = (dims[inner], dims[1 - inner]);
        let order = match unit {
            Some(MatrixUnit::Warpgroup) => {
                // Lanes that write at once have neighbours along a line and then the next lines: their 16 bytes are in different banks.
                let along = CORE * CORE + CORE.max(CORE * CORE * CORE / length);
                Order::CoreMatrices { along, across: length / CORE * along }
            }
            _ => Order::Lines { pitch: length + padding },
        };
        Factor { inner, depth_axis, lines, order }
    }

    /// Elements with the gaps between them.
    fn elements(&self) -> usize {
        match self.order {
            Order::Lines { pitch } => self.lines * pitch,
            Order::CoreMatrices { across, .. } => self.lines / CORE * across,
        }
    }

    /// Elements from one line to the next, where they lie in lines.
    pub fn pitch(&self) -> usize {
        match self.order {
            Order::Lines { pitch } => pitch,
            Order::CoreMatrices { .. } => CORE,
        }
    }

    /// Where the element of this index along either axis is, as an expression.
    pub fn place(&self, index: [&str; 2]) -> String {
        let (inner, line) = (grouped(index[self.inner]), grouped(index[1 - self.inner]));
        match self.order {
            Order::Lines { pitch } => format!("{line} * {pitch} + {inner}"),
            Order::CoreMatrices { along, across } => {
                format!("({inner} >> 3) * {along} + ({line} >> 3) * {across} + ({line} & 7) * {CORE} + ({inner} & 7)")
            }
        }
    }

    /// Whether neighbours along the depth lie beside each other.
    pub fn is_by_depth(&self) -> bool {
        self.inner == self.depth_axis
    }

    /// Elements from one core matrix to the next along the depth, and along the other axis.
    pub fn core_steps(&self) -> [usize; 2] {
        let Order::CoreMatrices { along, across } = self.order else { return [0, 0] };
        if self.is_by_depth() { [along, across] } else { [across, along] }
    }
}

/// An expression that binds as a word does.
fn grouped(expression: &str) -> String {
    if expression.contains(' ') { format!("({expression})") } else { expression.to_owned() }
}

/// The factors of a product in threadgroup memory.
pub(super) struct Staged {
    pub factor: Scalar,
    pub rows: usize,
    pub columns: usize,
    /// How much of the depth is there.
    pub depth: usize,
    /// How often so much is.
    pub parts: usize,
    pub left: Left,
    pub left_factor: Factor,
    pub right_factor: Factor,
}

impl Staged {
    /// Threads that multiply one by one read their columns of the right factor in vectors, without a gap.
    pub fn new(factor: Scalar, [rows, depth, columns]: [usize; 3], way: &Way, parts: usize) -> Staged {
        let unit = way.mma.map(|mma| mma.unit);
        let left_factor = Factor::new([rows, depth], [way.left_inner, 1], PADDING, unit);
        let right_padding = if unit.is_some() { PADDING } else { 0 };
        let right_factor = Factor::new([depth, columns], [way.right_inner, 0], right_padding, unit);
        Staged { factor, rows, columns, depth, parts, left: way.left.clone(), left_factor, right_factor }
    }

    /// Bytes of the left factor, after which the right one begins.
    pub fn left_bytes(&self) -> usize {
        match self.left {
            Left::Registers(_) => 0,
            Left::Memory => (self.left_factor.elements() * self.factor.size()).next_multiple_of(16),
        }
    }

    /// Bytes of both.
    pub fn bytes(&self) -> usize {
        self.left_bytes() + self.right_factor.elements() * self.factor.size()
    }
}
