//! What MPSGraph is asked to compute, and which of its methods does it.

use openmps_tile::DType;

/// One method of MPSGraph for each operation on single elements, `name, method`: the seeds' tables are rows of it.
macro_rules! elementwise {
    ($(#[$about:meta])* $kind:ident { $($(#[$row:meta])* $name:ident => $method:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind { $($(#[$row])* $name,)* }

        impl $kind {
            /// Every one.
            pub const ALL: &'static [$kind] = &[$($kind::$name,)*];

            /// The method of `MPSGraph`.
            pub const fn method(self) -> &'static str {
                match self { $($kind::$name => $method,)* }
            }
        }
    };
}

elementwise! {
    /// Functions of one tensor. Floating-point only, except for `Absolute` and `Negative`.
    Unary {
        /// |x|
        Absolute => "absoluteWithTensor:",
        /// e to the x
        Exponent => "exponentWithTensor:",
        /// the natural logarithm
        Logarithm => "logarithmWithTensor:",
        /// the square root
        SquareRoot => "squareRootWithTensor:",
        /// one over the square root: `reverseSquareRootWithTensor:` until macOS 14, which all of them have
        ReciprocalSquareRoot => "reverseSquareRootWithTensor:",
        /// -x
        Negative => "negativeWithTensor:",
        /// 1 / x
        Reciprocal => "reciprocalWithTensor:",
        /// x * x
        Square => "squareWithTensor:",
        /// the hyperbolic tangent
        Tanh => "tanhWithTensor:",
        /// the error function
        Erf => "erfWithTensor:",
        /// the sine
        Sine => "sinWithTensor:",
        /// the cosine
        Cosine => "cosWithTensor:",
        /// the largest integer not above
        Floor => "floorWithTensor:",
        /// the smallest integer not below
        Ceiling => "ceilWithTensor:",
    }
}

elementwise! {
    /// Functions of two tensors, which are broadcast against each other.
    Binary {
        /// x + y
        Addition => "additionWithPrimaryTensor:secondaryTensor:",
        /// x - y
        Subtraction => "subtractionWithPrimaryTensor:secondaryTensor:",
        /// x * y
        Multiplication => "multiplicationWithPrimaryTensor:secondaryTensor:",
        /// x / y
        Division => "divisionWithPrimaryTensor:secondaryTensor:",
        /// the larger; NaN where one is NaN
        Maximum => "maximumWithNaNPropagationWithPrimaryTensor:secondaryTensor:",
        /// the smaller; NaN where one is NaN
        Minimum => "minimumWithNaNPropagationWithPrimaryTensor:secondaryTensor:",
        /// x to the y
        Power => "powerWithPrimaryTensor:secondaryTensor:",
    }
}

elementwise! {
    /// What is left of the axes that are reduced: each has length 1 afterwards.
    Reduction {
        /// the sum
        Sum => "reductionSumWithTensor:axes:",
        /// the product
        Product => "reductionProductWithTensor:axes:",
        /// the largest; NaN where one is NaN
        Maximum => "reductionMaximumPropagateNaNWithTensor:axes:",
        /// the smallest; NaN where one is NaN
        Minimum => "reductionMinimumPropagateNaNWithTensor:axes:",
        /// the mean
        Mean => "meanOfTensor:axes:",
        /// the mean of the squared distances from the mean
        Variance => "varianceOfTensor:axes:",
    }
}

/// What scattering does where something lies already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// It is replaced; the last of several writers is not determined.
    Set,
    /// It is added to.
    Add,
    /// The update is multiplied into what is there.
    Multiply,
    /// The larger stays.
    Maximum,
    /// The smaller stays.
    Minimum,
}

/// A window that moves over height and width: of a convolution or of pooling. Pairs are (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The window's size. A convolution's must be that of its weights.
    pub size: [usize; 2],
    /// Steps.
    pub strides: [usize; 2],
    /// Distance between the window's elements.
    pub dilations: [usize; 2],
    /// Padding above and to the left.
    pub before: [usize; 2],
    /// Padding below and to the right.
    pub after: [usize; 2],
}

impl Window {
    /// Without stride, dilation and padding.
    pub const fn of(height: usize, width: usize) -> Window {
        Window { size: [height, width], strides: [1, 1], dilations: [1, 1], before: [0, 0], after: [0, 0] }
    }
}

/// How an image gets another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resize {
    /// Height and width afterwards.
    pub size: [usize; 2],
    /// Between neighbours linearly, or the nearest.
    pub bilinear: bool,
    /// Whether pixels are taken at their centres.
    pub center: bool,
    /// Whether the corners stay where they are.
    pub align_corners: bool,
}

