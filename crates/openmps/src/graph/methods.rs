//! The operations of a graph by name: what `MPSGraph` has as methods. Everything else goes through [`Graph::operator`].

use super::{Graph, Tensor};
use crate::error::{Error, Result};
use openmps_graph::operators::convolution::Convolution;
use openmps_graph::operators::elementwise::{Activation, Binary, Call, Elementwise, Unary};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::layer_norm::LayerNorm;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::reduce::{Reduce, Reduction};
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::operators::transpose::Transpose;
use openmps_tile::{DType, Number};

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = $member:ident, $expected:literal;)*) => {
        impl Graph {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use openmps::{DataType, Device, Graph, TensorData};
            /// # let (mut graph, device) = (Graph::new(), Device::get(0)?);
            /// let x = graph.constant(&[2], &[0.0f32, 100.0])?;
            #[doc = concat!("let y = graph.", stringify!($name), "(x)?;")]
            /// let y = graph.compile(&device, &[y])?.run(&device.queue(), &[])?;
            #[doc = concat!("assert_eq!(y[0].read::<f32>()?, ", $expected, ");")]
            /// # Ok::<(), openmps::Error>(())
            /// ```
            pub fn $name(&mut self, x: Tensor) -> Result<Tensor> {
                self.activation(Activation::$member, x, &[])
            }
        )*}
    };
}

activations! {
    /// The larger of x and 0: `reLUWithTensor:name:`.
    relu = Relu, "[0.0, 100.0]";
    /// `1 / (1 + e^-x)`: `sigmoidWithTensor:name:`.
    sigmoid = Sigmoid, "[0.5, 1.0]";
    /// x times its sigmoid.
    silu = Silu, "[0.0, 100.0]";
    /// x times the normal distribution's integral.
    gelu = Gelu, "[0.0, 100.0]";
}

