//! Tensors that graphs are fed with and give back: `MPSGraphTensorData`.

use crate::buffer::Buffer;
use crate::data_type::Element;
use crate::device::Device;
use crate::error::{Error, Result};
use openmps_graph::Meta;
use openmps_graph::view::shape_of;
use openmps_tile::DType;

/// A dense tensor in a buffer: `MPSGraphTensorData`. Clones are the same memory.
///
/// ```
/// use openmps::{Device, TensorData};
/// let tensor = TensorData::from_slice(&Device::get(0)?, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(tensor.shape(), [2, 2]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorData {
    pub(super) buffer: Buffer,
    pub(super) offset: usize,
    pub(super) meta: Meta,
}

impl TensorData {
    /// A tensor from byte `offset` of a buffer on: `initWithMTLBuffer:shape:dataType:`.
    ///
    /// ```
    /// use openmps::{Buffer, DataType, Device, TensorData};
    /// let buffer = Buffer::from_slice(&Device::get(0)?, &[1i32, 2, 3])?;
    /// assert_eq!(TensorData::new(&buffer, 4, &[2], DataType::I32)?.read::<i32>()?, [2, 3]);
    /// assert!(TensorData::new(&buffer, 4, &[3], DataType::I32).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(buffer: &Buffer, offset: usize, shape: &[usize], data_type: DType) -> Result<TensorData> {
        let meta = Meta { dtype: data_type, shape: shape_of(shape)? };
        buffer.check_range(offset, meta.bytes()?)?;
        buffer.check_alignment(offset, data_type.size())?;
        Ok(TensorData { buffer: buffer.clone(), offset, meta })
    }

    /// A tensor with a copy of the values, in row-major order.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// assert!(TensorData::from_slice(&Device::get(0)?, &[3], &[1.0f32]).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_slice<T: Element>(device: &Device, shape: &[usize], values: &[T]) -> Result<TensorData> {
        TensorData::new(&Buffer::from_slice(device, values)?, 0, shape, T::DATA_TYPE)
    }

    /// A tensor of any type with a copy of its bytes, in row-major order and the machine's order of bytes. A boolean is 0 or 1.
    ///
    /// ```
    /// use openmps::{DataType, Device, TensorData};
    /// let tensor = TensorData::from_bytes(&Device::get(0)?, &[2], DataType::Bool, &[1, 0])?;
    /// assert_eq!(tensor.bytes()?, [1, 0]);
    /// assert!(TensorData::from_bytes(&Device::get(0)?, &[2], DataType::Bool, &[1, 2]).is_err(), "2 is no boolean");
    /// assert!(TensorData::from_bytes(&Device::get(0)?, &[2], DataType::I16, &[1, 2]).is_err(), "too short");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_bytes(device: &Device, shape: &[usize], data_type: DType, bytes: &[u8]) -> Result<TensorData> {
        let needed = Meta { dtype: data_type, shape: shape_of(shape)? }.bytes()?;
        let refuse = |got, expected| Err(Error::Shape { operation: "from_bytes", what: "the slice", got, expected });
        if bytes.len() != needed {
            return refuse(format!("{} bytes", bytes.len()), format!("{needed} bytes of {data_type}"));
        }
        if data_type == DType::Bool
            && let Some(wrong) = bytes.iter().find(|&&byte| byte > 1)
        {
            return refuse(format!("a {wrong}"), "0 or 1 for each boolean".to_owned());
        }
        TensorData::new(&Buffer::from_slice(device, bytes)?, 0, shape, data_type)
    }

    /// A copy of the tensor's bytes.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// assert_eq!(TensorData::from_slice(&Device::get(0)?, &[1], &[258_i16])?.bytes()?, 258_i16.to_ne_bytes());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.buffer.read_at(self.offset, self.meta.bytes()?)
    }

    /// Copies the tensor's bytes into a slice of just their number.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// let (tensor, mut bytes) = (TensorData::from_slice(&Device::get(0)?, &[2], &[7u8, 8])?, [0; 2]);
    /// tensor.read_bytes_into(&mut bytes)?;
    /// assert_eq!(bytes, [7, 8]);
    /// assert!(tensor.read_bytes_into(&mut [0; 3]).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read_bytes_into(&self, bytes: &mut [u8]) -> Result<()> {
        let needed = self.meta.bytes()?;
        if bytes.len() != needed {
            let (got, expected) = (format!("{} bytes", bytes.len()), format!("{needed}"));
            return Err(Error::Shape { operation: "read_bytes_into", what: "the slice", got, expected });
        }
        self.buffer.read_rows(&[self.offset], bytes)
    }

    /// The elements in row-major order.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// assert_eq!(TensorData::from_slice(&Device::get(0)?, &[1], &[7u8])?.read::<u8>()?, [7]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        if self.meta.dtype != T::DATA_TYPE {
            let (got, expected) = (self.meta.dtype, T::DATA_TYPE.to_string());
            return Err(Error::DataType { operation: "read", what: "the tensor", got, expected });
        }
        self.buffer.read_at(self.offset, self.meta.shape.iter().product())
    }

    /// The dimensions.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// assert_eq!(TensorData::from_slice(&Device::get(0)?, &[1], &[7u8])?.shape(), [1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        &self.meta.shape
    }

    /// The type of the elements.
    ///
    /// ```
    /// use openmps::{DataType, Device, TensorData};
    /// assert_eq!(TensorData::from_slice(&Device::get(0)?, &[1], &[7u8])?.data_type(), DataType::U8);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self) -> DType {
        self.meta.dtype
    }

    /// The buffer.
    ///
    /// ```
    /// use openmps::{Device, TensorData};
    /// assert_eq!(TensorData::from_slice(&Device::get(0)?, &[1], &[7u8])?.data().len(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data(&self) -> &Buffer {
        &self.buffer
    }

    /// Where it lies.
    pub(super) fn address(&self) -> usize {
        self.buffer.address(self.offset)
    }
}
