//! Random matrices: `MPSMatrixRandomPhilox` and `MPSMatrixRandomDistributionDescriptor`.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::{encode, run_strided};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::multiplication::check_device;
use openmps_graph::operators::random::{Law, Random, Source};
use openmps_tile::{DType, bf16, f16};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How random numbers are distributed: `MPSMatrixRandomDistributionDescriptor`.
///
/// ```
/// let distribution = openmps::Distribution::Uniform { minimum: 0.0, maximum: 1.0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Evenly in [minimum, maximum): `uniformDistributionDescriptorWithMinimum:maximum:`. Integers in the same range.
    Uniform {
        /// The smallest number.
        minimum: f64,
        /// Above the largest number.
        maximum: f64,
    },
    /// Normally: `normalDistributionDescriptorWithMean:standardDeviation:`. Float types only.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
    },
}

/// Fills matrices with the numbers of a counter-based generator: `MPSMatrixRandomPhilox`. Every call takes the next stream of the seed;
/// two generators of one seed give the same numbers call by call.
///
/// ```
/// use openmps::{DataType, Device, Distribution, Matrix, MatrixRandom};
/// let device = Device::get(0)?;
/// let matrix = Matrix::from_slice(&device, 10, 10, &[9.0f32; 100])?;
/// let random = MatrixRandom::new(&device, DataType::F32, 42, Distribution::Uniform { minimum: -1.0, maximum: 1.0 })?;
/// let command_buffer = device.queue().command_buffer();
/// random.encode(&command_buffer, &matrix)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert!(matrix.read::<f32>()?.iter().all(|x| (-1.0..1.0).contains(x)));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixRandom {
    device: Device,
    data_type: DType,
    law: Law,
    seed: u64,
    streams: Arc<AtomicU64>,
}

const OPERATION: &str = "MatrixRandom";

impl MatrixRandom {
    /// `initWithDevice:destinationDataType:seed:distributionDescriptor:`
    ///
    /// ```
    /// use openmps::{DataType, Device, Distribution, MatrixRandom};
    /// let normal = Distribution::Normal { mean: 0.0, deviation: 1.0 };
    /// assert!(MatrixRandom::new(&Device::get(0)?, DataType::I32, 1, normal).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(device: &Device, data_type: DType, seed: u64, distribution: Distribution) -> Result<MatrixRandom> {
        let attribute = |attribute, got: f64, expected: &str| {
            Err(Error::Attribute {
                operation: OPERATION,
                attribute,
                got: got.to_string(),
                expected: expected.to_owned(),
            })
        };
        let law = match distribution {
            Distribution::Uniform { minimum, maximum } if !(maximum - minimum).is_finite() || minimum >= maximum => {
                return attribute("maximum", maximum, &format!("a number above the minimum {minimum}"));
            }
            Distribution::Uniform { minimum, maximum } if !holds(data_type, minimum, maximum) => {
                return attribute("maximum", maximum, &format!("with the minimum {minimum} a range of {data_type}"));
            }
            Distribution::Uniform { minimum, maximum } if data_type.is_float() => {
                Law::Uniform { low: minimum, high: maximum }
            }
            Distribution::Uniform { minimum, maximum } if data_type.is_integer() => {
                Law::Integers { low: minimum as i64, high: maximum as i64 }
            }
            Distribution::Normal { deviation, .. } if deviation < 0.0 || deviation.is_nan() => {
                return attribute("deviation", deviation, "a number of at least 0");
            }
            Distribution::Normal { mean, deviation } if data_type.is_float() => Law::Normal { mean, deviation },
            _ => {
                let expected = match distribution {
                    Distribution::Uniform { .. } => {
                        "float, or an integer of 8 to 64 bits but uint16, uint32 and uint64"
                    }
                    Distribution::Normal { .. } => "float for this distribution",
                };
                let (what, expected) = ("the destination", expected.to_owned());
                return Err(Error::DataType { operation: OPERATION, what, got: data_type, expected });
            }
        };
        Ok(MatrixRandom { device: device.clone(), data_type, law, seed, streams: Arc::default() })
    }

    /// Encodes the filling of a matrix: `encodeToCommandBuffer:destinationMatrix:`.
    ///
    /// ```
    /// use openmps::{DataType, Device, Distribution, Matrix, MatrixRandom};
    /// let device = Device::get(0)?;
    /// let random = MatrixRandom::new(&device, DataType::F32, 42, Distribution::Normal { mean: 0.0, deviation: 1.0 })?;
    /// let wrong = Matrix::from_slice(&device, 1, 1, &[0i32])?;
    /// assert!(random.encode(&device.queue().command_buffer(), &wrong).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(&self, command_buffer: &CommandBuffer, destination: &Matrix) -> Result<()> {
        check_device(OPERATION, &self.device, command_buffer)?;
        if destination.data_type() != self.data_type {
            let (got, expected) = (destination.data_type(), self.data_type.to_string());
            return Err(Error::DataType { operation: OPERATION, what: "the destination", got, expected });
        }
        let view = destination.view()?;
        let source = Source { seed: self.seed, offset: self.streams.fetch_add(1, Ordering::Relaxed) };
        let operator = Random { law: self.law, source, dims: view.shape.clone(), dtype: view.dtype };
        let resources = vec![destination.resource("the destination", Access::Write)];
        encode(command_buffer, OPERATION, resources, move |queue| Ok(run_strided(&operator, queue, &[], &[view])?))
    }
}

/// Whether numbers from `minimum` to below `maximum` are numbers of the type, and their distance, too. Integers have whole bounds; others have no say.
fn holds(data_type: DType, minimum: f64, maximum: f64) -> bool {
    let reaches = |largest: f64| minimum >= -largest && maximum <= largest && maximum - minimum <= largest;
    match data_type {
        DType::F16 => reaches(f16::MAX.into()),
        DType::BF16 => reaches(bf16::MAX.into()),
        DType::F32 => reaches(f32::MAX.into()),
        DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let (least, greatest) = data_type.bounds();
            minimum.fract() == 0.0 && maximum.fract() == 0.0 && minimum >= least && maximum <= greatest + 1.0
        }
        _ => true,
    }
}
