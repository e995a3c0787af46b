//! Images of one pixel: a batch of them is a matrix, and a 1x1 convolution and its gradients are products.

use super::shape::Convolution;
use crate::native::epilogue::Epilogue;
use crate::native::matmul::{Matrices, MatrixProduct, linear, matmul};
use openmps_tile::DType;

/// Whether this convolution is such a product.
pub(super) fn suits(shape: &Convolution) -> bool {
    shape.is_pointwise() && shape.input == [1, 1] && shape.groups == 1 && shape.channels > 0 && shape.filters > 0
}

/// The output, a row for each image: the input's rows times the weight transposed.
pub(super) fn forward(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    let product = MatrixProduct {
        right: [1, shape.channels as isize],
        ..MatrixProduct::dense(shape.batch, shape.channels, shape.filters)
    };
    // SAFETY: the slices have the sizes of the shape, and the epilogue's fit them.
    unsafe { linear(&product, [DType::F32; 2], at(input, weight, output), &[[0; 3]], epilogue) }
}

/// The gradient of the input: the upstream gradient's rows times the weight.
pub(super) fn input_gradient(shape: &Convolution, upstream: &[f32], weight: &[f32], gradient: &mut [f32]) {
    run(&MatrixProduct::dense(shape.batch, shape.filters, shape.channels), upstream, weight, gradient);
}

/// The gradient of the weight: the upstream gradient transposed times the input.
pub(super) fn weight_gradient(shape: &Convolution, input: &[f32], upstream: &[f32], gradient: &mut [f32]) {
    let dense = MatrixProduct::dense(shape.filters, shape.batch, shape.channels);
    run(&MatrixProduct { left: [1, shape.filters as isize], ..dense }, upstream, input, gradient);
}

fn run(product: &MatrixProduct, left: &[f32], right: &[f32], out: &mut [f32]) {
    // SAFETY: the slices have the sizes of the shape that the product was made of.
    unsafe { matmul(product, DType::F32, at(left, right, out), &[[0; 3]]) }.expect("a product of float32");
}

fn at(left: &[f32], right: &[f32], out: &mut [f32]) -> Matrices {
    Matrices { left: left.as_ptr() as usize, right: right.as_ptr() as usize, out: out.as_mut_ptr() as usize }
}
