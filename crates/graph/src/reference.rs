//! Dense float64 arrays, in which every operator's reference is written.

use crate::view::{Shape, dense_strides};
use openmps_tile::DType;

/// A dense row-major array. Integers and booleans are held as float64 too (exact up to 2^53).
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its dimensions.
    pub shape: Shape,
    /// Its elements in row-major order.
    pub data: Vec<f64>,
    /// The element type that these values stand for.
    pub dtype: DType,
}

impl Array {
    /// An array of these elements. Panics when their number does not fit the shape: references run in tests only.
    pub fn new(dims: &[usize], data: Vec<f64>, dtype: DType) -> Array {
        let shape: Shape = dims.iter().copied().collect();
        assert_eq!(shape.iter().product::<usize>(), data.len(), "elements of shape {dims:?}");
        Array { shape, data, dtype }
    }

    /// An array whose element at each index is `value(index)`.
    pub fn from_fn(dims: &[usize], dtype: DType, mut value: impl FnMut(&[usize]) -> f64) -> Array {
        let mut data = Vec::with_capacity(dims.iter().product());
        for_each_index(dims, |index| data.push(value(index)));
        Array::new(dims, data, dtype)
    }

    /// The element at `index`.
    pub fn at(&self, index: &[usize]) -> f64 {
        let strides = dense_strides(&self.shape);
        let offset: isize = index.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
        self.data[offset as usize]
    }

    /// The element that `index` of a larger, broadcast shape refers to.
    pub fn at_broadcast(&self, index: &[usize]) -> f64 {
        let skipped = index.len() - self.shape.len();
        let own: Vec<usize> =
            index[skipped..].iter().zip(&self.shape).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect();
        self.at(&own)
    }
}

/// The sum of the terms, compensated (Neumaier): a float64 kernel is not to be measured against the rounding of its reference.
pub fn sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (mut total, mut lost) = (0.0f64, 0.0f64);
    for term in terms {
        let next = total + term;
        lost += if total.abs() >= term.abs() { (total - next) + term } else { (term - next) + total };
        total = next;
    }
    // The compensation of an infinite sum is NaN.
    if total.is_finite() { total + lost } else { total }
}

/// Calls `visit` with every index of the shape, in row-major order.
pub fn for_each_index(dims: &[usize], mut visit: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0; dims.len()];
    loop {
        visit(&index);
        let mut dimension = dims.len();
        loop {
            if dimension == 0 {
                return;
            }
            dimension -= 1;
            index[dimension] += 1;
            if index[dimension] < dims[dimension] {
                break;
            }
            index[dimension] = 0;
        }
    }
}
