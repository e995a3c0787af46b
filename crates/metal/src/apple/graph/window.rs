//! Descriptors of what moves a window over an image. All images are NCHW.

use crate::graph::Window;
use objc2::rc::Retained;
use objc2_metal_performance_shaders_graph::{
    MPSGraphConvolution2DOpDescriptor, MPSGraphDepthwiseConvolution2DOpDescriptor, MPSGraphPaddingStyle,
    MPSGraphPooling2DOpDescriptor, MPSGraphTensorNamedDataLayout,
};

/// Tells a descriptor how a window moves. The three kinds have these methods in common, and no class.
macro_rules! slide {
    ($descriptor:ident, $window:ident) => {{
        let ([stride_y, stride_x], [dilation_y, dilation_x]) = ($window.strides, $window.dilations);
        let ([top, left], [bottom, right]) = ($window.before, $window.after);
        $descriptor.setStrideInX(stride_x);
        $descriptor.setStrideInY(stride_y);
        $descriptor.setDilationRateInX(dilation_x);
        $descriptor.setDilationRateInY(dilation_y);
        $descriptor.setPaddingStyle(MPSGraphPaddingStyle::Explicit);
        $descriptor.setExplicitPaddingWithPaddingLeft_paddingRight_paddingTop_paddingBottom(left, right, top, bottom);
        $descriptor.setDataLayout(MPSGraphTensorNamedDataLayout::NCHW);
    }};
}

/// A convolution's, with weights OIHW.
pub fn convolution(window: &Window, groups: usize) -> Retained<MPSGraphConvolution2DOpDescriptor> {
    // SAFETY: plain numbers, checked by the graph's builder.
    unsafe {
        let descriptor = MPSGraphConvolution2DOpDescriptor::new();
        slide!(descriptor, window);
        descriptor.setGroups(groups);
        descriptor.setWeightsLayout(MPSGraphTensorNamedDataLayout::OIHW);
        descriptor
    }
}

/// A depthwise convolution's. Its weights are read as [multiplier, channels, height, width].
pub fn depthwise(window: &Window) -> Retained<MPSGraphDepthwiseConvolution2DOpDescriptor> {
    // SAFETY: plain numbers, checked by the graph's builder.
    unsafe {
        let descriptor = MPSGraphDepthwiseConvolution2DOpDescriptor::new();
        slide!(descriptor, window);
        descriptor.setWeightsLayout(MPSGraphTensorNamedDataLayout::OIHW);
        descriptor
    }
}

/// Pooling's.
pub fn pooling(window: &Window, ceil: bool, padding_counts: bool) -> Retained<MPSGraphPooling2DOpDescriptor> {
    // SAFETY: plain numbers, checked by the graph's builder.
    unsafe {
        let descriptor = MPSGraphPooling2DOpDescriptor::new();
        let [height, width] = window.size;
        descriptor.setKernelHeight(height);
        descriptor.setKernelWidth(width);
        slide!(descriptor, window);
        descriptor.setCeilMode(ceil);
        descriptor.setIncludeZeroPadToAverage(padding_counts);
        descriptor
    }
}
