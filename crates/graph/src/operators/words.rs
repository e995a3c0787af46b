//! The words in which gradients and composed operators are said: the operators that these need most, recorded.

use crate::error::Result;
use crate::gradient::{Backward, Node, Recorder};
use crate::layout::axis_of;
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Binary, Call, Elementwise, Gradient, Unary};
use crate::operators::expand::Expand;
use crate::operators::full::Full;
use crate::operators::matmul::Matmul;
use crate::operators::reduce::{Reduce, Reduction};
use crate::operators::transpose::Transpose;
use crate::view::Shape;
use openmps_tile::{DType, Number};
use std::sync::Arc;

/// Every recorder has them.
pub trait Words: Recorder + Sized {
    /// A value's shape.
    fn shape(&self, x: Node) -> Shape {
        self.meta(x).shape
    }

    /// A value's element type.
    fn dtype(&self, x: Node) -> DType {
        self.meta(x).dtype
    }

    /// All outputs of an operator.
    fn many(&mut self, operator: impl Operator, inputs: &[Node]) -> Result<Vec<Node>> {
        self.record(Arc::new(operator), inputs)
    }

    /// The first output of an operator.
    fn one(&mut self, operator: impl Operator, inputs: &[Node]) -> Result<Node> {
        Ok(self.many(operator, inputs)?[0])
    }

    /// An elementwise operator with its numbers.
    fn map(&mut self, operator: Elementwise, inputs: &[Node], numbers: &[Number]) -> Result<Node> {
        self.one(Call { operator, scalars: numbers.to_vec(), output: None }, inputs)
    }

    /// A formula of one tensor without numbers.
    fn unary(&mut self, operator: Unary, x: Node) -> Result<Node> {
        self.map(Elementwise::Unary(operator), &[x], &[])
    }

    /// A formula of two tensors, broadcast.
    fn binary(&mut self, operator: Binary, x: Node, y: Node) -> Result<Node> {
        self.map(Elementwise::Binary(operator), &[x, y], &[])
    }

    /// A formula of the table of gradients.
    fn formula(&mut self, gradient: Gradient, inputs: &[Node]) -> Result<Node> {
        self.map(Elementwise::Gradient(gradient), inputs, &[])
    }

    /// `x + y`
    fn add(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Add, x, y)
    }

    /// `x - y`
    fn subtract(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Subtract, x, y)
    }

    /// `x * y`
    fn multiply(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Multiply, x, y)
    }

    /// `factor x + addend`
    fn affine(&mut self, x: Node, factor: f64, addend: f64) -> Result<Node> {
        self.map(Elementwise::Unary(Unary::Scale), &[x], &[Number::Float(factor), Number::Float(addend)])
    }

    /// The same numbers in another type.
    fn cast(&mut self, x: Node, dtype: DType) -> Result<Node> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        let operator = Elementwise::Unary(Unary::Cast);
        self.one(Call { operator, scalars: Vec::new(), output: Some(dtype) }, &[x])
    }

    /// A tensor of one number, of another's shape and element type.
    fn full_like(&mut self, x: Node, number: f64) -> Result<Node> {
        let Meta { dtype, shape } = self.meta(x);
        let value = if dtype.is_float() { Number::Float(number) } else { Number::Integer(number as i64) };
        self.one(Full { dims: shape, dtype, value }, &[])
    }

    /// Zeros of another's shape and element type.
    fn zeros_like(&mut self, x: Node) -> Result<Node> {
        self.full_like(x, 0.0)
    }

    /// The same elements under another shape.
    fn reshape(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        if *self.shape(x) == *dims { Ok(x) } else { self.record_reshape(x, dims) }
    }

    /// Broadcast to a shape.
    fn expand(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        if *self.shape(x) == *dims {
            return Ok(x);
        }
        self.one(Expand { dims: dims.iter().map(|&size| size as i64).collect() }, &[x])
    }

    /// The sum along axes, in the same element type.
    fn sum(&mut self, x: Node, axes: &[usize], keep_dims: bool) -> Result<Node> {
        self.reduce(Reduction::Sum, x, axes, keep_dims)
    }

    /// A reduction along axes, in the same element type; of no axes the tensor itself.
    fn reduce(&mut self, reduction: Reduction, x: Node, axes: &[usize], keep_dims: bool) -> Result<Node> {
        if axes.is_empty() {
            return Ok(x);
        }
        let (axes, output) = (axes.iter().map(|&axis| axis as i64).collect(), Some(self.dtype(x)));
        self.one(Reduce { reduction, axes, keep_dims, output }, &[x])
    }

    /// The sum over all that was broadcast from this shape: the gradient of a broadcast.
    fn sum_to(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        let shape = self.shape(x);
        let missing = shape.len() - dims.len();
        let repeated = |&axis: &usize| axis < missing || dims[axis - missing] != shape[axis];
        let axes: Vec<usize> = (0..shape.len()).filter(repeated).collect();
        let sum = self.sum(x, &axes, true)?;
        self.reshape(sum, dims)
    }

    /// The last two dimensions exchanged.
    fn transposed(&mut self, x: Node) -> Result<Node> {
        let rank = self.shape(x).len() as i64;
        let axes = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.one(Transpose { axes }, &[x])
    }

    /// A product of matrices, each of which may be taken transposed.
    fn matmul(&mut self, left: (Node, Transposed), right: (Node, Transposed)) -> Result<Node> {
        let (transpose_left, transpose_right) = (left.1 == Transposed::Yes, right.1 == Transposed::Yes);
        self.one(Matmul { transpose_left, transpose_right }, &[left.0, right.0])
    }

    /// The gradient of the input of another call of one tensor, whose result has this gradient.
    fn through(&mut self, call: &dyn Operator, input: Node, output: Node, dy: Node) -> Result<Node> {
        let (inputs, outputs, upstream) = ([input], [output], [Some(dy)]);
        let mut step =
            Backward { recorder: self, inputs: &inputs, outputs: &outputs, upstream: &upstream, wanted: &[true] };
        match call.gradient(&mut step)?[0] {
            Some(gradient) => Ok(gradient),
            None => self.zeros_like(input),
        }
    }

    /// An axis of a value, counted from the front.
    fn axis(&self, operator: &dyn Operator, axis: i64, x: Node) -> Result<usize> {
        axis_of(operator.name(), axis, self.shape(x).len())
    }
}

impl<R: Recorder> Words for R {}

/// Whether a product takes a matrix with its last two dimensions exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Transposed {
    No,
    Yes,
}

impl Transposed {
    /// As a flag of [`Matmul`] says it.
    pub fn from_flag(flag: bool) -> Transposed {
        if flag { Transposed::Yes } else { Transposed::No }
    }

    /// The other one.
    pub fn flipped(self) -> Transposed {
        Transposed::from_flag(self == Transposed::No)
    }
}
