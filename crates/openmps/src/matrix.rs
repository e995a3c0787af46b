//! Matrices over buffers, as `MPSMatrix` describes them.

mod descriptor;

pub use descriptor::{MatrixDescriptor, MatrixDescriptorBuilder};

use crate::buffer::{Access, Buffer};
use crate::data_type::Element;
use crate::device::Device;
use crate::encode::Resource;
use crate::error::{Error, Result};
use openmps_graph::View;
use openmps_tile::DType;

/// A matrix, or a batch of them, in a buffer: `MPSMatrix`. Clones are the same memory.
///
/// ```
/// use openmps::{Buffer, DataType, Device, Matrix, MatrixDescriptor};
/// let buffer = Buffer::from_slice(&Device::get(0)?, &[1.0f32, 2.0, 3.0, 4.0])?;
/// let matrix = Matrix::new(&buffer, &MatrixDescriptor::new(2, 2, 8, DataType::F32)?)?;
/// assert_eq!((matrix.rows(), matrix.columns(), matrix.data().len()), (2, 2, 16));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Matrix {
    buffer: Buffer,
    offset: usize,
    descriptor: MatrixDescriptor,
}

impl Matrix {
    /// A matrix at the beginning of a buffer: `initWithBuffer:descriptor:`. Refuses a buffer that is too small or was freed.
    ///
    /// ```
    /// use openmps::{Buffer, DataType, Device, Error, Matrix, MatrixDescriptor};
    /// let buffer = Buffer::new(&Device::get(0)?, 15)?;
    /// let error = Matrix::new(&buffer, &MatrixDescriptor::new(2, 2, 8, DataType::F32)?).unwrap_err();
    /// assert!(matches!(error, Error::BufferTooSmall { length: 15, needed: 16, .. }));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(buffer: &Buffer, descriptor: &MatrixDescriptor) -> Result<Matrix> {
        Matrix::with_offset(buffer, 0, descriptor)
    }

    /// A matrix from byte `offset` of a buffer on: `initWithBuffer:offset:descriptor:`.
    ///
    /// ```
    /// use openmps::{Buffer, DataType, Device, Matrix, MatrixDescriptor};
    /// let buffer = Buffer::from_slice(&Device::get(0)?, &[1.0f32, 2.0, 3.0])?;
    /// let matrix = Matrix::with_offset(&buffer, 4, &MatrixDescriptor::dense(1, 2, DataType::F32)?)?;
    /// assert_eq!(matrix.read::<f32>()?, [2.0, 3.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn with_offset(buffer: &Buffer, offset: usize, descriptor: &MatrixDescriptor) -> Result<Matrix> {
        buffer.check_range(offset, descriptor.span_bytes())?;
        buffer.check_alignment(offset, descriptor.data_type.size())?;
        buffer.check_access("Matrix", "the matrix", Access::Read)?;
        Ok(Matrix { buffer: buffer.clone(), offset, descriptor: descriptor.clone() })
    }

    /// A matrix of zeros in a buffer of its own: `initWithDevice:descriptor:`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Matrix, MatrixDescriptor};
    /// let matrix = Matrix::zeros(&Device::get(0)?, &MatrixDescriptor::dense(1, 3, DataType::I32)?)?;
    /// assert_eq!(matrix.read::<i32>()?, [0; 3]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn zeros(device: &Device, descriptor: &MatrixDescriptor) -> Result<Matrix> {
        Matrix::new(&Buffer::new(device, descriptor.matrices * descriptor.matrix_bytes)?, descriptor)
    }

    /// A dense matrix with a copy of the values, row after row.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 2, 1, &[1u8, 2])?.rows(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn from_slice<T: Element>(device: &Device, rows: usize, columns: usize, values: &[T]) -> Result<Matrix> {
        let matrix = Matrix::zeros(device, &MatrixDescriptor::dense(rows, columns, T::DATA_TYPE)?)?;
        matrix.write(values)?;
        Ok(matrix)
    }

    /// Copies values into the matrix, row after row and matrix after matrix; the padding of rows stays as it is.
    ///
    /// ```
    /// use openmps::{DataType, Device, Matrix, MatrixDescriptor};
    /// let matrix = Matrix::zeros(&Device::get(0)?, &MatrixDescriptor::new(2, 2, 16, DataType::F32)?)?;
    /// matrix.write(&[1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(matrix.data().read::<f32>(0, 6)?, [1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn write<T: Element>(&self, values: &[T]) -> Result<()> {
        self.check_elements::<T>("write", Some(values.len()))?;
        self.buffer.write_rows(&self.row_offsets(), values)
    }

    /// The elements, row after row and matrix after matrix, without the padding of rows. Commands that were not waited for may not
    /// have written theirs.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.read::<i8>()?, [3, 4]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn read<T: Element>(&self) -> Result<Vec<T>> {
        self.check_elements::<T>("read", None)?;
        let MatrixDescriptor { rows, columns, matrices, .. } = self.descriptor;
        let mut values = vec![T::default(); rows * columns * matrices];
        self.buffer.read_rows(&self.row_offsets(), &mut values)?;
        Ok(values)
    }

    fn row_offsets(&self) -> Vec<usize> {
        let MatrixDescriptor { rows, columns, matrices, row_bytes, matrix_bytes, .. } = self.descriptor;
        if columns == 0 {
            return Vec::new();
        }
        let of = |matrix| (0..rows).map(move |row| matrix * matrix_bytes + row * row_bytes);
        (0..matrices).flat_map(of).map(|offset| self.offset + offset).collect()
    }

    fn check_elements<T: Element>(&self, operation: &'static str, count: Option<usize>) -> Result<()> {
        let MatrixDescriptor { rows, columns, matrices, data_type, .. } = self.descriptor;
        if data_type != T::DATA_TYPE {
            let expected = T::DATA_TYPE.to_string();
            return Err(Error::DataType { operation, what: "the matrix", got: data_type, expected });
        }
        match count {
            Some(count) if count != rows * columns * matrices => {
                let (got, expected) = (format!("{count} values"), format!("{matrices} matrices of {rows} x {columns}"));
                Err(Error::Shape { operation, what: "the slice", got, expected })
            }
            _ => Ok(()),
        }
    }

    /// The buffer: `data`.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.data().len(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data(&self) -> &Buffer {
        &self.buffer
    }

    /// The first element's byte in the buffer.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.offset(), 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The layout.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.descriptor().row_bytes(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn descriptor(&self) -> &MatrixDescriptor {
        &self.descriptor
    }

    /// Rows of each matrix.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.rows(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn rows(&self) -> usize {
        self.descriptor.rows
    }

    /// Columns of each matrix.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.columns(), 2);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn columns(&self) -> usize {
        self.descriptor.columns
    }

    /// How many matrices.
    ///
    /// ```
    /// use openmps::{Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.matrices(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn matrices(&self) -> usize {
        self.descriptor.matrices
    }

    /// The type of the elements.
    ///
    /// ```
    /// use openmps::{DataType, Device, Matrix};
    /// assert_eq!(Matrix::from_slice(&Device::get(0)?, 1, 2, &[3i8, 4])?.data_type(), DataType::I8);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self) -> DType {
        self.descriptor.data_type
    }

    /// All matrices as one tensor of three dimensions.
    pub(crate) fn view(&self) -> Result<View> {
        let MatrixDescriptor { rows, columns, matrices, row_bytes, matrix_bytes, data_type } = self.descriptor;
        let size = data_type.size();
        let strides = [(matrix_bytes / size) as isize, (row_bytes / size) as isize, 1];
        Ok(View::strided(self.buffer.address(self.offset), data_type, &[matrices, rows, columns], &strides)?)
    }

    /// Whether both are the same elements of the same buffer.
    pub(crate) fn is_same(&self, other: &Matrix) -> bool {
        self.buffer.is_same(&other.buffer) && self.offset == other.offset && self.descriptor == other.descriptor
    }

    /// The matrix as a command uses it.
    pub(crate) fn resource(&self, what: &'static str, access: Access) -> Resource {
        Resource { what, buffer: self.buffer.clone(), access, range: (self.offset, self.descriptor.span_bytes()) }
    }

    /// "2 matrices of 3 x 4", for errors.
    pub(crate) fn shape_text(&self) -> String {
        format!("{} x {} x {}", self.matrices(), self.rows(), self.columns())
    }
}
