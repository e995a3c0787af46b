//! The largest elements of each row and where they are: `MPSMatrixFindTopK`.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{encode, infer, run_strided};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::multiplication::check_device;
use openmps_graph::operators::elementwise::{Call, Elementwise, Unary};
use openmps_graph::operators::sort::TopK;
use openmps_graph::{Operator, View};
use openmps_tile::DType;

/// The `k` largest elements of each row in descending order, with their columns: `MPSMatrixFindTopK`. MPS stops at 16; here `k` may be any
/// number up to the columns.
///
/// ```
/// use openmps::{Device, Matrix, MatrixFindTopK};
/// let device = Device::get(0)?;
/// let input = Matrix::from_slice(&device, 1, 4, &[3.0f32, 9.0, 1.0, 7.0])?;
/// let indices = Matrix::from_slice(&device, 1, 2, &[0u32; 2])?;
/// let values = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
/// let command_buffer = device.queue().command_buffer();
/// MatrixFindTopK::new(&device, 2).encode(&command_buffer, &input, &indices, &values)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!((indices.read::<u32>()?, values.read::<f32>()?), (vec![1, 3], vec![9.0, 7.0]));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixFindTopK {
    device: Device,
    k: usize,
}

const OPERATION: &str = "MatrixFindTopK";

impl MatrixFindTopK {
    /// `initWithDevice:numberOfTopKValues:`
    ///
    /// ```
    /// openmps::MatrixFindTopK::new(&openmps::Device::get(0)?, 5);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, k: usize) -> MatrixFindTopK {
        MatrixFindTopK { device: device.clone(), k }
    }

    /// Encodes it: `encodeToCommandBuffer:inputMatrix:resultIndexMatrix:resultValueMatrix:`. Indices are uint32, as MPS's, int32 or int64. NaN is above every
    /// number.
    ///
    /// ```
    /// use openmps::{Device, Error, Matrix, MatrixFindTopK};
    /// let device = Device::get(0)?;
    /// let (input, values) = (Matrix::from_slice(&device, 1, 2, &[1u8, 2])?, Matrix::from_slice(&device, 1, 3, &[0u8; 3])?);
    /// let indices = Matrix::from_slice(&device, 1, 3, &[0i64; 3])?;
    /// let command_buffer = device.queue().command_buffer();
    /// assert!(MatrixFindTopK::new(&device, 3).encode(&command_buffer, &input, &indices, &values).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(
        &self,
        command_buffer: &CommandBuffer,
        input: &Matrix,
        indices: &Matrix,
        values: &Matrix,
    ) -> Result<()> {
        check_device(OPERATION, &self.device, command_buffer)?;
        if self.k > input.columns() {
            let (got, expected) = (self.k.to_string(), format!("at most {} columns", input.columns()));
            return Err(Error::Attribute { operation: OPERATION, attribute: "k", got, expected });
        }
        let shape = format!("{} x {} x {}", input.matrices(), input.rows(), self.k);
        for (what, matrix) in [("the indices", indices), ("the values", values)] {
            if matrix.shape_text() != shape {
                let (got, expected) = (matrix.shape_text(), shape);
                return Err(Error::Shape { operation: OPERATION, what, got, expected });
            }
        }
        if values.data_type() != input.data_type() {
            let (got, expected) = (values.data_type(), input.data_type().to_string());
            return Err(Error::DataType { operation: OPERATION, what: "the values", got, expected });
        }
        if !matches!(indices.data_type(), DType::U32 | DType::I32 | DType::I64) {
            let (got, expected) = (indices.data_type(), "uint32, int32 or int64".to_owned());
            return Err(Error::DataType { operation: OPERATION, what: "the indices", got, expected });
        }
        let operator = TopK { k: self.k, axis: -1, largest: true };
        let (from, to, index) = (input.view()?, values.view()?, indices.view()?);
        infer(&operator, std::slice::from_ref(&from))?;
        let resources = vec![
            input.resource("the input", Access::Read),
            indices.resource("the indices", Access::Write),
            values.resource("the values", Access::Write),
        ];
        encode(command_buffer, OPERATION, resources, move |queue| {
            if index.dtype == DType::I64 {
                return Ok(run_strided(&operator, queue, &[from], &[to, index])?);
            }
            let wide = queue.allocate((index.len() * DType::I64.size()).max(1))?;
            let wide = (View::dense(wide.address(), DType::I64, &index.shape)?, wide);
            run_strided(&operator, queue, &[from], &[to, wide.0.clone()])?;
            let operator = Elementwise::Unary(Unary::Cast);
            let cast = Call { operator, scalars: Vec::new(), output: Some(index.dtype) };
            Ok(cast.run(queue, &[wide.0], &[index])?)
        })
    }
}
