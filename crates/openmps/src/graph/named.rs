//! More of `MPSGraph`'s methods by name: arithmetic, mathematics, comparisons, choices, joining and cutting, attention.

use super::{Graph, Tensor};
use crate::error::{Error, Result};
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::concat::Concat;
use openmps_graph::operators::elementwise::{Binary, Call, Elementwise, Unary};
use openmps_graph::operators::expand::Expand;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::slice::{Range, Slice};
use openmps_graph::operators::sort::TopK;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $member:ident, $given:literal, $expected:literal;)*) => {
        impl Graph {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use openmps::{DataType, Device, Graph, TensorData};
            /// # let (mut graph, device) = (Graph::new(), Device::get(0)?);
            #[doc = concat!("let x = graph.constant(&[1], &[", $given, "_f32])?;")]
            #[doc = concat!("let y = graph.", stringify!($name), "(x)?;")]
            /// let y = graph.compile(&device, &[y])?.run(&device.queue(), &[])?[0].read::<f32>()?;
            #[doc = concat!("assert!((y[0] - ", $expected, ").abs() < 1e-6);")]
            /// # Ok::<(), openmps::Error>(())
            /// ```
            pub fn $name(&mut self, x: Tensor) -> Result<Tensor> {
                self.unary(Unary::$member, x)
            }
        )*}
    };
}

unary! {
    /// e to the power of x: `exponentWithTensor:name:`.
    exponent = Exp, "1.0", "std::f32::consts::E";
    /// The natural logarithm: `logarithmWithTensor:name:`.
    logarithm = Log, "1.0", "0.0";
    /// The square root: `squareRootWithTensor:name:`.
    square_root = Sqrt, "9.0", "3.0";
    /// 1 over the square root: `reverseSquareRootWithTensor:name:`.
    reciprocal_square_root = Rsqrt, "4.0", "0.5";
    /// x times x: `squareWithTensor:name:`.
    square = Square, "-3.0", "9.0";
    /// 1 over x: `reciprocalWithTensor:name:`.
    reciprocal = Reciprocal, "4.0", "0.25";
    /// The absolute value: `absoluteWithTensor:name:`.
    absolute = Abs, "-2.5", "2.5";
    /// The negative: `negativeWithTensor:name:`.
    negative = Negate, "2.5", "-2.5";
    /// The sine of an angle in radians: `sinWithTensor:name:`.
    sin = Sin, "0.0", "0.0";
    /// The cosine of an angle in radians: `cosWithTensor:name:`.
    cos = Cos, "0.0", "1.0";
    /// The hyperbolic tangent: `tanhWithTensor:name:`.
    tanh = Tanh, "100.0", "1.0";
    /// The error function: `erfWithTensor:name:`.
    erf = Erf, "0.0", "0.0";
    /// The largest integer not above x: `floorWithTensor:name:`.
    floor = Floor, "-1.5", "-2.0";
    /// The smallest integer not below x: `ceilWithTensor:name:`.
    ceil = Ceil, "-1.5", "-1.0";
    /// The nearest integer, halves to even: `roundWithTensor:name:`.
    round = Round, "2.5", "2.0";
    /// -1, 0 or 1: `signWithTensor:name:`.
    sign = Sign, "-7.0", "-1.0";
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $member:ident, $expected:literal;)*) => {
        impl Graph {$(
            $(#[$doc])*
            ///
            /// ```
            /// # use openmps::{DataType, Device, Graph, TensorData};
            /// # let (mut graph, device) = (Graph::new(), Device::get(0)?);
            /// let x = graph.constant(&[3], &[2.0f32, 3.0, 4.0])?;
            /// let y = graph.constant(&[1], &[3.0f32])?;
            #[doc = concat!("let z = graph.", stringify!($name), "(x, y)?;")]
            /// let z = graph.cast(z, DataType::F32)?;
            /// let z = graph.compile(&device, &[z])?.run(&device.queue(), &[])?;
            #[doc = concat!("assert_eq!(z[0].read::<f32>()?, ", $expected, ");")]
            /// # Ok::<(), openmps::Error>(())
            /// ```
            pub fn $name(&mut self, x: Tensor, y: Tensor) -> Result<Tensor> {
                self.binary(Binary::$member, x, y)
            }
        )*}
    };
}

