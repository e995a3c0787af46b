//! Arrays of the crate `ndarray`: feature `ndarray`.

use crate::data_type::Element;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::{Matrix, TensorData};
use ::ndarray::{Array2, ArrayBase, ArrayD, Data, Dimension, Ix2, IxDyn};

/// The elements in row-major order, which most arrays have already.
fn dense<T: Element, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> std::borrow::Cow<'_, [T]> {
    match array.as_slice() {
        Some(values) => values.into(),
        None => array.iter().copied().collect::<Vec<T>>().into(),
    }
}

fn array<T: Element>(shape: &[usize], values: Vec<T>) -> Result<ArrayD<T>> {
    let count = values.len();
    ArrayD::from_shape_vec(IxDyn(shape), values).map_err(|_| {
        let (got, expected) = (format!("{count} values"), format!("as many as {shape:?} has"));
        Error::Shape { operation: "to_ndarray", what: "the tensor", got, expected }
    })
}

impl TensorData {
    /// A tensor with a copy of an array's elements, of any strides.
    ///
    /// ```
    /// use ndarray::array;
    /// use openmps::{Device, TensorData};
    /// let x = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let tensor = TensorData::from_ndarray(&Device::get(0)?, &x.t())?;
    /// assert_eq!((tensor.shape(), tensor.read::<f32>()?), (&[3, 2][..], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_ndarray<T: Element, D: Dimension>(
        device: &Device,
        array: &ArrayBase<impl Data<Elem = T>, D>,
    ) -> Result<TensorData> {
        TensorData::from_slice(device, array.shape(), &dense(array))
    }

    /// A copy of the elements as an array.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// let tensor = TensorData::from_slice(&Device::get(0)?, &[2, 2], &[1u32, 2, 3, 4])?;
    /// assert_eq!(tensor.to_ndarray::<u32>()?[[1, 0]], 3);
    /// assert!(tensor.to_ndarray::<f32>().is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        array(self.shape(), self.read()?)
    }
}

impl Matrix {
    /// A matrix with a copy of an array's elements, of any strides.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// let matrix = Matrix::from_ndarray(&Device::get(0)?, &ndarray::array![[1.0f32, 2.0], [3.0, 4.0]].t())?;
    /// assert_eq!(matrix.read::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_ndarray<T: Element>(device: &Device, array: &ArrayBase<impl Data<Elem = T>, Ix2>) -> Result<Matrix> {
        Matrix::from_slice(device, array.nrows(), array.ncols(), &dense(array))
    }

    /// A copy of the elements of a single matrix as an array. Of a batch there are more than that: [`Matrix::read`].
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// let matrix = Matrix::from_slice(&Device::get(0)?, 1, 2, &[1.0f32, 2.0])?;
    /// assert_eq!(matrix.to_ndarray::<f32>()?, ndarray::array![[1.0, 2.0]]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn to_ndarray<T: Element>(&self) -> Result<Array2<T>> {
        if self.matrices() != 1 {
            let (got, expected) = (format!("a batch of {}", self.matrices()), "one".to_owned());
            return Err(Error::Shape { operation: "to_ndarray", what: "the matrix", got, expected });
        }
        let array = array(&[self.rows(), self.columns()], self.read()?)?;
        Ok(array.into_dimensionality().expect("two dimensions"))
    }
}
