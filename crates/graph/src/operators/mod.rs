//! Every operator: one file each, or one table for a family whose members are a single expression.

pub mod advanced_index;
pub mod arg_reduce;
pub mod attention;
mod backward;
pub mod batch_norm;
pub mod concat;
pub mod convolution;
pub mod convolution_transpose;
pub mod copy;
pub mod detection;
pub mod elementwise;
pub mod expand;
pub mod flip;
pub mod fourier;
pub mod full;
pub mod gather;
pub mod grid_sample;
mod indexed;
pub mod interpolation;
pub mod layer_norm;
pub mod linear;
pub mod linear_algebra;
pub mod matmul;
pub mod nonzero;
pub mod optimizer;
pub mod pad;
pub mod pooling;
pub mod quantized;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod repeat_gradient;
pub mod roll;
pub mod rope;
pub mod running;
pub mod sampled;
pub mod scan;
pub mod scatter;
pub mod sequence;
pub mod slice;
pub mod softmax;
pub mod sort;
pub mod special;
pub mod transpose;
pub mod triangle;
pub mod words;

use crate::entry::Entry;
use crate::sealed::Sealed;

/// The list of operators, by family. Tests, benches and documents iterate over it.
pub static ENTRIES: &[&[&Entry]] =
    &[MOVEMENT, LIBRARY, NORMALISATION, reduce::ENTRIES, linear_algebra::ENTRIES, fourier::ENTRIES, special::ENTRIES];

/// Operators that move or choose elements.
pub static MOVEMENT: &[&Entry] = &[
    &full::ENTRY,
    &copy::ENTRY,
    &transpose::ENTRY,
    &slice::SLICE,
    &slice::SET_SLICE,
    &slice::SLICE_GRADIENT,
    &concat::CONCAT,
    &concat::STACK,
    &concat::SPLIT,
    &concat::UNSTACK,
    &expand::EXPAND,
    &expand::TILE,
    &repeat_gradient::ENTRY,
    &pad::PAD,
    &pad::PAD_GRADIENT,
    &flip::ENTRY,
    &roll::ENTRY,
    &gather::GATHER,
    &gather::EMBEDDING,
    &gather::GATHER_ND,
    &gather::TAKE_ALONG_AXIS,
    &scatter::SCATTER,
    &scatter::SCATTER_ND_ADD,
    &scatter::INDEX_ADD,
    &scatter::PUT_ALONG_AXIS,
    &scatter::EMBEDDING_GRADIENT,
    &sort::SORT,
    &sort::TOP_K,
    &sort::KTH_VALUE,
    &scan::SUM,
    &scan::PRODUCT,
    &scan::PRODUCT_GRADIENT,
    &running::MAXIMUM,
    &running::MINIMUM,
    &running::LOG_SUM,
    &running::SEARCH,
    &arg_reduce::ARG_MAX,
    &arg_reduce::ARG_MIN,
    &nonzero::ENTRY,
    &detection::ENTRY,
    &triangle::TRIL,
    &triangle::TRIU,
    &sequence::ARANGE,
    &sequence::LINSPACE,
    &sequence::EYE,
    &sequence::ONE_HOT,
];

/// Products of matrices, attention and operators on images.
pub static LIBRARY: &[&Entry] = &[
    &matmul::ENTRY,
    &linear::ENTRY,
    &quantized::LINEAR,
    &quantized::DEQUANTIZE,
    &attention::ENTRY,
    &rope::ENTRY,
    &recurrent::ENTRY,
    &recurrent::GRADIENT,
    &convolution::ENTRY,
    &convolution::WEIGHT_GRADIENT,
    &convolution_transpose::ENTRY,
    &pooling::ENTRY,
    &pooling::GRADIENT,
    &interpolation::NEAREST,
    &interpolation::BILINEAR,
    &interpolation::NEAREST_GRADIENT,
    &interpolation::BILINEAR_GRADIENT,
    &grid_sample::ENTRY,
    &grid_sample::INPUT_GRADIENT,
    &grid_sample::GRID_GRADIENT,
];

/// Chains of formulas, softmax, the norms and steps of optimizers.
pub static NORMALISATION: &[&Entry] = &[
    &elementwise::FUSED,
    &softmax::ENTRY,
    &softmax::LOGARITHM,
    &softmax::GRADIENT,
    &softmax::LOGARITHM_GRADIENT,
    &layer_norm::ENTRY,
    &layer_norm::RMS,
    &batch_norm::ENTRY,
    &batch_norm::GRADIENT,
    &batch_norm::GIVEN,
    &optimizer::MOMENTUM,
    &optimizer::ADAM,
];

macro_rules! operators {
    ($($operator:ty,)*) => { $(impl Sealed for $operator {})* };
}

// The types that are operators: no other crate adds one, for an operator is given a queue whose owner vouches for views.
operators! {
    arg_reduce::ArgReduce,
    attention::Attention,
    batch_norm::BatchNorm,
    batch_norm::BatchNormGiven,
    batch_norm::BatchNormGradient,
    concat::Concat,
    concat::Split,
    concat::Stack,
    concat::Unstack,
    convolution::Convolution,
    convolution::ConvolutionWeightGradient,
    convolution_transpose::ConvolutionTranspose,
    copy::Copy,
    detection::MulticlassNms,
    elementwise::Call,
    elementwise::Fused,
    expand::Expand,
    expand::Tile,
    flip::Flip,
    fourier::Fourier,
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
    nonzero::Nonzero,
    optimizer::Adam,
    optimizer::Momentum,
    pad::Pad,
    pad::PadGradient,
    pooling::Pooling,
    pooling::PoolingGradient,
    quantized::Dequantize,
    quantized::QuantizedLinear,
    random::ApplyMask,
    random::Bernoulli,
    random::Dropout,
    random::Multinomial,
    random::Random,
    recurrent::Recurrent,
    recurrent::RecurrentGradient,
    reduce::Reduce,
    repeat_gradient::RepeatGradient,
    roll::Roll,
    rope::Rope,
    running::RunningExtreme,
    running::RunningLogSum,
    running::SearchSorted,
    sampled::Sampling,
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
    softmax::SoftmaxGradient,
    sort::KthValue,
    sort::Sort,
    sort::TopK,
    special::Special,
    transpose::Transpose,
    triangle::Triangle,
}
