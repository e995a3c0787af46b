//! What operators and gradients share: sums over broadcast dimensions, and wider types to compute in.

use candle_core::{DType, Result, Tensor};

/// Sums a gradient over the dimensions that broadcasting added or repeated, down to `dims`.
pub(crate) fn sum_to(gradient: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let mut gradient = gradient.clone();
    while gradient.rank() > dims.len() {
        gradient = gradient.sum(0)?;
    }
    for (axis, &size) in dims.iter().enumerate() {
        if size == 1 && gradient.dim(axis)? != 1 {
            gradient = gradient.sum_keepdim(axis)?;
        }
    }
    Ok(gradient)
}

/// The tensor in the type in which gradients are computed: float32 for half precision.
pub(crate) fn widened(x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        _ => Ok(x.clone()),
    }
}

/// float32, where tensors are of half precision and of float32 and cannot be computed with as they are.
pub(crate) fn mixed(tensors: &[&Tensor]) -> Option<DType> {
    let first = tensors.first()?.dtype();
    let narrow = |tensor: &&Tensor| matches!(tensor.dtype(), DType::F16 | DType::BF16 | DType::F32);
    let differ = tensors.iter().any(|tensor| tensor.dtype() != first);
    (differ && tensors.iter().all(narrow)).then_some(DType::F32)
}

/// All dimensions but the last as one.
pub(crate) fn rows(x: &Tensor) -> Result<Tensor> {
    let last = x.dim(candle_core::D::Minus1)?;
    let count: usize = x.dims()[..x.rank() - 1].iter().product();
    x.reshape((count, last))
}
