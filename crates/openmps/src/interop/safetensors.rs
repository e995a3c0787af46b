//! Files of the crate `safetensors`: feature `safetensors`.

use crate::TensorData;
use crate::device::Device;
use crate::error::{Error, Result};
use ::safetensors::tensor::{Dtype, TensorView, View};
use openmps_tile::DType;
use std::borrow::Cow;

/// The types that both have.
const TYPES: &[(DType, Dtype)] = &[
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::U16, Dtype::U16),
    (DType::I16, Dtype::I16),
    (DType::U32, Dtype::U32),
    (DType::I32, Dtype::I32),
    (DType::U64, Dtype::U64),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

impl TensorData {
    /// A tensor with a copy of one of a file's. Floats of 8 bits and fewer, and complex numbers, are refused.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
    /// let bytes = [1.5f32, -2.0].map(f32::to_le_bytes).concat();
    /// let view = TensorView::new(Dtype::F32, vec![2, 1], &bytes).expect("as many bytes");
    /// let file = serialize([("weight", view)], None).expect("a file");
    ///
    /// let file = SafeTensors::deserialize(&file).expect("a file");
    /// let weight = TensorData::from_safetensors(&Device::get(0)?, &file.tensor("weight").expect("it is there"))?;
    /// assert_eq!((weight.shape(), weight.read::<f32>()?), (&[2, 1][..], vec![1.5, -2.0]));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_safetensors(device: &Device, view: &TensorView) -> Result<TensorData> {
        let Some(&(data_type, _)) = TYPES.iter().find(|row| row.1 == view.dtype()) else {
            let (got, expected) = (format!("{:?}", view.dtype()), "a type that openmps has".to_owned());
            return Err(Error::Attribute { operation: "safetensors", attribute: "element type", got, expected });
        };
        TensorData::from_bytes(device, view.shape(), data_type, &in_order(data_type, view.data()))
    }

    /// A copy of the tensor's bytes as `safetensors` writes them.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// use safetensors::tensor::{SafeTensors, serialize};
    /// let tensor = TensorData::from_slice(&Device::get(0)?, &[2, 2], &[1u16, 2, 3, 4])?;
    /// let file = serialize([("ids", tensor.to_safetensors()?)], None).expect("a file");
    /// assert_eq!(SafeTensors::deserialize(&file).expect("a file").tensor("ids").expect("it is there").shape(), [2, 2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn to_safetensors(&self) -> Result<StoredView> {
        let row = TYPES.iter().find(|row| row.0 == self.data_type());
        let Some(&(data_type, dtype)) = row else {
            let (got, expected) = (self.data_type().to_string(), "a type that files have".to_owned());
            return Err(Error::Attribute { operation: "safetensors", attribute: "element type", got, expected });
        };
        let bytes = in_order(data_type, &self.bytes()?).into_owned();
        Ok(StoredView { dtype, shape: self.shape().to_vec(), bytes })
    }
}

/// Bytes of a tensor on their way into a file: `safetensors::View`.
///
/// ```
/// use openmps::{Device, TensorData};
/// use safetensors::View;
/// let view = TensorData::from_slice(&Device::get(0)?, &[3], &[1u8, 2, 3])?.to_safetensors()?;
/// assert_eq!((view.data_len(), view.shape()), (3, &[3][..]));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoredView {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for StoredView {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Files are in little-endian order, memory in the machine's.
fn in_order(data_type: DType, bytes: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        return bytes.into();
    }
    let mut turned = bytes.to_vec();
    turned.chunks_exact_mut(data_type.size()).for_each(<[u8]>::reverse);
    turned.into()
}
