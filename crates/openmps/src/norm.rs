//! Layer norm and RMS norm over the rows of matrices. MPS has no class for either: they are own kernels on every device.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{encode, infer, run_strided};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::multiplication::check_device;
use crate::softmax::check_same;
use crate::vector::Vector;
use openmps_graph::operators::layer_norm::LayerNorm as Operator;

/// Each row over its root mean square, times a weight for each column.
///
/// ```
/// use openmps::{Device, Matrix, RmsNorm, Vector};
/// let device = Device::get(0)?;
/// let input = Matrix::from_slice(&device, 1, 2, &[3.0f32, 4.0])?;
/// let result = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
/// let weight = Vector::from_slice(&device, &[1.0f32, 2.0])?;
/// let command_buffer = device.queue().command_buffer();
/// RmsNorm::new(&device, 0.0)?.encode(&command_buffer, &input, Some(&weight), &result)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert!((result.read::<f32>()?[1] - 8.0 / 12.5f32.sqrt()).abs() < 1e-5);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RmsNorm {
    device: Device,
    epsilon: f64,
}

/// Each row brought to mean 0 and variance 1, times a weight and plus a bias for each column.
///
/// ```
/// use openmps::{Device, LayerNorm, Matrix};
/// let device = Device::get(0)?;
/// let input = Matrix::from_slice(&device, 1, 2, &[3.0f32, 5.0])?;
/// let result = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
/// let command_buffer = device.queue().command_buffer();
/// LayerNorm::new(&device, 0.0)?.encode(&command_buffer, &input, None, None, &result)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(result.read::<f32>()?, [-1.0, 1.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm {
    device: Device,
    epsilon: f64,
}

fn check_epsilon(operation: &'static str, epsilon: f64) -> Result<f64> {
    if epsilon.is_finite() && epsilon >= 0.0 {
        return Ok(epsilon);
    }
    let (got, expected) = (epsilon.to_string(), "a number of at least 0".to_owned());
    Err(Error::Attribute { operation, attribute: "epsilon", got, expected })
}

impl RmsNorm {
    /// A kernel that adds `epsilon` to the mean square.
    ///
    /// ```
    /// assert!(openmps::RmsNorm::new(&openmps::Device::get(0)?, -1.0).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, epsilon: f64) -> Result<RmsNorm> {
        Ok(RmsNorm { device: device.clone(), epsilon: check_epsilon("RmsNorm", epsilon)? })
    }

    /// Encodes it for every row of every matrix. The weight has as many elements as a row, of the same type.
    ///
    /// ```
    /// use openmps::{Device, Error, Matrix, RmsNorm, Vector};
    /// let device = Device::get(0)?;
    /// let input = Matrix::from_slice(&device, 1, 2, &[3.0f32, 4.0])?;
    /// let result = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
    /// let weight = Vector::from_slice(&device, &[1.0f32; 3])?;
    /// let command_buffer = device.queue().command_buffer();
    /// let error = RmsNorm::new(&device, 1e-6)?.encode(&command_buffer, &input, Some(&weight), &result).unwrap_err();
    /// assert!(matches!(error, Error::Shape { what: "the weight", .. }));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(
        &self,
        command_buffer: &CommandBuffer,
        input: &Matrix,
        weight: Option<&Vector>,
        result: &Matrix,
    ) -> Result<()> {
        check_device("RmsNorm", &self.device, command_buffer)?;
        encode_norm("RmsNorm", false, self.epsilon, command_buffer, input, [weight, None], result)
    }
}

impl LayerNorm {
    /// A kernel that adds `epsilon` to the variance.
    ///
    /// ```
    /// assert!(openmps::LayerNorm::new(&openmps::Device::get(0)?, f64::NAN).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, epsilon: f64) -> Result<LayerNorm> {
        Ok(LayerNorm { device: device.clone(), epsilon: check_epsilon("LayerNorm", epsilon)? })
    }

    /// Encodes it for every row of every matrix. Weight and bias have as many elements as a row, of the same type.
    ///
    /// ```
    /// use openmps::{Device, LayerNorm, Matrix, Vector};
    /// let device = Device::get(0)?;
    /// let input = Matrix::from_slice(&device, 1, 2, &[3.0f32, 5.0])?;
    /// let result = Matrix::from_slice(&device, 1, 2, &[0.0f32; 2])?;
    /// let bias = Vector::from_slice(&device, &[10.0f32, 20.0])?;
    /// let command_buffer = device.queue().command_buffer();
    /// LayerNorm::new(&device, 0.0)?.encode(&command_buffer, &input, None, Some(&bias), &result)?;
    /// command_buffer.commit()?;
    /// command_buffer.wait_until_completed()?;
    /// assert_eq!(result.read::<f32>()?, [9.0, 21.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(
        &self,
        command_buffer: &CommandBuffer,
        input: &Matrix,
        weight: Option<&Vector>,
        bias: Option<&Vector>,
        result: &Matrix,
    ) -> Result<()> {
        check_device("LayerNorm", &self.device, command_buffer)?;
        encode_norm("LayerNorm", true, self.epsilon, command_buffer, input, [weight, bias], result)
    }
}

fn encode_norm(
    operation: &'static str,
    centred: bool,
    epsilon: f64,
    command_buffer: &CommandBuffer,
    input: &Matrix,
    weights: [Option<&Vector>; 2],
    result: &Matrix,
) -> Result<()> {
    check_same(operation, input, result)?;
    let (scale, bias) = (weights[0].is_some(), weights[1].is_some());
    let operator = Operator { begin: -1, epsilon, scale, bias, centred, statistics: false };
    let mut inputs = vec![input.view()?];
    let mut resources = vec![input.resource("the input", Access::Read), result.resource("the result", Access::Write)];
    for (what, vector) in ["the weight", "the bias"].into_iter().zip(weights) {
        let Some(vector) = vector else { continue };
        let (length, got) = (vector.descriptor().length(), vector.descriptor().data_type());
        if length != input.columns() {
            let (got, expected) = (length.to_string(), input.columns().to_string());
            return Err(Error::Shape { operation, what, got, expected });
        }
        if got != input.data_type() {
            return Err(Error::DataType { operation, what, got, expected: input.data_type().to_string() });
        }
        inputs.push(vector.first()?);
        resources.push(vector.resource(what, Access::Read));
    }
    if !input.data_type().is_float() {
        let (got, expected) = (input.data_type(), "float".to_owned());
        return Err(Error::DataType { operation, what: "the input", got, expected });
    }
    infer(&operator, &inputs)?;
    let to = result.view()?;
    encode(command_buffer, operation, resources, move |queue| Ok(run_strided(&operator, queue, &inputs, &[to])?))
}
