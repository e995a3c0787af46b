//! Two-dimensional convolutions of float32 images in NCHW, and their transposes.
//!
//! [`forward`] chooses by shape: images of one pixel are rows of a matrix, small images are gathered to one product, of outputs in one column rows and
//! columns change places, 1x1 filters are products in place, depthwise ones a stencil, over many channels at once where there are as many, wide 3x3
//! ones Winograd's algorithm, many filters a product with what each pixel reads, and everything else the micro-kernel over a padded copy of a band.

mod across;
mod adjoint;
mod columns;
mod deinterleave;
mod depthwise;
mod depthwise_gradient;
mod direct;
mod filters;
mod finish;
mod gathered;
mod pointwise;
mod rows;
mod shape;
mod side_by_side;
mod stencil;
mod transpose;
mod turned;
mod weight_gradient;
mod wide;
mod window;
mod winograd;

pub use filters::{FilterOrder, PackedFilters, forward_packed};
pub use shape::Convolution;
pub use transpose::{TransposedConvolution, transposed};
pub use weight_gradient::backward_filter;
pub use wide::{backward_filter_f64, forward_f64, transposed_f64};

use super::epilogue::Epilogue;
use crate::Error;

/// Convolves `input` (batch, channels, height, width) with `weight` (filters, channels / groups, kernel height, kernel width)
/// to `output` (batch, filters, output height, output width), all dense float32, and applies the epilogue to every output.
pub fn forward(
    shape: &Convolution,
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) -> Result<(), Error> {
    check(shape, [input.len(), weight.len(), output.len()], epilogue)?;
    if output.is_empty() {
        return Ok(());
    }
    if input.is_empty() {
        let [height, width] = shape.output();
        for (at, value) in output.iter_mut().enumerate() {
            *value = epilogue.apply_one(0.0, at / (height * width) % shape.filters, at);
        }
        return Ok(());
    }
    computed(FilterOrder::once(shape), shape, input, weight, output, epilogue);
    Ok(())
}

/// Whether tensors of so many elements and what follows fit the convolution.
fn check(shape: &Convolution, lens: [usize; 3], epilogue: &Epilogue) -> Result<(), Error> {
    shape.check(lens)?;
    let fits = |channels: Option<&[f32]>| channels.is_none_or(|c| c.len() == shape.filters);
    if !fits(epilogue.scale) || !fits(epilogue.bias) || epilogue.residual.is_some_and(|r| r.len() != lens[2]) {
        return Err(Error::Invalid(format!("convolution: scale, bias or residual do not fit {shape:?}")));
    }
    Ok(())
}

/// [`forward`] of tensors that fit and are not empty, by sums of products alone. Gradients are computed so: of gradients that are waves, as those
/// of a sum that is weighed by one, Winograd's transforms leave up to five times the error of Paddle's CPU.
fn summed(shape: &Convolution, input: &[f32], weight: &[f32], output: &mut [f32], epilogue: &Epilogue) {
    computed(FilterOrder::of_sums(shape), shape, input, weight, output, epilogue);
}

/// With packed filters where they have an order, else by the kernels that read them as they lie.
fn computed(
    order: Option<FilterOrder>,
    shape: &Convolution,
    input: &[f32],
    weight: &[f32],
    output: &mut [f32],
    epilogue: &Epilogue,
) {
    if let Some(order) = order {
        order.run_once(shape, input, weight, output, epilogue);
    } else if rows::suits(shape) {
        rows::forward(shape, input, weight, output, epilogue);
    } else if gathered::suits(shape) {
        gathered::run(shape, input, weight, output, epilogue);
    } else if turned::suits(shape) {
        turned::forward(shape, input, weight, output, epilogue);
    } else if shape.is_pointwise() {
        pointwise::dots(shape, input, weight, output, epilogue);
    } else {
        depthwise::run(shape, [1, 1], input, weight, output, epilogue);
    }
}

#[cfg(test)]
mod tests;
