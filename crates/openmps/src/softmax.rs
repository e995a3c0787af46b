//! Softmax and its logarithm over the rows of matrices: `MPSMatrixSoftMax` and `MPSMatrixLogSoftMax`.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{encode, infer, run_aside, run_strided};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::multiplication::check_device;
use openmps_graph::operators::softmax::Softmax;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident, $logarithm:literal, $expected:literal;)*) => {$(
        $(#[$doc])*
        ///
        #[doc = concat!("```\nuse openmps::{Device, Matrix, ", stringify!($name), "};")]
        /// let device = Device::get(0)?;
        /// let input = Matrix::from_slice(&device, 1, 2, &[3.0f32, 3.0])?;
        /// let result = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
        /// let command_buffer = device.queue().command_buffer();
        #[doc = concat!(stringify!($name), "::new(&device).encode(&command_buffer, &input, &result)?;")]
        /// command_buffer.commit()?;
        /// command_buffer.wait_until_completed()?;
        #[doc = concat!("assert!((result.read::<f32>()?[0] - ", $expected, ").abs() < 1e-6);")]
        /// # Ok::<(), openmps::Error>(())
        /// ```
        #[derive(Clone, Debug)]
        pub struct $name {
            device: Device,
        }

        impl $name {
            /// `initWithDevice:`
            ///
            #[doc = concat!("```\nuse openmps::{Device, ", stringify!($name), "};")]
            #[doc = concat!("let kernel = ", stringify!($name), "::new(&Device::get(0)?);")]
            /// # Ok::<(), openmps::Error>(())
            /// ```
            pub fn new(device: &Device) -> Self {
                Self { device: device.clone() }
            }

            /// Encodes it for every row of every matrix: `encodeToCommandBuffer:inputMatrix:resultMatrix:`. float16, bfloat16, float32 and
            /// float64; both matrices have one shape and element type, and are one matrix or share no memory.
            ///
            #[doc = concat!("```\nuse openmps::{Device, Error, Matrix, ", stringify!($name), "};")]
            /// let device = Device::get(0)?;
            /// let (integers, matrix) = (Matrix::from_slice(&device, 1, 2, &[3i32, 3])?, Matrix::from_slice(&device, 1, 2, &[3.0f32; 2])?);
            /// let command_buffer = device.queue().command_buffer();
            #[doc = concat!("let kernel = ", stringify!($name), "::new(&device);")]
            /// assert!(kernel.encode(&command_buffer, &integers, &integers).is_err());
            /// kernel.encode(&command_buffer, &matrix, &matrix)?;
            /// command_buffer.commit()?;
            /// command_buffer.wait_until_completed()?;
            #[doc = concat!("assert!((matrix.read::<f32>()?[0] - ", $expected, ").abs() < 1e-6);")]
            /// # Ok::<(), openmps::Error>(())
            /// ```
            pub fn encode(&self, command_buffer: &CommandBuffer, input: &Matrix, result: &Matrix) -> Result<()> {
                check_device(stringify!($name), &self.device, command_buffer)?;
                encode_rows(stringify!($name), Softmax { axis: -1, logarithm: $logarithm }, command_buffer, input, result)
            }
        }
    )*};
}

kernels! {
    /// `e^x` over the row's sum of these, the row's largest element subtracted first: `MPSMatrixSoftMax`.
    MatrixSoftMax, false, "0.5";
    /// The logarithm of softmax, without forming it: `MPSMatrixLogSoftMax`.
    MatrixLogSoftMax, true, "0.5f32.ln()";
}

fn encode_rows(
    operation: &'static str,
    operator: Softmax,
    command_buffer: &CommandBuffer,
    input: &Matrix,
    result: &Matrix,
) -> Result<()> {
    check_same(operation, input, result)?;
    let (from, to) = (input.view()?, result.view()?);
    infer(&operator, std::slice::from_ref(&from))?;
    if input.is_same(result) {
        let matrix = vec![result.resource("the matrix", Access::Write)];
        return encode(command_buffer, operation, matrix, move |queue| {
            Ok(run_aside(&operator, queue, &[from], &[to])?)
        });
    }
    let resources = vec![input.resource("the input", Access::Read), result.resource("the result", Access::Write)];
    encode(command_buffer, operation, resources, move |queue| Ok(run_strided(&operator, queue, &[from], &[to])?))
}

/// Refuses a result of another shape or element type than the input.
pub(crate) fn check_same(operation: &'static str, input: &Matrix, result: &Matrix) -> Result<()> {
    let what = "the result";
    if result.shape_text() != input.shape_text() {
        return Err(Error::Shape { operation, what, got: result.shape_text(), expected: input.shape_text() });
    }
    if result.data_type() != input.data_type() {
        return Err(Error::DataType {
            operation,
            what,
            got: result.data_type(),
            expected: input.data_type().to_string(),
        });
    }
    Ok(())
}
