//! The kernels that Paddle gets, one file per family, named as in `crates/graph/src/operators`.
//!
//! # Adding a kernel
//!
//! A kernel is a function whose parameters are those of its signature in `paddle/phi/kernels/<name>_kernel.h`, in the same order:
//!
//! ```ignore (the names are this crate's own)
//! // void SoftmaxKernel(const Context&, const DenseTensor& x, int axis, DenseTensor* out)
//! fn softmax(context: &Context, x: Tensor, axis: i32, out: Output) -> Result<()> {
//!     let (x, out) = (x.view()?, context.allocate(&out, x.dtype()?)?);
//!     Ok(Softmax { axis: axis.into(), logarithm: false }.run(context.queue(), &[x], &[out])?)
//! }
//! ```
//!
//! and one line in its family's `register`:
//!
//! ```ignore (the names are this crate's own)
//! table.add("softmax", FLOATS, softmax);
//! ```
//!
//! Both of Paddle's entry points are made from that line. A new family is a file with `pub fn register(table: &mut Table)`, and a line
//! in [`table`] below. What each C++ parameter becomes ([`crate::argument`]):
//!
//! | C++ | Rust |
//! |---|---|
//! | `const DenseTensor&` | [`Tensor`](crate::Tensor) |
//! | the same, of a gradient that Paddle may leave out all the same | [`Upstream`](crate::argument::Upstream) |
//! | `const paddle::optional<DenseTensor>&` | `Option<Tensor>` |
//! | `const std::vector<const DenseTensor*>&` | `Vec<Tensor>` |
//! | `const paddle::optional<std::vector<const DenseTensor*>>&` | `Option<Vec<Tensor>>` |
//! | `DenseTensor*` | [`Output`](crate::Output), or `Option<Output>` where Paddle may pass null |
//! | `std::vector<DenseTensor*>` | `Vec<Option<Output>>` |
//! | `bool`, `int`, `int64_t`, `float`, `double` | `bool`, `i32`, `i64`, `f32`, `f64` |
//! | `const Scalar&`, `const IntArray&` | [`Scalar`](crate::Scalar), [`IntArray`](crate::IntArray) (a `Deref` to `[i64]`) |
//! | `DataType` | [`DataType`](crate::DataType); `.or(dtype)` where "undefined" means "as the input" |
//! | `const std::string&`, `const std::vector<int>&`, ... | `String`, `Vec<i32>`, `Vec<i64>`, `Vec<f32>`, `Vec<f64>`, `Vec<bool>`, `Vec<String>`, `Vec<Scalar>` |
//! | `const Place&`, `DataLayout` | [`Place`](crate::argument::Place), [`DataLayout`](crate::argument::DataLayout) |
//!
//! * Inputs arrive dense, unless the row says [`.strided()`](crate::table::Row::strided): then the kernel reads strides, and Paddle makes
//!   no copy first. Elementwise kernels should say so.
//! * Views (`transpose`, `slice`, `unbind`, ...) stay Paddle's own in eager programs whatever the row says: they share memory. A kernel of
//!   ours by such a name serves static programs.
//! * Paddle's rules have set the shape of each output already; where a shape depends on values, call
//!   [`Output::set_dims`](crate::Output::set_dims) before allocating.
//! * An output whose type is not the input's: [`.output(0, DType::Bool)`](crate::table::Row::output).
//! * In place means that an input and an output are the same memory. Views of both are then the same addresses.
//! * Errors become Python exceptions, panics as well; the kernel's function name stands before a message that does not begin with it.

