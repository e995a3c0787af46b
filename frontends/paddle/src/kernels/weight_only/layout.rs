//! Where the integers of a weight lie: as kernels for GPUs with tensor cores read them, or row by row as for those before.

use super::super::compose::Compose;
use crate::error::{Result, refuse};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::{DType, View};

/// An architecture of those with tensor cores for integers.
pub(super) const TENSOR_CORES: i32 = 80;

/// How wide an integer is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    Eight,
    Four,
}

impl Bits {
    pub fn of_algorithm(name: &str) -> Result<Bits> {
        match name {
            "weight_only_int8" => Ok(Bits::Eight),
            "weight_only_int4" => Ok(Bits::Four),
            _ => Err(refuse("algo", name, "weight_only_int8, weight_only_int4 or llm.int8")),
        }
    }

    pub fn of_type(name: &str) -> Result<Bits> {
        match name {
            "int8" => Ok(Bits::Eight),
            "int4" => Ok(Bits::Four),
            _ => Err(refuse("weight_dtype", name, "int8 or int4")),
        }
    }

    /// The largest integer that is used, to either side of zero.
    pub fn largest(self) -> f64 {
        if self == Bits::Eight { 127.0 } else { 7.0 }
    }

    /// What is added so that no integer is negative.
    fn offset(self) -> f64 {
        if self == Bits::Eight { 128.0 } else { 8.0 }
    }

    pub fn in_a_byte(self) -> usize {
        if self == Bits::Eight { 1 } else { 2 }
    }
}

/// The order of a weight's integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Tiles of 64 rows of a few columns, with rows and pairs in the order in which tensor cores take them from registers.
    Tiles,
    /// Row by row, pairs interleaved.
    Rows,
}

/// How axes of a matrix are split, and in which order their parts are stored: where each axis of the stored form is in the split one.
struct Order {
    split: Vec<usize>,
    stored: Vec<usize>,
}

impl Layout {
    /// Where no architecture is named, as without CUDA, integers lie as for tensor cores.
    pub fn of(arch: i32) -> Result<Layout> {
        match arch {
            0 | 75 | 80 | 86 | 89 | 90 => Ok(Layout::Tiles),
            70 => Ok(Layout::Rows),
            _ => Err(refuse("arch", arch, "70, 75, 80, 86, 89 or 90, or 0 for none")),
        }
    }

    /// Tiles are whole, and so are groups of integers that are interleaved.
    pub fn check(self, bits: Bits, [rows, columns]: [usize; 2]) -> Result<()> {
        let [of_rows, of_columns] = match self {
            Layout::Tiles => [64, 2 * bits.in_a_byte()],
            Layout::Rows => [1, 4 * bits.in_a_byte()],
        };
        if rows.is_multiple_of(of_rows) && columns.is_multiple_of(of_columns) {
            return Ok(());
        }
        let expected = format!("a multiple of {of_rows} rows and {of_columns} columns");
        Err(refuse("(rows, columns) of the weight", (rows, columns), &expected))
    }

    /// Of a matrix (rows, columns); the last axis of what is stored is that of integers that share a byte.
    fn order(self, bits: Bits, [rows, columns]: [usize; 2]) -> Order {
        let (split, stored) = match (self, bits) {
            // Rows by 64, 16, 8, 2 and 1, columns by 2.
            (Layout::Tiles, Bits::Eight) => (vec![rows / 64, 4, 2, 4, 2, columns / 2, 2], vec![5, 0, 6, 1, 3, 4, 2]),
            // Rows by 64, 32, 16, 8, 2 and 1, columns by 4: the pair in a byte is the fourth axis.
            (Layout::Tiles, Bits::Four) => {
                (vec![rows / 64, 2, 2, 2, 4, 2, columns / 4, 4], vec![6, 0, 7, 1, 4, 5, 2, 3])
            }
            (Layout::Rows, Bits::Eight) => (vec![rows * columns / 4, 2, 2], vec![0, 2, 1]),
            (Layout::Rows, Bits::Four) => (vec![rows * columns / 8, 2, 2, 2], vec![0, 3, 1, 2]),
        };
        Order { split, stored }
    }

    /// Writes integers, which come as floats (rows, columns).
    pub fn encode(self, c: &Compose, levels: &View, bits: Bits, to: &View) -> Result<()> {
        let order = self.order(bits, [levels.shape[0], levels.shape[1]]);
        let positive = c.scale(levels, 1.0, bits.offset())?;
        let mut value = c.shaped(&positive, &order.split)?.permuted(&order.stored);
        let last = value.rank() - 1;
        if bits == Bits::Four {
            let [low, high] = [0, 1].map(|at| value.narrowed(last, at, 1, 1));
            value = c.add(&low, &c.scale(&high, 16.0, 0.0)?)?;
        }
        let bytes = View::dense(to.address, DType::U8, &value.shape)?;
        let cast = Elementwise::Unary(Unary::Cast);
        c.run(cast, &[&value], &bytes)
    }

    /// The integers as floats, (columns, rows).
    pub fn decoded(self, c: &Compose, stored: &View, bits: Bits, [rows, columns]: [usize; 2]) -> Result<View> {
        let order = self.order(bits, [rows, columns]);
        let dims: Vec<usize> = order.stored.iter().map(|&axis| order.split[axis]).collect();
        let levels = c.temporary(DType::F32, &[rows, columns])?;
        let to = c.shaped(&levels, &order.split)?.permuted(&order.stored);
        let last = to.rank() - 1;
        let shape = if bits == Bits::Four { [&dims[..last], &[1]].concat() } else { dims };
        let bytes = View::dense(stored.address, DType::U8, &shape)?;
        let cast = Elementwise::Unary(Unary::Cast);
        match bits {
            Bits::Eight => c.run(cast, &[&bytes], &to)?,
            Bits::Four => {
                let [mask, shift] = [15.0, 4.0].map(|value| c.constant(DType::U8, &[1], value));
                let low = c.map(Elementwise::Binary(Binary::BitwiseAnd), &[&bytes, &mask?], &[])?;
                let high = c.map(Elementwise::Binary(Binary::RightShift), &[&bytes, &shift?], &[])?;
                for (at, half) in [low, high].iter().enumerate() {
                    c.run(cast, &[half], &to.narrowed(last, at, 1, 1))?;
                }
            }
        }
        let signed = c.scale(&levels, 1.0, -bits.offset())?.permuted(&[1, 0]);
        c.apply(&openmps_graph::operators::copy::Copy, &[signed])
    }
}
