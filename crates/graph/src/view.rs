//! A tensor as kernels see it: address, element type, shape and strides. Borrows nothing; the frontend keeps the memory alive.

use crate::error::{Error, Result};
use arrayvec::ArrayVec;
use openmps_tile::DType;

/// The most dimensions a tensor may have.
pub const MAX_RANK: usize = 10;

/// The most elements that a tensor may have, sizes of zero left out: then counts of elements and of bytes, and strides, never overflow.
pub const MAX_ELEMENTS: usize = isize::MAX as usize / 8;

/// Sizes of the dimensions, outermost first. A scalar has none.
pub type Shape = ArrayVec<usize, MAX_RANK>;

/// Distances between neighbours along each dimension, in elements. Zero repeats an element.
pub type Strides = ArrayVec<isize, MAX_RANK>;

/// A tensor in a device's memory.
#[derive(Clone, Debug)]
pub struct View {
    /// The address of element (0, 0, ...), in the device's address space.
    pub address: usize,
    /// The type of its elements.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Shape,
    /// Its strides, in elements.
    pub strides: Strides,
}

impl View {
    /// A dense, row-major tensor at `address`.
    pub fn dense(address: usize, dtype: DType, dims: &[usize]) -> Result<View> {
        let shape = shape_of(dims)?;
        let strides = dense_strides(&shape);
        Ok(View { address, dtype, shape, strides })
    }

    /// A tensor with strides of its own, one for each dimension.
    pub fn strided(address: usize, dtype: DType, dims: &[usize], strides: &[isize]) -> Result<View> {
        let shape = shape_of(dims)?;
        let mismatch = Error::Strides { rank: shape.len(), strides: strides.len() };
        let strides = Strides::try_from(strides).ok().filter(|strides| strides.len() == shape.len());
        Ok(View { address, dtype, shape, strides: strides.ok_or(mismatch)? })
    }

    /// How many elements it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether its elements lie one after the other in row-major order.
    #[inline]
    pub fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 {
                if stride != expected {
                    return false;
                }
                expected *= size as isize;
            }
        }
        true
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The addresses from its first byte to behind its last one.
    fn span(&self) -> std::ops::Range<usize> {
        let (mut first, mut last) = (self.address, self.address);
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = (size as isize - 1).wrapping_mul(stride).wrapping_mul(self.dtype.size() as isize);
            let end = if reach < 0 { &mut first } else { &mut last };
            *end = end.wrapping_add_signed(reach);
        }
        first..last.wrapping_add(self.dtype.size())
    }

    /// Whether the two may have bytes in common: whether their spans do.
    pub fn overlaps(&self, other: &View) -> bool {
        if self.is_empty() || other.is_empty() {
            return false;
        }
        let (own, others) = (self.span(), other.span());
        own.start < others.end && others.start < own.end
    }

    /// Whether the two are the same elements in the same order.
    pub fn is_same_memory(&self, other: &View) -> bool {
        self.address == other.address && self.shape == other.shape && self.strides == other.strides
    }
}

/// `dims` as a [`Shape`], or an error when there are more than [`MAX_RANK`] or their product is no number of elements.
#[inline]
pub fn shape_of(dims: &[usize]) -> Result<Shape> {
    elements(dims)?;
    Shape::try_from(dims).map_err(|_| Error::Rank(dims.len()))
}

/// How many elements a tensor of these dimensions has: the one place where sizes are multiplied that nobody has checked yet. Sums and
/// products of sizes on the way there saturate, and so are refused here.
#[inline]
pub fn elements(dims: &[usize]) -> Result<usize> {
    let product = dims.iter().try_fold(1_usize, |product, &size| product.checked_mul(size.max(1)));
    match product {
        Some(product) if product <= MAX_ELEMENTS => Ok(if dims.contains(&0) { 0 } else { product }),
        _ => Err(Error::Elements { dims: dims.to_vec() }),
    }
}

/// How many bytes a dense tensor of this type and these dimensions has.
#[inline]
pub fn bytes(dtype: DType, dims: &[usize]) -> Result<usize> {
    Ok(elements(dims)? * dtype.size())
}

/// The strides of a dense, row-major tensor.
#[inline]
pub fn dense_strides(shape: &[usize]) -> Strides {
    let mut strides: Strides = shape.iter().map(|_| 1).collect();
    let mut next = 1;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.wrapping_mul(size as isize);
    }
    strides
}

/// Refuses an output that is not dense, for kernels that write dense memory only.
pub(crate) fn expect_dense(operator: &'static str, view: &View) -> Result<()> {
    if view.is_dense() {
        return Ok(());
    }
    let got = format!("{:?}", view.strides);
    Err(Error::Attribute { operator, attribute: "output's strides", got, expected: "dense".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_whose_product_is_no_number_are_refused() {
        assert_eq!(elements(&[]).unwrap(), 1);
        assert_eq!(elements(&[3, 0, 1 << 20]).unwrap(), 0);
        assert_eq!(bytes(DType::F64, &[1 << 30, 1 << 29]).unwrap(), 1 << 62);
        for dims in [&[1 << 31, 1 << 31][..], &[usize::MAX], &[0, 1 << 40, 1 << 40], &[usize::MAX, usize::MAX]] {
            assert!(matches!(elements(dims), Err(Error::Elements { .. })), "{dims:?}");
            assert!(View::dense(0x1000, DType::U8, dims).is_err(), "{dims:?}");
        }
    }

    #[test]
    fn views_overlap_where_their_spans_do() {
        let view =
            |address, dims: &[usize], strides: &[isize]| View::strided(address, DType::F32, dims, strides).unwrap();
        let x = view(1000, &[4], &[1]);
        assert!(x.overlaps(&view(1012, &[3], &[1])) && !x.overlaps(&view(1016, &[3], &[1])));
        assert!(x.overlaps(&view(1020, &[3], &[-1])) && !x.overlaps(&view(996, &[3], &[-1])));
        assert!(!x.overlaps(&view(1000, &[0], &[1])));
        assert!(x.is_same_memory(&x.clone()) && !x.is_same_memory(&view(1012, &[4], &[-1])));
    }
}