impl Graph {
    /// An operator of two tensors that is a single formula, broadcast.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # use openmps::operators::operators::elementwise::Binary;
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 1], DataType::F32)?;
    /// let y = graph.placeholder("y", &[3], DataType::F32)?;
    /// let z = graph.binary(Binary::Maximum, x, y)?;
    /// assert_eq!(graph.shape(z)?, [2, 3]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn binary(&mut self, operator: Binary, x: Tensor, y: Tensor) -> Result<Tensor> {
        let (left, right) = (self.meta(x)?.dtype, self.meta(y)?.dtype);
        if left != right {
            let expected = left.to_string();
            return Err(Error::DataType { operation: "binary", what: "the second tensor", got: right, expected });
        }
        self.one(Call::new(Elementwise::Binary(operator)), &[x, y])
    }

    /// An operator of one tensor that is a single formula.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # use openmps::operators::operators::elementwise::Unary;
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 1], DataType::F32)?;
    /// graph.unary(Unary::Exp, x)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn unary(&mut self, operator: Unary, x: Tensor) -> Result<Tensor> {
        self.one(Call::new(Elementwise::Unary(operator)), &[x])
    }

    /// An activation function, with its numbers where it has some.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # use openmps::operators::operators::elementwise::Activation;
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2, 1], DataType::F32)?;
    /// graph.activation(Activation::Gelu, x, &[])?;
    /// graph.activation(Activation::LeakyRelu, x, &[0.1])?;
    /// assert!(graph.activation(Activation::LeakyRelu, x, &[]).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn activation(&mut self, operator: Activation, x: Tensor, numbers: &[f64]) -> Result<Tensor> {
        let operator = Elementwise::Activation(operator);
        let row = operator.row();
        if numbers.len() != row.scalars.len() {
            let (got, expected) = (format!("{numbers:?}"), format!("{:?}", row.scalars));
            return Err(Error::Attribute { operation: row.name, attribute: "numbers", got, expected });
        }
        let scalars = numbers.iter().map(|&number| Number::Float(number)).collect();
        self.one(Call { operator, scalars, output: None }, &[x])
    }

    /// The same numbers in another type: `castTensor:toType:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[2], DataType::F32)?;
    /// let y = graph.cast(x, DataType::I32)?;
    /// assert_eq!(graph.data_type(y)?, DataType::I32);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn cast(&mut self, x: Tensor, data_type: DType) -> Result<Tensor> {
        let operator = Elementwise::Unary(Unary::Cast);
        self.one(Call { operator, scalars: Vec::new(), output: Some(data_type) }, &[x])
    }

    /// The product over the last two dimensions; the ones before broadcast: `matrixMultiplicationWithPrimaryTensor:...`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2, 3], DataType::F32)?;
    /// let y = graph.placeholder("y", &[3, 4], DataType::F32)?;
    /// let z = graph.matmul(x, y)?;
    /// assert_eq!(graph.shape(z)?, [5, 2, 4]);
    /// assert!(graph.matmul(y, x).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn matmul(&mut self, x: Tensor, y: Tensor) -> Result<Tensor> {
        self.one(Matmul::default(), &[x, y])
    }

    /// Softmax along an axis: `softMaxWithTensor:axis:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// graph.softmax(x, -1)?;
    /// assert!(graph.softmax(x, 2).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn softmax(&mut self, x: Tensor, axis: i64) -> Result<Tensor> {
        self.one(Softmax { axis, logarithm: false }, &[x])
    }

    /// The logarithm of softmax along an axis.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// graph.log_softmax(x, 0)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn log_softmax(&mut self, x: Tensor, axis: i64) -> Result<Tensor> {
        self.one(Softmax { axis, logarithm: true }, &[x])
    }

    /// Layer norm over the last dimension: `normalizationWithTensor:meanTensor:...`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let weight = graph.constant(&[2], &[1.0f32, 1.0])?;
    /// graph.layer_norm(x, weight, weight, 1e-5)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn layer_norm(&mut self, x: Tensor, weight: Tensor, bias: Tensor, epsilon: f64) -> Result<Tensor> {
        let operator = LayerNorm { begin: -1, epsilon, scale: true, bias: true, centred: true, statistics: false };
        self.one(operator, &[x, weight, bias])
    }

    /// RMS norm over the last dimension.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let weight = graph.constant(&[2], &[1.0f32, 1.0])?;
    /// graph.rms_norm(x, weight, 1e-5)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn rms_norm(&mut self, x: Tensor, weight: Tensor, epsilon: f64) -> Result<Tensor> {
        let operator = LayerNorm { begin: -1, epsilon, scale: true, bias: false, centred: false, statistics: false };
        self.one(operator, &[x, weight])
    }

    /// The dimensions in another order: `transposeTensor:permutation:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let y = graph.transpose(x, &[1, 0])?;
    /// assert_eq!(graph.shape(y)?, [2, 5]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn transpose(&mut self, x: Tensor, axes: &[i64]) -> Result<Tensor> {
        self.one(Transpose { axes: axes.to_vec() }, &[x])
    }

    /// A reduction along axes; all of them when none is given: `reductionSumWithTensor:axes:name:` and its like.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # use openmps::operators::operators::reduce::Reduction;
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let y = graph.reduce(Reduction::Mean, x, &[0], true)?;
    /// assert_eq!(graph.shape(y)?, [1, 2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn reduce(&mut self, reduction: Reduction, x: Tensor, axes: &[i64], keep_dims: bool) -> Result<Tensor> {
        self.one(Reduce { reduction, axes: axes.to_vec(), keep_dims, output: None }, &[x])
    }

    fn one(&mut self, operator: impl openmps_graph::Operator + 'static, inputs: &[Tensor]) -> Result<Tensor> {
        Ok(self.operator(operator, inputs)?[0])
    }

    /// Slices along an axis, one for each index (int32 or int64): `gatherWithUpdatesTensor:indicesTensor:axis:batchDimensions:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let table = graph.placeholder("table", &[100, 8], DataType::F32)?;
    /// let indices = graph.placeholder("indices", &[5], DataType::I64)?;
    /// let rows = graph.gather(table, indices, 0)?;
    /// assert_eq!(graph.shape(rows)?, [5, 8]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn gather(&mut self, x: Tensor, indices: Tensor, axis: i64) -> Result<Tensor> {
        self.one(Gather { axis }, &[x, indices])
    }

    /// A convolution of images [batch, channels, height, width] with filters [filters, channels, height, width]:
    /// `convolution2DWithSourceTensor:weightsTensor:descriptor:name:`. More of what a descriptor has is in
    /// [`Convolution`], which [`Graph::operator`] takes.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let images = graph.placeholder("images", &[1, 3, 8, 8], DataType::F32)?;
    /// let filters = graph.placeholder("filters", &[16, 3, 3, 3], DataType::F32)?;
    /// let found = graph.convolution(images, filters, [2, 2], [1, 1])?;
    /// assert_eq!(graph.shape(found)?, [1, 16, 4, 4]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn convolution(
        &mut self,
        x: Tensor,
        filters: Tensor,
        strides: [usize; 2],
        paddings: [usize; 2],
    ) -> Result<Tensor> {
        let operator = Convolution { strides, paddings: paddings.to_vec(), ..Convolution::default() };
        self.one(operator, &[x, filters])
    }
}
