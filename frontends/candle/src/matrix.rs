//! Candle's tensors as matrices of the Rust API, without a copy.

use crate::operand::{data_type, view};
use candle_core::{Error, Result, Storage, Tensor};
use openmps::{Access, Buffer, Device, Matrix, MatrixDescriptor, MatrixMultiplication};

/// Calls `work` with the tensor as a matrix, or a batch of matrices, over the tensor's own memory. It may only be read, and only until
/// `work` returns: later uses of the matrix are [`openmps::Error::Freed`].
///
/// The tensor has two or three dimensions; its rows may be padded, its columns must be neighbours.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu)?;
/// let right = x.narrow(1, 1, 2)?;
/// let read = openmps_candle::with_matrix(&right, |matrix| matrix.read::<f32>().map_err(candle_core::Error::wrap))?;
/// assert_eq!(read, [2.0, 3.0, 5.0, 6.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn with_matrix<R>(tensor: &Tensor, work: impl FnOnce(&Matrix) -> Result<R>) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        candle_core::bail!("a matrix of the host device needs a tensor on the CPU")
    };
    let view = view((storage, layout))?;
    let refused = || Error::msg(format!("a matrix cannot have shape {:?} and strides {:?}", view.shape, view.strides));
    let (matrices, between, rows, columns) = match (&view.shape[..], &view.strides[..]) {
        (&[rows, columns], &[_, _]) => (1, 0, rows, columns),
        (&[matrices, rows, columns], &[between, _, _]) => (matrices, between, rows, columns),
        _ => return Err(refused()),
    };
    let (row_stride, column_stride) = (view.strides[view.rank() - 2], view.strides[view.rank() - 1]);
    if column_stride != 1 && columns > 1 {
        return Err(refused());
    }
    let size = view.dtype.size() as isize;
    let row_bytes = if rows > 1 { row_stride * size } else { columns as isize * size };
    let matrix_bytes = if matrices > 1 { between * size } else { row_bytes * rows as isize };
    let builder = MatrixDescriptor::builder(rows, columns, view.dtype).row_bytes(row_bytes as usize);
    let descriptor = builder.matrices(matrices).matrix_bytes(matrix_bytes as usize).build().map_err(Error::wrap)?;
    let device = Device::host(0).map_err(Error::wrap)?;
    let bytes = descriptor.span_bytes();
    let lent = |buffer: &Buffer| Matrix::new(buffer, &descriptor).map_err(Error::wrap).and_then(|matrix| work(&matrix));
    // SAFETY: the storage is borrowed, and so alive and not written, until this function returns.
    unsafe { Buffer::lend(&device, view.address, bytes, Access::Read, lent) }.map_err(Error::wrap)?
}

/// The product of two matrices of one type through [`MatrixMultiplication`]: operands without a copy where their rows or their columns have
/// neighbours in memory, one command buffer, the result a new tensor of their type. No gradient flows from it; [`crate::matmul`]'s has one.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let x = Tensor::new(&[[1.0f32, 2.0], [3.0, 4.0]], &Device::Cpu)?;
/// assert_eq!(openmps_candle::multiply_matrices(&x, &x.t()?)?.to_vec2::<f32>()?, [[5.0, 11.0], [11.0, 25.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn multiply_matrices(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let ((rows, interior), (_, columns)) = (left.dims2()?, right.dims2()?);
    let Some(data_type) = data_type(left.dtype()) else { candle_core::bail!("a product of {:?}", left.dtype()) };
    let ((left, turn_left), (right, turn_right)) = (by_rows(left)?, by_rows(right)?);
    let device = Device::host(0).map_err(Error::wrap)?;
    let multiply = || -> openmps::Result<_> {
        let kernel = MatrixMultiplication::new(&device, turn_left, turn_right, rows, columns, interior, 1.0, 0.0)?;
        let descriptor = MatrixDescriptor::dense(rows, columns, data_type)?;
        let buffer = Buffer::new(&device, descriptor.span_bytes())?;
        let result = Matrix::new(&buffer, &descriptor)?;
        Ok((kernel, buffer, result))
    };
    let (kernel, buffer, result) = multiply().map_err(Error::wrap)?;
    with_matrix(&left, |left| {
        with_matrix(&right, |right| {
            let encode = || -> openmps::Result<()> {
                let command_buffer = device.queue().command_buffer();
                kernel.encode(&command_buffer, left, right, &result)?;
                command_buffer.commit()?;
                command_buffer.wait_until_completed()
            };
            encode().map_err(Error::wrap)
        })
    })?;
    let bytes = buffer.read::<u8>(0, rows * columns * data_type.size()).map_err(Error::wrap)?;
    Tensor::from_raw_buffer(&bytes, left.dtype(), &[rows, columns], left.device())
}

/// A matrix as its rows lie in memory, and whether it is transposed for that; copied where neither rows nor columns have neighbours there.
fn by_rows(x: &Tensor) -> Result<(Tensor, bool)> {
    match *x.stride() {
        [row, 1] if row > 0 => Ok((x.clone(), false)),
        [1, column] if column > 0 => Ok((x.t()?, true)),
        _ => Ok((x.contiguous()?, false)),
    }
}
