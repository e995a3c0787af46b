//! Matrices packed once for many products.

use super::super::aligned::Aligned;
use super::super::elements;
use super::super::epilogue::Epilogue;
use super::super::microkernel::{Channels, Terms, kernels};
use super::super::product::{Goal, Operand, Product, left_len, pack_left, pack_right_whole, right_len};
use crate::Error;

/// Numbers of a packed matrix at most: what fits a machine's addresses.
const MOST: usize = 1 << 60;

/// A constant matrix of float32, such as a layer's weight, as products read it: packing costs about as much as a product of four rows, and each
/// product packs anew what is not kept so.
///
/// It holds a copy of the matrix, rounded up to whole tiles, in the order of the vector instructions in use. So it is of this process alone, is not
/// written to files, and says nothing of its inside. It may be shared between threads and used by many products at once.
pub struct PackedMatrix {
    side: Side,
    /// Rows and columns of the matrix.
    size: [usize; 2],
    numbers: Aligned,
}

/// Which operand of a product a packed matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left one, as the filters of a 1x1 convolution are: (filters, channels).
    Left,
    /// The right one, as the weight of a linear layer is: (inputs, outputs).
    Right,
}

impl PackedMatrix {
    /// Packs a matrix of `size` rows and columns whose element (i, j) is `matrix[i * strides[0] + j * strides[1]]`.
    pub fn new(side: Side, size: [usize; 2], strides: [usize; 2], matrix: &[f32]) -> Result<PackedMatrix, Error> {
        let last = |axis: usize| size[axis].saturating_sub(1).saturating_mul(strides[axis]);
        if !size.contains(&0) && last(0).saturating_add(last(1)) >= matrix.len() {
            let len = matrix.len();
            return Err(Error::Invalid(format!(
                "PackedMatrix: {len} numbers are no matrix {size:?} of strides {strides:?}"
            )));
        }
        // Rounded up to whole tiles, whose sides are far below this.
        if elements(&size.map(|size| size.saturating_add(1 << 10))) > MOST {
            return Err(Error::Invalid(format!("PackedMatrix: {size:?} numbers are more than {MOST}")));
        }
        let len = match side {
            Side::Left => left_len(size[0], size[1]),
            Side::Right => right_len(size[0], size[1]),
        };
        let mut packed = PackedMatrix { side, size, numbers: Aligned::zeros(len) };
        let matrix = Operand::Strided(matrix.as_ptr(), strides.map(|stride| stride as isize));
        // SAFETY: the last element, and so every one, lies in the slice.
        unsafe {
            match side {
                Side::Left => pack_left(kernels(), (size[0], size[1]), matrix, 1.0, packed.numbers.numbers_mut()),
                Side::Right => pack_right_whole(kernels(), (size[0], size[1]), matrix, packed.numbers.numbers_mut()),
            }
        }
        Ok(packed)
    }

    /// The operand that it was packed as.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Rows and columns of the matrix.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.numbers.bytes()
    }
}

/// `left * weight` and what follows: the rows of `left` are dense and of as many numbers as the weight, packed as the right operand, has rows. The
/// epilogue's channels are the columns, its residual has the layout of `out`: dense rows.
pub fn linear_packed(left: &[f32], weight: &PackedMatrix, out: &mut [f32], epilogue: &Epilogue) -> Result<(), Error> {
    let [depth, columns] = weight.size;
    let rows = out.len().checked_div(columns).unwrap_or(0);
    let fits = |channels: Option<&[f32]>| channels.is_none_or(|channels| channels.len() == columns);
    let addends = fits(epilogue.scale) && fits(epilogue.bias) && epilogue.residual.is_none_or(|r| r.len() == out.len());
    if weight.side != Side::Right || left.len() != rows * depth || out.len() != rows * columns || !addends {
        let (left, out, side) = (left.len(), out.len(), weight.side);
        let weight = weight.size;
        return Err(Error::Invalid(format!(
            "linear: {left} numbers times {side:?} weight {weight:?} to {out}, or what follows"
        )));
    }
    let product = Product {
        rows,
        depth,
        columns,
        terms: Terms::Singles,
        left: Operand::Strided(left.as_ptr(), [depth as isize, 1]),
        right: Operand::Packed(weight.numbers.numbers()),
        factor: 1.0,
        goal: Goal::Memory { first: out.as_mut_ptr(), stride: columns, accumulate: false },
        epilogue: (!epilogue.is_identity()).then_some(epilogue),
        channels: Channels::Columns(0),
        index: 0,
    };
    // SAFETY: the slices have the product's sizes, and so have the epilogue's.
    unsafe { product.run() };
    Ok(())
}