/// One operation. Images are NCHW, weights OIHW. Floating-point attributes are kept as their bits, so that graphs can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A function of single elements.
    Unary(Unary),
    /// A function of pairs of elements.
    Binary(Binary),
    /// max(x, 0): `maximum` against a constant, as the seeds have it.
    Relu,
    /// 1 / (1 + e to the -x), composed of exponent, addition and division, as the seeds have it.
    Sigmoid,
    /// One value all over a shape (`constantWithScalar:shape:dataType:`).
    Constant {
        /// A float64's bits.
        bits: u64,
        /// The shape.
        shape: Vec<usize>,
        /// The element type.
        dtype: DType,
    },
    /// Another element type (`castTensor:toType:`).
    Cast(DType),
    /// The same elements in another shape.
    Reshape(Vec<usize>),
    /// Axes in another order: axis `i` of the result is axis `permutation[i]`.
    Transpose(Vec<usize>),
    /// Axes of length 1 stretched.
    Broadcast(Vec<usize>),
    /// A matrix product of the two innermost axes; the outer ones are broadcast.
    MatrixMultiplication,
    /// A convolution in groups.
    Convolution {
        /// The window.
        window: Window,
        /// Groups of channels.
        groups: usize,
    },
    /// A convolution of each channel with its own weights, [channels * multiplier, 1, height, width].
    DepthwiseConvolution {
        /// The window.
        window: Window,
    },
    /// The transposed convolution. Weights are [input channels, output channels / groups, height, width]; `extra` rows and columns are added
    /// at the end.
    ConvolutionTranspose {
        /// The window.
        window: Window,
        /// Groups of channels.
        groups: usize,
        /// Added below and to the right of the result.
        extra: [usize; 2],
    },
    /// The largest of each window.
    MaxPooling {
        /// The window.
        window: Window,
        /// Whether a last window may hang over the edge.
        ceil: bool,
    },
    /// The mean of each window.
    AveragePooling {
        /// The window.
        window: Window,
        /// Whether a last window may hang over the edge.
        ceil: bool,
        /// Whether padding counts as zeros.
        padding_counts: bool,
    },
    /// A reduction over axes.
    Reduce(Reduction, Vec<usize>),
    /// Softmax over an axis.
    SoftMax(usize),
    /// The logarithm of softmax over an axis, from the shifted input, so that no small value is lost.
    LogSoftMax(usize),
    /// (x - mean) / sqrt(variance + epsilon) * gamma + beta over axes, with mean and variance computed here. Inputs: x, gamma, beta.
    Normalisation {
        /// The axes of mean and variance.
        axes: Vec<usize>,
        /// A float32's bits.
        epsilon: u32,
    },
    /// The same with given mean and variance, as batch normalisation has them. Inputs: x, mean, variance, gamma, beta.
    FixedNormalisation {
        /// A float32's bits.
        epsilon: u32,
    },
    /// Rows of the first input along an axis, chosen by the second.
    Gather {
        /// The axis.
        axis: usize,
    },
    /// Updates written along an axis of the first input. Inputs: data, indices (one-dimensional), updates.
    Scatter {
        /// The axis.
        axis: usize,
        /// What happens to what was there.
        mode: ScatterMode,
    },
    /// One element of the first input for each index in the second, along an axis; other axes have the same lengths.
    GatherAlong {
        /// The axis.
        axis: usize,
    },
    /// Slices of the first input, one for each tuple of indices along the last axis of the second.
    GatherTuples,
    /// One element written for each index along an axis. Inputs: data, indices, updates; the latter two have one shape.
    ScatterAlong {
        /// The axis.
        axis: usize,
        /// What happens to what was there.
        mode: ScatterMode,
    },
    /// Slices written at tuples of indices. Inputs: data, indices, updates.
    ScatterTuples {
        /// What happens to what was there.
        mode: ScatterMode,
    },
    /// The elements up to a diagonal of the two innermost axes, that many above the main one; zeros beyond it.
    Band {
        /// Diagonals kept above the main one.
        above: usize,
    },
    /// Which elements of two tensors are equal, as bool.
    Equal,
    /// The second input's elements where the first is true, else the third's. All have one shape.
    Select,
    /// An image in another size.
    Resize(Resize),
    /// Scaled dot product attention. Inputs: query, key, value [batch, heads, length, depth], and a mask that is added where `mask`.
    Attention {
        /// A float32's bits.
        scale: u32,
        /// Whether there is a mask.
        mask: bool,
    },
    /// Several tensors one after another along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
}

impl Operation {
    /// Its name in messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Operation::Unary(unary) => unary.method(),
            Operation::Binary(binary) => binary.method(),
            Operation::Reduce(reduction, _) => reduction.method(),
            Operation::Relu => "relu",
            Operation::Sigmoid => "sigmoid",
            Operation::Constant { .. } => "constant",
            Operation::Cast(_) => "cast",
            Operation::Reshape(_) => "reshape",
            Operation::Transpose(_) => "transpose",
            Operation::Broadcast(_) => "broadcast",
            Operation::MatrixMultiplication => "matrix multiplication",
            Operation::Convolution { .. } => "convolution",
            Operation::DepthwiseConvolution { .. } => "depthwise convolution",
            Operation::ConvolutionTranspose { .. } => "transposed convolution",
            Operation::MaxPooling { .. } => "max pooling",
            Operation::AveragePooling { .. } => "average pooling",
            Operation::SoftMax(_) => "softmax",
            Operation::LogSoftMax(_) => "log softmax",
            Operation::Normalisation { .. } | Operation::FixedNormalisation { .. } => "normalisation",
            Operation::Gather { .. } => "gather",
            Operation::Scatter { .. } => "scatter",
            Operation::GatherAlong { .. } => "gather along an axis",
            Operation::GatherTuples => "gather by tuples",
            Operation::ScatterAlong { .. } => "scatter along an axis",
            Operation::ScatterTuples { .. } => "scatter by tuples",
            Operation::Band { .. } => "band",
            Operation::Equal => "equal",
            Operation::Select => "select",
            Operation::Resize(_) => "resize",
            Operation::Attention { .. } => "attention",
            Operation::Concat { .. } => "concat",
        }
    }
}