binary! {
    /// `x + y`, broadcast: `additionWithPrimaryTensor:secondaryTensor:name:`.
    add = Add, "[5.0, 6.0, 7.0]";
    /// `x - y`, broadcast: `subtractionWithPrimaryTensor:secondaryTensor:name:`.
    subtract = Subtract, "[-1.0, 0.0, 1.0]";
    /// `x * y`, broadcast: `multiplicationWithPrimaryTensor:secondaryTensor:name:`.
    multiply = Multiply, "[6.0, 9.0, 12.0]";
    /// `x / y`, broadcast: `divisionWithPrimaryTensor:secondaryTensor:name:`.
    divide = Divide, "[2.0 / 3.0, 1.0, 4.0 / 3.0]";
    /// The larger, broadcast; NaN when either is: `maximumWithNaNPropagationWithPrimaryTensor:secondaryTensor:name:`.
    maximum = Maximum, "[3.0, 3.0, 4.0]";
    /// The smaller, broadcast; NaN when either is: `minimumWithNaNPropagationWithPrimaryTensor:secondaryTensor:name:`.
    minimum = Minimum, "[2.0, 3.0, 3.0]";
    /// x to the power of y, broadcast: `powerWithPrimaryTensor:secondaryTensor:name:`.
    power = Power, "[8.0, 27.0, 64.0]";
    /// Whether x is y, broadcast: `equalWithPrimaryTensor:secondaryTensor:name:`.
    equal = Equal, "[0.0, 1.0, 0.0]";
    /// Whether x is not y, broadcast: `notEqualWithPrimaryTensor:secondaryTensor:name:`.
    not_equal = NotEqual, "[1.0, 0.0, 1.0]";
    /// Whether x is less than y, broadcast: `lessThanWithPrimaryTensor:secondaryTensor:name:`.
    less_than = LessThan, "[1.0, 0.0, 0.0]";
    /// Whether x is more than y, broadcast: `greaterThanWithPrimaryTensor:secondaryTensor:name:`.
    greater_than = GreaterThan, "[0.0, 0.0, 1.0]";
}

