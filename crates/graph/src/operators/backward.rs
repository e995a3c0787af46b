//! The words in which operators say their gradients: the operators that these need most, recorded.

use crate::error::Result;
use crate::gradient::{Backward, Gradients, Node};
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

impl Backward<'_> {
    /// A value's shape.
    pub fn shape(&self, x: Node) -> Shape {
        self.recorder.meta(x).shape
    }

    /// A value's element type.
    pub fn dtype(&self, x: Node) -> DType {
        self.recorder.meta(x).dtype
    }

    /// The gradient of the first output, which exists where an operator has one output.
    pub fn dy(&mut self) -> Result<Node> {
        self.of_output(0)
    }

    /// The gradient of an output; zeros where nothing depends on it.
    pub fn of_output(&mut self, index: usize) -> Result<Node> {
        match self.upstream[index] {
            Some(gradient) => Ok(gradient),
            None => self.zeros_like(self.outputs[index]),
        }
    }

    /// No gradient for any input.
    pub fn nothing(&self) -> Gradients {
        vec![None; self.inputs.len()]
    }

    /// The gradients that are wanted, of those that these closures record, one for each input.
    pub fn each<const N: usize>(&mut self, rules: [&dyn Fn(&mut Self) -> Result<Node>; N]) -> Result<Gradients> {
        let mut gradients = self.nothing();
        for (index, rule) in rules.into_iter().enumerate() {
            if self.wanted.get(index) == Some(&true) {
                gradients[index] = Some(rule(self)?);
            }
        }
        Ok(gradients)
    }

    /// All outputs of an operator.
    pub fn many(&mut self, operator: impl Operator, inputs: &[Node]) -> Result<Vec<Node>> {
        self.recorder.record(Arc::new(operator), inputs)
    }

    /// The first output of an operator.
    pub fn one(&mut self, operator: impl Operator, inputs: &[Node]) -> Result<Node> {
        Ok(self.many(operator, inputs)?[0])
    }

    /// An elementwise operator with its numbers.
    pub fn map(&mut self, operator: Elementwise, inputs: &[Node], numbers: &[Number]) -> Result<Node> {
        self.one(Call { operator, scalars: numbers.to_vec(), output: None }, inputs)
    }

    /// A formula of one tensor without numbers.
    pub fn unary(&mut self, operator: Unary, x: Node) -> Result<Node> {
        self.map(Elementwise::Unary(operator), &[x], &[])
    }

    /// A formula of two tensors, broadcast.
    pub fn binary(&mut self, operator: Binary, x: Node, y: Node) -> Result<Node> {
        self.map(Elementwise::Binary(operator), &[x, y], &[])
    }

    /// A formula of the table of gradients.
    pub fn formula(&mut self, gradient: Gradient, inputs: &[Node]) -> Result<Node> {
        self.map(Elementwise::Gradient(gradient), inputs, &[])
    }

    /// `x + y`
    pub fn add(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Add, x, y)
    }

    /// `x - y`
    pub fn subtract(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Subtract, x, y)
    }

    /// `x * y`
    pub fn multiply(&mut self, x: Node, y: Node) -> Result<Node> {
        self.binary(Binary::Multiply, x, y)
    }

    /// `factor x + addend`
    pub fn affine(&mut self, x: Node, factor: f64, addend: f64) -> Result<Node> {
        self.map(Elementwise::Unary(Unary::Scale), &[x], &[Number::Float(factor), Number::Float(addend)])
    }

    /// The same numbers in another type.
    pub fn cast(&mut self, x: Node, dtype: DType) -> Result<Node> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        let operator = Elementwise::Unary(Unary::Cast);
        self.one(Call { operator, scalars: Vec::new(), output: Some(dtype) }, &[x])
    }

    /// A tensor of one number, of another's shape and element type.
    pub fn full_like(&mut self, x: Node, number: f64) -> Result<Node> {
        let Meta { dtype, shape } = self.recorder.meta(x);
        let value = if dtype.is_float() { Number::Float(number) } else { Number::Integer(number as i64) };
        self.one(Full { dims: shape, dtype, value }, &[])
    }

    /// Zeros of another's shape and element type.
    pub fn zeros_like(&mut self, x: Node) -> Result<Node> {
        self.full_like(x, 0.0)
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        if *self.shape(x) == *dims { Ok(x) } else { self.recorder.reshape(x, dims) }
    }

    /// Broadcast to a shape.
    pub fn expand(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        if *self.shape(x) == *dims {
            return Ok(x);
        }
        self.one(Expand { dims: dims.iter().map(|&size| size as i64).collect() }, &[x])
    }

    /// The sum along axes, in the same element type.
    pub fn sum(&mut self, x: Node, axes: &[usize], keep_dims: bool) -> Result<Node> {
        self.reduce(Reduction::Sum, x, axes, keep_dims)
    }

    /// A reduction along axes, in the same element type; of no axes the tensor itself.
    pub fn reduce(&mut self, reduction: Reduction, x: Node, axes: &[usize], keep_dims: bool) -> Result<Node> {
        if axes.is_empty() {
            return Ok(x);
        }
        let (axes, output) = (axes.iter().map(|&axis| axis as i64).collect(), Some(self.dtype(x)));
        self.one(Reduce { reduction, axes, keep_dims, output }, &[x])
    }

    /// The sum over all that was broadcast from this shape: the gradient of a broadcast.
    pub fn sum_to(&mut self, x: Node, dims: &[usize]) -> Result<Node> {
        let shape = self.shape(x);
        let missing = shape.len() - dims.len();
        let repeated = |&axis: &usize| axis < missing || dims[axis - missing] != shape[axis];
        let axes: Vec<usize> = (0..shape.len()).filter(repeated).collect();
        let sum = self.sum(x, &axes, true)?;
        self.reshape(sum, dims)
    }

    /// The last two dimensions exchanged.
    pub fn transposed(&mut self, x: Node) -> Result<Node> {
        let rank = self.shape(x).len() as i64;
        let axes = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.one(Transpose { axes }, &[x])
    }

    /// A product of matrices, each of which may be taken transposed.
    pub fn matmul(&mut self, left: (Node, Transposed), right: (Node, Transposed)) -> Result<Node> {
        let (transpose_left, transpose_right) = (left.1 == Transposed::Yes, right.1 == Transposed::Yes);
        self.one(Matmul { transpose_left, transpose_right }, &[left.0, right.0])
    }

    /// The gradient of the input of another call of one tensor, whose result has this gradient.
    pub fn through(&mut self, call: &dyn Operator, input: Node, output: Node, dy: Node) -> Result<Node> {
        let (inputs, outputs, upstream) = ([input], [output], [Some(dy)]);
        let recorder = &mut *self.recorder;
        let mut step = Backward { recorder, inputs: &inputs, outputs: &outputs, upstream: &upstream, wanted: &[true] };
        match call.gradient(&mut step)?[0] {
            Some(gradient) => Ok(gradient),
            None => self.zeros_like(input),
        }
    }

    /// An axis of a value, counted from the front.
    pub fn axis(&self, operator: &dyn Operator, axis: i64, x: Node) -> Result<usize> {
        axis_of(operator.name(), axis, self.shape(x).len())
    }
}

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
