//! Products of a matrix with a vector: `MPSMatrixVectorMultiplication`.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{encode, infer};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::multiplication::{Origin, check_device, check_factors, part};
use crate::vector::Vector;
use openmps_graph::operators::matmul::Matmul;

/// `result = alpha * matrix * vector + beta * result`: `MPSMatrixVectorMultiplication`.
///
/// ```
/// use openmps::{Device, Matrix, MatrixVectorMultiplication, Vector};
/// let device = Device::get(0)?;
/// let matrix = Matrix::from_slice(&device, 2, 2, &[1.0f32, 2.0, 3.0, 4.0])?;
/// let vector = Vector::from_slice(&device, &[1.0f32, -1.0])?;
/// let result = Vector::from_slice(&device, &[0.0f32; 2])?;
/// let command_buffer = device.queue().command_buffer();
/// MatrixVectorMultiplication::new(&device, false, 2, 2, 1.0, 0.0).encode(&command_buffer, &matrix, &vector, &result)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(result.read::<f32>()?, [-1.0, -1.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixVectorMultiplication {
    device: Device,
    transpose: bool,
    sizes: [usize; 2],
    factors: [f64; 2],
}

impl MatrixVectorMultiplication {
    /// `initWithDevice:transpose:rows:columns:alpha:beta:`; rows and columns of the matrix as it enters the product.
    ///
    /// ```
    /// use openmps::{Device, MatrixVectorMultiplication};
    /// MatrixVectorMultiplication::new(&Device::get(0)?, true, 2, 3, 1.0, 0.0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, transpose: bool, rows: usize, columns: usize, alpha: f64, beta: f64) -> Self {
        MatrixVectorMultiplication { device: device.clone(), transpose, sizes: [rows, columns], factors: [alpha, beta] }
    }

    /// Encodes the product: `encodeToCommandBuffer:inputMatrix:inputVector:resultVector:`.
    ///
    /// ```
    /// use openmps::{Device, Matrix, MatrixVectorMultiplication, Vector};
    /// let device = Device::get(0)?;
    /// let matrix = Matrix::from_slice(&device, 1, 2, &[1.0f32, 2.0])?;
    /// let vector = Vector::from_slice(&device, &[1.0f32; 3])?;
    /// let kernel = MatrixVectorMultiplication::new(&device, false, 1, 2, 1.0, 0.0);
    /// assert!(kernel.encode(&device.queue().command_buffer(), &matrix, &vector, &vector.clone()).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(
        &self,
        command_buffer: &CommandBuffer,
        matrix: &Matrix,
        vector: &Vector,
        result: &Vector,
    ) -> Result<()> {
        const OPERATION: &str = "MatrixVectorMultiplication";
        check_device(OPERATION, &self.device, command_buffer)?;
        let [rows, columns] = self.sizes;
        let size = if self.transpose { [columns, rows] } else { [rows, columns] };
        check_factors(OPERATION, Some(matrix.data_type()), self.factors)?;
        let view = part((OPERATION, "the matrix"), matrix, Origin::default(), size, (0, 1))?;
        let view = view.without_axis(0);
        for (what, vector, length) in [("the vector", vector, columns), ("the result", result, rows)] {
            let descriptor = vector.descriptor();
            if descriptor.data_type() != matrix.data_type() {
                let (got, expected) = (descriptor.data_type(), matrix.data_type().to_string());
                return Err(Error::DataType { operation: OPERATION, what, got, expected });
            }
            if descriptor.length() != length {
                let (got, expected) = (descriptor.length().to_string(), length.to_string());
                return Err(Error::Shape { operation: OPERATION, what, got, expected });
            }
            if descriptor.vectors() != 1 {
                let (got, expected) = (format!("{} vectors", descriptor.vectors()), "1 vector".to_owned());
                return Err(Error::Shape { operation: OPERATION, what, got, expected });
            }
        }
        let (x, y) = (vector.first()?, result.first()?);
        let resources = vec![
            matrix.resource("the matrix", Access::Read),
            vector.resource("the vector", Access::Read),
            result.resource("the result", Access::Write),
        ];
        let operator = Matmul { transpose_left: self.transpose, transpose_right: false };
        infer(&operator, &[view.clone(), x.clone()])?;
        let factors = self.factors;
        encode(command_buffer, OPERATION, resources, move |queue| {
            Ok(operator.accumulate(queue, [&view, &x], &y, factors)?)
        })
    }
}
