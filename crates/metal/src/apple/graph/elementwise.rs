//! Operations on single elements and reductions: one method of MPSGraph each, by the names that `graph::operation` lists.

use super::RawTensor;
use crate::graph::{Binary, Reduction, Unary};
use objc2_foundation::{NSArray, NSNumber};
use objc2_metal_performance_shaders_graph::{MPSGraph, MPSGraphTensor};

/// A function of one tensor.
///
/// # Safety
/// The tensor's type must be one that the operation takes, which the graph's builder checks.
pub unsafe fn unary(graph: &MPSGraph, operation: Unary, x: &MPSGraphTensor) -> RawTensor {
    // SAFETY: the caller's.
    unsafe {
        match operation {
            Unary::Absolute => graph.absoluteWithTensor_name(x, None),
            Unary::Exponent => graph.exponentWithTensor_name(x, None),
            Unary::Logarithm => graph.logarithmWithTensor_name(x, None),
            Unary::SquareRoot => graph.squareRootWithTensor_name(x, None),
            Unary::ReciprocalSquareRoot => {
                // Replaced under another name in macOS 15; this one is there in all.
                #[allow(deprecated)]
                graph.reverseSquareRootWithTensor_name(x, None)
            }
            Unary::Negative => graph.negativeWithTensor_name(x, None),
            Unary::Reciprocal => graph.reciprocalWithTensor_name(x, None),
            Unary::Square => graph.squareWithTensor_name(x, None),
            Unary::Tanh => graph.tanhWithTensor_name(x, None),
            Unary::Erf => graph.erfWithTensor_name(x, None),
            Unary::Sine => graph.sinWithTensor_name(x, None),
            Unary::Cosine => graph.cosWithTensor_name(x, None),
            Unary::Floor => graph.floorWithTensor_name(x, None),
            Unary::Ceiling => graph.ceilWithTensor_name(x, None),
        }
    }
}

/// A function of two tensors, which MPSGraph broadcasts.
///
/// # Safety
/// The tensors must have one type, and shapes that can be broadcast, which the graph's builder checks.
pub unsafe fn binary(graph: &MPSGraph, operation: Binary, x: &MPSGraphTensor, y: &MPSGraphTensor) -> RawTensor {
    // SAFETY: the caller's.
    unsafe {
        match operation {
            Binary::Addition => graph.additionWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Subtraction => graph.subtractionWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Multiplication => graph.multiplicationWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Division => graph.divisionWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Maximum => graph.maximumWithNaNPropagationWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Minimum => graph.minimumWithNaNPropagationWithPrimaryTensor_secondaryTensor_name(x, y, None),
            Binary::Power => graph.powerWithPrimaryTensor_secondaryTensor_name(x, y, None),
        }
    }
}

/// A reduction over axes, which keep length 1.
///
/// # Safety
/// The axes must be the tensor's, which the graph's builder checks.
pub unsafe fn reduction(
    graph: &MPSGraph,
    operation: Reduction,
    x: &MPSGraphTensor,
    axes: &NSArray<NSNumber>,
) -> RawTensor {
    // SAFETY: the caller's.
    unsafe {
        match operation {
            Reduction::Sum => graph.reductionSumWithTensor_axes_name(x, Some(axes), None),
            Reduction::Product => graph.reductionProductWithTensor_axes_name(x, Some(axes), None),
            Reduction::Maximum => graph.reductionMaximumPropagateNaNWithTensor_axes_name(x, Some(axes), None),
            Reduction::Minimum => graph.reductionMinimumPropagateNaNWithTensor_axes_name(x, Some(axes), None),
            Reduction::Mean => graph.meanOfTensor_axes_name(x, axes, None),
            Reduction::Variance => graph.varianceOfTensor_axes_name(x, axes, None),
        }
    }
}
