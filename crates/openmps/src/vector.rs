//! Vectors over buffers, as `MPSVector` and `MPSVectorDescriptor` describe them.

use crate::buffer::{Access, Buffer};
use crate::data_type::Element;
use crate::device::Device;
use crate::encode::Resource;
use crate::error::{Error, Result};
use openmps_graph::View;
use openmps_graph::view::elements;
use openmps_tile::DType;

/// The layout of a vector, or of several of one length: `MPSVectorDescriptor`.
///
/// ```
/// use openmps::{DataType, VectorDescriptor};
/// assert_eq!(VectorDescriptor::new(7, DataType::F32)?.length(), 7);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorDescriptor {
    length: usize,
    vectors: usize,
    vector_bytes: usize,
    data_type: DType,
}

impl VectorDescriptor {
    /// One vector: `vectorDescriptorWithLength:dataType:`.
    ///
    /// ```
    /// use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::new(7, DataType::F16)?.vector_bytes(), 14);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(length: usize, data_type: DType) -> Result<VectorDescriptor> {
        let bytes = length.checked_mul(data_type.size());
        let bytes = bytes.ok_or_else(|| Error::Overflow { what: format!("a vector of {length} {data_type}") })?;
        VectorDescriptor::with_vectors(length, 1, bytes, data_type)
    }

    /// Several vectors: `vectorDescriptorWithLength:vectors:vectorBytes:dataType:`.
    ///
    /// ```
    /// use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::with_vectors(3, 2, 16, DataType::F32)?.vectors(), 2);
    /// assert!(VectorDescriptor::with_vectors(3, 2, 8, DataType::F32).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn with_vectors(
        length: usize,
        vectors: usize,
        vector_bytes: usize,
        data_type: DType,
    ) -> Result<VectorDescriptor> {
        let overflow = || Error::Overflow { what: format!("{vectors} vectors of {length} {data_type}") };
        let needed = length.checked_mul(data_type.size()).ok_or_else(overflow)?;
        if vector_bytes < needed || !vector_bytes.is_multiple_of(data_type.size()) {
            return Err(Error::RowBytes { row_bytes: vector_bytes, columns: length, data_type, needed });
        }
        vectors.checked_mul(vector_bytes).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(overflow)?;
        elements(&[vectors, length]).map_err(|_| overflow())?;
        Ok(VectorDescriptor { length, vectors, vector_bytes, data_type })
    }

    /// Elements of each vector.
    ///
    /// ```
    /// # use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::new(7, DataType::F16)?.length(), 7);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many vectors.
    ///
    /// ```
    /// # use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::new(7, DataType::F16)?.vectors(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn vectors(&self) -> usize {
        self.vectors
    }

    /// Bytes from one vector to the next.
    ///
    /// ```
    /// # use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::new(2, DataType::I64)?.vector_bytes(), 16);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn vector_bytes(&self) -> usize {
        self.vector_bytes
    }

    /// The type of the elements.
    ///
    /// ```
    /// # use openmps::{DataType, VectorDescriptor};
    /// assert_eq!(VectorDescriptor::new(2, DataType::I64)?.data_type(), DataType::I64);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self) -> DType {
        self.data_type
    }

    fn span_bytes(&self) -> usize {
        if self.vectors == 0 { 0 } else { (self.vectors - 1) * self.vector_bytes + self.length * self.data_type.size() }
    }
}

/// A vector, or several, in a buffer: `MPSVector`. Clones are the same memory.
///
/// ```
/// use openmps::{Device, Vector};
/// let vector = Vector::from_slice(&Device::get(0)?, &[1.0f32, 2.0])?;
/// assert_eq!(vector.read::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Vector {
    buffer: Buffer,
    offset: usize,
    descriptor: VectorDescriptor,
}

impl Vector {
    /// Vectors from byte `offset` of a buffer on: `initWithBuffer:offset:descriptor:`.
    ///
    /// ```
    /// use openmps::{Buffer, DataType, Device, Vector, VectorDescriptor};
    /// let buffer = Buffer::from_slice(&Device::get(0)?, &[1i32, 2, 3])?;
    /// assert_eq!(Vector::new(&buffer, 4, &VectorDescriptor::new(2, DataType::I32)?)?.read::<i32>()?, [2, 3]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(buffer: &Buffer, offset: usize, descriptor: &VectorDescriptor) -> Result<Vector> {
        buffer.check_range(offset, descriptor.span_bytes())?;
        buffer.check_alignment(offset, descriptor.data_type.size())?;
        buffer.check_access("Vector", "the vector", Access::Read)?;
        Ok(Vector { buffer: buffer.clone(), offset, descriptor: descriptor.clone() })
    }

    /// Vectors of zeros in a buffer of their own: `initWithDevice:descriptor:`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Vector, VectorDescriptor};
    /// let vector = Vector::zeros(&Device::get(0)?, &VectorDescriptor::new(2, DataType::I32)?)?;
    /// assert_eq!(vector.read::<i32>()?, [0, 0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn zeros(device: &Device, descriptor: &VectorDescriptor) -> Result<Vector> {
        Vector::new(&Buffer::new(device, descriptor.vectors * descriptor.vector_bytes)?, 0, descriptor)
    }

    /// A vector with a copy of the values.
    ///
    /// ```
    /// use openmps::{Device, Vector};
    /// assert_eq!(Vector::from_slice(&Device::get(0)?, &[1u8, 2])?.descriptor().length(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_slice<T: Element>(device: &Device, values: &[T]) -> Result<Vector> {
        let buffer = Buffer::from_slice(device, values)?;
        Vector::new(&buffer, 0, &VectorDescriptor::new(values.len(), T::DATA_TYPE)?)
    }

    /// The elements, vector after vector.
    ///
    /// ```
    /// use openmps::{Device, Vector};
    /// assert_eq!(Vector::from_slice(&Device::get(0)?, &[1u8, 2])?.read::<u8>()?, [1, 2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        let got = self.descriptor.data_type;
        if got != T::DATA_TYPE {
            let (operation, what) = ("read", "the vector");
            return Err(Error::DataType { operation, what, got, expected: T::DATA_TYPE.to_string() });
        }
        let VectorDescriptor { length, vectors, vector_bytes, .. } = self.descriptor;
        // Vectors without elements may lie anywhere.
        let present = if length == 0 { 0 } else { vectors };
        let offsets: Vec<usize> = (0..present).map(|vector| self.offset + vector * vector_bytes).collect();
        let mut values = vec![T::default(); length * vectors];
        self.buffer.read_rows(&offsets, &mut values)?;
        Ok(values)
    }

    /// The buffer.
    ///
    /// ```
    /// use openmps::{Device, Vector};
    /// assert_eq!(Vector::from_slice(&Device::get(0)?, &[1u8, 2])?.data().len(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data(&self) -> &Buffer {
        &self.buffer
    }

    /// The layout.
    ///
    /// ```
    /// use openmps::{Device, Vector};
    /// assert_eq!(Vector::from_slice(&Device::get(0)?, &[1u8, 2])?.descriptor().vectors(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn descriptor(&self) -> &VectorDescriptor {
        &self.descriptor
    }

    /// The first vector as a tensor of one dimension.
    pub(crate) fn first(&self) -> Result<View> {
        Ok(View::dense(self.buffer.address(self.offset), self.descriptor.data_type, &[self.descriptor.length])?)
    }

    pub(crate) fn resource(&self, what: &'static str, access: Access) -> Resource {
        Resource { what, buffer: self.buffer.clone(), access, range: (self.offset, self.descriptor.span_bytes()) }
    }
}
