//! The layout of matrices in memory, as `MPSMatrixDescriptor` describes it: rows, columns, row bytes, batches.

use crate::error::{Error, Result};
use openmps_graph::view::elements;
use openmps_tile::DType;

/// The layout of a matrix, or of a batch of matrices of one shape: `MPSMatrixDescriptor`. Rows may be padded.
///
/// ```
/// use openmps::{DataType, MatrixDescriptor};
/// let descriptor = MatrixDescriptor::new(2, 3, 16, DataType::F32)?;
/// assert_eq!((descriptor.rows(), descriptor.columns(), descriptor.row_bytes()), (2, 3, 16));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixDescriptor {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) matrices: usize,
    pub(super) row_bytes: usize,
    pub(super) matrix_bytes: usize,
    pub(super) data_type: DType,
}

/// Builds a [`MatrixDescriptor`] whose rows are padded or which has several matrices.
///
/// ```
/// use openmps::{DataType, MatrixDescriptor};
/// let descriptor = MatrixDescriptor::builder(2, 3, DataType::F16).row_bytes(8).matrices(4).matrix_bytes(32).build()?;
/// assert_eq!(descriptor.matrix_bytes(), 32);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixDescriptorBuilder {
    rows: usize,
    columns: usize,
    matrices: usize,
    row_bytes: Option<usize>,
    matrix_bytes: Option<usize>,
    data_type: DType,
}

impl MatrixDescriptorBuilder {
    /// Bytes from one row to the next; those of the columns when it is not set.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert!(MatrixDescriptor::builder(2, 3, DataType::F32).row_bytes(11).build().is_err());
    /// ```
    pub fn row_bytes(mut self, row_bytes: usize) -> Self {
        self.row_bytes = Some(row_bytes);
        self
    }

    /// How many matrices there are; one when it is not set.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::builder(2, 3, DataType::F32).matrices(5).build()?.matrices(), 5);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn matrices(mut self, matrices: usize) -> Self {
        self.matrices = matrices;
        self
    }

    /// Bytes from one matrix to the next; those of the rows when it is not set.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert!(MatrixDescriptor::builder(2, 3, DataType::F32).matrices(2).matrix_bytes(8).build().is_err());
    /// ```
    pub fn matrix_bytes(mut self, matrix_bytes: usize) -> Self {
        self.matrix_bytes = Some(matrix_bytes);
        self
    }

    /// Checks the sizes: [`Error::RowBytes`], [`Error::MatrixBytes`], [`Error::Overflow`].
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::builder(2, 3, DataType::I32).build()?.row_bytes(), 12);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn build(self) -> Result<MatrixDescriptor> {
        let MatrixDescriptorBuilder { rows, columns, matrices, data_type, .. } = self;
        let size = data_type.size();
        let overflow = || Error::Overflow { what: format!("{matrices} matrices of {rows} x {columns} {data_type}") };
        let needed = columns.checked_mul(size).ok_or_else(overflow)?;
        let row_bytes = self.row_bytes.unwrap_or(needed);
        if row_bytes < needed || !row_bytes.is_multiple_of(size) {
            return Err(Error::RowBytes { row_bytes, columns, data_type, needed });
        }
        let needed = rows.checked_mul(row_bytes).ok_or_else(overflow)?;
        let matrix_bytes = self.matrix_bytes.unwrap_or(needed);
        if matrices > 1 && (matrix_bytes < needed || !matrix_bytes.is_multiple_of(size)) {
            return Err(Error::MatrixBytes { matrix_bytes, rows, row_bytes, needed, size });
        }
        matrices.checked_mul(matrix_bytes).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(overflow)?;
        elements(&[matrices, rows, columns]).map_err(|_| overflow())?;
        Ok(MatrixDescriptor { rows, columns, matrices, row_bytes, matrix_bytes, data_type })
    }
}

impl MatrixDescriptor {
    /// One matrix: `matrixDescriptorWithRows:columns:rowBytes:dataType:`.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert!(MatrixDescriptor::new(4, 4, 16, DataType::F32).is_ok());
    /// assert!(MatrixDescriptor::new(4, 4, 12, DataType::F32).is_err());
    /// ```
    pub fn new(rows: usize, columns: usize, row_bytes: usize, data_type: DType) -> Result<MatrixDescriptor> {
        MatrixDescriptor::builder(rows, columns, data_type).row_bytes(row_bytes).build()
    }

    /// One matrix whose rows follow each other without padding.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::BF16)?.row_bytes(), 10);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn dense(rows: usize, columns: usize, data_type: DType) -> Result<MatrixDescriptor> {
        MatrixDescriptor::builder(rows, columns, data_type).build()
    }

    /// A builder: `matrixDescriptorWithRows:columns:matrices:rowBytes:matrixBytes:dataType:`.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::builder(1, 1, DataType::U8).build()?.columns(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn builder(rows: usize, columns: usize, data_type: DType) -> MatrixDescriptorBuilder {
        MatrixDescriptorBuilder { rows, columns, matrices: 1, row_bytes: None, matrix_bytes: None, data_type }
    }

    /// Row bytes that begin every row at a multiple of 16 bytes, which kernels like best: `rowBytesForColumns:dataType:`.
    ///
    /// ```
    /// use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::row_bytes_for_columns(5, DataType::F32), 32);
    /// ```
    pub fn row_bytes_for_columns(columns: usize, data_type: DType) -> usize {
        (columns.saturating_mul(data_type.size())).checked_next_multiple_of(16).unwrap_or(usize::MAX)
    }

    /// Rows of each matrix.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.rows(), 4);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each matrix.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.columns(), 5);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How many matrices.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.matrices(), 1);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// Bytes from one row to the next.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.row_bytes(), 20);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Bytes from one matrix to the next.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.matrix_bytes(), 80);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn matrix_bytes(&self) -> usize {
        self.matrix_bytes
    }

    /// The type of the elements.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::dense(4, 5, DataType::F32)?.data_type(), DataType::F32);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self) -> DType {
        self.data_type
    }

    /// Bytes from the first element to the end of the last.
    ///
    /// ```
    /// # use openmps::{DataType, MatrixDescriptor};
    /// assert_eq!(MatrixDescriptor::new(2, 1, 16, DataType::F32)?.span_bytes(), 20);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn span_bytes(&self) -> usize {
        if self.rows == 0 || self.columns == 0 || self.matrices == 0 {
            return 0;
        }
        (self.matrices - 1) * self.matrix_bytes
            + (self.rows - 1) * self.row_bytes
            + self.columns * self.data_type.size()
    }
}