mod activation;
mod activation_gradient;
mod advanced_indexing;
mod algebra_gradient;
mod aligned;
mod amp;
mod boxes;
mod chunks;
mod closeness;
mod coalesce;
mod complex;
mod complex_arithmetic;
mod compose;
mod convolution;
mod copy;
mod correlation;
mod creation;
mod cross_entropy;
mod ctc;
mod decoding;
mod deformable;
mod dequantization;
mod diagonal;
mod double_arithmetic;
mod double_gradient;
mod einsum;
mod elementwise;
mod elimination;
mod everyday;
mod expert_rows;
mod experts;
mod flash_attention;
mod formula;
mod fourier;
mod fused_elementwise;
mod fused_linear;
mod fused_norms;
mod gated;
mod gradient;
mod graph_sampling;
mod grid_sample;
mod group_norm;
mod gru_unit;
mod host_walks;
mod images;
mod index_making;
mod indexing;
mod interpolation;
mod linear;
mod linear_algebra;
mod loss;
mod margin;
mod masked_attention;
mod masked_softmax;
mod matmul;
mod matrix_rank;
mod messages;
mod metric;
mod movement;
mod noise_contrast;
mod norm;
mod norm_double_gradient;
mod normalisation;
mod normalisation_gradient;
mod older_layers;
mod optimizer;
mod order_statistics;
mod padding;
mod polar;
mod pooling;
mod products;
mod proposals;
mod put_along_axis;
mod quantization;
mod random;
mod rearrangement;
mod recommendation;
mod recorded;
mod recurrent;
mod reduction;
mod reduction_gradient;
mod regions;
mod resampling;
mod rms_norm;
mod rotary;
mod running;
mod sampled;
mod sequences;
mod shift;
mod slicing;
mod sorting;
mod special;
mod statistics;
mod suppression;
mod sync_batch_norm;
mod token_sampling;
mod transducer;
mod tree_loss;
mod tree_sampling;
mod unique;
mod unpooling;
mod values;
mod volume;
mod volume_pooling;
mod weight_only;
mod window_norm;
mod windows;
mod writing;
mod yolo;

pub use formula::NOT_PADDLES;

use crate::table::Table;

/// Every kernel.
pub fn table() -> Table {
    let mut table = Table::new();
    for register in FAMILIES {
        register(&mut table);
    }
    table
}

/// The families; one line each.
const FAMILIES: &[fn(&mut Table)] = &[
    advanced_indexing::register,
    copy::register,
    creation::register,
    sorting::register,
    slicing::register,
    writing::register,
    sequences::register,
    random::register,
    sampled::register,
    movement::register,
    padding::register,
    indexing::register,
    put_along_axis::register,
    elementwise::register,
    gradient::register,
    aligned::register,
    activation::register,
    activation_gradient::register,
    convolution::register,
    pooling::register,
    interpolation::register,
    grid_sample::register,
    matmul::register,
    linear::register,
    linear_algebra::register,
    elimination::register,
    normalisation::register,
    normalisation_gradient::register,
    sync_batch_norm::register,
    reduction::register,
    reduction_gradient::register,
    loss::register,
    cross_entropy::register,
    margin::register,
    optimizer::register,
    group_norm::register,
    fused_norms::register,
    fused_linear::register,
    weight_only::register,
    token_sampling::register,
    flash_attention::register,
    masked_attention::register,
    expert_rows::register,
    fused_elementwise::register,
    gru_unit::register,
    norm::register,
    diagonal::register,
    closeness::register,
    amp::register,
    coalesce::register,
    masked_softmax::register,
    metric::register,
    host_walks::register,
    recurrent::register,
    special::register,
    shift::register,
    complex::register,
    fourier::register,
    resampling::register,
    rms_norm::register,
    rotary::register,
    running::register,
    unique::register,
    matrix_rank::register,
    volume::register,
    volume_pooling::register,
    unpooling::register,
    window_norm::register,
    messages::register,
    algebra_gradient::register,
    everyday::register,
    experts::register,
    index_making::register,
    gated::register,
    products::register,
    rearrangement::register,
    windows::register,
    statistics::register,
    recommendation::register,
    order_statistics::register,
    double_gradient::register,
    norm_double_gradient::register,
    older_layers::register,
    double_arithmetic::register,
    quantization::register,
    dequantization::register,
    boxes::register,
    ctc::register,
    transducer::register,
    tree_loss::register,
    graph_sampling::register,
    regions::register,
    suppression::register,
    proposals::register,
    decoding::register,
    yolo::register,
    chunks::register,
    correlation::register,
    deformable::register,
    einsum::register,
    noise_contrast::register,
    tree_sampling::register,
    // After the others: it adds what no other family has.
    formula::register,
    // The same names for complex numbers.
    complex_arithmetic::register,
    polar::register,
];
