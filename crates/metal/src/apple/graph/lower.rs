//! From a checked graph to MPSGraph, one operation at a time.

use super::{RawTensor, elementwise, numbers, shape, window};
use crate::apple::mps::data_type;
use crate::graph::operation::Resize;
use crate::graph::{Binary, Graph, Node, Operation, Reduction, ScatterMode, Unary, Window};
use objc2_foundation::NSArray;
use objc2_metal_performance_shaders_graph::{
    MPSGraph, MPSGraphResizeMode, MPSGraphScatterMode, MPSGraphTensor, MPSGraphTensorNamedDataLayout,
};
use openmps_tile::DType;

/// A graph on its way.
pub struct Lowering<'a> {
    raw: &'a MPSGraph,
    graph: &'a Graph,
    /// The tensors so far: the placeholders, then one for each node.
    tensors: Vec<RawTensor>,
}

impl<'a> Lowering<'a> {
    /// Begins with the placeholders.
    pub fn new(raw: &'a MPSGraph, graph: &'a Graph, placeholders: Vec<RawTensor>) -> Lowering<'a> {
        Lowering { raw, graph, tensors: placeholders }
    }

    /// Every tensor of the graph.
    ///
    /// # Safety
    /// The graph must have been checked, which its builder does.
    pub unsafe fn run(mut self) -> Vec<RawTensor> {
        for node in self.graph.nodes() {
            // SAFETY: the caller's.
            let tensor = unsafe { self.lower(node) };
            self.tensors.push(tensor);
        }
        self.tensors
    }

    fn input(&self, node: &Node, index: usize) -> &MPSGraphTensor {
        &self.tensors[node.inputs[index].0]
    }

    fn lengths(&self, node: &Node, index: usize) -> &'a [usize] {
        &self.graph.type_of(node.inputs[index]).shape
    }

    unsafe fn constant(&self, value: f64, dtype: DType) -> RawTensor {
        // SAFETY: a number of a type that was checked.
        unsafe { self.raw.constantWithScalar_dataType(value, data_type(dtype)) }
    }

    unsafe fn lower(&self, node: &Node) -> RawTensor {
        let raw = self.raw;
        let input = |index: usize| self.input(node, index);
        // SAFETY: shapes, types and axes were checked by the graph's builder, and every method's inputs are tensors of this graph.
        unsafe {
            match &node.operation {
                Operation::Unary(operation) => elementwise::unary(raw, *operation, input(0)),
                Operation::Binary(operation) => elementwise::binary(raw, *operation, input(0), input(1)),
                Operation::Relu => {
                    let zero = self.constant(0.0, node.result.dtype);
                    raw.maximumWithPrimaryTensor_secondaryTensor_name(input(0), &zero, None)
                }
                Operation::Sigmoid => self.sigmoid(input(0), node.result.dtype),
                Operation::Constant { bits, shape: lengths, dtype } => {
                    raw.constantWithScalar_shape_dataType(f64::from_bits(*bits), &shape(lengths), data_type(*dtype))
                }
                Operation::Cast(dtype) => raw.castTensor_toType_name(input(0), data_type(*dtype), None),
                Operation::Reshape(lengths) => raw.reshapeTensor_withShape_name(input(0), &shape(lengths), None),
                Operation::Transpose(permutation) if permutation.len() < 2 => self.same(input(0)),
                Operation::Transpose(permutation) => {
                    raw.transposeTensor_permutation_name(input(0), &numbers(permutation), None)
                }
                Operation::Broadcast(lengths) => raw.broadcastTensor_toShape_name(input(0), &shape(lengths), None),
                Operation::MatrixMultiplication => {
                    raw.matrixMultiplicationWithPrimaryTensor_secondaryTensor_name(input(0), input(1), None)
                }
                Operation::Convolution { window, groups } => self.convolution(node, window, *groups),
                Operation::DepthwiseConvolution { window } => self.depthwise(node, window),
                Operation::ConvolutionTranspose { window, groups, .. } => self.transposed(node, window, *groups),
                Operation::MaxPooling { window, ceil } => {
                    let descriptor = window::pooling(window, *ceil, false);
                    raw.maxPooling2DWithSourceTensor_descriptor_name(input(0), &descriptor, None)
                }
                Operation::AveragePooling { window, ceil, padding_counts } => {
                    let descriptor = window::pooling(window, *ceil, *padding_counts);
                    raw.avgPooling2DWithSourceTensor_descriptor_name(input(0), &descriptor, None)
                }
                Operation::Reduce(operation, axes) => elementwise::reduction(raw, *operation, input(0), &numbers(axes)),
                Operation::SoftMax(axis) => raw.softMaxWithTensor_axis_name(input(0), *axis as isize, None),
                Operation::LogSoftMax(axis) => self.log_softmax(input(0), *axis),
                Operation::Normalisation { axes, epsilon } => {
                    let axes = numbers(axes);
                    let mean = raw.meanOfTensor_axes_name(input(0), &axes, None);
                    let variance = raw.varianceOfTensor_meanTensor_axes_name(input(0), &mean, &axes, None);
                    self.normalise([input(0), &mean, &variance, input(1), input(2)], *epsilon)
                }
                Operation::FixedNormalisation { epsilon } => {
                    self.normalise([input(0), input(1), input(2), input(3), input(4)], *epsilon)
                }
                Operation::Gather { axis } => raw.gatherWithUpdatesTensor_indicesTensor_axis_batchDimensions_name(
                    input(0),
                    input(1),
                    *axis,
                    0,
                    None,
                ),
                Operation::Scatter { axis, mode } => raw
                    .scatterWithDataTensor_updatesTensor_indicesTensor_axis_mode_name(
                        input(0),
                        input(2),
                        input(1),
                        *axis as isize,
                        scatter_mode(*mode),
                        None,
                    ),
                Operation::GatherAlong { axis } => {
                    raw.gatherAlongAxis_withUpdatesTensor_indicesTensor_name(*axis as isize, input(0), input(1), None)
                }
                Operation::GatherTuples => {
                    raw.gatherNDWithUpdatesTensor_indicesTensor_batchDimensions_name(input(0), input(1), 0, None)
                }
                Operation::ScatterAlong { axis, mode } => raw
                    .scatterAlongAxis_withDataTensor_updatesTensor_indicesTensor_mode_name(
                        *axis as isize,
                        input(0),
                        input(2),
                        input(1),
                        scatter_mode(*mode),
                        None,
                    ),
                Operation::ScatterTuples { mode } => raw
                    .scatterNDWithDataTensor_updatesTensor_indicesTensor_batchDimensions_mode_name(
                        input(0),
                        input(2),
                        input(1),
                        0,
                        scatter_mode(*mode),
                        None,
                    ),
                Operation::Band { above } => {
                    raw.bandPartWithTensor_numLower_numUpper_name(input(0), -1, *above as isize, None)
                }
                Operation::Equal => raw.equalWithPrimaryTensor_secondaryTensor_name(input(0), input(1), None),
                Operation::Select => raw.selectWithPredicateTensor_truePredicateTensor_falsePredicateTensor_name(
                    input(0),
                    input(1),
                    input(2),
                    None,
                ),
                Operation::Resize(resize) => self.resize(input(0), resize),
                Operation::Attention { scale, mask } => self.attention(node, f32::from_bits(*scale), *mask),
                Operation::Concat { axis } => {
                    let inputs: Vec<RawTensor> =
                        node.inputs.iter().map(|input| self.tensors[input.0].clone()).collect();
                    raw.concatTensors_dimension_name(&NSArray::from_retained_slice(&inputs), *axis as isize, None)
                }
            }
        }
    }

    /// Another tensor with the same elements: two nodes must not be one tensor of MPSGraph's, since results are told apart by them.
    unsafe fn same(&self, x: &MPSGraphTensor) -> RawTensor {
        // SAFETY: the caller's.
        unsafe { self.raw.identityWithTensor_name(x, None) }
    }

    unsafe fn sigmoid(&self, x: &MPSGraphTensor, dtype: DType) -> RawTensor {
        // SAFETY: the caller's.
        unsafe {
            let one = self.constant(1.0, dtype);
            let negative = elementwise::unary(self.raw, Unary::Negative, x);
            let exponent = elementwise::unary(self.raw, Unary::Exponent, &negative);
            let sum = elementwise::binary(self.raw, Binary::Addition, &one, &exponent);
            elementwise::binary(self.raw, Binary::Division, &one, &sum)
        }
    }

    unsafe fn log_softmax(&self, x: &MPSGraphTensor, axis: usize) -> RawTensor {
        let axes = numbers(&[axis]);
        // SAFETY: the caller's.
        unsafe {
            let largest = elementwise::reduction(self.raw, Reduction::Maximum, x, &axes);
            let shifted = elementwise::binary(self.raw, Binary::Subtraction, x, &largest);
            let exponent = elementwise::unary(self.raw, Unary::Exponent, &shifted);
            let sum = elementwise::reduction(self.raw, Reduction::Sum, &exponent, &axes);
            let logarithm = elementwise::unary(self.raw, Unary::Logarithm, &sum);
            elementwise::binary(self.raw, Binary::Subtraction, &shifted, &logarithm)
        }
    }

    unsafe fn normalise(&self, [x, mean, variance, gamma, beta]: [&MPSGraphTensor; 5], epsilon: u32) -> RawTensor {
        // SAFETY: the caller's.
        unsafe {
            self.raw.normalizationWithTensor_meanTensor_varianceTensor_gammaTensor_betaTensor_epsilon_name(
                x,
                mean,
                variance,
                Some(gamma),
                Some(beta),
                f32::from_bits(epsilon),
                None,
            )
        }
    }

    unsafe fn convolution(&self, node: &Node, window: &Window, groups: usize) -> RawTensor {
        let descriptor = window::convolution(window, groups);
        let (source, weights) = (self.input(node, 0), self.input(node, 1));
        // SAFETY: the caller's.
        unsafe {
            self.raw.convolution2DWithSourceTensor_weightsTensor_descriptor_name(source, weights, &descriptor, None)
        }
    }

    /// With one filter a channel there is a method of its own; several are a convolution in as many groups as channels, whose order of
    /// results is documented.
    unsafe fn depthwise(&self, node: &Node, window: &Window) -> RawTensor {
        let channels = self.lengths(node, 0)[1];
        // SAFETY: the caller's.
        unsafe {
            if self.lengths(node, 1)[0] != channels {
                return self.convolution(node, window, channels);
            }
            // [channels, 1, height, width] to [1, channels, height, width].
            let weights = self.raw.transposeTensor_dimension_withDimension_name(self.input(node, 1), 0, 1, None);
            self.raw.depthwiseConvolution2DWithSourceTensor_weightsTensor_descriptor_name(
                self.input(node, 0),
                &weights,
                &window::depthwise(window),
                None,
            )
        }
    }

    /// The transposed convolution is the gradient of a convolution for its input: there the layout of the weights is unambiguous, [channels
    /// of the gradient, channels of the result / groups, height, width].
    unsafe fn transposed(&self, node: &Node, window: &Window, groups: usize) -> RawTensor {
        // SAFETY: the caller's.
        unsafe {
            self.raw.convolution2DDataGradientWithIncomingGradientTensor_weightsTensor_outputShape_forwardConvolutionDescriptor_name(
                self.input(node, 0),
                self.input(node, 1),
                &shape(&node.result.shape),
                &window::convolution(window, groups),
                None,
            )
        }
    }

    unsafe fn resize(&self, x: &MPSGraphTensor, resize: &Resize) -> RawTensor {
        let mode = if resize.bilinear { MPSGraphResizeMode::Bilinear } else { MPSGraphResizeMode::Nearest };
        // SAFETY: the caller's.
        unsafe {
            self.raw.resizeTensor_size_mode_centerResult_alignCorners_layout_name(
                x,
                &shape(&resize.size),
                mode,
                resize.center,
                resize.align_corners,
                MPSGraphTensorNamedDataLayout::NCHW,
                None,
            )
        }
    }

    unsafe fn attention(&self, node: &Node, scale: f32, mask: bool) -> RawTensor {
        let input = |index: usize| self.input(node, index);
        // SAFETY: the caller's; `compile` has checked that this macOS has attention.
        unsafe {
            if mask {
                self.raw.scaledDotProductAttentionWithQueryTensor_keyTensor_valueTensor_maskTensor_scale_name(
                    input(0),
                    input(1),
                    input(2),
                    Some(input(3)),
                    scale,
                    None,
                )
            } else {
                self.raw.scaledDotProductAttentionWithQueryTensor_keyTensor_valueTensor_scale_name(
                    input(0),
                    input(1),
                    input(2),
                    scale,
                    None,
                )
            }
        }
    }
}

fn scatter_mode(mode: ScatterMode) -> MPSGraphScatterMode {
    match mode {
        ScatterMode::Set => MPSGraphScatterMode::Set,
        ScatterMode::Add => MPSGraphScatterMode::Add,
        ScatterMode::Multiply => MPSGraphScatterMode::Mul,
        ScatterMode::Maximum => MPSGraphScatterMode::Max,
        ScatterMode::Minimum => MPSGraphScatterMode::Min,
    }
}