impl Graph {
    /// x where the condition holds, else y, broadcast: `selectWithPredicateTensor:truePredicateTensor:falsePredicateTensor:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Device, Graph};
    /// # let (mut graph, device) = (Graph::new(), Device::get(0)?);
    /// let x = graph.constant(&[2], &[-3.0f32, 3.0])?;
    /// let zero = graph.constant(&[1], &[0.0f32])?;
    /// let is_positive = graph.greater_than(x, zero)?;
    /// let y = graph.select(is_positive, x, zero)?;
    /// assert_eq!(graph.compile(&device, &[y])?.run(&device.queue(), &[])?[0].read::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn select(&mut self, condition: Tensor, x: Tensor, y: Tensor) -> Result<Tensor> {
        let (first, second) = (self.data_type(x)?, self.data_type(y)?);
        if first != second {
            let expected = first.to_string();
            return Err(Error::DataType { operation: "select", what: "the second choice", got: second, expected });
        }
        Ok(self.operator(Call::new(Elementwise::Binary(Binary::Where)), &[condition, x, y])?[0])
    }

    /// The sum along axes, or of all: `reductionSumWithTensor:axes:name:`. The axes stay, with one element.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let y = graph.sum(x, &[1])?;
    /// assert_eq!(graph.shape(y)?, [5, 1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn sum(&mut self, x: Tensor, axes: &[i64]) -> Result<Tensor> {
        self.reduce(Reduction::Sum, x, axes, true)
    }

    /// The mean along axes, or of all: `meanOfTensor:axes:name:`. The axes stay, with one element.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let y = graph.mean(x, &[])?;
    /// assert_eq!(graph.shape(y)?, [1, 1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn mean(&mut self, x: Tensor, axes: &[i64]) -> Result<Tensor> {
        self.reduce(Reduction::Mean, x, axes, true)
    }

    /// Tensors one after the other along an axis: `concatTensors:dimension:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::U32)?;
    /// let y = graph.concatenate(&[x, x, x], 0)?;
    /// assert_eq!(graph.shape(y)?, [15, 2]);
    /// assert!(graph.concatenate(&[], 0).is_err());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn concatenate(&mut self, tensors: &[Tensor], axis: i64) -> Result<Tensor> {
        Ok(self.operator(Concat { axis }, tensors)?[0])
    }

    /// `length` elements of an axis from `start` on: `sliceTensor:dimension:start:length:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 2], DataType::F32)?;
    /// let y = graph.slice(x, 0, 3, 2)?;
    /// assert_eq!(graph.shape(y)?, [2, 2]);
    /// assert!(graph.slice(x, 0, 4, 2).is_err(), "beyond the end");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn slice(&mut self, x: Tensor, axis: usize, start: usize, length: usize) -> Result<Tensor> {
        let shape = self.shape(x)?;
        let Some(&size) = shape.get(axis) else {
            let (got, expected) = (axis.to_string(), format!("one of {} dimensions", shape.len()));
            return Err(Error::Attribute { operation: "slice", attribute: "axis", got, expected });
        };
        if start.checked_add(length).is_none_or(|end| end > size) {
            let (got, expected) = (format!("{length} from {start} on"), format!("within {size} along axis {axis}"));
            return Err(Error::Attribute { operation: "slice", attribute: "length", got, expected });
        }
        let (start, end) = (start as i64, (start + length) as i64);
        Ok(self.operator(Slice { ranges: vec![Range { axis: axis as i64, start, end, step: 1 }] }, &[x])?[0])
    }

    /// The tensor repeated along axes of one element, and along new ones before: `broadcastTensor:toShape:name:`.
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// # let mut graph = Graph::new();
    /// let x = graph.placeholder("x", &[5, 1], DataType::F32)?;
    /// let y = graph.broadcast(x, &[3, 5, 7])?;
    /// assert_eq!(graph.shape(y)?, [3, 5, 7]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn broadcast(&mut self, x: Tensor, shape: &[usize]) -> Result<Tensor> {
        let dims = shape.iter().map(|&size| i64::try_from(size).unwrap_or(i64::MAX)).collect();
        Ok(self.operator(Expand { dims }, &[x])?[0])
    }

    /// The `k` largest elements along the last axis in descending order, and where they are, int64: `topKWithSourceTensor:k:name:`.
    ///
    /// ```
    /// # use openmps::{Device, Graph};
    /// # let (mut graph, device) = (Graph::new(), Device::get(0)?);
    /// let x = graph.constant(&[3], &[2.0f32, 9.0, 4.0])?;
    /// let [values, indices] = graph.top_k(x, 2)?;
    /// let results = graph.compile(&device, &[values, indices])?.run(&device.queue(), &[])?;
    /// assert_eq!((results[0].read::<f32>()?, results[1].read::<i64>()?), (vec![9.0, 4.0], vec![1, 2]));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn top_k(&mut self, x: Tensor, k: usize) -> Result<[Tensor; 2]> {
        let outputs = self.operator(TopK { k, axis: -1, largest: true }, &[x])?;
        Ok([outputs[0], outputs[1]])
    }

    /// `softmax(scale * queries * keys^T + mask) * values` of grouped heads, [batch, heads, rows, depth]:
    /// `scaledDotProductAttentionWithQueryTensor:keyTensor:valueTensor:maskTensor:scale:name:`. Causal masks, windows and soft caps are in
    /// [`Attention`].
    ///
    /// ```
    /// # use openmps::{DataType, Graph};
    /// use openmps::operators::operators::attention::Attention;
    /// # let mut graph = Graph::new();
    /// let queries = graph.placeholder("queries", &[1, 8, 5, 64], DataType::F32)?;
    /// let keys = graph.placeholder("keys", &[1, 2, 9, 64], DataType::F32)?;
    /// let attention = Attention { causal: true, window: Some(4), ..Attention::default() };
    /// let y = graph.attention(attention, queries, keys, keys, None)?;
    /// assert_eq!(graph.shape(y)?, [1, 8, 5, 64]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn attention(
        &mut self,
        attention: Attention,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Option<Tensor>,
    ) -> Result<Tensor> {
        let inputs: Vec<Tensor> = [queries, keys, values].into_iter().chain(mask).collect();
        Ok(self.operator(attention, &inputs)?[0])
    }
}
