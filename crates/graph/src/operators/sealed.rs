//! The list of types that are operators: no other crate adds one, for an operator is given a queue whose owner vouches for views.

use super::*;

/// Implemented by what is listed below.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no operator of this crate",
    note = "a new operator gets its line in `crates/graph/src/operators/sealed.rs`"
)]
pub trait Sealed {}

macro_rules! operators {
    ($($operator:ty,)*) => { $(impl Sealed for $operator {})* };
}

operators! {
    arg_reduce::ArgReduce,
    attention::Attention,
    batch_norm::BatchNorm,
    batch_norm::BatchNormGradient,
    concat::Concat,
    concat::Split,
    concat::Stack,
    concat::Unstack,
    convolution::Convolution,
    convolution::ConvolutionInputGradient,
    convolution::ConvolutionWeightGradient,
    convolution_transpose::ConvolutionTranspose,
    copy::Copy,
    elementwise::Call,
    elementwise::Fused,
    expand::Expand,
    expand::Tile,
    flip::Flip,
    full::Full,
    gather::Embedding,
    gather::Gather,
    gather::GatherNd,
    gather::TakeAlongAxis,
    grid_sample::GridSample,
    grid_sample::GridSampleGridGradient,
    grid_sample::GridSampleInputGradient,
    interpolation::Interpolation,
    interpolation::InterpolationGradient,
    layer_norm::LayerNorm,
    linear::Linear,
    linear_algebra::LinearAlgebra,
    matmul::Matmul,
    optimizer::Adam,
    optimizer::Momentum,
    pad::Pad,
    pad::PadGradient,
    pooling::Pooling,
    pooling::PoolingGradient,
    random::ApplyMask,
    random::Bernoulli,
    random::Dropout,
    random::Multinomial,
    random::Random,
    reduce::Reduce,
    repeat_gradient::RepeatGradient,
    roll::Roll,
    rope::Rope,
    scan::ProductGradient,
    scan::Scan,
    scatter::EmbeddingGradient,
    scatter::IndexAdd,
    scatter::PutAlongAxis,
    scatter::Scatter,
    scatter::ScatterNdAdd,
    sequence::Arange,
    sequence::Eye,
    sequence::Linspace,
    sequence::OneHot,
    slice::SetSlice,
    slice::Slice,
    slice::SliceGradient,
    softmax::Softmax,
    sort::KthValue,
    sort::Sort,
    sort::TopK,
    transpose::Transpose,
    triangle::Triangle,
}
