//! What is computed row by row: softmax and its gradients, the largest values, random numbers.

use super::super::raw::RawCommandBuffer;
use super::super::{Buffer, RawDevice};
use super::view::{data_type, indices, matrix};
use crate::matrix::{Distribution, MatrixCall};
use objc2::AnyThread;
use objc2::rc::Retained;
use objc2_metal_performance_shaders::{
    MPSMatrixFindTopK, MPSMatrixLogSoftMax, MPSMatrixLogSoftMaxGradient, MPSMatrixRandom,
    MPSMatrixRandomDistributionDescriptor, MPSMatrixRandomMTGP32, MPSMatrixRandomPhilox, MPSMatrixSoftMax,
    MPSMatrixSoftMaxGradient,
};

/// Encodes a call of this file's classes; false where it is of another one.
pub fn encode(device: &RawDevice, commands: &RawCommandBuffer, call: &MatrixCall<Buffer>) -> bool {
    match call {
        MatrixCall::SoftMax { input, result, logarithm } => {
            // SAFETY: input and result were checked to have one shape and type.
            unsafe {
                let kernel: Retained<MPSMatrixSoftMax> = if *logarithm {
                    MPSMatrixLogSoftMax::initWithDevice(MPSMatrixLogSoftMax::alloc(), device).into_super()
                } else {
                    MPSMatrixSoftMax::initWithDevice(MPSMatrixSoftMax::alloc(), device)
                };
                kernel.setSourceRows(input.rows);
                kernel.setSourceColumns(input.columns);
                kernel.setBatchSize(input.matrices);
                kernel.encodeToCommandBuffer_inputMatrix_resultMatrix(commands, &matrix(input), &matrix(result));
            }
        }
        MatrixCall::SoftMaxGradient { gradient, output, result, logarithm } => {
            // SAFETY: all three were checked to have one shape and type.
            unsafe {
                let kernel: Retained<MPSMatrixSoftMaxGradient> = if *logarithm {
                    MPSMatrixLogSoftMaxGradient::initWithDevice(MPSMatrixLogSoftMaxGradient::alloc(), device)
                        .into_super()
                } else {
                    MPSMatrixSoftMaxGradient::initWithDevice(MPSMatrixSoftMaxGradient::alloc(), device)
                };
                kernel.setSourceRows(output.rows);
                kernel.setSourceColumns(output.columns);
                kernel.setBatchSize(output.matrices);
                kernel.encodeToCommandBuffer_gradientMatrix_forwardOutputMatrix_resultMatrix(
                    commands,
                    &matrix(gradient),
                    &matrix(output),
                    &matrix(result),
                );
            }
        }
        MatrixCall::TopK { input, indices: places, values } => {
            // SAFETY: shapes and types were checked, the count is at most 16.
            unsafe {
                let kernel = MPSMatrixFindTopK::initWithDevice_numberOfTopKValues(
                    MPSMatrixFindTopK::alloc(),
                    device,
                    values.columns,
                );
                kernel.setSourceRows(input.rows);
                kernel.setSourceColumns(input.columns);
                kernel.setBatchSize(input.matrices);
                kernel.encodeToCommandBuffer_inputMatrix_resultIndexMatrix_resultValueMatrix(
                    commands,
                    &matrix(input),
                    &indices(places),
                    &matrix(values),
                );
            }
        }
        MatrixCall::Random { result, distribution, seed, philox } => {
            let distribution = descriptor(*distribution);
            let (of, seed) = (data_type(result.dtype), *seed as usize);
            // SAFETY: the type is float32, which both generators make, and the distribution was checked.
            unsafe {
                let kernel: Retained<MPSMatrixRandom> = if *philox {
                    MPSMatrixRandomPhilox::initWithDevice_destinationDataType_seed_distributionDescriptor(
                        MPSMatrixRandomPhilox::alloc(),
                        device,
                        of,
                        seed,
                        &distribution,
                    )
                    .into_super()
                } else {
                    MPSMatrixRandomMTGP32::initWithDevice_destinationDataType_seed_distributionDescriptor(
                        MPSMatrixRandomMTGP32::alloc(),
                        device,
                        of,
                        seed,
                        &distribution,
                    )
                    .into_super()
                };
                kernel.setBatchSize(result.matrices);
                kernel.encodeToCommandBuffer_destinationMatrix(commands, &matrix(result));
            }
        }
        _ => return false,
    }
    true
}

fn descriptor(distribution: Distribution) -> Retained<MPSMatrixRandomDistributionDescriptor> {
    type Descriptor = MPSMatrixRandomDistributionDescriptor;
    // SAFETY: plain numbers, checked before.
    unsafe {
        match distribution {
            Distribution::Uniform(low, high) => Descriptor::uniformDistributionDescriptorWithMinimum_maximum(low, high),
            Distribution::Normal(mean, deviation) => {
                Descriptor::normalDistributionDescriptorWithMean_standardDeviation(mean, deviation)
            }
        }
    }
}
